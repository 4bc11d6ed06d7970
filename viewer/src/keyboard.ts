/** Keys that work anywhere on the page. Panels handle their own arrows first. */

import { exportCsv, exportPng, step } from "./heading";
import type { Heads, Store, Theme } from "./state";
import type { Model } from "./view";

function after<T>(values: readonly T[], value: T): T {
  return values[(values.indexOf(value) + 1) % values.length];
}

export function keyboard(model: Model, store: Store, help: HTMLDialogElement): void {
  const focus = (selector: string): void => document.querySelector<HTMLElement>(selector)?.focus();
  const actions: Record<string, () => void> = {
    "[": () => step(model, store, -1, 0),
    "]": () => step(model, store, 1, 0),
    "{": () => step(model, store, 0, -1),
    "}": () => step(model, store, 0, 1),
    m: () => store.set({ heads: after<Heads>(["head", "layer", "all"], store.state.heads) }),
    l: () => store.set({ scale: store.state.scale === "log" ? "linear" : "log" }),
    f: () => {
      if (store.state.view?.withoutFirst) store.set({ withoutFirst: !store.state.withoutFirst });
    },
    d: () => store.set({ direction: store.state.direction === "out" ? "in" : "out" }),
    t: () => store.set({ theme: after<Theme>(["auto", "light", "dark"], store.state.theme) }),
    p: () => exportPng(model, store),
    c: () => exportCsv(store),
    "1": () => focus('.heads button[tabindex="0"]'),
    "2": () => focus("#matrix"),
    "3": () => focus(".text"),
    "?": () => help.showModal(),
    Escape: () => store.set({ selection: new Map(), hover: null, point: null }),
  };
  document.addEventListener("keydown", (event) => {
    if (help.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLSelectElement) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
