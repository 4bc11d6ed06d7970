import { describe, expect, it } from "vitest";
import { ranked } from "../src/details";
import { csvOf, field } from "../src/export";
import { strands } from "../src/lines";
import { shrink } from "../src/overview";
import { BlobStore } from "../src/payload";
import { binOf, binStart, meaningOfSteps, PooledSource } from "../src/pooled";
import { toggled } from "../src/state";
import { massBetween, massFrom, massInto } from "../src/sums";
import { Model } from "../src/view";
import { ExactSource, MeanSource, WithoutFirst } from "../src/weights";
import { axes, blob, call, payload, sentence, token } from "./make";

const THREE = Float32Array.of(0.5, 0.25, 0.25, 1, 0, 0, 0.2, 0.3, 0.5);

function exact(values = THREE, size = 3): ExactSource {
  const { q, k } = axes(call({ q: size }), sentence("a b c d e f".split(" ").slice(0, size).join(" ")));
  return new ExactSource(values, size, q, k);
}

describe("exact weights", () => {
  it("gives rows, columns and cells", () => {
    const source = exact();
    expect(Array.from(source.row(2).values)).toEqual(Array.from(Float32Array.of(0.2, 0.3, 0.5)));
    expect(Array.from(source.column(0).values)).toEqual(Array.from(Float32Array.of(0.5, 1, 0.2)));
    expect(source.cell(2, 1)).toEqual({ value: Math.fround(0.3), exact: true, bound: null, bin: null });
  });

  it("leaves padding out", () => {
    const { q, k } = axes(call({ q: 3 }), sentence("a b"));
    const source = new ExactSource(THREE, 3, q, k);
    expect([q.count, k.count]).toEqual([2, 2]);
    expect(Array.from(source.grid().values)).toEqual([0.5, 0.25, 1, 0]);
  });

  it("labels by positions, cached keys included", () => {
    const { q, k } = axes(call({ q: 1, k: 3, q_positions: [[4]], k_start: 2 }), sentence("a b c d e f"));
    expect(Array.from(q.positions)).toEqual([4]);
    expect(Array.from(k.positions)).toEqual([2, 3, 4]);
    expect(k.labels).toEqual(["c", "d", "e"]);
    expect(k.at.get(1)).toBeUndefined();
  });
});

describe("sums", () => {
  it("is a mean over queries and a sum over keys", () => {
    const source = exact();
    expect(Array.from(massFrom(source, [0, 1]).values)).toEqual([0.75, 0.125, 0.125]);
    const into = massInto(source, [1, 2]).values;
    for (const [i, value] of [0.5, 0, 0.8].entries()) expect(into[i]).toBeCloseTo(value, 7);
    expect(massBetween(source, [0, 1], [0, 1])).toEqual({ value: 0.875, exact: true });
    expect(massBetween(source, [], [0])).toEqual({ value: 0, exact: true });
  });

  it("ranks by value, then by index, NaN first", () => {
    expect(ranked(Float64Array.of(0.1, 0.5, 0.5, 0, Number.NaN), 9)).toEqual([4, 1, 2, 0]);
  });
});

describe("mean of heads", () => {
  it("is the mean everywhere", () => {
    const other = exact(Float32Array.of(0, 0, 1, 0, 1, 0, 1, 0, 0));
    const mean = new MeanSource([exact(), other]);
    expect(Array.from(mean.row(0).values)).toEqual([0.25, 0.125, 0.625]);
    expect(Array.from(mean.column(2).values)).toEqual([0.625, 0, 0.25]);
    expect(mean.cell(0, 2).value).toBe(0.625);
    expect(Array.from(mean.grid().values.subarray(0, 3))).toEqual([0.25, 0.125, 0.625]);
  });
});

describe("without the first token", () => {
  it("shares out what is left, and nothing where nothing is left", () => {
    const source = new WithoutFirst(exact());
    expect(Array.from(source.row(0).values)).toEqual([0, 0.5, 0.5]);
    expect(Array.from(source.row(1).values)).toEqual([0, 0, 0]);
    expect(Array.from(source.column(1).values).map((v) => v.toFixed(6))).toEqual(["0.500000", "0.000000", "0.375000"]);
    expect(source.cell(2, 2).value).toBeCloseTo(0.625, 6);
    expect(Array.from(source.grid().values.subarray(0, 3))).toEqual([0, 0.5, 0.5]);
  });
});

/** Eight causal tokens whose rows are known, pooled to four bins with the two largest weights. */
function pooled() {
  const n = 8;
  const record = call({ q: n, exact: false });
  const { q, k } = axes(record, sentence("a b c d e f g h"));
  const w = new Float32Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j <= i; j++) w[i * n + j] = (j + 1) / (((i + 1) * (i + 2)) / 2);
  const step = 0.1;
  const floor = -24;
  const steps = new Uint8Array(16);
  for (let r = 0; r < 4; r++) {
    for (let c = 0; c < 4; c++) {
      let mass = 0;
      for (const i of [2 * r, 2 * r + 1]) for (const j of [2 * c, 2 * c + 1]) mass += w[i * n + j] / 2;
      steps[r * 4 + c] = mass === 0 ? 0 : 1 + Math.round((Math.log2(mass) - floor) / step);
    }
  }
  const top = {
    k: 2,
    indices: new Int32Array(n * 2).fill(-1),
    weights: new Float32Array(n * 2),
    rest: new Float32Array(n),
  };
  for (let i = 0; i < n; i++) {
    let rest = 1;
    for (let m = 0; m < Math.min(2, i + 1); m++) {
      top.indices[i * 2 + m] = i - m;
      top.weights[i * 2 + m] = w[i * n + i - m];
      rest -= w[i * n + i - m];
    }
    top.rest[i] = rest;
  }
  const map = { rows: 4, cols: 4, steps, meaning: meaningOfSteps(floor, step) };
  return { w, n, source: new PooledSource({ queries: n, keys: n, keyStart: 0 }, { q, k }, { map, top }) };
}

describe("pooled weights", () => {
  it("gives the stored largest weights exactly and says so", () => {
    const { source, w, n } = pooled();
    for (let i = 1; i < n; i++) {
      const row = source.row(i);
      for (const j of [i, i - 1]) {
        expect(row.exact?.[j]).toBe(1);
        expect(row.values[j]).toBe(w[i * n + j]);
        expect(source.cell(i, j)).toMatchObject({ value: w[i * n + j], exact: true });
        expect(source.column(j).values[i]).toBe(w[i * n + j]);
        expect(source.column(j).exact?.[i]).toBe(1);
      }
    }
  });

  it("never says more than the bound, which the true weight keeps to", () => {
    const { source, w, n } = pooled();
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const cell = source.cell(i, j);
        if (cell.exact) expect(cell.value).toBe(w[i * n + j]);
        else {
          expect(w[i * n + j]).toBeLessThanOrEqual((cell.bound ?? 0) + 1e-7);
          expect(cell.value).toBeLessThanOrEqual(cell.bound ?? 0);
        }
        expect(source.row(i).values[j]).toBe(Math.fround(cell.value));
        expect(source.column(j).values[i]).toBe(Math.fround(cell.value));
      }
    }
  });

  it("knows that an empty bin holds zeros", () => {
    const { source } = pooled();
    expect(source.cell(0, 7)).toMatchObject({ value: 0, exact: true });
  });

  it("finds absolute key positions in a cache that starts later", () => {
    const record = call({ q: 1, k: 3, q_positions: [[4]], k_start: 2, exact: false });
    const both = axes(record, sentence("a b c d e"));
    const top = {
      k: 2,
      indices: Int32Array.of(4, 2),
      weights: Float32Array.of(0.5, 0.375),
      rest: Float32Array.of(0.125),
    };
    const source = new PooledSource({ queries: 1, keys: 3, keyStart: 2 }, both, { map: null, top });
    expect(Array.from(source.row(0).values)).toEqual([0.375, 0, 0.5]);
    expect(source.column(2)).toEqual({ values: Float32Array.of(0.5), exact: Uint8Array.of(1) });
    expect(source.cell(0, 1)).toEqual({ value: 0, exact: false, bound: 0.125, bin: null });
    expect(source.largest(0)).toEqual([
      { row: 0, col: 2, value: 0.5 },
      { row: 0, col: 0, value: 0.375 },
    ]);
  });

  it("bins as the map was pooled", () => {
    for (const [n, bins] of [
      [10, 4],
      [7, 7],
      [2048, 256],
      [1000, 256],
    ]) {
      for (let i = 0; i < n; i++) {
        const bin = binOf(i, n, bins);
        expect(binStart(bin, n, bins)).toBeLessThanOrEqual(i);
        expect(binStart(bin + 1, n, bins)).toBeGreaterThan(i);
      }
    }
  });

  it("reads the quantised steps", () => {
    const meaning = meaningOfSteps(-24, 24 / 254);
    expect(meaning[0]).toBe(0);
    expect(meaning[1]).toBe(2 ** -24);
    expect(meaning[255]).toBeCloseTo(1, 6);
  });
});

describe("csv", () => {
  it("quotes what must be quoted and keeps every digit", () => {
    expect(field('a"b')).toBe('"a""b"');
    expect(field("a,b")).toBe('"a,b"');
    expect(field("a\nb")).toBe('"a\nb"');
    expect(field("bank")).toBe("bank");
    const sequence = { text: "", tokens: [token(",", -1, -1), token("b", -1, -1)] };
    const { q, k } = axes(call({ q: 2 }), sequence);
    const csv = csvOf(new ExactSource(Float32Array.of(0.1, 0.9, Number.NaN, 1), 2, q, k));
    expect(csv.split("\r\n")).toEqual([
      "query_position,query,key_position,key,weight",
      '0,",",0,",",0.10000000149011612',
      '0,",",1,b,0.8999999761581421',
      '1,b,0,",",NaN',
      "1,b,1,b,1",
      "",
    ]);
  });
});

describe("lines", () => {
  it("draws the largest weights until they carry the share", () => {
    const columns = (row: number, share: number) => strands(exact(), row, share).map((strand) => strand.col);
    expect(columns(0, 0.8)).toEqual([0, 1, 2]);
    expect(columns(0, 0.7)).toEqual([0, 1]);
    expect(columns(1, 0.8)).toEqual([0]);
    expect(columns(2, 0.45)).toEqual([2]);
  });
});

describe("thumbnails", () => {
  it("averages down", () => {
    const grid = { rows: 2, cols: 4, values: Float32Array.of(1, 3, 0, 0, 5, 7, 0, 0) };
    expect(Array.from(shrink(grid, 2).values)).toEqual([2, 0, 6, 0]);
    expect(shrink(grid, 4)).toBe(grid);
  });
});

describe("selection", () => {
  it("replaces, adds and takes away", () => {
    const one = toggled(new Map(), "input", [2], false);
    expect([...(one.get("input") ?? [])]).toEqual([2]);
    const two = toggled(one, "input", [5], true);
    expect([...(two.get("input") ?? [])]).toEqual([2, 5]);
    expect([...(toggled(two, "input", [2], true).get("input") ?? [])]).toEqual([5]);
    expect([...(toggled(two, "input", [2], false).get("input") ?? [])]).toEqual([2]);
    expect(toggled(one, "input", [2], false).size).toBe(0);
    expect(toggled(one, "source", [0], true).size).toBe(2);
  });
});

describe("model", () => {
  const record = (name: string, layer: number) => call({ name, layer, heads: 2, weights: name });
  const values = (seed: number) => Float32Array.from({ length: 18 }, (_, i) => ((i * 7 + seed) % 5) / 5);
  const made = () => {
    const data = payload([record("a", 0), record("b", 1)], { input: sentence("x y z") });
    const blobs = { a: blob(values(1), [1, 2, 3, 3]), b: blob(values(2), [1, 2, 3, 3]) };
    return new Model(data, new BlobStore(blobs));
  };

  it("shows one head, the mean of a layer, the mean of all", async () => {
    const at = (seed: number, head: number, cell: number) => values(seed)[head * 9 + cell];
    const view = (heads: "head" | "layer" | "all") => made().view({ call: 1, item: 0, head: 1, heads });
    expect((await view("head")).raw?.cell(1, 0).value).toBe(at(2, 1, 3));
    expect((await view("layer")).raw?.cell(1, 0).value).toBeCloseTo((at(2, 0, 3) + at(2, 1, 3)) / 2, 6);
    const all = (at(1, 0, 3) + at(1, 1, 3) + at(2, 0, 3) + at(2, 1, 3)) / 4;
    expect((await view("all")).raw?.cell(1, 0).value).toBeCloseTo(all, 6);
  });

  it("computes the entropy that was not recorded", async () => {
    let sum = 0;
    for (const value of values(1).subarray(0, 9)) if (value > 0) sum -= value * Math.log(value);
    expect(await made().meanEntropy(0, 0, 0)).toBeCloseTo(sum / 3, 6);
  });
});
