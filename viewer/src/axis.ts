/** What stands along one side of the matrix: indices of the call, positions in the sequence, tokens. */

import type { CallRecord, Payload, Sequence, Token } from "./schema";
import { firstReal, label } from "./tokens";

export interface Axis {
  /** Name of the sequence the positions count in. */
  readonly sequence: string;
  readonly source: Sequence;
  /** First call index shown, and how many follow. Padding around the tokens is left out. */
  readonly start: number;
  readonly count: number;
  readonly positions: Int32Array;
  readonly tokens: readonly (Token | null)[];
  readonly labels: readonly string[];
  /** From a position in the sequence to the index on this axis, or undefined where it has no row or column. */
  readonly at: ReadonlyMap<number, number>;
}

/** Labels are made once for a sequence, and only for tokens that are shown. */
const made = new WeakMap<Sequence, Map<number, string>>();

function labelAt(source: Sequence, position: number): string {
  let labels = made.get(source);
  if (!labels) {
    labels = new Map();
    made.set(source, labels);
  }
  let text = labels.get(position);
  if (text === undefined) {
    text = label(source, position);
    labels.set(position, text);
  }
  return text;
}

function buildAxis(name: string, source: Sequence, all: readonly number[]): Axis {
  let start = 0;
  let end = all.length;
  const first = firstReal(source);
  const has = (index: number): boolean => all[index] >= first && all[index] < source.tokens.length;
  if (source.tokens.length > 0) {
    while (start < end && !has(start)) start++;
    while (end > start && !has(end - 1)) end--;
  }
  const positions = Int32Array.from(all.slice(start, end));
  const tokens = Array.from(positions, (position) => source.tokens[position] ?? null);
  const labels = tokens.map((token, index) => (token ? labelAt(source, positions[index]) : "·"));
  const at = new Map<number, number>();
  positions.forEach((position, index) => {
    at.set(position, index);
  });
  return { sequence: name, source, start, count: positions.length, positions, tokens, labels, at };
}

export function queryAxis(payload: Payload, call: CallRecord, item: number): Axis {
  const row = call.q_positions[call.q_positions.length === 1 ? 0 : item];
  return buildAxis(call.queries, payload.items[item].sequences[call.queries], row);
}

export function keyAxis(payload: Payload, call: CallRecord, item: number): Axis {
  const all = Array.from({ length: call.k }, (_, index) => call.k_start + index);
  return buildAxis(call.keys, payload.items[item].sequences[call.keys], all);
}
