/** Numbers and names as people read them. */

/** Four significant digits, exactly zero as "0", NaN as "NaN". */
export function weight(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(3).replace("-", "−");
  return value.toPrecision(4);
}

/** Natural logarithm of a weight (nats). */
export function logarithm(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (value <= 0) return "−∞";
  return Math.log(value).toFixed(3).replace("-", "−");
}

/** Two digits for a number drawn inside a cell. */
export function short(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  return value.toFixed(2).replace(/^0\./, ".");
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
