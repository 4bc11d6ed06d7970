/** The text panel: point at a token and see where it attends, or who attends to it. */

import { positionsOf, TextBlock } from "./block";
import { largestOf, Palette } from "./color";
import { Details } from "./details";
import { el, onceAFrame, replace } from "./dom";
import { focusOf, hoverOf, sumsOf } from "./focus";
import type { Direction, Side, Store } from "./state";
import { toggled } from "./state";
import { type Mass, massFrom } from "./sums";
import { modeOf } from "./theme";
import { firstReal } from "./tokens";
import { type Model, shown, type View } from "./view";

export class TextPanel {
  readonly element: HTMLElement;
  private readonly store: Store;
  private readonly body = el("div", { class: "texts" });
  private readonly caption = el("p", { class: "caption" });
  private readonly direction: HTMLElement;
  private readonly details: Details;
  private blocks: TextBlock[] = [];
  private shape = "";
  private cursor = 0;
  private readonly repaint = onceAFrame(() => this.paint());

  constructor(model: Model, store: Store) {
    this.store = store;
    this.details = new Details(model, store);
    const choice = (value: Direction, label: string): HTMLElement =>
      el(
        "button",
        { type: "button", "data-value": value, on: { click: () => store.set({ direction: value }) } },
        label,
      );
    this.direction = el(
      "div",
      { class: "segmented", role: "group", "aria-label": "Direction" },
      choice("out", "attends to"),
      choice("in", "is attended by"),
    );
    this.element = el(
      "section",
      { class: "panel reading", "aria-labelledby": "text-title" },
      el("header", {}, el("h2", { id: "text-title" }, "Text"), el("div", { class: "tools" }, this.direction)),
      this.caption,
      this.body,
      this.details.element,
    );
    this.listen();
    store.subscribe((_, changed) => {
      if (changed.has("view")) this.rebuild();
      if (changed.has("direction")) this.turn();
      if (
        ["view", "hover", "selection", "direction", "scale", "theme", "withoutFirst", "point"].some((key) =>
          changed.has(key as never),
        )
      ) {
        this.repaint();
      }
    });
  }

  /** A token under the pointer is asked about the other way round. */
  private turn(): void {
    const { hover, view, direction } = this.store.state;
    if (hover && view?.self) this.store.set({ hover: { ...hover, side: direction === "in" ? "k" : "q" } });
  }

  /** New blocks when another sequence is shown; the same text stays as it is when only the head changes. */
  private rebuild(): void {
    const { view } = this.store.state;
    if (!view) return;
    const shape = `${view.item} ${view.call.queries} ${view.call.keys}`;
    if (shape === this.shape) return;
    this.shape = shape;
    this.cursor = 0;
    for (const block of this.blocks) block.close();
    const block = (side: "q" | "k"): TextBlock => {
      const axis = side === "q" ? view.q : view.k;
      return new TextBlock(axis.sequence, axis.source, side, null);
    };
    this.blocks = view.self ? [block("q")] : [block("q"), block("k")];
    replace(
      this.body,
      ...this.blocks.map((one) =>
        el(
          "div",
          { class: "text-frame" },
          view.self ? null : el("h3", {}, one.side === "q" ? `Queries · ${one.name}` : `Keys · ${one.name}`),
          one.element,
        ),
      ),
    );
    this.direction.hidden = !view.self;
  }

  private paint(): void {
    const { state } = this.store;
    const { view } = state;
    const source = view && shown(view, state.withoutFirst);
    for (const button of this.direction.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.value === state.direction));
    }
    if (!view || !source) return;
    const focus = focusOf(state, view);
    const sums = sumsOf(source, focus);
    const idle = focus.rows.length + focus.cols.length + focus.withoutRow.length === 0;
    const received = !idle
      ? null
      : source === view.raw
        ? view.received
        : source.exact
          ? massFrom(source, Array.from(view.q.positions.keys()))
          : null;
    const palette = new Palette(modeOf(state.theme), state.scale);
    for (const block of this.blocks) {
      // Keys show what flows out of the focus, queries what flows into it; one text shows one direction.
      const inward = focus.selected ? state.direction === "in" : state.hover?.side === "k";
      const asQuery = view.self ? !idle && inward : block.side === "q";
      const mass: Mass | null = asQuery ? sums.into : (sums.from ?? received);
      block.paint({
        mass,
        at: asQuery ? view.q.at : view.k.at,
        asQuery,
        palette,
        // Evenly shared attention must look even and light: averages are measured against a few times an equal share.
        max: mass ? Math.max(largestOf(mass.values), idle ? 4 / mass.values.length : 0) : 0,
        selected: state.selection.get(block.name) ?? new Set(),
        hot: this.hot(block, view),
      });
    }
    this.caption.textContent = this.advice(view, idle && received !== null);
    this.details.show(view, focus, hoverOf(state, view), received, source === view.raw ? sums : null);
  }

  private advice(view: View, idle: boolean): string {
    if (idle)
      return "Colour shows what each token receives on average. Point at one to see where it attends; click to keep it.";
    if (!view.self)
      return "Point at a query to see the keys it attends to, at a key to see the queries that attend to it.";
    const { direction, hover, selection } = this.store.state;
    const inward = selection.size > 0 ? direction === "in" : hover?.side === "k";
    const what = inward ? "which tokens attend to the chosen one" : "where the chosen token attends";
    const about = view.raw?.exact === false ? " Dotted tokens are estimates (≈)." : "";
    return `Colour shows ${what}. Click keeps a token; Ctrl or Shift adds more.${about}`;
  }

  /** Tokens to outline: under the pointer here, or the row and column of the matrix's cell. */
  private hot(block: TextBlock, view: View): Set<number> {
    const { hover, point } = this.store.state;
    const out = new Set<number>();
    if (point) {
      if (view.self || block.side === "q") out.add(view.q.positions[point.row]);
      if (view.self || block.side === "k") out.add(view.k.positions[point.col]);
    } else if (hover && (view.self || hover.side === block.side))
      for (const position of hover.positions) out.add(position);
    return out;
  }

  private blockOf(target: EventTarget | null): TextBlock | null {
    return this.blocks.find((block) => target instanceof Node && block.element.contains(target)) ?? null;
  }

  private listen(): void {
    this.body.addEventListener("pointerover", (event) => {
      const block = this.blockOf(event.target);
      const positions = positionsOf(event.target);
      if (block && positions) this.store.set({ hover: { side: this.side(block), positions }, point: null });
    });
    this.body.addEventListener("pointerleave", () => this.store.set({ hover: null }));
    this.body.addEventListener("click", (event) => {
      const block = this.blockOf(event.target);
      const positions = positionsOf(event.target);
      if (!block || !positions) return;
      this.cursor = positions[0];
      block.element.setAttribute("aria-activedescendant", block.idOf(this.cursor));
      const add = event.shiftKey || event.ctrlKey || event.metaKey;
      this.store.set({ selection: toggled(this.store.state.selection, block.name, positions, add) });
    });
    this.body.addEventListener("focusin", (event) => {
      const block = this.blockOf(event.target);
      if (block && event.target === block.element && block.element.matches(":focus-visible"))
        this.moveTo(block, this.cursor);
    });
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /** In one text a token is asked about as a query or as a key, as the direction says. */
  private side(block: TextBlock): Side {
    const { view, direction } = this.store.state;
    return view?.self ? (direction === "in" ? "k" : "q") : block.side;
  }

  private moveTo(block: TextBlock, position: number): void {
    const count = block.sequence.tokens.length;
    if (count === 0) return;
    this.cursor = Math.min(count - 1, Math.max(firstReal(block.sequence), position));
    const spot = block.spot(this.cursor);
    spot?.scrollIntoView({ block: "nearest" });
    block.element.setAttribute("aria-activedescendant", block.idOf(this.cursor));
    this.store.set({ hover: { side: this.side(block), positions: [this.cursor] }, point: null });
  }

  /** The token nearest below or above. */
  private byLine(block: TextBlock, step: 1 | -1): number {
    const from = block.spot(this.cursor)?.getBoundingClientRect();
    if (!from) return this.cursor;
    let best = this.cursor;
    let distance = Number.POSITIVE_INFINITY;
    let line: number | null = null;
    for (let at = this.cursor + step; at >= 0 && at < block.sequence.tokens.length; at += step) {
      const rect = block.spot(at)?.getBoundingClientRect();
      if (!rect || Math.abs(rect.top - from.top) < from.height * 0.6) continue;
      line ??= rect.top;
      if (Math.abs(rect.top - line) > from.height * 0.6) break;
      const apart = Math.abs(rect.left + rect.width / 2 - from.left - from.width / 2);
      if (apart < distance) [best, distance] = [at, apart];
    }
    return best;
  }

  private key(event: KeyboardEvent): void {
    const block = this.blockOf(event.target);
    if (!block || event.ctrlKey || event.metaKey || event.altKey) return;
    const onward = block.element.dir === "rtl" ? -1 : 1;
    const moves: Record<string, () => number> = {
      ArrowRight: () => this.cursor + onward,
      ArrowLeft: () => this.cursor - onward,
      ArrowDown: () => this.byLine(block, 1),
      ArrowUp: () => this.byLine(block, -1),
      Home: () => 0,
      End: () => block.sequence.tokens.length - 1,
    };
    if (moves[event.key]) {
      this.moveTo(block, moves[event.key]());
      if (event.shiftKey) this.select(block, true);
    } else if (event.key === "Enter" || event.key === " ") this.select(block, event.shiftKey || event.key === " ");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private select(block: TextBlock, add: boolean): void {
    this.store.set({ selection: toggled(this.store.state.selection, block.name, [this.cursor], add) });
  }
}
