/** The matrix panel: draw, zoom, pan, point. */

import { Palette } from "./color";
import { cssVariable, el, onceAFrame, prepare, replace } from "./dom";
import { drawMatrix, gutters, type Ink, type Marks, type Picture, picture } from "./draw";
import { drawLegend } from "./legend";
import { describeCell } from "./readout";
import { type State, type Store, toggled } from "./state";
import { modeOf } from "./theme";
import { shown, type View } from "./view";
import { FIT_CELL, Viewport } from "./viewport";
import type { Source } from "./weights";

export function inkFromPage(): Ink {
  return {
    text: cssVariable("--ink"),
    muted: cssVariable("--muted"),
    line: cssVariable("--line"),
    accent: cssVariable("--accent"),
    ground: cssVariable("--panel"),
  };
}

/** Rows and columns that the state points at, on the axes of a view. */
export function marksOf(state: State, view: View): Marks {
  const rows = new Set<number>();
  const cols = new Set<number>();
  for (const [sequence, positions] of state.selection) {
    for (const position of positions) {
      const row = sequence === view.call.queries ? view.q.at.get(position) : undefined;
      const col = sequence === view.call.keys ? view.k.at.get(position) : undefined;
      if (row !== undefined) rows.add(row);
      if (col !== undefined) cols.add(col);
    }
  }
  if (state.point) return { row: state.point.row, col: state.point.col, rows, cols };
  if (!state.hover) return { row: null, col: null, rows, cols };
  const side = state.hover.side;
  const at = (side === "q" ? view.q : view.k).at.get(state.hover.positions[0]) ?? null;
  return { row: side === "q" ? at : null, col: side === "k" ? at : null, rows, cols };
}

export class MatrixPanel {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly port = new Viewport();
  private readonly store: Store;
  private readonly readout = el("div", { class: "readout", role: "status", "aria-live": "polite" });
  private readonly legend = el("canvas", { class: "legend", "aria-hidden": "true" });
  private readonly caption = el("p", { class: "caption" });
  private readonly empty = el("p", { class: "empty", hidden: true });
  private readonly stage: HTMLElement;
  private picture: Picture | null = null;
  private pictured: { source: Source; key: string } | null = null;
  private shape = "";
  private angle = 0;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private readonly redraw = onceAFrame(() => this.draw());

  constructor(store: Store) {
    this.store = store;
    this.canvas = el("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "matrix",
      "aria-describedby": "matrix-help",
      id: "matrix",
    });
    this.stage = el("div", { class: "stage" }, this.canvas);
    const button = (label: string, title: string, act: () => void): HTMLElement =>
      el("button", { type: "button", title, "aria-label": title, on: { click: act } }, label);
    this.element = el(
      "section",
      { class: "panel matrix", "aria-labelledby": "matrix-title" },
      el(
        "header",
        {},
        el("h2", { id: "matrix-title" }, "Matrix"),
        el(
          "div",
          { class: "tools" },
          button("−", "Zoom out (−)", () => this.zoom(1 / 1.5)),
          button("+", "Zoom in (+)", () => this.zoom(1.5)),
          button("Fit", "Show all (0)", () => this.fit()),
        ),
      ),
      this.caption,
      this.stage,
      this.empty,
      this.readout,
      el("div", { class: "foot" }, this.legend),
      el(
        "p",
        { id: "matrix-help", class: "sr" },
        "Arrow keys move over the cells, Enter selects the query, plus and minus zoom, 0 shows all.",
      ),
    );
    this.listen();
    new ResizeObserver(() => this.layout()).observe(this.stage);
    store.subscribe((_, changed) => {
      if (["view", "scale", "theme", "withoutFirst"].some((key) => changed.has(key as never))) this.refresh();
      else if (["hover", "point", "selection", "direction"].some((key) => changed.has(key as never))) {
        this.say();
        this.redraw();
      }
    });
  }

  private get source(): Source | null {
    const { view, withoutFirst } = this.store.state;
    return view ? shown(view, withoutFirst) : null;
  }

  /** Weights, scale or theme changed: new pixels, and a new fit when the shape is another. */
  refresh(): void {
    const { view, scale, theme } = this.store.state;
    const source = this.source;
    this.stage.hidden = !source;
    this.empty.hidden = source !== null || view === null;
    if (!view || !source) {
      this.empty.textContent = "No weights of this call were stored, only statistics.";
      replace(this.readout);
      this.caption.textContent = "";
      return;
    }
    const mode = modeOf(theme);
    const key = `${mode} ${scale}`;
    if (this.pictured?.source !== source || this.pictured.key !== key) {
      const palette = new Palette(mode, scale);
      this.picture = picture(source, palette);
      drawLegend(this.legend, palette, this.picture.max, inkFromPage(), !source.exact);
      this.pictured = { source, key };
    }
    const first = view.withoutFirst && source === view.withoutFirst;
    this.caption.textContent = source.exact
      ? `Each row is one query: how it shares its attention among the keys.${first ? " Shares of what is left without the first token." : view.call.sink ? " A row sums to 1 less the sink's share." : " A row sums to 1 (to 0 where nothing may be seen)."}`
      : `≈ pooled into ${this.picture?.rows} × ${this.picture?.cols} bins. Zoom in: outlined cells are exact weights, the largest of their query.`;
    const shape = `${view.q.count}×${view.k.count} ${view.q.sequence} ${view.k.sequence}`;
    this.port.rows = view.q.count;
    this.port.cols = view.k.count;
    if (shape !== this.shape) {
      this.shape = shape;
      this.layout(true);
    } else this.layout();
    this.say();
  }

  /** Measure the labels and the room there is. */
  private layout(refit = false): void {
    const source = this.source;
    const width = this.stage.clientWidth;
    if (!source || width === 0) return;
    const ctx = this.canvas.getContext("2d");
    if (!ctx) return;
    const fitted = refit || this.port.zoom < 1.001;
    const guess = Math.min(FIT_CELL, (width - 110) / source.k.count);
    const room = gutters(ctx, source.q, source.k, width, fitted ? guess : this.port.sx);
    this.angle = room.angle;
    const plot = width - room.left - room.right - 6;
    const most = Math.max(260, Math.min(innerHeight * 0.74, 760)) - room.top;
    const long = Math.max(this.port.rows, this.port.cols) / Math.min(this.port.rows, this.port.cols) > 6;
    const cell = Math.min(FIT_CELL, plot / source.k.count);
    const wanted = source.q.count * (long ? FIT_CELL : cell);
    const height = Math.max(60, Math.min(most, wanted));
    this.port.frame = { left: room.left, top: room.top, width: plot, height };
    if (fitted) this.port.fit();
    else this.port.clamp();
    prepare(this.canvas, width, room.top + height + 6);
    this.canvas.style.touchAction = this.port.zoom > 1.001 ? "none" : "pan-y";
    this.draw();
  }

  private draw(): void {
    const { view, scale, theme } = this.store.state;
    const source = this.source;
    if (!view || !source || !this.picture) return;
    const palette = new Palette(modeOf(theme), scale);
    const { width, height } = this.canvas.style;
    const ctx = prepare(this.canvas, Number.parseFloat(width), Number.parseFloat(height));
    const ink = inkFromPage();
    drawMatrix(ctx, this.port, source, this.picture, palette, ink, marksOf(this.store.state, view), this.angle);
    this.canvas.setAttribute(
      "aria-label",
      `Attention matrix of ${view.call.name}: ${view.q.count} queries by ${view.k.count} keys, largest ${this.picture.max.toPrecision(4)}.`,
    );
  }

  private say(): void {
    const { view, point, selection } = this.store.state;
    if (!view?.raw) return;
    if (point) replace(this.readout, ...describeCell(view, point.row, point.col));
    else {
      const hint =
        selection.size > 0 ? "Selected tokens are marked on both axes." : "Point at a cell to read its weight.";
      replace(this.readout, el("span", { class: "aside" }, hint));
    }
  }

  zoom(factor: number, x?: number, y?: number): void {
    const { left, top, width, height } = this.port.frame;
    const point = this.store.state.point;
    const cx = x ?? (point ? this.port.x(point.col + 0.5) : left + width / 2);
    const cy = y ?? (point ? this.port.y(point.row + 0.5) : top + height / 2);
    this.port.zoomBy(factor, cx, cy);
    this.canvas.style.touchAction = this.port.zoom > 1.001 ? "none" : "pan-y";
    this.redraw();
  }

  fit(): void {
    this.port.fit();
    this.layout(true);
  }

  /** Move the cursor by cells. */
  move(rows: number, cols: number): void {
    const { view, point } = this.store.state;
    if (!view?.raw) return;
    const from = point ?? { row: 0, col: 0 };
    const row = Math.min(view.q.count - 1, Math.max(0, from.row + (point ? rows : 0)));
    const col = Math.min(view.k.count - 1, Math.max(0, from.col + (point ? cols : 0)));
    this.port.reveal(row, col);
    this.pointAt(row, col);
  }

  private pointAt(row: number, col: number): void {
    const { view, point } = this.store.state;
    if (!view || (point && point.row === row && point.col === col)) return;
    const side = view.self && this.store.state.direction === "in" ? "k" : "q";
    const position = side === "q" ? view.q.positions[row] : view.k.positions[col];
    this.store.set({ point: { row, col }, hover: { side, positions: [position] } });
  }

  /** Select the query under the cursor (the key, when the text shows who attends to it). */
  pick(add: boolean): void {
    const { view, point, selection, direction } = this.store.state;
    if (!view || !point) return;
    const key = view.self && direction === "in";
    const axis = key ? view.k : view.q;
    const position = axis.positions[key ? point.col : point.row];
    this.store.set({ selection: toggled(selection, axis.sequence, [position], add) });
  }

  private listen(): void {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.track(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.store.set({ point: null, hover: null }));
    canvas.addEventListener("dblclick", (event) => this.zoom(2, event.offsetX, event.offsetY));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** The wheel zooms where there is something to come nearer to; else the page scrolls as usual. */
  private wheel(event: WheelEvent): void {
    const legible = Math.min(this.port.sx, this.port.sy) >= 30;
    const inward = event.deltaY < 0;
    if (!event.ctrlKey && !event.metaKey && this.port.zoom < 1.001 && (legible || !inward)) return;
    event.preventDefault();
    const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    this.zoom(Math.exp(-Math.max(-200, Math.min(200, step)) * 0.004), event.offsetX, event.offsetY);
  }

  private down(event: PointerEvent): void {
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = 0;
    if (this.port.zoom > 1.001 || this.pointers.size > 1) this.canvas.setPointerCapture(event.pointerId);
  }

  private track(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (before && event.buttons > 0) {
      this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (this.pointers.size >= 2) this.pinch(event.pointerId, before, now);
      else if (this.port.zoom > 1.001) {
        this.port.panBy(before.x - now.x, before.y - now.y);
        this.redraw();
      }
      this.pointers.set(event.pointerId, now);
      if (this.moved > 6) return;
    }
    const cell = this.port.cellAt(now.x, now.y);
    if (cell) this.pointAt(cell.row, cell.col);
    else this.store.set({ point: null, hover: null });
  }

  private pinch(id: number, before: { x: number; y: number }, now: { x: number; y: number }): void {
    const other = [...this.pointers].find(([key]) => key !== id)?.[1];
    if (!other) return;
    const length = (point: { x: number; y: number }): number => Math.hypot(point.x - other.x, point.y - other.y);
    if (length(before) > 0) this.zoom(length(now) / length(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
  }

  private up(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    if (this.moved > 6) return;
    const cell = this.port.cellAt(event.offsetX, event.offsetY);
    if (!cell) return;
    this.pointAt(cell.row, cell.col);
    this.pick(event.shiftKey || event.ctrlKey || event.metaKey);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    const step = steps[event.key];
    const far = event.shiftKey ? 10 : 1;
    if (step) this.move(step[0] * far, step[1] * far);
    else if (event.key === "Enter" || event.key === " ") this.pick(event.shiftKey);
    else if (event.key === "+" || event.key === "=") this.zoom(1.5);
    else if (event.key === "-") this.zoom(1 / 1.5);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
