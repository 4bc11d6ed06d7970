/** What a selection gives and takes. */

import type { Line, Source } from "./weights";

export interface Mass {
  readonly values: Float64Array;
  /** False where the sum holds an estimate. */
  readonly exact: Uint8Array;
}

function total(lines: readonly Line[], length: number, divisor: number): Mass {
  const values = new Float64Array(length);
  const exact = new Uint8Array(length).fill(1);
  for (const line of lines) {
    for (let i = 0; i < length; i++) {
      values[i] += line.values[i];
      if (line.exact && line.exact[i] === 0) exact[i] = 0;
    }
  }
  for (let i = 0; i < length; i++) values[i] /= divisor;
  return { values, exact };
}

/** Mass from the selected queries to each key: the mean over the queries. */
export function massFrom(source: Source, rows: readonly number[]): Mass {
  const lines = rows.map((row) => source.row(row));
  return total(lines, source.k.count, Math.max(1, rows.length));
}

/** Mass from each query into the selected keys: the sum over the keys. */
export function massInto(source: Source, cols: readonly number[]): Mass {
  return total(
    cols.map((col) => source.column(col)),
    source.q.count,
    1,
  );
}

/** Mass from the selected queries to the selected keys: mean over the queries of the sum over the keys. */
export function massBetween(
  source: Source,
  rows: readonly number[],
  cols: readonly number[],
): { value: number; exact: boolean } {
  if (rows.length === 0 || cols.length === 0) return { value: 0, exact: true };
  const from = massFrom(source, rows);
  return {
    value: cols.reduce((sum, col) => sum + from.values[col], 0),
    exact: cols.every((col) => from.exact[col] === 1),
  };
}
