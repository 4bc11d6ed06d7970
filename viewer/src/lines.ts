/** Lines from queries to keys: the picture most people know attention by. For short inputs. */

import type { Axis } from "./axis";
import { cssVariable, el, onceAFrame, prepare } from "./dom";
import { FONT } from "./draw";
import { focusOf } from "./focus";
import type { Side, State, Store } from "./state";
import { toggled } from "./state";
import { clip, isRtl } from "./tokens";
import { shown, type View } from "./view";
import type { Source } from "./weights";

const MOST = 128;
const LINE = 19;
const TOP = 4;
const LETTERS = 16;
/** Of each query, the largest weights that together carry this much. */
const SHARE = 0.8;

export interface Strand {
  readonly row: number;
  readonly col: number;
  readonly value: number;
}

/** The largest weights of a row until they reach a share of its mass. */
export function strands(source: Source, row: number, share: number): Strand[] {
  const values = source.row(row).values;
  let left = 0;
  for (const value of values) if (value > 0) left += value;
  left *= share;
  const order = Array.from(values.keys())
    .filter((col) => values[col] > 0)
    .sort((a, b) => values[b] - values[a] || a - b);
  const out: Strand[] = [];
  for (const col of order) {
    if (left <= 0) break;
    out.push({ row, col, value: values[col] });
    left -= values[col];
  }
  return out;
}

export class LinesPanel {
  readonly element: HTMLElement;
  private readonly store: Store;
  private readonly canvas = el("canvas", { "aria-hidden": "true" });
  private readonly stage: HTMLElement;
  private source: Source | null = null;
  private all: Strand[] = [];
  private quiet: { source: Source; key: string; canvas: HTMLCanvasElement } | null = null;
  private width = 0;
  /** Room for the names on either side. */
  private gutter = 0;
  private readonly redraw = onceAFrame(() => this.draw());

  constructor(store: Store) {
    this.store = store;
    this.stage = el("div", { class: "lines-stage" }, this.canvas);
    this.element = el(
      "section",
      { class: "panel lines", "aria-labelledby": "lines-title" },
      el("header", {}, el("h2", { id: "lines-title" }, "Lines")),
      el(
        "p",
        { class: "caption" },
        "Queries left, keys right. Lines carry four fifths of each query's attention; thicker is more.",
      ),
      this.stage,
    );
    new ResizeObserver(() => this.redraw()).observe(this.stage);
    store.subscribe((_, changed) => {
      if (changed.has("view") || changed.has("withoutFirst")) this.refresh();
      if (["view", "hover", "point", "selection", "theme", "withoutFirst"].some((key) => changed.has(key as never))) {
        this.redraw();
      }
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => store.set({ hover: null }));
    this.canvas.addEventListener("click", (event) => this.pick(event));
  }

  private refresh(): void {
    const { view, withoutFirst } = this.store.state;
    const source = view && shown(view, withoutFirst);
    const fits = source?.exact && source.q.count <= MOST && source.k.count <= MOST;
    this.element.hidden = !fits;
    if (!fits) this.source = null;
    else if (source !== this.source) {
      this.source = source;
      this.all = Array.from({ length: source.q.count }, (_, row) => strands(source, row, SHARE)).flat();
    }
  }

  /** The lines to lay stress on, or null when no token is in question. */
  private stressed(state: State, view: View): ((strand: Strand) => boolean) | null {
    const focus = focusOf(state, view);
    const rows = new Set(focus.rows);
    const cols = new Set(focus.cols);
    if (rows.size + cols.size === 0) return null;
    if (!view.self) return (strand) => rows.has(strand.row) || cols.has(strand.col);
    const side = focus.selected ? (state.direction === "out" ? "q" : "k") : (state.hover?.side ?? "q");
    return side === "q" ? (strand) => rows.has(strand.row) : (strand) => cols.has(strand.col);
  }

  private draw(): void {
    const { state } = this.store;
    const { view } = state;
    const source = this.source;
    this.width = this.stage.clientWidth;
    if (!view || !source || this.width === 0) return;
    const height = Math.max(source.q.count, source.k.count) * LINE + 2 * TOP;
    const ctx = prepare(this.canvas, this.width, height);
    const gutter = this.measure(ctx, source);
    const stressed = this.stressed(state, view);
    const loud = stressed ? this.all.filter(stressed) : [];
    const strong = cssVariable("--strong");
    // The quiet lines are drawn once; pointing at tokens only draws the loud ones over them.
    const key = `${this.width} ${strong}`;
    if (this.quiet?.key !== key || this.quiet.source !== source) {
      const canvas = document.createElement("canvas");
      this.strokes(prepare(canvas, this.width, height), this.all, strong);
      this.quiet = { source, key, canvas };
    }
    ctx.globalAlpha = stressed ? 0.16 : 1;
    ctx.drawImage(this.quiet.canvas, 0, 0, this.width, height);
    this.strokes(ctx, loud, cssVariable("--accent"));
    ctx.globalAlpha = 1;
    const ends = { rows: new Set<number>(), cols: new Set<number>() };
    for (const strand of loud) {
      ends.rows.add(strand.row);
      ends.cols.add(strand.col);
    }
    this.names(ctx, source.q, gutter, "right", ends.rows);
    this.names(ctx, source.k, this.width - gutter, "left", ends.cols);
  }

  private strokes(ctx: CanvasRenderingContext2D, list: readonly Strand[], color: string): void {
    ctx.strokeStyle = color;
    const most = Math.max(...this.all.map((strand) => strand.value), 1e-9);
    for (const strand of [...list].sort((a, b) => a.value - b.value)) {
      ctx.globalAlpha = 0.1 + (0.9 * strand.value) / most;
      ctx.lineWidth = 0.6 + 3 * Math.min(1, strand.value);
      const [y0, y1] = [TOP + (strand.row + 0.5) * LINE, TOP + (strand.col + 0.5) * LINE];
      const [x0, x1] = [this.gutter + 5, this.width - this.gutter - 5];
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      ctx.bezierCurveTo(x0 + (x1 - x0) * 0.45, y0, x1 - (x1 - x0) * 0.45, y1, x1, y1);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  private measure(ctx: CanvasRenderingContext2D, source: Source): number {
    ctx.font = FONT.replace("12px", "600 12px");
    const names = [...source.q.labels, ...source.k.labels].map((name) => ctx.measureText(clip(name, LETTERS)).width);
    this.gutter = Math.min(this.width * 0.36, Math.max(...names) + 6);
    return this.gutter;
  }

  private names(
    ctx: CanvasRenderingContext2D,
    axis: Axis,
    x: number,
    align: "left" | "right",
    hot: ReadonlySet<number>,
  ): void {
    const [ink, muted, accent] = ["--ink", "--muted", "--accent"].map(cssVariable);
    ctx.textBaseline = "middle";
    const room = this.gutter - 4;
    for (let i = 0; i < axis.count; i++) {
      const word = clip(axis.labels[i], LETTERS);
      ctx.font = hot.has(i) ? FONT.replace("12px", "600 12px") : FONT;
      ctx.fillStyle = hot.has(i) ? accent : axis.tokens[i]?.special ? muted : ink;
      ctx.textAlign = align;
      ctx.direction = isRtl(word) ? "rtl" : "ltr";
      ctx.fillText(word, x, TOP + (i + 0.5) * LINE, room);
    }
  }

  private at(event: MouseEvent): { side: Side; position: number; axis: Axis } | null {
    const { source } = this;
    if (!source) return null;
    const side: Side = event.offsetX < this.width / 2 ? "q" : "k";
    const axis = side === "q" ? source.q : source.k;
    const index = Math.floor((event.offsetY - TOP) / LINE);
    return index >= 0 && index < axis.count ? { side, axis, position: axis.positions[index] } : null;
  }

  private point(event: PointerEvent): void {
    const found = this.at(event);
    const { hover } = this.store.state;
    if (!found) this.store.set({ hover: null });
    else if (hover?.side !== found.side || hover.positions[0] !== found.position || hover.positions.length > 1) {
      this.store.set({ hover: { side: found.side, positions: [found.position] }, point: null });
    }
  }

  private pick(event: MouseEvent): void {
    const found = this.at(event);
    const { selection, view } = this.store.state;
    if (!found || !view) return;
    const add = event.shiftKey || event.ctrlKey || event.metaKey;
    this.store.set({
      selection: toggled(selection, found.axis.sequence, [found.position], add),
      ...(view.self ? { direction: found.side === "q" ? "out" : "in" } : {}),
    });
  }
}
