/** The page: read the recording, build the panels, keep the chosen weights loaded. */

import "./style.css";
import { el, replace } from "./dom";
import { header } from "./header";
import { heading } from "./heading";
import { helpDialog } from "./help";
import { type Hook, hook } from "./hook";
import { keyboard } from "./keyboard";
import { LinesPanel } from "./lines";
import { MatrixPanel } from "./matrix";
import { notes } from "./notes";
import { Overview } from "./overview";
import { BlobStore, readPayload } from "./payload";
import { PayloadError } from "./schema";
import { INITIAL, Store } from "./state";
import { tables } from "./tables";
import { TextPanel } from "./text";
import { followTheme } from "./theme";
import { Model } from "./view";

declare global {
  interface Window {
    regard?: Hook;
  }
}

function explain(root: HTMLElement, error: unknown): void {
  const known = error instanceof PayloadError;
  const text = known ? error.message : `The page could not be built: ${String((error as Error)?.message ?? error)}`;
  if (!known) console.error(error);
  let box = document.querySelector("#problem");
  if (!box) {
    box = el("div", { id: "problem", role: "alert" });
    root.prepend(box);
  }
  box.textContent = text;
}

/** Decode what the state asks for; a newer choice overtakes an older one still being decoded. */
function loader(model: Model, store: Store, root: HTMLElement): () => Promise<void> {
  let serial = 0;
  return async () => {
    const mine = ++serial;
    try {
      const view = await model.view(store.state);
      if (mine !== serial) return;
      const old = store.state.view;
      const sameAxes =
        old !== null &&
        old.item === view.item &&
        old.call.queries === view.call.queries &&
        old.call.keys === view.call.keys;
      store.set(sameAxes ? { view } : { view, selection: new Map(), hover: null, point: null });
      document.querySelector("#problem")?.remove();
    } catch (error) {
      if (mine === serial) explain(root, error);
    }
  };
}

function start(root: HTMLElement): void {
  const payload = readPayload();
  document.title = payload.title ? `${payload.title} · regard` : "regard";
  const model = new Model(payload, new BlobStore(payload.blobs));
  // Pooled masses of long inputs are small: their structure shows on the logarithmic scale.
  const store = new Store({ ...INITIAL, scale: payload.calls[0]?.exact === false ? "log" : "linear" });
  followTheme(store);
  if (payload.calls.length === 0) {
    replace(
      root,
      el("header", { class: "top" }, el("h1", {}, el("bdi", {}, payload.title))),
      notes(payload, store),
      ...tables(payload, store),
    );
    explain(
      root,
      new PayloadError("No attention call was seen, so there is nothing to draw. The coverage below says why."),
    );
    return;
  }
  const help = helpDialog();
  const matrix = new MatrixPanel(store);
  const overview = new Overview(model, store);
  const text = new TextPanel(model, store);
  const lines = new LinesPanel(store);
  replace(
    root,
    header(payload, store, () => help.showModal()),
    notes(payload, store),
    ...tables(payload, store),
    el(
      "main",
      {},
      el("div", { class: "aside-column" }, overview.element, lines.element),
      el("div", { class: "work" }, heading(model, store), el("div", { class: "panels" }, matrix.element, text.element)),
    ),
    el("footer", {}, `Made with regard ${payload.regard}. This page is complete in itself and sends nothing anywhere.`),
    help,
  );
  const load = loader(model, store, root);
  store.subscribe((_, changed) => {
    if (["item", "call", "head", "heads"].some((key) => changed.has(key as never))) void load();
  });
  keyboard(model, store, help);
  window.regard = hook(store, matrix, load());
}

const root = document.querySelector<HTMLElement>("#app");
if (root) {
  addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    explain(root, event.reason);
  });
  try {
    start(root);
  } catch (error) {
    explain(root, error);
  }
}
