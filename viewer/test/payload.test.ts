import { describe, expect, it } from "vitest";
import { BlobStore, bytesOfBase64, typed } from "../src/payload";
import { checkPayload } from "../src/schema";
import { blob, call, payload, sentence } from "./make";

const good = () => payload([call()], { input: sentence("a b c") });

describe("checkPayload", () => {
  it("takes a good payload as it is", () => {
    const made = good();
    expect(checkPayload(made)).toBe(made);
  });

  it("says that the empty viewer is empty", () => {
    expect(() => checkPayload(null)).toThrow("This is the empty viewer");
  });

  it("names both schemas when they differ", () => {
    expect(() => checkPayload({ ...good(), schema: 7, regard: "9.9" })).toThrow(
      "This viewer reads payload schema 1, but the page carries schema 7 (written by regard 9.9)",
    );
  });

  it("names a sequence that is missing", () => {
    expect(() => checkPayload(payload([call({ keys: "source" })], { input: sentence("a b c") }))).toThrow(
      'layer.0: item 0 has no sequence "source".',
    );
  });

  it("counts positions", () => {
    expect(() => checkPayload(payload([call({ q_positions: [[0, 1]] })], { input: sentence("a b c") }))).toThrow(
      "q_positions has 2 entries, but the call has 3 queries",
    );
  });
});

describe("blobs", () => {
  it("decodes every dtype bit for bit, NaN included", async () => {
    const floats = Float32Array.of(0.1, Number.NaN, 1e-30, 1);
    const store = new BlobStore({
      f: blob(floats, [2, 2]),
      u: blob(Uint8Array.of(0, 255), [2]),
      i: blob(Int32Array.of(-1, 70000), [2]),
    });
    expect(Array.from(await store.get("f"))).toEqual(Array.from(floats));
    expect(Array.from(await store.get("u"))).toEqual([0, 255]);
    expect(Array.from(await store.get("i"))).toEqual([-1, 70000]);
  });

  it("decodes once", async () => {
    const store = new BlobStore({ f: blob(Float32Array.of(1), [1]) });
    expect(await store.get("f")).toBe(await store.get("f"));
  });

  it("names a blob of the wrong size, a damaged one and a missing one", async () => {
    expect(() => typed({ dtype: "f32", shape: [3], data: "" }, new ArrayBuffer(8), "w")).toThrow(
      'Blob "w" should hold 12 bytes (f32 3), but holds 8.',
    );
    const store = new BlobStore({ bad: { dtype: "u8", shape: [3], data: "AAAA" } });
    await expect(store.get("bad")).rejects.toThrow('Blob "bad" is damaged');
    await expect(store.get("none")).rejects.toThrow('The payload names blob "none"');
  });

  it("reads base64", () => {
    expect(Array.from(bytesOfBase64("AP8Q"))).toEqual([0, 255, 16]);
  });
});
