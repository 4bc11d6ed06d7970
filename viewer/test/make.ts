/** Small things the tests are made of. */

import { deflateSync } from "node:zlib";
import { type Axis, keyAxis, queryAxis } from "../src/axis";
import type { BlobRecord, CallRecord, Payload, Sequence, Token } from "../src/schema";

export function token(t: string, s: number, e: number, more: Partial<Token> = {}): Token {
  return { t, s, e, special: false, g: 0, gi: 0, gn: 1, ...more };
}

/** One token per word. */
export function sentence(text: string): Sequence {
  const tokens: Token[] = [];
  for (const match of text.matchAll(/\S+/g)) {
    tokens.push(token(match[0], match.index, match.index + match[0].length, { g: tokens.length }));
  }
  return { text, tokens };
}

export function call(more: Partial<CallRecord> = {}): CallRecord {
  const q = more.q ?? 3;
  return {
    name: "layer.0",
    layer: 0,
    kind: "self",
    heads: 1,
    q,
    k: q,
    queries: "input",
    keys: "input",
    q_positions: [Array.from({ length: q }, (_, i) => i)],
    k_start: 0,
    exact: true,
    weights: null,
    map: null,
    topk: null,
    entropy: null,
    first: null,
    first_n: null,
    sink: null,
    key_mass: null,
    flags: [],
    ...more,
  };
}

export function payload(
  calls: CallRecord[],
  sequences: Record<string, Sequence>,
  more: Partial<Payload> = {},
): Payload {
  return {
    schema: 1,
    regard: "0.1.0",
    title: "t",
    model: { name: "m", sha256: null, architecture: null },
    created: null,
    notes: [],
    coverage: [],
    items: [{ sequences }],
    tables: [],
    calls,
    blobs: {},
    ...more,
  };
}

export function blob(numbers: Float32Array | Uint8Array | Int32Array, shape: number[]): BlobRecord {
  const dtype = numbers instanceof Float32Array ? "f32" : numbers instanceof Int32Array ? "i32" : "u8";
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  return { dtype, shape, data: deflateSync(bytes).toString("base64") };
}

export function axes(record: CallRecord, sequence: Sequence): { q: Axis; k: Axis } {
  const made = payload([record], { [record.queries]: sequence, [record.keys]: sequence });
  return { q: queryAxis(made, record, 0), k: keyAxis(made, record, 0) };
}
