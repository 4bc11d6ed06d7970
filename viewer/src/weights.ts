/** The weights of one head, from complete matrices or from a pooled map with the exact largest weights. */

import type { Axis } from "./axis";

/** A matrix to draw: one value per cell, where a cell is one weight or one bin of a pooled map. */
export interface Grid {
  readonly rows: number;
  readonly cols: number;
  readonly values: Float32Array;
}

/** One row or one column of weights. `exact` is null when every value is. */
export interface Line {
  readonly values: Float32Array;
  readonly exact: Uint8Array | null;
}

/** The bin of a pooled map under a cell: ranges of call indices (end excluded) and the mass. */
export interface Bin {
  readonly q0: number;
  readonly q1: number;
  readonly k0: number;
  readonly k1: number;
  readonly mass: number;
}

export interface Cell {
  /** The weight itself when `exact`; else an estimate. */
  readonly value: number;
  readonly exact: boolean;
  /** No more than this, when the weight is not among the stored largest ones. */
  readonly bound: number | null;
  readonly bin: Bin | null;
}

export interface Exactly {
  readonly row: number;
  readonly col: number;
  readonly value: number;
}

export interface Extent {
  readonly queries: number;
  readonly keys: number;
}

/** Rows and columns are counted on the axes, that is, without the padding around the tokens. */
export interface Source {
  readonly exact: boolean;
  readonly q: Axis;
  readonly k: Axis;
  /** How many queries and keys the grid covers: the whole call for a pooled map, the axes for exact weights. */
  readonly extent: Extent;
  grid(): Grid;
  row(index: number): Line;
  column(index: number): Line;
  cell(row: number, col: number): Cell;
  /** The stored exact weights of one query, for a pooled source. */
  largest(row: number): readonly Exactly[];
}

export class ExactSource implements Source {
  readonly exact = true;
  readonly q: Axis;
  readonly k: Axis;
  readonly extent: Extent;
  private readonly values: Float32Array;

  /** `data` is the head's full [q, kv] matrix, padding included. */
  constructor(data: Float32Array, keys: number, q: Axis, k: Axis) {
    this.q = q;
    this.k = k;
    this.extent = { queries: q.count, keys: k.count };
    if (k.count === keys) {
      this.values = data.subarray(q.start * keys, (q.start + q.count) * keys);
    } else {
      this.values = new Float32Array(q.count * k.count);
      for (let i = 0; i < q.count; i++) {
        const from = (q.start + i) * keys + k.start;
        this.values.set(data.subarray(from, from + k.count), i * k.count);
      }
    }
  }

  grid(): Grid {
    return { rows: this.q.count, cols: this.k.count, values: this.values };
  }

  row(index: number): Line {
    const width = this.k.count;
    return { values: this.values.subarray(index * width, (index + 1) * width), exact: null };
  }

  column(index: number): Line {
    const width = this.k.count;
    const values = new Float32Array(this.q.count);
    for (let i = 0; i < values.length; i++) values[i] = this.values[i * width + index];
    return { values, exact: null };
  }

  cell(row: number, col: number): Cell {
    return { value: this.values[row * this.k.count + col], exact: true, bound: null, bin: null };
  }

  largest(): readonly Exactly[] {
    return [];
  }
}

/** Several heads as one: the mean of their weights. */
export class MeanSource implements Source {
  readonly exact: boolean;
  readonly q: Axis;
  readonly k: Axis;
  readonly extent: Extent;
  private readonly parts: readonly Source[];
  private cached: Grid | null = null;

  constructor(parts: readonly Source[]) {
    this.parts = parts;
    this.q = parts[0].q;
    this.k = parts[0].k;
    this.extent = parts[0].extent;
    this.exact = parts.every((part) => part.exact);
  }

  grid(): Grid {
    if (this.cached) return this.cached;
    const { rows, cols, values } = this.parts[0].grid();
    const sums = new Float64Array(values.length);
    for (const part of this.parts) {
      const add = part.grid().values;
      for (let i = 0; i < sums.length; i++) sums[i] += add[i];
    }
    this.cached = { rows, cols, values: Float32Array.from(sums, (sum) => sum / this.parts.length) };
    return this.cached;
  }

  /** Complete weights are averaged once; estimates are averaged where they are asked for. */
  row(index: number): Line {
    if (!this.exact) return meanOf(this.parts.map((part) => part.row(index)));
    const width = this.k.count;
    return { values: this.grid().values.subarray(index * width, (index + 1) * width), exact: null };
  }

  column(index: number): Line {
    if (!this.exact) return meanOf(this.parts.map((part) => part.column(index)));
    const { values } = this.grid();
    return {
      values: Float32Array.from({ length: this.q.count }, (_, i) => values[i * this.k.count + index]),
      exact: null,
    };
  }

  cell(row: number, col: number): Cell {
    if (this.exact) return { value: this.grid().values[row * this.k.count + col], exact: true, bound: null, bin: null };
    const cells = this.parts.map((part) => part.cell(row, col));
    const mean = (pick: (cell: Cell) => number): number =>
      cells.reduce((sum, cell) => sum + pick(cell), 0) / cells.length;
    const bin = cells[0].bin;
    return {
      value: mean((cell) => cell.value),
      exact: cells.every((cell) => cell.exact),
      bound: cells.some((cell) => !cell.exact && cell.bound === null)
        ? null
        : cells.every((cell) => cell.exact)
          ? null
          : mean((cell) => cell.bound ?? cell.value),
      bin: bin && { ...bin, mass: mean((cell) => cell.bin?.mass ?? 0) },
    };
  }

  largest(): readonly Exactly[] {
    return [];
  }
}

function meanOf(lines: readonly Line[]): Line {
  const length = lines[0].values.length;
  const sums = new Float64Array(length);
  let exact: Uint8Array | null = null;
  for (const line of lines) {
    for (let i = 0; i < length; i++) sums[i] += line.values[i];
    if (line.exact) {
      exact ??= new Uint8Array(length).fill(1);
      for (let i = 0; i < length; i++) exact[i] &= line.exact[i];
    }
  }
  return { values: Float32Array.from(sums, (sum) => sum / lines.length), exact };
}

/**
 * The same weights renormalised over every key but the first: w / (1 − w_first). The first key itself has no
 * value here (0), and a query that gives everything to it has none either.
 */
export class WithoutFirst implements Source {
  readonly exact: boolean;
  readonly q: Axis;
  readonly k: Axis;
  readonly extent: Extent;
  private readonly inner: Source;
  private first: Line | null = null;
  private cached: Grid | null = null;

  constructor(inner: Source) {
    this.inner = inner;
    this.q = inner.q;
    this.k = inner.k;
    this.extent = inner.extent;
    this.exact = inner.exact;
  }

  /** Exact grids begin at the axis; a pooled map begins at the call's first query, padding included. */
  private get binOffset(): number {
    return this.exact ? 0 : this.q.start;
  }

  private firstMass(): Line {
    this.first ??= this.inner.column(0);
    return this.first;
  }

  grid(): Grid {
    if (this.cached) return this.cached;
    const { rows, cols, values } = this.inner.grid();
    const first = this.firstMass().values;
    const out = new Float32Array(values.length);
    for (let r = 0; r < rows; r++) {
      // A grid row stands for one query or for a bin of them: the mean of what they give to the first key.
      const from = Math.ceil((r * this.extent.queries) / rows) - this.binOffset;
      const to = Math.ceil(((r + 1) * this.extent.queries) / rows) - this.binOffset;
      let sum = 0;
      let count = 0;
      for (let i = Math.max(0, from); i < Math.min(first.length, to); i++, count++) sum += first[i];
      const mass = count > 0 ? sum / count : 0;
      for (let c = 0; c < cols; c++) {
        const value = c === 0 ? Math.max(0, values[r * cols] - mass) : values[r * cols + c];
        out[r * cols + c] = c === 0 && this.exact ? 0 : renormalise(value, mass);
      }
    }
    this.cached = { rows, cols, values: out };
    return this.cached;
  }

  row(index: number): Line {
    const line = this.inner.row(index);
    const mass = line.values[0];
    const values = line.values.map((value, key) => (key === 0 ? 0 : renormalise(value, mass)));
    const exact = line.exact?.[0] === 0 ? new Uint8Array(values.length) : line.exact;
    return { values, exact };
  }

  column(index: number): Line {
    const line = this.inner.column(index);
    const first = this.firstMass();
    if (index === 0) return { values: new Float32Array(line.values.length), exact: line.exact };
    const values = line.values.map((value, query) => renormalise(value, first.values[query]));
    const exact = line.exact ? line.exact.map((flag, query) => flag & (first.exact?.[query] ?? 1)) : first.exact;
    return { values, exact };
  }

  cell(row: number, col: number): Cell {
    const cell = this.inner.cell(row, col);
    const first = this.inner.cell(row, 0);
    const value = col === 0 ? 0 : renormalise(cell.value, first.value);
    return { value, exact: cell.exact && first.exact, bound: null, bin: cell.bin };
  }

  largest(row: number): readonly Exactly[] {
    const mass = this.inner.cell(row, 0).value;
    return this.inner
      .largest(row)
      .filter((entry) => entry.col !== 0)
      .map((entry) => ({ ...entry, value: renormalise(entry.value, mass) }));
  }
}

function renormalise(value: number, first: number): number {
  const rest = 1 - first;
  // The difference of two float32 numbers: below this it is rounding, and there is nothing left to share out.
  return rest < 1e-6 ? 0 : value / rest;
}
