/** What a reader must know before believing the figures: remarks, flags, coverage. */

import { el } from "./dom";
import { plural } from "./format";
import type { Coverage, Payload } from "./schema";
import type { Store } from "./state";

const SHOWN_FLAGS = 6;

/** Remarks and flags stand on the page; the table of modules unfolds. */
export function notes(payload: Payload, store: Store): HTMLElement {
  const flags = payload.calls.flatMap((call, at) => call.flags.map((flag) => ({ flag, call, at })));
  const remarks = payload.notes.map((note) => el("li", {}, el("bdi", {}, note)));
  const marks = flags.map(({ flag, call, at }) =>
    el(
      "li",
      { class: "flag" },
      el(
        "button",
        { type: "button", class: "link", on: { click: () => store.set({ call: at, heads: "head" }) } },
        el("bdi", {}, call.name),
      ),
      ": ",
      el("bdi", {}, flag),
    ),
  );
  const hidden = marks.slice(SHOWN_FLAGS);
  const children: HTMLElement[] = [];
  if (remarks.length + marks.length > 0) {
    children.push(el("ul", { class: "remarks", "aria-label": "Remarks" }, ...remarks, ...marks.slice(0, SHOWN_FLAGS)));
  }
  if (hidden.length > 0) {
    children.push(
      el(
        "details",
        {},
        el("summary", {}, `${plural(hidden.length, "more flag")}`),
        el("ul", { class: "remarks" }, ...hidden),
      ),
    );
  }
  if (payload.coverage.length > 0) children.push(coverage(payload.coverage));
  return el(
    "section",
    { class: "notes", "aria-label": "Remarks and coverage", hidden: children.length === 0 },
    ...children,
  );
}

function coverage(list: readonly Coverage[]): HTMLElement {
  const count = (status: string): number => list.filter((one) => one.status === status).length;
  const missing = list.length - count("seen");
  const summary =
    missing === 0
      ? `Coverage: all ${plural(list.length, "attention module")} seen`
      : `Coverage: ${count("seen")} of ${plural(list.length, "attention module")} seen, ${missing} not or partly`;
  const rows = list.map((one) =>
    el(
      "tr",
      { class: one.status === "seen" ? "" : "missing" },
      el("th", { scope: "row" }, el("bdi", {}, one.name)),
      el("td", {}, one.status),
      el("td", {}, el("bdi", {}, one.reason)),
    ),
  );
  const head = el("tr", {}, ...["module", "status", "how, or why not"].map((text) => el("th", { scope: "col" }, text)));
  return el(
    "details",
    { class: missing > 0 ? "coverage missing" : "coverage" },
    el("summary", {}, summary),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))),
  );
}
