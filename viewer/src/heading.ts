/** Which head is shown, and the ways to the next one and out of the page. */

import { el, replace } from "./dom";
import { fileName, saveCsv, savePng } from "./export";
import { nameOf } from "./overview";
import { segmented } from "./segmented";
import type { Heads, State, Store } from "./state";
import type { Model } from "./view";

/** The chosen head or heads in words. */
export function titleOf(model: Model, state: State): string {
  const call = model.payload.calls[state.call];
  const name = nameOf(model.payload.calls, state.call);
  if (state.heads === "head") return `${name}, head ${state.head}`;
  if (state.heads === "layer") return `${name}, mean over ${call.heads} heads`;
  const alike = model.alike(state.call);
  const heads = alike.reduce((sum, at) => sum + model.payload.calls[at].heads, 0);
  return `Mean over ${heads} heads of ${alike.length} layers`;
}

/** Another head, wrapping into the next call; or the same head of another call. */
export function step(model: Model, store: Store, heads: number, calls: number): void {
  const { call, head } = store.state;
  const all = model.payload.calls;
  let [nextCall, nextHead] = [call + calls, head + heads];
  if (nextHead < 0) {
    nextCall -= 1;
    nextHead = (all[nextCall]?.heads ?? 0) - 1;
  } else if (nextHead >= all[call].heads && heads > 0) [nextCall, nextHead] = [call + 1, 0];
  if (!all[nextCall]) return;
  store.set({ call: nextCall, head: Math.min(nextHead, all[nextCall].heads - 1), heads: "head" });
}

export function exportCsv(store: Store): void {
  const { view, heads, head } = store.state;
  if (view?.raw) saveCsv(view.raw, fileName(view, head, heads, "csv"));
}

export function exportPng(model: Model, store: Store): void {
  const { view, heads, head, scale, withoutFirst } = store.state;
  if (!view?.raw) return;
  const source = withoutFirst && view.withoutFirst ? view.withoutFirst : view.raw;
  const aside = `${source === view.raw ? "" : " · without first token"}${source.exact ? "" : " · ≈ pooled"}`;
  void savePng(source, `${titleOf(model, store.state)}${aside}`, scale, fileName(view, head, heads, "png"));
}

export function heading(model: Model, store: Store): HTMLElement {
  const title = el("h2", { class: "which", "aria-live": "polite" });
  const name = el("p", { class: "caption" });
  const heads = segmented<Heads>(
    "Heads",
    [
      { value: "head", text: "This head" },
      { value: "layer", text: "Mean of layer", title: "Mean over the heads of this layer (M)" },
      { value: "all", text: "Mean of all", title: "Mean over all heads of all layers of this kind (M)" },
    ],
    (value) => store.set({ heads: value }),
  );
  const button = (text: string, title: string, act: () => void): HTMLElement =>
    el("button", { type: "button", title, "aria-label": title, on: { click: act } }, text);
  const update = (): void => {
    const { state } = store;
    const call = model.payload.calls[state.call];
    title.textContent = titleOf(model, state);
    const sides =
      call.queries === call.keys
        ? `self-attention in ${call.queries}`
        : `cross-attention, ${call.queries} → ${call.keys}`;
    replace(
      name,
      el("bdi", {}, state.heads === "all" ? "" : `${call.name} · `),
      `${sides} · ${call.exact ? "exact weights" : "≈ pooled map with exact largest weights"}`,
    );
    heads.press(state.heads);
  };
  store.subscribe(update);
  update();
  return el(
    "div",
    { class: "heading" },
    button("‹", "Previous head ([)", () => step(model, store, -1, 0)),
    button("›", "Next head (])", () => step(model, store, 1, 0)),
    el("div", { class: "titles" }, title, name),
    heads.element,
    el(
      "div",
      { class: "exports" },
      button("PNG", "Save the matrix as a picture (P)", () => exportPng(model, store)),
      button("CSV", "Save the weights as a table (C)", () => exportCsv(store)),
    ),
  );
}
