/** The tokens in question: those selected, or else the one under the pointer. */

import type { State } from "./state";
import { type Mass, massBetween, massFrom, massInto } from "./sums";
import type { View } from "./view";
import type { Source } from "./weights";

export interface Focus {
  readonly rows: readonly number[];
  readonly cols: readonly number[];
  /** Positions asked for that have no row: tokens that have not been queries. */
  readonly withoutRow: readonly number[];
  readonly selected: boolean;
}

const NOTHING: Focus = { rows: [], cols: [], withoutRow: [], selected: false };

function indices(positions: Iterable<number>, at: ReadonlyMap<number, number>): number[] {
  const found: number[] = [];
  for (const position of positions) {
    const index = at.get(position);
    if (index !== undefined) found.push(index);
  }
  return found.sort((a, b) => a - b);
}

function of(view: View, queries: readonly number[], keys: readonly number[], selected: boolean): Focus {
  return {
    rows: indices(queries, view.q.at),
    cols: indices(keys, view.k.at),
    withoutRow: queries.filter((position) => !view.q.at.has(position)),
    selected,
  };
}

export function focusOf(state: State, view: View): Focus {
  const queries = [...(state.selection.get(view.call.queries) ?? [])];
  const keys = [...(state.selection.get(view.call.keys) ?? [])];
  if (queries.length + keys.length > 0) return of(view, queries, keys, true);
  return hoverOf(state, view);
}

/** The token under the pointer alone, whatever is selected. */
export function hoverOf(state: State, view: View): Focus {
  if (!state.hover) return NOTHING;
  const { side, positions } = state.hover;
  if (view.self) return of(view, positions, positions, false);
  return side === "q" ? of(view, positions, [], false) : of(view, [], positions, false);
}

export interface Sums {
  /** To each key, mean over the focused queries. */
  readonly from: Mass | null;
  /** From each query, sum over the focused keys. */
  readonly into: Mass | null;
  readonly between: { value: number; exact: boolean } | null;
}

export function sumsOf(source: Source, focus: Focus): Sums {
  const { rows, cols } = focus;
  return {
    from: rows.length > 0 ? massFrom(source, rows) : null,
    into: cols.length > 0 ? massInto(source, cols) : null,
    between: rows.length > 0 && cols.length > 0 ? massBetween(source, rows, cols) : null,
  };
}
