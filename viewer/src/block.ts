/** One sequence as text. Chunks far from sight hold plain text; tokens are built when they come near. */

import type { Palette } from "./color";
import { el, replace } from "./dom";
import { weight } from "./format";
import type { Sequence, Token } from "./schema";
import type { Side } from "./state";
import type { Mass } from "./sums";
import { clip, firstReal, groupPieces, groupText, isRtl, slice, visible } from "./tokens";

/** What is written at one place: a token, or all pieces of one character. */
interface Unit {
  readonly positions: readonly number[];
  readonly before: string;
  readonly text: string;
  readonly kind: string;
  readonly after: string;
}

interface Chunk {
  readonly element: HTMLElement;
  readonly units: readonly Unit[];
  /** Built elements with the positions they stand for, or null while the chunk is plain text. */
  spots: { element: HTMLElement; positions: readonly number[] }[] | null;
  near: boolean;
}

const UNITS = 160;
const LONGEST = 120;
const UNKNOWN = /^[<[]?unk(nown)?[>\]]?$/i;

/** Split a sequence into what is written, keeping the text between tokens. */
export function unitsOf(sequence: Sequence): Unit[] {
  const units: Unit[] = [];
  const from = firstReal(sequence);
  // Padding that was given as text has offsets: what follows begins behind it, not with it.
  let end = from > 0 ? Math.max(0, sequence.tokens[from - 1].e) : 0;
  for (let at = from; at < sequence.tokens.length; ) {
    const pieces = groupPieces(sequence, at);
    const count = Math.max(1, pieces.length);
    const positions = Array.from({ length: count }, (_, n) => at + n);
    const token = sequence.tokens[at];
    const whole = count > 1 ? groupText(sequence, at) : slice(token, sequence);
    const start = Math.min(...pieces.filter((piece) => piece.s >= 0).map((piece) => piece.s));
    let before = units.length > 0 ? " " : "";
    if (whole !== null && start >= end) before = gap(sequence.text.slice(end, start));
    if (units.length === 0 && from > 0) before = before.trimStart();
    units.push(unit(token, positions, whole !== null && start >= end ? whole : null, before));
    if (whole !== null && start >= end) end = start + whole.length;
    at += count;
  }
  return units;
}

/** Text no token stands for: white space stays as it is, anything else is made visible. */
function gap(text: string): string {
  return text.replace(/\S+/gu, (run) => visible(run));
}

function unit(token: Token, positions: readonly number[], whole: string | null, before: string): Unit {
  if (whole === null) {
    return {
      positions,
      before,
      text: clip(visible(token.t), LONGEST),
      kind: token.special ? "special" : "apart",
      after: "",
    };
  }
  const lines = whole.includes("\n") ? "\n" : "";
  if (whole.trim() === "") return { positions, before, text: visible(whole), kind: "blank", after: lines };
  const lead = whole.length - whole.trimStart().length;
  const kind = token.special ? "special" : UNKNOWN.test(token.t) ? "unknown" : "";
  return {
    positions,
    before: before + whole.slice(0, lead),
    text: clip(visible(whole.slice(lead)), LONGEST),
    kind,
    after: lines,
  };
}

export class TextBlock {
  readonly element: HTMLElement;
  readonly sequence: Sequence;
  readonly name: string;
  readonly side: Side;
  private readonly chunks: Chunk[] = [];
  private readonly watcher: IntersectionObserver;
  private painter: ((chunk: Chunk) => void) | null = null;

  constructor(name: string, sequence: Sequence, side: Side, root: Element | null) {
    this.name = name;
    this.sequence = sequence;
    this.side = side;
    this.element = el("div", {
      class: "text",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": `Tokens of ${name}`,
      tabindex: 0,
      dir: isRtl(sequence.text) ? "rtl" : "ltr",
    });
    const units = unitsOf(sequence);
    for (let at = 0; at < units.length; at += UNITS) {
      const part = units.slice(at, at + UNITS);
      const plain = part.map((one) => one.before + one.text + one.after).join("");
      const element = el("span", { class: "chunk", role: "presentation" }, plain);
      this.chunks.push({ element, units: part, spots: null, near: false });
      this.element.append(element);
    }
    this.watcher = new IntersectionObserver((entries) => this.scrolled(entries), { root, rootMargin: "400px 0px" });
    for (const chunk of this.chunks) this.watcher.observe(chunk.element);
    if (this.chunks.length === 1) this.build(this.chunks[0]);
  }

  close(): void {
    this.watcher.disconnect();
  }

  private scrolled(entries: IntersectionObserverEntry[]): void {
    for (const entry of entries) {
      const chunk = this.chunks.find((one) => one.element === entry.target);
      if (!chunk) continue;
      chunk.near = entry.isIntersecting;
      if (chunk.near) {
        this.build(chunk);
        this.painter?.(chunk);
      }
    }
  }

  private build(chunk: Chunk): void {
    if (chunk.spots) return;
    const spots: { element: HTMLElement; positions: readonly number[] }[] = [];
    const nodes: (Node | string)[] = [];
    for (const one of chunk.units) {
      if (one.before) nodes.push(one.before);
      const first = one.positions[0];
      if (one.positions.length === 1) {
        const element = el("bdi", this.attributes(first, `tok ${one.kind}`), one.text);
        spots.push({ element, positions: one.positions });
        nodes.push(element);
      } else {
        const whole = el("bdi", { class: "whole", "data-p": one.positions.join(" ") }, one.text);
        const pieces = one.positions.map((position, n) =>
          el("span", this.attributes(position, "tok piece"), `${n + 1}/${one.positions.length}`),
        );
        spots.push({ element: whole, positions: one.positions });
        pieces.forEach((element, n) => {
          spots.push({ element, positions: [one.positions[n]] });
        });
        nodes.push(
          el(
            "span",
            { class: "group-of-pieces", role: "presentation" },
            whole,
            el("span", { class: "pieces", role: "presentation" }, ...pieces),
          ),
        );
      }
      if (one.after) nodes.push(one.after);
    }
    replace(chunk.element, ...nodes);
    chunk.spots = spots;
  }

  private attributes(position: number, kind: string): Record<string, string | number> {
    const token = this.sequence.tokens[position];
    const text = slice(token, this.sequence);
    const title = `${clip(visible(token.t), 200)} · position ${position}${text !== null && text !== token.t ? ` · “${clip(visible(text), 200)}”` : ""}`;
    return {
      class: kind.trim(),
      "data-p": position,
      id: this.idOf(position),
      role: "option",
      "aria-selected": "false",
      title,
    };
  }

  idOf(position: number): string {
    return `t-${this.side}-${position}`;
  }

  /** The element of a position, built if it was not. */
  spot(position: number): HTMLElement | null {
    for (const chunk of this.chunks) {
      const last = chunk.units[chunk.units.length - 1].positions;
      if (last[last.length - 1] < position) continue;
      this.build(chunk);
      this.painter?.(chunk);
      return chunk.spots?.find((one) => one.positions.length === 1 && one.positions[0] === position)?.element ?? null;
    }
    return null;
  }

  /**
   * Colour the tokens. `mass` counts on an axis whose index of a position `at` knows; a character of several
   * pieces takes their sum as a key and their mean as a query.
   */
  paint(paint: {
    mass: Mass | null;
    at: ReadonlyMap<number, number>;
    asQuery: boolean;
    palette: Palette;
    max: number;
    selected: ReadonlySet<number>;
    hot: ReadonlySet<number>;
  }): void {
    this.painter = (chunk) => {
      for (const spot of chunk.spots ?? []) {
        const { element, positions } = spot;
        const known =
          paint.mass === null
            ? []
            : positions.map((position) => paint.at.get(position)).filter((at) => at !== undefined);
        let value = 0;
        for (const at of known) value += paint.mass?.values[at] ?? 0;
        if (paint.asQuery && known.length > 1) value /= known.length;
        const style = element.style;
        const nan = Number.isNaN(value);
        const drawn = known.length > 0 && value > 0 && paint.palette.part(value, paint.max) > 0.004;
        style.backgroundColor = drawn ? paint.palette.css(value, paint.max) : "";
        style.color = drawn ? paint.palette.ink(value, paint.max) : "";
        const about = drawn && known.some((at) => paint.mass?.exact[at] === 0);
        element.classList.toggle("nan", nan);
        element.classList.toggle("about", about);
        const chosen = positions.every((position) => paint.selected.has(position));
        element.classList.toggle("selected", chosen);
        element.classList.toggle(
          "hot",
          positions.every((position) => paint.hot.has(position)),
        );
        if (element.id) element.setAttribute("aria-selected", String(chosen));
        if (element.id && known.length > 0)
          element.setAttribute("aria-description", `${about ? "≈ " : ""}${weight(value)}`);
        else element.removeAttribute("aria-description");
      }
    };
    for (const chunk of this.chunks) if (chunk.near || this.chunks.length === 1) this.painter(chunk);
  }
}

/** Positions of the token element under an event, or null. */
export function positionsOf(target: EventTarget | null): number[] | null {
  const spot = target instanceof Element ? target.closest<HTMLElement>("[data-p]") : null;
  return spot?.dataset.p?.split(" ").map(Number) ?? null;
}
