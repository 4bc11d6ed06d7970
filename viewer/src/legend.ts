/** The scale under the matrix: colours from nothing to the largest value, with numbers. */

import { LOG_FLOOR, type Palette } from "./color";
import { prepare } from "./dom";
import { FONT, type Ink } from "./draw";

const WIDTH = 260;
const BAR = 10;

function ticks(palette: Palette, max: number): { at: number; text: string }[] {
  const name = (value: number): string =>
    value >= 0.01 ? String(Number(value.toPrecision(2))) : value.toExponential(0);
  if (palette.scale === "linear" || max <= LOG_FLOOR * 10) {
    return [0, 0.5, 1].map((part) => ({ at: part, text: part === 0 ? "0" : name(part * max) }));
  }
  const out = [{ at: 1, text: name(max) }];
  for (let value = LOG_FLOOR; value <= max * 0.5; value *= 10) {
    out.push({ at: palette.part(value, max), text: value === LOG_FLOOR ? `≤ ${value.toExponential(0)}` : name(value) });
  }
  return out;
}

export function drawLegend(canvas: HTMLCanvasElement, palette: Palette, max: number, ink: Ink, pooled: boolean): void {
  const ctx = prepare(canvas, WIDTH + 60, 34);
  const left = 22;
  for (let x = 0; x < WIDTH; x++) {
    const [r, g, b] = palette.at(x / (WIDTH - 1));
    ctx.fillStyle = `rgb(${r} ${g} ${b})`;
    ctx.fillRect(left + x, 0, 1.5, BAR);
  }
  ctx.strokeStyle = ink.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(left - 0.5, 0.5, WIDTH + 1, BAR);
  ctx.font = FONT.replace("12px", "11px");
  ctx.fillStyle = ink.muted;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  for (const { at, text } of ticks(palette, max)) {
    ctx.fillRect(left + at * WIDTH - 0.5, BAR + 1, 1, 3);
    ctx.fillText(pooled && at > 0 ? `≈ ${text}` : text, left + at * WIDTH, BAR + 7);
  }
}
