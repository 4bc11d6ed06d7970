/**
 * `window.regard`: a read-only look at the page for tests and the curious.
 *
 * `ready` settles when the first head is drawn. `state()` is a plain object; `cell(row, col)`, `sums()` and
 * `pointOf(row, col)` count on the axes that `state()` describes.
 */

import { focusOf, sumsOf } from "./focus";
import type { MatrixPanel } from "./matrix";
import type { Store } from "./state";
import { keyOf } from "./view";

export interface Hook {
  readonly ready: Promise<void>;
  state(): Record<string, unknown>;
  cell(row: number, col: number): unknown;
  sums(): unknown;
  pointOf(row: number, col: number): { x: number; y: number };
}

export function hook(store: Store, matrix: MatrixPanel, ready: Promise<void>): Hook {
  return Object.freeze({
    ready,
    state() {
      const { view, selection, ...rest } = store.state;
      return {
        ...rest,
        selection: Object.fromEntries([...selection].map(([name, set]) => [name, [...set].sort((a, b) => a - b)])),
        name: view?.call.name ?? null,
        loaded: view !== null && view.key === keyOf(store.state),
        averaged: view?.heads ?? 0,
        exact: view?.raw?.exact ?? null,
        rows: view ? Array.from(view.q.positions) : [],
        cols: view ? Array.from(view.k.positions) : [],
        zoom: matrix.port.zoom,
        cellWidth: matrix.port.sx,
      };
    },
    cell(row: number, col: number) {
      return store.state.view?.raw?.cell(row, col) ?? null;
    },
    sums() {
      const { view } = store.state;
      if (!view?.raw) return null;
      const sums = sumsOf(view.raw, focusOf(store.state, view));
      return {
        from: sums.from && Array.from(sums.from.values),
        into: sums.into && Array.from(sums.into.values),
        between: sums.between?.value ?? null,
      };
    },
    pointOf(row: number, col: number) {
      const box = matrix.canvas.getBoundingClientRect();
      return { x: box.left + matrix.port.x(col + 0.5), y: box.top + matrix.port.y(row + 0.5) };
    },
  });
}
