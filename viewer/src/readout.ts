/** One line that says what is under the pointer, in words and exact numbers. */

import type { Axis } from "./axis";
import { el } from "./dom";
import { logarithm, weight } from "./format";
import { clip } from "./tokens";
import type { View } from "./view";

/** A token by name and position, isolated so that its direction stays its own. */
export function tokenName(axis: Axis, index: number, max = 24): HTMLElement {
  return el(
    "span",
    { class: "name" },
    el("bdi", {}, clip(axis.labels[index], max)),
    el("sub", {}, String(axis.positions[index])),
  );
}

function fact(label: string, value: string, kind = ""): HTMLElement {
  return el("span", { class: `fact ${kind}` }, el("span", { class: "what" }, label), el("b", {}, value));
}

/** What the page knows about one pair: the weight, or the map's mass and how large the weight can be. */
export function describeCell(view: View, row: number, col: number): (HTMLElement | string)[] {
  const raw = view.raw;
  if (!raw) return [];
  const parts: (HTMLElement | string)[] = [
    el("span", { class: "pair" }, tokenName(view.q, row), el("span", { class: "arrow" }, "→"), tokenName(view.k, col)),
  ];
  const cell = raw.cell(row, col);
  if (cell.exact) {
    parts.push(fact("weight", weight(cell.value), "main"), fact("ln", logarithm(cell.value)));
  } else if (cell.bin) {
    const { q0, q1, k0, k1, mass } = cell.bin;
    parts.push(fact("bin", `≈ ${weight(mass)}`, "main"));
    parts.push(
      el(
        "span",
        { class: "aside" },
        `mean over queries ${range(view, "q", q0, q1)}, sum over keys ${range(view, "k", k0, k1)}`,
      ),
    );
  }
  if (!cell.exact && cell.bound !== null) parts.push(fact("this weight", `≤ ${weight(cell.bound)}`));
  if (!cell.exact && !cell.bin && cell.bound === null) parts.push(el("span", { class: "aside" }, "not stored"));
  if (view.withoutFirst && cell.exact && col > 0) {
    const other = view.withoutFirst.cell(row, col);
    parts.push(fact("without first token", `${other.exact ? "" : "≈ "}${weight(other.value)}`));
  }
  return parts;
}

function range(view: View, side: "q" | "k", from: number, to: number): string {
  const at = (index: number): number =>
    side === "k" ? view.call.k_start + index : view.q.positions[clampTo(index - view.q.start, view.q.count)];
  return to - from <= 1 ? String(at(from)) : `${at(from)}–${at(to - 1)}`;
}

const clampTo = (index: number, count: number): number => Math.min(count - 1, Math.max(0, index));
