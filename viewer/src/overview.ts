/** Every head of every call, small: what kind of pattern is where. */

import { largestOf, Palette } from "./color";
import { bitmap, cssVariable, el, prepare, replace } from "./dom";
import { plural } from "./format";
import type { CallRecord } from "./schema";
import type { Store } from "./state";
import { modeOf } from "./theme";
import type { Model } from "./view";
import { type Grid, WithoutFirst } from "./weights";

interface HeadCell {
  readonly call: number;
  readonly head: number;
  readonly button: HTMLButtonElement;
}

interface Row {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly cells: HeadCell[];
  visible: boolean;
  drawn: string;
}

const GAP = 4;
const LEAST = 20;
const MOST = 40;
const SAMPLES = 64;

/** Average a grid down so that a thumbnail does not depend on which cells happen to fall on pixels. */
export function shrink(grid: Grid, most: number): Grid {
  const rows = Math.min(grid.rows, most);
  const cols = Math.min(grid.cols, most);
  if (rows === grid.rows && cols === grid.cols) return grid;
  const sums = new Float32Array(rows * cols);
  const counts = new Uint32Array(rows * cols);
  for (let r = 0; r < grid.rows; r++) {
    const into = Math.floor((r * rows) / grid.rows) * cols;
    for (let c = 0; c < grid.cols; c++) {
      const at = into + Math.floor((c * cols) / grid.cols);
      sums[at] += grid.values[r * grid.cols + c];
      counts[at]++;
    }
  }
  return { rows, cols, values: sums.map((sum, at) => sum / counts[at]) };
}

/** A call in words; with its kind where a layer has several. */
export function nameOf(calls: readonly CallRecord[], index: number): string {
  const call = calls[index];
  if (call.layer === null) return `Call ${index}`;
  const alone = calls.filter((one) => one.layer === call.layer).length === 1;
  return alone ? `Layer ${call.layer}` : `Layer ${call.layer} (${kindOf(call)})`;
}

export function kindOf(call: CallRecord): string {
  return call.queries === call.keys ? `self, ${call.queries}` : `cross, ${call.queries} → ${call.keys}`;
}

export class Overview {
  readonly element: HTMLElement;
  private readonly model: Model;
  private readonly store: Store;
  private readonly grid: HTMLElement;
  private readonly caption = el("p", { class: "caption live", "aria-live": "polite" });
  private rows: Row[] = [];
  private readonly entropies = new Map<string, Promise<number | null>>();
  private readonly seen: IntersectionObserver;
  private perLine = 0;
  private size = 0;

  constructor(model: Model, store: Store) {
    this.model = model;
    this.store = store;
    this.grid = el("div", { class: "heads", role: "grid", "aria-label": "Attention heads by layer" });
    const sort = el(
      "select",
      { id: "sort", on: { change: () => store.set({ sort: sort.value as "layer" | "entropy" }) } },
      el("option", { value: "layer" }, "by layer"),
      el("option", { value: "entropy" }, "by entropy, sharpest first"),
    );
    const heads = model.payload.calls.reduce((sum, call) => sum + call.heads, 0);
    this.element = el(
      "section",
      { class: "panel overview", "aria-labelledby": "overview-title" },
      el(
        "header",
        {},
        el("h2", { id: "overview-title" }, "Heads"),
        el("div", { class: "tools" }, el("label", { for: "sort", class: "sr" }, "Order"), sort),
      ),
      el(
        "p",
        { class: "caption" },
        `${plural(heads, "head")} in ${plural(model.payload.calls.length, "call")}. Each square is one head's matrix: queries down, keys across.`,
      ),
      this.grid,
      this.caption,
    );
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const row = this.rows.find((one) => one.element === entry.target);
        if (!row) continue;
        row.visible = entry.isIntersecting;
        if (row.visible) void this.draw(row);
      }
    });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.layout()).observe(this.grid);
    store.subscribe((_, changed) => {
      if (changed.has("sort")) {
        sort.value = store.state.sort;
        void this.build();
      }
      if (["scale", "withoutFirst", "theme", "item"].some((key) => changed.has(key as never))) this.redraw();
      if (changed.has("call") || changed.has("head") || changed.has("heads")) this.mark();
    });
  }

  /** How many thumbnails stand in a line, and how large they are. */
  private layout(): void {
    const width = this.grid.clientWidth - 34;
    if (width <= 0) return;
    const most = Math.max(...this.model.payload.calls.map((call) => call.heads));
    const room = Math.max(1, Math.min(most, Math.floor((width + GAP) / (LEAST + GAP))));
    // Lines of one layer are about equally long.
    const perLine = Math.ceil(most / Math.ceil(most / room));
    const size = Math.min(MOST, Math.floor((width + GAP) / perLine) - GAP);
    if (perLine === this.perLine && size === this.size) return;
    this.perLine = perLine;
    this.size = size;
    this.grid.style.setProperty("--thumb", `${size}px`);
    void this.build();
  }

  private async order(): Promise<{ call: number; head: number }[]> {
    const calls = this.model.payload.calls;
    const all = calls.flatMap((call, at) => Array.from({ length: call.heads }, (_, head) => ({ call: at, head })));
    if (this.store.state.sort === "layer") return all;
    const scored = await Promise.all(
      all.map(async (one) => ({ ...one, entropy: await this.entropy(one.call, one.head) })),
    );
    return scored.sort((a, b) => (a.entropy ?? Number.POSITIVE_INFINITY) - (b.entropy ?? Number.POSITIVE_INFINITY));
  }

  private async build(): Promise<void> {
    if (this.perLine === 0) return;
    const order = await this.order();
    const byLayer = this.store.state.sort === "layer";
    this.seen.disconnect();
    this.rows = [];
    const out: HTMLElement[] = [];
    let group = "";
    for (let at = 0; at < order.length; ) {
      const { call } = order[at];
      const record = this.model.payload.calls[call];
      const title = byLayer ? this.groupName(record) : "";
      if (title !== group) {
        group = title;
        out.push(el("div", { class: "group", role: "presentation" }, title));
      }
      const line: { call: number; head: number }[] = [];
      while (at < order.length && line.length < this.perLine && (!byLayer || order[at].call === call))
        line.push(order[at++]);
      const label = byLayer && line[0].head === 0 ? String(record.layer ?? call) : "";
      const row = this.buildRow(line, label, record);
      this.rows.push(row);
      out.push(row.element);
    }
    replace(this.grid, ...out);
    for (const row of this.rows) this.seen.observe(row.element);
    this.mark();
  }

  /** A heading where a model has several kinds of attention. */
  private groupName(call: CallRecord): string {
    const kinds = new Set(this.model.payload.calls.map((one) => `${one.kind} ${one.queries} ${one.keys}`));
    if (kinds.size < 2) return "";
    return call.queries === call.keys
      ? `self-attention · ${call.queries}`
      : `cross-attention · ${call.queries} → ${call.keys}`;
  }

  private buildRow(line: { call: number; head: number }[], label: string, record: CallRecord): Row {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const cells = line.map(({ call, head }) => {
      const name = `${nameOf(this.model.payload.calls, call)}, head ${head}`;
      const button = el("button", {
        type: "button",
        role: "gridcell",
        tabindex: -1,
        "aria-label": name,
        on: {
          click: () => this.choose(call, head),
          pointerenter: () => void this.say(call, head),
          focus: () => void this.say(call, head),
          pointerleave: () => void this.say(this.store.state.call, this.store.state.head),
        },
      });
      return { call, head, button };
    });
    const element = el(
      "div",
      { class: "line", role: "row" },
      el("span", { class: "layer", role: "rowheader", title: label ? record.name : undefined }, label),
      el("span", { class: "thumbs", role: "presentation" }, canvas, ...cells.map((cell) => cell.button)),
    );
    return { element, canvas, cells, visible: false, drawn: "" };
  }

  private choose(call: number, head: number): void {
    this.store.set({ call, head, heads: "head" });
  }

  private redraw(): void {
    for (const row of this.rows) if (row.visible) void this.draw(row);
    void this.say(this.store.state.call, this.store.state.head);
  }

  private async draw(row: Row): Promise<void> {
    const { item, scale, theme, withoutFirst } = this.store.state;
    const mode = modeOf(theme);
    const key = [item, scale, mode, withoutFirst, this.size].join();
    if (row.drawn === key) return;
    row.drawn = key;
    const palette = new Palette(mode, scale);
    const sources = await Promise.all(
      row.cells.map(({ call, head }) => this.model.source(call, item, head, withoutFirst ? undefined : "largest")),
    );
    const ctx = prepare(row.canvas, row.cells.length * (this.size + GAP) - GAP, this.size);
    ctx.imageSmoothingQuality = "high";
    sources.forEach((source, at) => {
      const x = at * (this.size + GAP);
      if (!source || source.q.count === 0 || source.k.count === 0) {
        ctx.fillStyle = cssVariable("--line");
        ctx.fillRect(x, this.size / 2 - 1, this.size, 2);
        return;
      }
      const leave = withoutFirst && source.k.count > 1 && source.k.positions[0] === 0;
      const grid = shrink((leave ? new WithoutFirst(source) : source).grid(), SAMPLES);
      const max = largestOf(grid.values);
      ctx.imageSmoothingEnabled = grid.rows > this.size || grid.cols > this.size;
      ctx.drawImage(
        bitmap(grid.cols, grid.rows, (pixels) => palette.paint(grid.values, max, pixels)),
        x,
        0,
        this.size,
        this.size,
      );
    });
  }

  private entropy(call: number, head: number): Promise<number | null> {
    const key = `${this.store.state.item} ${call} ${head}`;
    let promise = this.entropies.get(key);
    if (!promise) {
      promise = this.model.meanEntropy(call, this.store.state.item, head);
      this.entropies.set(key, promise);
    }
    return promise;
  }

  private async say(call: number, head: number): Promise<void> {
    const value = await this.entropy(call, head);
    const name = `${nameOf(this.model.payload.calls, call)}, head ${head}`;
    const text =
      value === null
        ? "entropy not recorded"
        : Number.isNaN(value)
          ? "mean entropy NaN"
          : `mean entropy ${value.toFixed(3)} nats, like ${Math.exp(value).toFixed(1)} keys sharing evenly`;
    replace(this.caption, el("b", {}, name), ` ${text}`);
  }

  /** Show which head is chosen; only that one is in the tab order. */
  private mark(): void {
    const { call, head, heads } = this.store.state;
    for (const row of this.rows) {
      for (const cell of row.cells) {
        const chosen = cell.call === call && cell.head === head;
        const within = heads === "all" || (heads === "layer" && cell.call === call);
        cell.button.tabIndex = chosen ? 0 : -1;
        cell.button.classList.toggle("within", within);
        cell.button.setAttribute("aria-selected", String(heads === "head" ? chosen : within));
        cell.button.classList.toggle("chosen", chosen && heads === "head");
      }
    }
    void this.say(call, head);
  }

  private key(event: KeyboardEvent): void {
    const at = this.rows.findIndex((row) => row.cells.some((cell) => cell.button === event.target));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const col = this.rows[at].cells.findIndex((cell) => cell.button === event.target);
    const flat = this.rows.flatMap((row) => row.cells);
    const index = flat.indexOf(this.rows[at].cells[col]);
    let next: HeadCell | undefined;
    if (event.key === "ArrowRight") next = flat[index + 1];
    else if (event.key === "ArrowLeft") next = flat[index - 1];
    else if (event.key === "Home") next = this.rows[at].cells[0];
    else if (event.key === "End") next = this.rows[at].cells.at(-1);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const row = this.rows[at + (event.key === "ArrowDown" ? 1 : -1)];
      next = row?.cells[Math.min(col, row.cells.length - 1)];
    } else return;
    event.preventDefault();
    if (!next) return;
    this.choose(next.call, next.head);
    next.button.focus();
  }
}
