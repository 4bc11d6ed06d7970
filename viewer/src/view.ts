/** From the payload and a choice of heads to weights that can be asked for. */

import { type Axis, keyAxis, queryAxis } from "./axis";
import type { BlobStore } from "./payload";
import { type Largest, meaningOfSteps, type PooledMap, PooledSource } from "./pooled";
import type { CallRecord, Payload } from "./schema";
import type { Heads } from "./state";
import { type Mass, massFrom } from "./sums";
import { ExactSource, MeanSource, type Source, WithoutFirst } from "./weights";

/** What a view is a view of; a newer choice has another key. */
export function keyOf(choice: { call: number; item: number; head: number; heads: Heads }): string {
  return `${choice.item} ${choice.call} ${choice.heads} ${choice.heads === "head" ? choice.head : ""}`;
}

export interface View {
  readonly key: string;
  readonly call: CallRecord;
  readonly item: number;
  readonly q: Axis;
  readonly k: Axis;
  /** Queries and keys are one sequence: a token is both a row and a column. */
  readonly self: boolean;
  /** Null where nothing but statistics was stored. */
  readonly raw: Source | null;
  readonly withoutFirst: Source | null;
  readonly heads: number;
  /** What each key receives, mean over all queries; null where it cannot be known exactly. */
  readonly received: Mass | null;
}

/** Row statistics of one head, where they were recorded. */
export interface RowStatistics {
  readonly entropy: Float32Array | null;
  readonly sink: Float32Array | null;
  readonly first: Float32Array | null;
  /** How many keys `first` is the mass on. */
  readonly firstCount: number;
  readonly received: Float32Array | null;
}

export class Model {
  readonly payload: Payload;
  readonly blobs: BlobStore;
  private readonly known = new Map<string, { q: Axis; k: Axis }>();

  constructor(payload: Payload, blobs: BlobStore) {
    this.payload = payload;
    this.blobs = blobs;
  }

  /** Calls whose matrices have the same rows and columns, so that a mean over them has a meaning. */
  alike(index: number): number[] {
    const calls = this.payload.calls;
    const one = calls[index];
    return calls.flatMap((call, at) =>
      call.kind === one.kind &&
      call.queries === one.queries &&
      call.keys === one.keys &&
      call.q === one.q &&
      call.k === one.k &&
      call.k_start === one.k_start &&
      call.exact === one.exact &&
      call.map?.rows === one.map?.rows &&
      call.map?.cols === one.map?.cols &&
      call.q_positions.every((row, n) => row.every((position, i) => position === one.q_positions[n]?.[i]))
        ? [at]
        : [],
    );
  }

  axes(call: number, item: number): { q: Axis; k: Axis } {
    const key = `${call} ${item}`;
    let found = this.known.get(key);
    if (!found) {
      const record = this.payload.calls[call];
      found = { q: queryAxis(this.payload, record, item), k: keyAxis(this.payload, record, item) };
      this.known.set(key, found);
    }
    return found;
  }

  /** One head's weights. A thumbnail of a pooled map can do `without` the tables of largest weights. */
  async source(call: number, item: number, head: number, without?: "largest"): Promise<Source | null> {
    const axes = this.axes(call, item);
    const record = this.payload.calls[call];
    const place = item * record.heads + head;
    if (record.exact && record.weights !== null) {
      const data = await this.blobs.floats(record.weights);
      const size = record.q * record.k;
      return new ExactSource(data.subarray(place * size, (place + 1) * size), record.k, axes.q, axes.k);
    }
    const [map, top] = await Promise.all([
      this.map(record, place),
      without && record.map ? null : this.top(record, place),
    ]);
    if (!map && !top) return null;
    return new PooledSource({ queries: record.q, keys: record.k, keyStart: record.k_start }, axes, { map, top });
  }

  private async map(record: CallRecord, place: number): Promise<PooledMap | null> {
    if (!record.map) return null;
    const { blob, rows, cols, floor_log2, step } = record.map;
    const data = (await this.blobs.get(blob)) as Uint8Array;
    const steps = data.subarray(place * rows * cols, (place + 1) * rows * cols);
    return { rows, cols, steps, meaning: meaningOfSteps(floor_log2, step) };
  }

  private async top(record: CallRecord, place: number): Promise<Largest | null> {
    if (!record.topk) return null;
    const { indices, weights, rest, k } = record.topk;
    const [where, what, left] = await Promise.all([
      this.blobs.get(indices),
      this.blobs.floats(weights),
      this.blobs.floats(rest),
    ]);
    const size = record.q * k;
    return {
      k,
      indices: (where as Int32Array).subarray(place * size, (place + 1) * size),
      weights: what.subarray(place * size, (place + 1) * size),
      rest: left.subarray(place * record.q, (place + 1) * record.q),
    };
  }

  async view(choice: { call: number; item: number; head: number; heads: Heads }): Promise<View> {
    const { call, item, head, heads } = choice;
    const record = this.payload.calls[call];
    const axes = this.axes(call, item);
    const wanted: [number, number][] =
      heads === "head"
        ? [[call, head]]
        : (heads === "layer" ? [call] : this.alike(call)).flatMap((at) =>
            Array.from({ length: this.payload.calls[at].heads }, (_, h): [number, number] => [at, h]),
          );
    const found = await Promise.all(wanted.map(([at, h]) => this.source(at, item, h)));
    const parts = found.filter((source) => source !== null);
    const usable = parts.length === wanted.length && axes.q.count > 0 && axes.k.count > 0;
    const raw = usable ? (parts.length === 1 ? parts[0] : new MeanSource(parts)) : null;
    // The first token can be left out only where it is among the keys (a sliding cache may have dropped it).
    const hasFirst = raw !== null && axes.k.count > 1 && axes.k.positions[0] === 0;
    return {
      key: keyOf(choice),
      call: record,
      item,
      ...axes,
      self: record.queries === record.keys,
      raw,
      withoutFirst: hasFirst ? new WithoutFirst(raw) : null,
      heads: wanted.length,
      received: raw && (await this.received(raw, wanted, item)),
    };
  }

  /** Complete weights are summed; for a pooled call the recorded key mass is, in which all its queries count. */
  private async received(raw: Source, heads: readonly [number, number][], item: number): Promise<Mass | null> {
    if (raw.exact) return massFrom(raw, Array.from(raw.q.positions.keys()));
    const values = new Float64Array(raw.k.count);
    for (const [call, head] of heads) {
      const { received } = await this.statistics(call, item, head);
      if (!received) return null;
      const share = heads.length * this.payload.calls[call].q;
      for (let i = 0; i < values.length; i++) values[i] += received[i] / share;
    }
    return { values, exact: new Uint8Array(values.length).fill(1) };
  }

  private async slice(id: string | null, place: number, size: number, axis: Axis): Promise<Float32Array | null> {
    if (id === null) return null;
    const data = await this.blobs.floats(id);
    return data.subarray(place * size + axis.start, place * size + axis.start + axis.count);
  }

  async statistics(call: number, item: number, head: number): Promise<RowStatistics> {
    const record = this.payload.calls[call];
    const place = item * record.heads + head;
    const { q, k } = this.axes(call, item);
    const [entropy, sink, first, received] = await Promise.all([
      this.slice(record.entropy, place, record.q, q),
      this.slice(record.sink, place, record.q, q),
      this.slice(record.first, place, record.q, q),
      this.slice(record.key_mass, place, record.k, k),
    ]);
    return { entropy, sink, first, firstCount: record.first_n ?? 1, received };
  }

  /** Mean entropy of a head's rows in nats: recorded, or computed from complete weights; null where neither is there. */
  async meanEntropy(call: number, item: number, head: number): Promise<number | null> {
    const record = this.payload.calls[call];
    if (record.entropy !== null) {
      const place = item * record.heads + head;
      const rows = await this.slice(record.entropy, place, record.q, this.axes(call, item).q);
      return rows && rows.length > 0 ? rows.reduce((sum, value) => sum + value, 0) / rows.length : null;
    }
    const source = await this.source(call, item, head);
    if (!source?.exact || source.q.count === 0) return null;
    let sum = 0;
    for (const value of source.grid().values) if (value > 0) sum -= value * Math.log(value);
    return sum / source.q.count;
  }
}

/** The weights that colours show: raw, or renormalised without the first token. */
export function shown(view: View, withoutFirst: boolean): Source | null {
  return withoutFirst && view.withoutFirst ? view.withoutFirst : view.raw;
}
