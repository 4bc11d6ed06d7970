/** The top of the page: what was recorded, and how it is shown. */

import type { Scale } from "./color";
import { el } from "./dom";
import { plural } from "./format";
import type { Payload } from "./schema";
import { segmented } from "./segmented";
import type { Store, Theme } from "./state";

function itemChooser(payload: Payload, store: Store): HTMLElement | null {
  if (payload.items.length < 2) return null;
  const options = payload.items.map((item, index) => {
    const text = Object.values(item.sequences)[0]?.text.replace(/\s+/g, " ").slice(0, 48) ?? "";
    return el("option", { value: index }, `${index + 1}. ${text}`);
  });
  const select = el(
    "select",
    {
      id: "item",
      on: { change: () => store.set({ item: Number(select.value), selection: new Map(), hover: null, point: null }) },
    },
    ...options,
  );
  store.subscribe((state, changed) => {
    if (changed.has("item")) select.value = String(state.item);
  });
  return el("label", { class: "control" }, el("span", {}, "Input"), select);
}

/** A moment to the minute: `2026-11-29T15:28:35+00:00` is "2026-11-29 15:28 UTC". */
export function moment(created: string): string {
  const parts = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*(Z|[+-]\d\d:\d\d)?$/.exec(created);
  if (!parts) return created;
  const zone = parts[3] === "Z" || parts[3] === "+00:00" ? " UTC" : parts[3] ? ` ${parts[3]}` : "";
  return `${parts[1]} ${parts[2]}${zone}`;
}

/** What the recording is of, in one line. */
function subtitle(payload: Payload): string {
  const { model, calls, items } = payload;
  const heads = new Set(calls.map((call) => call.heads));
  const parts = [
    model.name,
    model.architecture && model.architecture !== model.name ? model.architecture : null,
    `${plural(calls.length, "call")} of ${[...heads].join(" or ")} heads`,
    items.length > 1 ? plural(items.length, "input") : null,
    payload.created && moment(payload.created),
  ];
  return parts.filter((part) => part).join(" · ");
}

export function header(payload: Payload, store: Store, help: () => void): HTMLElement {
  const scale = segmented<Scale>(
    "Colour scale",
    [
      { value: "linear", text: "Linear", title: "Colour grows with the weight (L)" },
      { value: "log", text: "Log", title: "Colour grows with the logarithm: small weights show (L)" },
    ],
    (value) => store.set({ scale: value }),
  );
  const theme = segmented<Theme>(
    "Theme",
    [
      { value: "auto", text: "Auto" },
      { value: "light", text: "Light" },
      { value: "dark", text: "Dark" },
    ],
    (value) => store.set({ theme: value }),
  );
  const first = el("input", { type: "checkbox", on: { change: () => store.set({ withoutFirst: first.checked }) } });
  const firstLabel = el(
    "label",
    {
      class: "control check",
      title: "Share out anew what is not given to the first token (F). The raw weight is always shown too.",
    },
    first,
    el("span", {}, "without first token"),
  );
  const update = (): void => {
    const { state } = store;
    scale.press(state.scale);
    theme.press(state.theme);
    first.checked = state.withoutFirst;
    const can = state.view === null || state.view.withoutFirst !== null;
    first.disabled = !can;
    firstLabel.classList.toggle("off", !can);
  };
  store.subscribe(update);
  update();
  const helpButton = el(
    "button",
    { type: "button", class: "round", title: "Help and keys (?)", "aria-label": "Help and keys", on: { click: help } },
    "?",
  );
  return el(
    "header",
    { class: "top" },
    el(
      "div",
      { class: "identity" },
      el("h1", {}, el("bdi", {}, payload.title || "Attention")),
      el(
        "p",
        { title: payload.model.sha256 ? `weights SHA-256 ${payload.model.sha256}` : undefined },
        el("bdi", {}, subtitle(payload)),
      ),
    ),
    el("div", { class: "controls" }, itemChooser(payload, store), scale.element, firstLabel, theme.element, helpButton),
  );
}
