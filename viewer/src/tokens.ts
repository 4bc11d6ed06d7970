/** How a token is written so that nothing in it is invisible and nothing in it can disturb its surroundings. */

import type { Sequence, Token } from "./schema";

const segmenter = typeof Intl.Segmenter === "function" ? new Intl.Segmenter("en", { granularity: "grapheme" }) : null;
const COMBINING = /^\p{M}/u;
const RTL = /[\u0591-\u07ff\u0860-\u08ff\ufb1d-\ufdfd\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const STRONG = /\p{L}/u;

const hex = (code: number): string => `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x3000 || code === 0x1680 || (code >= 0x2000 && code <= 0x200a) || code === 0x205f;
}

/** The glyph for a code point that would not be seen, or null where the character shows itself. */
function glyph(code: number, edge: boolean): string | null {
  if (isSpace(code)) return edge ? "␣" : null;
  if (code === 0x0a) return "↵";
  if (code === 0x09) return "⇥";
  if (code < 0x20 || code === 0x7f) return hex(code);
  if (code === 0xa0 || code === 0x202f) return edge ? "⍽" : null;
  if (code >= 0x80 && code < 0xa0) return hex(code);
  if (code === 0x200c || code === 0x200d || (code >= 0xfe00 && code <= 0xfe0f)) return edge ? hex(code) : null;
  if (code === 0x200b || code === 0x200e || code === 0x200f || code === 0xfeff) return hex(code);
  if (code >= 0x2028 && code <= 0x202e) return hex(code);
  if (code >= 0x2060 && code <= 0x206f) return hex(code);
  if (code >= 0xd800 && code <= 0xdfff) return hex(code);
  return null;
}

/** Text with every invisible character made visible: `visible(" a\n")` is `"␣a↵"`. */
export function visible(text: string): string {
  if (text === "") return "∅";
  const points = Array.from(text);
  let first = 0;
  let last = points.length - 1;
  while (first < last && isSpace(points[first].codePointAt(0) ?? 0)) first++;
  while (last > first && isSpace(points[last].codePointAt(0) ?? 0)) last--;
  let out = COMBINING.test(text) ? "◌" : "";
  points.forEach((point, index) => {
    const code = point.codePointAt(0) ?? 0;
    // A joiner or a variation selector at the end of a piece belongs to the character before it.
    const selector = code >= 0xfe00 && code <= 0xfe0f;
    const edge = selector ? index === 0 : index <= first || index >= last;
    out += glyph(code, edge) ?? point;
  });
  return out;
}

/** At most `max` graphemes, then an ellipsis. Slices first: a token may be very long. */
export function clip(text: string, max: number): string {
  if (text.length <= max) return text;
  const head = text.slice(0, max * 12);
  const parts = segmenter ? Array.from(segmenter.segment(head), (part) => part.segment) : Array.from(head);
  if (parts.length <= max && head.length === text.length) return text;
  return `${parts.slice(0, max - 1).join("")}…`;
}

/** Whether the first strong character reads right to left. */
export function isRtl(text: string): boolean {
  for (const point of text) {
    if (RTL.test(point)) return true;
    if (STRONG.test(point)) return false;
  }
  return false;
}

/** The part of the text a token stands for, or null where it has none. */
export function slice(token: Token, sequence: Sequence): string | null {
  if (token.s < 0 || token.e <= token.s || token.e > sequence.text.length) return null;
  return sequence.text.slice(token.s, token.e);
}

/**
 * The token's name for an axis. Vocabulary marks for a space or a newline (Ġ, Ċ, ▁) become the glyphs
 * they stand for, unless the text itself holds that letter.
 */
export function label(sequence: Sequence, index: number): string {
  const token = sequence.tokens[index];
  if (token.gn > 1) {
    const whole = groupText(sequence, index);
    if (whole !== null) return `${clip(visible(whole), 12)} ${token.gi + 1}/${token.gn}`;
  }
  const text = slice(token, sequence) ?? "";
  let name = token.t;
  for (const mark of ["▁", "Ġ"]) {
    if (!text.includes(mark)) name = name.replace(new RegExp(`^${mark}+`), (run) => " ".repeat(run.length));
  }
  if (name.includes("Ċ") && !text.includes("Ċ")) name = name.replaceAll("Ċ", "\n");
  return visible(name.length > 400 ? `${name.slice(0, 400)}…` : name);
}

/** The whole text of the group that a piece belongs to. */
export function groupText(sequence: Sequence, index: number): string | null {
  let start = Number.POSITIVE_INFINITY;
  let end = -1;
  for (const piece of groupPieces(sequence, index)) {
    if (piece.s < 0 || piece.e < piece.s) continue;
    start = Math.min(start, piece.s);
    end = Math.max(end, piece.e);
  }
  return end > start ? sequence.text.slice(start, end) : null;
}

/** All pieces of the group that the token at `index` belongs to, in order. */
export function groupPieces(sequence: Sequence, index: number): Token[] {
  const token = sequence.tokens[index];
  const start = index - token.gi;
  return sequence.tokens.slice(Math.max(0, start), start + token.gn);
}

/** Position of the first token that is no padding. */
export function firstReal(sequence: Sequence): number {
  const first = sequence.tokens.findIndex((token) => !token.pad);
  return first < 0 ? sequence.tokens.length : first;
}
