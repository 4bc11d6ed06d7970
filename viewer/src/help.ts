/** What the page shows and which keys it knows. */

import { el } from "./dom";

const KEYS: readonly [string, string][] = [
  ["[  ]", "previous, next head"],
  ["{  }", "same head, previous, next layer"],
  ["M", "this head, mean of layer, mean of all"],
  ["L", "linear or logarithmic colours"],
  ["F", "with or without the first token"],
  ["D", "where a token attends, or who attends to it"],
  ["T", "theme: auto, light, dark"],
  ["P, C", "save PNG, save CSV"],
  ["1 2 3", "go to heads, matrix, text"],
  ["← ↑ → ↓", "in a panel: move; with Shift in the text: select"],
  ["Enter", "select; with Shift, add"],
  ["+ − 0", "in the matrix: zoom in, out, all"],
  ["Esc", "clear the selection"],
  ["?", "this help"],
];

const READING: readonly [string, string][] = [
  [
    "Query, key",
    "When a model reads a token (the query), it looks at other tokens (the keys) and takes some of each one's content.",
  ],
  [
    "Weight",
    "How much it takes: between 0 and 1. One query's weights over all keys sum to 1, unless a sink takes a share or it may see nothing.",
  ],
  [
    "Row",
    "One query. Read along it to see where that token looks. A column is one key: read down it to see who looks at it.",
  ],
  [
    "Head",
    "Each layer has several, and each looks in its own way: at the token before, at the same word, at the first token, at the end of the sentence.",
  ],
  [
    "First token",
    "Many heads rest on the first token when they have nothing to look for. “Without first token” shares out anew what is left; the raw weight always stands beside.",
  ],
  [
    "≈",
    "Long inputs are stored as pooled maps: a bin's value is the mean over its queries of what they give to all its keys. The largest weights of each query are stored exactly and carry no sign.",
  ],
  [
    "Entropy",
    "How spread a row is, in nats: 0 when one key takes all; e to the entropy is the number of keys that would share evenly.",
  ],
  [
    "Tables",
    "Where the page shows what a model wrote, a table comes first: for every word what it has most to do with, a mean over heads and layers, or the weight of every sentence.",
  ],
  ["Care", "A weight says what a head looked at. It is evidence of what the model used, not proof."],
];

export function helpDialog(): HTMLDialogElement {
  const list = (pairs: readonly [string, string][], tag: "kbd" | "span"): HTMLElement =>
    el(
      "dl",
      { class: tag === "kbd" ? "keys" : "reading-list" },
      ...pairs.flatMap(([term, text]) => [el("dt", {}, el(tag, {}, term)), el("dd", {}, text)]),
    );
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog: HTMLDialogElement = el(
    "dialog",
    { "aria-labelledby": "help-title" },
    el("header", {}, el("h2", { id: "help-title" }, "How to read this page"), close),
    list(READING, "span"),
    el("h2", {}, "Keys"),
    list(KEYS, "kbd"),
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}
