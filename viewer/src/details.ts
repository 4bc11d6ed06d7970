/** Exact sums of what the tokens in question give and take. */

import type { Axis } from "./axis";
import { bar, el, replace } from "./dom";
import type { Focus, Sums } from "./focus";
import { sumsOf } from "./focus";
import { plural, weight } from "./format";
import { tokenName } from "./readout";
import type { Store } from "./state";
import type { Mass } from "./sums";
import { massBetween } from "./sums";
import type { Model, RowStatistics, View } from "./view";

const SHORT = 8;
const LONG = 400;

/** Indices of the largest values above zero, largest first, then by index. NaN comes first: it must not hide. */
export function ranked(values: Float64Array, count: number): number[] {
  const key = (index: number): number => (Number.isNaN(values[index]) ? Number.POSITIVE_INFINITY : values[index]);
  const order: number[] = [];
  for (let index = 0; index < values.length; index++) {
    const value = key(index);
    if (value <= 0 || (order.length === count && value <= key(order[count - 1]))) continue;
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(order[middle]) >= value) low = middle + 1;
      else high = middle;
    }
    order.splice(low, 0, index);
    if (order.length > count) order.pop();
  }
  return order;
}

const about = (mass: Mass, index: number): string => `${mass.exact[index] ? "" : "≈ "}${weight(mass.values[index])}`;

const number = (sum: { value: number; exact: boolean }): string => `${sum.exact ? "" : "≈ "}${weight(sum.value)}`;

const onFirst = (count: number): string => (count === 1 ? "on first key" : `on first ${count} keys`);

export class Details {
  readonly element: HTMLElement;
  private readonly model: Model;
  private readonly store: Store;
  private readonly title = el("h3", {});
  private readonly facts = el("p", { class: "facts", role: "status", "aria-live": "polite" });
  private readonly lists = el("div", { class: "lists" });
  private readonly more: HTMLButtonElement;
  private readonly clear: HTMLButtonElement;
  private long = false;
  private serial = 0;
  private last: [View, Focus, Focus, Mass | null, Sums | null] | null = null;

  constructor(model: Model, store: Store) {
    this.model = model;
    this.store = store;
    this.more = el(
      "button",
      { type: "button", "aria-expanded": "false", on: { click: () => this.expand() } },
      "Show all",
    );
    this.clear = el(
      "button",
      { type: "button", on: { click: () => store.set({ selection: new Map() }) } },
      "Clear (Esc)",
    );
    this.element = el(
      "div",
      { class: "details" },
      el("header", {}, this.title, el("div", { class: "tools" }, this.more, this.clear)),
      this.facts,
      this.lists,
    );
  }

  private expand(): void {
    this.long = !this.long;
    this.more.textContent = this.long ? "Show fewer" : "Show all";
    this.more.setAttribute("aria-expanded", String(this.long));
    if (this.last) this.show(...this.last);
  }

  /** `known`: the sums of the raw weights where the caller has them already. */
  show(view: View, focus: Focus, hover: Focus, received: Mass | null, known: Sums | null): void {
    this.last = [view, focus, hover, received, known];
    const any = focus.rows.length + focus.cols.length + focus.withoutRow.length > 0;
    this.clear.hidden = !focus.selected;
    this.more.hidden = !any && received === null;
    if (!view.raw || !any) {
      this.serial++;
      this.title.textContent = "All queries";
      replace(
        this.facts,
        el("span", { class: "aside" }, "Point at a token, or select some, and its exact numbers stand here."),
      );
      replace(this.lists, this.list("Receive most", "mean over all queries", received, null, view.k, true));
      return;
    }
    const sums = known ?? sumsOf(view.raw, focus);
    const without = this.store.state.withoutFirst && view.withoutFirst ? sumsOf(view.withoutFirst, focus) : null;
    this.headline(view, focus);
    void this.sayFacts(view, focus, hover, sums);
    const single = Math.max(focus.rows.length, focus.cols.length) <= 1;
    const queries = focus.rows.length;
    const keys = focus.cols.length;
    replace(
      this.lists,
      this.list(
        single ? "Gives to" : "From the selection",
        queries > 1 ? `mean over ${queries} queries` : "sums to 1 over all keys",
        sums.from,
        without?.from ?? null,
        view.k,
        true,
      ),
      this.list(
        single ? "Receives from" : "Into the selection",
        keys > 1 ? `sum over ${keys} keys` : "share of each query",
        sums.into,
        without?.into ?? null,
        view.q,
        false,
      ),
    );
  }

  private headline(view: View, focus: Focus): void {
    const names: (HTMLElement | string)[] = [];
    const axis = focus.rows.length > 0 ? view.q : view.k;
    const indices = focus.rows.length > 0 ? focus.rows : focus.cols;
    for (const index of indices.slice(0, 8)) names.push(tokenName(axis, index), " ");
    if (indices.length > 8) names.push(`and ${indices.length - 8} more`);
    if (indices.length === 0) names.push(`position ${focus.withoutRow.join(", ")}`);
    replace(this.title, ...names);
  }

  private async sayFacts(view: View, focus: Focus, hover: Focus, sums: Sums): Promise<void> {
    const serial = ++this.serial;
    const parts: (HTMLElement | string)[] = [];
    const fact = (what: string, value: string): void => {
      parts.push(el("span", { class: "fact" }, el("span", { class: "what" }, what), el("b", {}, value)));
    };
    if (focus.withoutRow.length > 0) {
      parts.push(
        el(
          "span",
          { class: "aside" },
          `no row: ${focus.withoutRow.length > 1 ? "these tokens have" : "this token has"} not been a query (yet)`,
        ),
      );
    }
    if (sums.between) {
      const what = focus.selected && focus.rows.length > 1 ? "selection → selection" : "to itself";
      fact(what, number(sums.between));
    }
    if (focus.selected && view.raw && (hover.rows.length > 0 || hover.cols.length > 0)) {
      if (focus.rows.length > 0 && hover.cols.length > 0) {
        const to = massBetween(view.raw, focus.rows, hover.cols);
        fact("selection → pointer", number(to));
      }
      if (hover.rows.length > 0 && focus.cols.length > 0) {
        const from = massBetween(view.raw, hover.rows, focus.cols);
        fact("pointer → selection", number(from));
      }
    }
    replace(this.facts, ...parts);
    if (view.heads > 1 || Math.max(focus.rows.length, focus.cols.length) !== 1) return;
    const statistics = await this.model.statistics(this.store.state.call, view.item, this.store.state.head);
    if (serial !== this.serial) return;
    this.sayStatistics(statistics, focus, fact);
    replace(this.facts, ...parts);
  }

  private sayStatistics(found: RowStatistics, focus: Focus, fact: (what: string, value: string) => void): void {
    const [row, col] = [focus.rows[0], focus.cols[0]];
    if (row !== undefined && found.entropy) fact("entropy", `${weight(found.entropy[row])} nats`);
    if (row !== undefined && found.first) fact(onFirst(found.firstCount), weight(found.first[row]));
    if (row !== undefined && found.sink) fact("on the sink", weight(found.sink[row]));
    if (col !== undefined && found.received) fact("received from all", weight(found.received[col]));
  }

  private list(
    title: string,
    note: string,
    mass: Mass | null,
    without: Mass | null,
    axis: Axis,
    keys: boolean,
  ): HTMLElement | null {
    if (!mass) return null;
    const limit = this.long ? LONG : SHORT;
    const order = ranked(mass.values, limit + 1);
    const top = Math.max(1e-12, ...order.map((index) => mass.values[index]).filter((value) => value > 0));
    const rows = order.slice(0, limit).map((index) => {
      const value = mass.values[index];
      const second = without && (keys && axis.positions[index] === 0 ? "—" : about(without, index));
      return el(
        "li",
        { "data-position": axis.positions[index] },
        tokenName(axis, index, 16),
        bar(value, top),
        el("span", { class: "number" }, about(mass, index)),
        second === null ? null : el("span", { class: "number second", title: "without the first token" }, second),
      );
    });
    const left =
      order.length > limit && this.long ? `Only the ${LONG} largest of ${plural(mass.values.length, "token")}.` : null;
    return el(
      "div",
      { class: without ? "list two" : "list" },
      el("h4", {}, title, " ", el("small", {}, note)),
      rows.length > 0 ? el("ol", {}, ...rows) : el("p", { class: "aside" }, "nothing"),
      left ? el("p", { class: "aside" }, left) : null,
    );
  }
}
