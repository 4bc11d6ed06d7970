/** One perceptual scale from "nothing" to "all": even steps of lightness, one way round, safe without red or green. */

export type Scale = "linear" | "log";
export type Mode = "light" | "dark";
export type Rgb = readonly [number, number, number];

/** Anchors of the scale, dark to light (near-black, indigo, blue, teal, mint). */
const ANCHORS: readonly string[] = [
  "#0b0405",
  "#2b1c35",
  "#3e356b",
  "#3b5698",
  "#357ba3",
  "#3499ae",
  "#46beaa",
  "#a1dfb9",
  "#def5e5",
];

/** Zero has the colour of the empty plot, a little apart from the smallest weight. */
const ZERO: Record<Mode, string> = { light: "#f6f9f7", dark: "#14171d" };
const NAN: Rgb = [214, 40, 120];
/** The smallest weight that the logarithmic scale can tell from zero. */
export const LOG_FLOOR = 1e-4;
const STEPS = 512;

export function parseHex(color: string): Rgb {
  const value = Number.parseInt(color.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

const toLinear = (c: number): number => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const toGamma = (c: number): number => (c <= 0.0031308 ? c * 12.92 : 1.055 * c ** (1 / 2.4) - 0.055);

/** sRGB (0..255) to Oklab. */
export function oklab([r, g, b]: Rgb): [number, number, number] {
  const [lr, lg, lb] = [toLinear(r / 255), toLinear(g / 255), toLinear(b / 255)];
  const l = Math.cbrt(0.4122214708 * lr + 0.5363325363 * lg + 0.0514459929 * lb);
  const m = Math.cbrt(0.2119034982 * lr + 0.6806995451 * lg + 0.1073969566 * lb);
  const s = Math.cbrt(0.0883024619 * lr + 0.2817188376 * lg + 0.6299787005 * lb);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromOklab(L: number, a: number, b: number): Rgb {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const clamp = (c: number): number => Math.round(255 * Math.min(1, Math.max(0, toGamma(Math.max(0, c)))));
  return [
    clamp(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    clamp(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    clamp(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/** Relative luminance and contrast as WCAG defines them. */
export function luminance([r, g, b]: Rgb): number {
  return 0.2126 * toLinear(r / 255) + 0.7152 * toLinear(g / 255) + 0.0722 * toLinear(b / 255);
}

export function contrast(one: Rgb, other: Rgb): number {
  const [high, low] = [luminance(one), luminance(other)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

/** `STEPS` colours, lightness spread evenly along the anchors. */
function buildTable(mode: Mode): Rgb[] {
  const order = mode === "dark" ? ANCHORS : [...ANCHORS].reverse();
  const points = [ZERO[mode], ...order.slice(mode === "dark" ? 1 : 0, mode === "dark" ? undefined : -1)].map((color) =>
    oklab(parseHex(color)),
  );
  const low = points[0][0];
  const high = points[points.length - 1][0];
  return Array.from({ length: STEPS }, (_, step) => {
    const lightness = low + ((high - low) * step) / (STEPS - 1);
    let at = 0;
    while (at < points.length - 2 && (points[at + 1][0] - lightness) * Math.sign(high - low) < 0) at++;
    const [from, to] = [points[at], points[at + 1]];
    const part = Math.min(1, Math.max(0, (lightness - from[0]) / (to[0] - from[0])));
    return fromOklab(lightness, from[1] + (to[1] - from[1]) * part, from[2] + (to[2] - from[2]) * part);
  });
}

/** From a weight to a colour, for one theme, scale and largest value. */
export class Palette {
  readonly mode: Mode;
  readonly scale: Scale;
  private static readonly tables: Partial<Record<Mode, Rgb[]>> = {};
  private readonly table: Rgb[];

  constructor(mode: Mode, scale: Scale) {
    this.mode = mode;
    this.scale = scale;
    Palette.tables[mode] ??= buildTable(mode);
    this.table = Palette.tables[mode] as Rgb[];
  }

  /** Where a value stands between nothing (0) and the largest (1). */
  part(value: number, max: number): number {
    if (!(value > 0) || !(max > 0)) return 0;
    if (this.scale === "linear") return Math.min(1, value / max);
    const floor = Math.min(LOG_FLOOR, max / 10);
    return Math.min(1, Math.max(0, Math.log(value / floor) / Math.log(max / floor)));
  }

  at(part: number): Rgb {
    return this.table[Math.round(Math.min(1, Math.max(0, part)) * (STEPS - 1))];
  }

  rgb(value: number, max: number): Rgb {
    return Number.isNaN(value) ? NAN : this.at(this.part(value, max));
  }

  css(value: number, max: number): string {
    const [r, g, b] = this.rgb(value, max);
    return `rgb(${r} ${g} ${b})`;
  }

  /** Text colour that can be read on the value's colour: of black and white, one always has a contrast above 4.5. */
  ink(value: number, max: number): string {
    const ground = this.rgb(value, max);
    return contrast(ground, [0, 0, 0]) >= contrast(ground, [255, 255, 255]) ? "#000000" : "#ffffff";
  }

  /** Fill RGBA pixels from values. */
  paint(values: Float32Array, max: number, pixels: Uint8ClampedArray): void {
    for (let i = 0; i < values.length; i++) {
      const color = this.rgb(values[i], max);
      pixels[i * 4] = color[0];
      pixels[i * 4 + 1] = color[1];
      pixels[i * 4 + 2] = color[2];
      pixels[i * 4 + 3] = 255;
    }
  }
}

/** Largest finite value, 0 when there is none. */
export function largestOf(values: ArrayLike<number>): number {
  let max = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > max && values[i] < Number.POSITIVE_INFINITY) max = values[i];
  return max;
}
