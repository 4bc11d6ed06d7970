/** What a person asks first: which words a word was made of, which sentences were chosen, where in a picture it looked. */

import { largestOf, Palette } from "./color";
import { bar, bitmap, el } from "./dom";
import { weight } from "./format";
import type { Payload, TableRecord } from "./schema";
import type { Store } from "./state";
import { modeOf } from "./theme";
import { clip, visible } from "./tokens";

const LONGEST = 32; // of a word, in graphemes; sentences are shown whole

export function tables(payload: Payload, store: Store): HTMLElement[] {
  return payload.tables.map((table, at) => {
    const id = `table-${at}`;
    return el(
      "section",
      { class: "panel table", "aria-labelledby": id },
      el("header", {}, el("h2", { id }, table.name)),
      el("p", { class: "caption" }, table.note),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": id }, body(table, store)),
    );
  });
}

function body(table: TableRecord, store: Store): HTMLElement {
  if (table.grid) return pictures(table, table.grid, store);
  return table.ordered ? parts(table) : words(table);
}

const name = (text: string): HTMLElement => el("bdi", {}, visible(text));

/** A word: what is longer than one can be is cut, and is whole in the title. */
const word = (text: string): HTMLElement => el("bdi", { title: visible(text) }, clip(visible(text), LONGEST));

/** Each row is a word, and beside it what it has most to do with. */
function words(table: TableRecord): HTMLElement {
  const rows = table.cells.map((cells, row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, word(table.rows[row])),
      el(
        "td",
        {},
        el(
          "ol",
          { class: "shares" },
          ...cells.map(([column, value]) =>
            el(
              "li",
              { class: table.chosen.includes(column) ? "chosen" : "" },
              word(table.columns[column]),
              bar(value, 1),
              el("span", { class: "number" }, weight(value)),
            ),
          ),
        ),
      ),
    ),
  );
  return el("table", {}, el("tbody", {}, ...rows));
}

/** The columns of each row in their order, such as the sentences of a text; rows have names where there are several. */
function parts(table: TableRecord): HTMLElement {
  const lists = table.cells.flatMap((cells, row) => [
    table.rows.length > 1 ? el("h3", {}, name(table.rows[row])) : null,
    listed(table, cells),
  ]);
  return el("div", {}, ...lists);
}

function listed(table: TableRecord, cells: TableRecord["cells"][number]): HTMLElement {
  const top = largestOf(cells.map(([, value]) => value));
  const items = cells.map(([column, value]) => {
    const chosen = table.chosen.includes(column);
    return el(
      "li",
      { class: chosen ? "chosen" : "" },
      bar(value, top),
      el("span", { class: "number" }, weight(value)),
      el("span", { class: "mark" }, chosen ? "✓" : ""),
      name(table.columns[column]),
      chosen ? el("span", { class: "sr" }, "chosen") : null,
    );
  });
  return el("ol", { class: "parts" }, ...items);
}

/** Each row is a word, and its columns the patches of an image: a small picture. */
function pictures(table: TableRecord, [rows, cols]: [number, number], store: Store): HTMLElement {
  const figures = table.cells.map((cells, row) => {
    const values = Float32Array.from(cells, ([, value]) => value);
    const top = largestOf(values);
    const where = visible(table.columns[values.indexOf(top)]);
    const label = `${visible(table.rows[row])}: most at ${where}, ${weight(top)}`;
    const picture = (): HTMLCanvasElement => {
      const palette = new Palette(modeOf(store.state.theme), "linear");
      const canvas = bitmap(cols, rows, (pixels) => palette.paint(values, top, pixels));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", label);
      canvas.title = label;
      return canvas;
    };
    const figure = el("figure", {}, picture(), el("figcaption", {}, word(table.rows[row])));
    store.subscribe((_, changed) => {
      if (changed.has("theme")) figure.firstElementChild?.replaceWith(picture());
    });
    return figure;
  });
  return el("div", { class: "pictures" }, ...figures);
}
