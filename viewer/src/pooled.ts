/** A head of a long input: a quantised map of bins, and the exact largest weights of every query. */

import type { Axis } from "./axis";
import type { Bin, Cell, Exactly, Extent, Grid, Line, Source } from "./weights";

export interface PooledMap {
  readonly rows: number;
  readonly cols: number;
  /** Quantised mass [rows, cols] of this head, and what each of the 256 steps means. */
  readonly steps: Uint8Array;
  readonly meaning: Float32Array;
}

export interface Largest {
  readonly k: number;
  /** Absolute key positions [q, k], −1 where a query has fewer keys. */
  readonly indices: Int32Array;
  readonly weights: Float32Array;
  readonly rest: Float32Array;
}

/** 0 is exactly zero; v > 0 is 2^(floor + (v − 1)·step). */
export function meaningOfSteps(floorLog2: number, step: number): Float32Array {
  return Float32Array.from({ length: 256 }, (_, v) => (v === 0 ? 0 : 2 ** (floorLog2 + (v - 1) * step)));
}

/** The bin of an index when n things share b bins: ⌊i·b/n⌋. */
export function binOf(index: number, count: number, bins: number): number {
  return Math.floor((index * bins) / count);
}

/** First index of a bin: the smallest i with ⌊i·b/n⌋ = bin. */
export function binStart(bin: number, count: number, bins: number): number {
  return Math.ceil((bin * count) / bins);
}

interface Writable {
  readonly values: Float32Array;
  readonly exact: Uint8Array;
}

/** The bin of every query and every key, and what part of a bin's mass one of its keys gets. */
interface Shares {
  readonly rows: Int32Array;
  readonly cols: Int32Array;
  readonly parts: Float32Array;
}

const made = new Map<string, Shares>();

/** Heads of one shape have the same bins: they are counted once. */
function sharesOf(queries: number, keys: number, rows: number, cols: number): Shares {
  const name = `${queries} ${keys} ${rows} ${cols}`;
  let shares = made.get(name);
  if (!shares) {
    shares = {
      rows: Int32Array.from({ length: queries }, (_, i) => binOf(i, queries, rows)),
      cols: Int32Array.from({ length: keys }, (_, j) => binOf(j, keys, cols)),
      parts: Float32Array.from(
        { length: cols },
        (_, bin) => 1 / Math.max(1, binStart(bin + 1, keys, cols) - binStart(bin, keys, cols)),
      ),
    };
    made.set(name, shares);
  }
  return shares;
}

export class PooledSource implements Source {
  readonly exact = false;
  readonly q: Axis;
  readonly k: Axis;
  readonly extent: Extent;
  private readonly queries: number;
  private readonly keys: number;
  private readonly map: PooledMap | null;
  private readonly shares: Shares | null;
  private readonly top: Largest | null;
  private readonly keyStart: number;
  private readonly axes: { q: Axis; k: Axis };
  private byKey: { starts: Int32Array; entries: Int32Array } | null = null;
  private cached: Grid | null = null;

  constructor(
    shape: { queries: number; keys: number; keyStart: number },
    axes: { q: Axis; k: Axis },
    stored: { map: PooledMap | null; top: Largest | null },
  ) {
    this.extent = { queries: shape.queries, keys: shape.keys };
    this.queries = shape.queries;
    this.keys = shape.keys;
    this.keyStart = shape.keyStart;
    this.axes = axes;
    this.q = axes.q;
    this.k = axes.k;
    this.map = stored.map;
    this.shares = this.map && sharesOf(shape.queries, shape.keys, this.map.rows, this.map.cols);
    this.top = stored.top;
  }

  grid(): Grid {
    this.cached ??= this.map ? this.mapGrid(this.map) : this.topGrid();
    return this.cached;
  }

  /** The map's bins as they are: the padding is cut off by the drawing, which knows the axes. */
  private mapGrid(map: PooledMap): Grid {
    const { rows, cols, steps, meaning } = map;
    return { rows, cols, values: Float32Array.from(steps, (step) => meaning[step]) };
  }

  /** Without a map: the mass of the stored largest weights per bin, a lower bound. */
  private topGrid(): Grid {
    const rows = Math.min(this.queries, 256);
    const cols = Math.min(this.keys, 256);
    const values = new Float32Array(rows * cols);
    for (let i = 0; i < this.queries; i++) {
      const bin = binOf(i, this.queries, rows);
      const share = binStart(bin + 1, this.queries, rows) - binStart(bin, this.queries, rows);
      this.eachLargest(i, (key, value) => {
        values[bin * cols + binOf(key, this.keys, cols)] += value / share;
      });
    }
    return { rows, cols, values };
  }

  private eachLargest(query: number, visit: (key: number, value: number) => void): void {
    const top = this.top;
    if (!top) return;
    for (let n = query * top.k; n < (query + 1) * top.k; n++) {
      if (top.indices[n] < 0) continue;
      const key = top.indices[n] - this.keyStart;
      if (key >= 0 && key < this.keys) visit(key, top.weights[n]);
    }
  }

  /** The smallest stored weight of a query: no weight that is not stored exceeds it, nor the rest mass. */
  private bound(query: number): number | null {
    const top = this.top;
    if (!top) return null;
    const last = (query + 1) * top.k - 1;
    // A free place in the table means that every weight there is was stored.
    if (top.indices[last] < 0) return 0;
    return Math.min(top.weights[last], Math.max(0, top.rest[query]));
  }

  private bin(query: number, key: number): Bin | null {
    const map = this.map;
    if (!map) return null;
    const r = binOf(query, this.queries, map.rows);
    const c = binOf(key, this.keys, map.cols);
    return {
      q0: binStart(r, this.queries, map.rows),
      q1: binStart(r + 1, this.queries, map.rows),
      k0: binStart(c, this.keys, map.cols),
      k1: binStart(c + 1, this.keys, map.cols),
      mass: map.meaning[map.steps[r * map.cols + c]],
    };
  }

  /** What is known of a weight that is not in the table: never above the bound, exact (1) when it must be zero. */
  private guess(query: number, key: number, bound: number | null, line: Writable, at: number): void {
    const { map, shares } = this;
    // A bin's mass is shared evenly among its keys. An empty bin is exact: all its weights are zero.
    let even = 0;
    let exact = bound === 0;
    if (map && shares) {
      const col = shares.cols[key];
      const step = map.steps[shares.rows[query] * map.cols + col];
      even = map.meaning[step] * shares.parts[col];
      exact ||= step === 0;
    }
    line.exact[at] = exact ? 1 : 0;
    line.values[at] = exact ? 0 : bound === null ? even : Math.min(even, bound);
  }

  row(index: number): Line {
    const query = index + this.axes.q.start;
    const { start, count } = this.axes.k;
    const bound = this.bound(query);
    const line = { values: new Float32Array(count), exact: new Uint8Array(count) };
    for (let c = 0; c < count; c++) this.guess(query, c + start, bound, line, c);
    this.eachLargest(query, (key, value) => {
      const c = key - start;
      if (c >= 0 && c < count) {
        line.values[c] = value;
        line.exact[c] = 1;
      }
    });
    return line;
  }

  column(index: number): Line {
    const key = index + this.axes.k.start;
    const { start, count } = this.axes.q;
    const line = { values: new Float32Array(count), exact: new Uint8Array(count) };
    for (let r = 0; r < count; r++) this.guess(r + start, key, this.bound(r + start), line, r);
    const top = this.top;
    if (top) {
      const { starts, entries } = this.invert(top);
      for (let n = starts[key]; n < starts[key + 1]; n++) {
        const r = Math.floor(entries[n] / top.k) - start;
        if (r >= 0 && r < count) {
          line.values[r] = top.weights[entries[n]];
          line.exact[r] = 1;
        }
      }
    }
    return line;
  }

  /** For every key, the table's entries that name it (compressed rows): built once, at the first column. */
  private invert(top: Largest): { starts: Int32Array; entries: Int32Array } {
    if (this.byKey) return this.byKey;
    const starts = new Int32Array(this.keys + 1);
    const keyAt = (n: number): number => (top.indices[n] < 0 ? -1 : top.indices[n] - this.keyStart);
    for (let n = 0; n < top.indices.length; n++) {
      const key = keyAt(n);
      if (key >= 0 && key < this.keys) starts[key + 1]++;
    }
    for (let key = 0; key < this.keys; key++) starts[key + 1] += starts[key];
    const next = starts.slice();
    const entries = new Int32Array(starts[this.keys]);
    for (let n = 0; n < top.indices.length; n++) {
      const key = keyAt(n);
      if (key >= 0 && key < this.keys) entries[next[key]++] = n;
    }
    this.byKey = { starts, entries };
    return this.byKey;
  }

  cell(row: number, col: number): Cell {
    const query = row + this.axes.q.start;
    const key = col + this.axes.k.start;
    const bin = this.bin(query, key);
    let found: number | null = null;
    this.eachLargest(query, (at, value) => {
      if (at === key) found = value;
    });
    if (found !== null) return { value: found, exact: true, bound: null, bin };
    const bound = this.bound(query);
    const line = { values: new Float32Array(1), exact: new Uint8Array(1) };
    this.guess(query, key, bound, line, 0);
    return { value: line.values[0], exact: line.exact[0] === 1, bound, bin };
  }

  largest(row: number): readonly Exactly[] {
    const out: Exactly[] = [];
    this.eachLargest(row + this.axes.q.start, (key, value) => {
      const col = key - this.axes.k.start;
      if (col >= 0 && col < this.axes.k.count) out.push({ row, col, value });
    });
    return out;
  }
}
