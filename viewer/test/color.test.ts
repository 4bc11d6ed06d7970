import { describe, expect, it } from "vitest";
import { contrast, largestOf, oklab, Palette, parseHex, type Rgb } from "../src/color";
import { logarithm, short, weight } from "../src/format";
import { moment } from "../src/header";

/** Red-green blindness after Viénot, Brettel and Mollon (1999), in linear light. */
function asSeen([r, g, b]: Rgb, kind: "protan" | "deutan"): Rgb {
  const linear = [r, g, b].map((c) => (c / 255) ** 2.2);
  const lms = [
    17.8824 * linear[0] + 43.5161 * linear[1] + 4.11935 * linear[2],
    3.45565 * linear[0] + 27.1554 * linear[1] + 3.86714 * linear[2],
    0.0299566 * linear[0] + 0.184309 * linear[1] + 1.46709 * linear[2],
  ];
  if (kind === "protan") lms[0] = 2.02344 * lms[1] - 2.52581 * lms[2];
  else lms[1] = 0.494207 * lms[0] + 1.24827 * lms[2];
  const back = [
    0.0809444479 * lms[0] - 0.130504409 * lms[1] + 0.116721066 * lms[2],
    -0.0102485335 * lms[0] + 0.0540193266 * lms[1] - 0.113614708 * lms[2],
    -0.000365296938 * lms[0] - 0.00412161469 * lms[1] + 0.693511405 * lms[2],
  ];
  const gamma = (c: number): number => 255 * Math.min(1, Math.max(0, c)) ** (1 / 2.2);
  return [gamma(back[0]), gamma(back[1]), gamma(back[2])];
}

describe.each(["light", "dark"] as const)("the %s scale", (mode) => {
  const palette = new Palette(mode, "linear");
  const samples = Array.from({ length: 33 }, (_, i) => palette.at(i / 32));

  it("goes one way in lightness, in even steps", () => {
    const lightness = samples.map((color) => oklab(color)[0]);
    const way = Math.sign(lightness[32] - lightness[0]);
    const steps = lightness.slice(1).map((value, i) => (value - lightness[i]) * way);
    expect(Math.min(...steps)).toBeGreaterThan(0);
    expect(Math.max(...steps) / Math.min(...steps)).toBeLessThan(2.2);
    expect(Math.abs(lightness[32] - lightness[0])).toBeGreaterThan(0.65);
  });

  it.each(["protan", "deutan"] as const)("keeps its order for %s eyes", (kind) => {
    const lightness = samples.map((color) => oklab(asSeen(color, kind))[0]);
    const way = Math.sign(lightness[32] - lightness[0]);
    for (let i = 1; i < lightness.length; i++) expect((lightness[i] - lightness[i - 1]) * way).toBeGreaterThan(-0.002);
  });

  it("has a readable text colour everywhere", () => {
    for (let i = 0; i <= 100; i++) {
      const ink = parseHex(palette.ink(i / 100, 1));
      expect(contrast(palette.at(i / 100), ink)).toBeGreaterThan(4.5);
    }
  });
});

describe("placing values", () => {
  it("is linear from zero to the largest", () => {
    const palette = new Palette("light", "linear");
    expect([0, 0.25, 0.5, 2].map((value) => palette.part(value, 0.5))).toEqual([0, 0.5, 1, 1]);
  });

  it("is logarithmic from the floor to the largest", () => {
    const palette = new Palette("light", "log");
    expect(palette.part(1e-5, 1)).toBe(0);
    expect(palette.part(1e-2, 1)).toBeCloseTo(0.5, 9);
    expect(palette.part(1, 1)).toBe(1);
    expect(palette.part(5e-5, 6e-5)).toBeGreaterThan(0.5);
  });

  it("marks NaN with a colour of its own and survives a matrix of zeros", () => {
    const palette = new Palette("light", "linear");
    expect(palette.rgb(Number.NaN, 1)).toEqual([214, 40, 120]);
    expect(palette.part(0, 0)).toBe(0);
    expect(largestOf(Float32Array.of(Number.NaN, 0.2, Number.POSITIVE_INFINITY))).toBeCloseTo(0.2, 6);
  });
});

describe("numbers", () => {
  it("keeps four significant digits", () => {
    expect([0.21345678, 1, 0, Number.NaN, 0.00012346, 1.23456e-7].map(weight)).toEqual([
      "0.2135",
      "1.000",
      "0",
      "NaN",
      "0.0001235",
      "1.235e−7",
    ]);
  });

  it("writes logarithms and numbers in cells", () => {
    expect([1, 0.5, 0, Number.NaN].map(logarithm)).toEqual(["0.000", "−0.693", "−∞", "NaN"]);
    expect([0.5, 1, Number.NaN].map(short)).toEqual([".50", "1.00", "NaN"]);
  });

  it("writes a moment to the minute, and leaves what it does not know", () => {
    expect(["2026-11-29T15:28:35+00:00", "2026-11-29T15:28:35.5+02:00", "2026-11-29", "soon"].map(moment)).toEqual([
      "2026-11-29 15:28 UTC",
      "2026-11-29 15:28 +02:00",
      "2026-11-29",
      "soon",
    ]);
  });
});
