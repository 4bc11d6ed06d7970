/** Drawing a matrix on a canvas: cells, numbers, labels, marks. The panel and the PNG export share it. */

import type { Axis } from "./axis";
import { largestOf, type Palette } from "./color";
import { bitmap } from "./dom";
import { short } from "./format";
import { clip, isRtl } from "./tokens";
import type { Frame, Viewport } from "./viewport";
import type { Source } from "./weights";

export interface Ink {
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly accent: string;
  readonly ground: string;
}

export interface Marks {
  readonly row: number | null;
  readonly col: number | null;
  readonly rows: ReadonlySet<number>;
  readonly cols: ReadonlySet<number>;
}

export const NO_MARKS: Marks = { row: null, col: null, rows: new Set(), cols: new Set() };
export const FONT = '12px ui-sans-serif, system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", sans-serif';
const BOLD = FONT.replace("12px", "600 12px");
const SMALL = FONT.replace("12px", "10.5px");
const TINY = FONT.replace("12px", "9px");
const LABEL = 15;
const LABEL_HEIGHT = 11;

/** A matrix turned into pixels once, drawn at any zoom. */
export interface Picture {
  readonly image: HTMLCanvasElement;
  readonly max: number;
  readonly rows: number;
  readonly cols: number;
  readonly hasNan: boolean;
}

export function picture(source: Source, palette: Palette): Picture {
  const { rows, cols, values } = source.grid();
  const max = largestOf(values);
  const image = bitmap(cols, rows, (pixels) => palette.paint(values, max, pixels));
  return { image, max, rows, cols, hasNan: values.some(Number.isNaN) };
}

export interface Gutters {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly angle: number;
}

/** Room for the labels: wide enough for the longest, within reason. */
export function gutters(ctx: CanvasRenderingContext2D, q: Axis, k: Axis, width: number, cell: number): Gutters {
  ctx.font = FONT;
  const measure = (axis: Axis): number => {
    let longest = 0;
    const stride = Math.max(1, Math.floor(axis.count / 200));
    for (let i = 0; i < axis.count; i += stride) {
      longest = Math.max(longest, ctx.measureText(clip(axis.labels[i], LABEL)).width);
    }
    return Math.min(longest, 130);
  };
  const number = (axis: Axis): number => ctx.measureText(String(axis.positions[axis.count - 1] ?? 0)).width;
  const left = Math.min(width * 0.36, measure(q) + number(q) + 20);
  const word = measure(k);
  const angle = word + number(k) + 12 <= cell ? 0 : cell >= 17 ? -Math.PI / 3.4 : -Math.PI / 2;
  const length = word + number(k) + 8;
  const top = angle === 0 ? 22 : Math.min(150, Math.sin(-angle) * length + 14);
  return {
    left,
    top,
    right: angle === 0 || angle === -Math.PI / 2 ? 6 : Math.min(70, Math.cos(angle) * length),
    angle,
  };
}

export function drawMatrix(
  ctx: CanvasRenderingContext2D,
  port: Viewport,
  source: Source,
  pic: Picture,
  palette: Palette,
  ink: Ink,
  marks: Marks,
  angle: number,
): void {
  drawCells(ctx, port, source, pic, ink);
  if (source.exact && Math.min(port.sx, port.sy) >= 21) drawNumbers(ctx, port, source, pic, palette);
  if (!source.exact) drawLargest(ctx, port, source, pic, palette, ink);
  drawMarks(ctx, port, marks, ink);
  drawRowLabels(ctx, port, source.q, marks, ink);
  drawColumnLabels(ctx, port, source.k, marks, ink, angle);
}

function clipTo(ctx: CanvasRenderingContext2D, frame: Frame, work: () => void): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.left, frame.top, frame.width, frame.height);
  ctx.clip();
  work();
  ctx.restore();
}

function drawCells(ctx: CanvasRenderingContext2D, port: Viewport, source: Source, pic: Picture, ink: Ink): void {
  const { q, k } = source;
  // A pooled map covers padding too: only the part under the axes is drawn.
  const whole = { q: source.exact ? q.count : pic.rows, k: source.exact ? k.count : pic.cols };
  const part = sourceRect(source, pic);
  clipTo(ctx, port.frame, () => {
    const width = port.cols * port.sx;
    const height = port.rows * port.sy;
    const shrinking = width < whole.k * 0.9 || height < whole.q * 0.9;
    ctx.imageSmoothingEnabled = shrinking;
    ctx.imageSmoothingQuality = "high";
    ctx.drawImage(pic.image, part.x, part.y, part.w, part.h, port.x(0), port.y(0), width, height);
    if (source.exact && Math.min(port.sx, port.sy) >= 12) drawGaps(ctx, port, ink);
    if (pic.hasNan && source.exact) drawNan(ctx, port, source);
  });
  ctx.strokeStyle = ink.line;
  ctx.lineWidth = 1;
  const w = Math.min(port.frame.width, port.cols * port.sx);
  const h = Math.min(port.frame.height, port.rows * port.sy);
  ctx.strokeRect(port.frame.left - 0.5, port.frame.top - 0.5, w + 1, h + 1);
}

function sourceRect(source: Source, pic: Picture): { x: number; y: number; w: number; h: number } {
  if (source.exact) return { x: 0, y: 0, w: pic.cols, h: pic.rows };
  const extent = source.extent;
  return {
    x: (source.k.start * pic.cols) / extent.keys,
    y: (source.q.start * pic.rows) / extent.queries,
    w: (source.k.count * pic.cols) / extent.keys,
    h: (source.q.count * pic.rows) / extent.queries,
  };
}

function drawGaps(ctx: CanvasRenderingContext2D, port: Viewport, ink: Ink): void {
  const { r0, r1, c0, c1 } = port.visible();
  ctx.fillStyle = ink.ground;
  const thick = Math.min(port.sx, port.sy) >= 24 ? 2 : 1;
  for (let r = r0; r <= r1; r++) ctx.fillRect(port.x(0), port.y(r) - thick / 2, port.cols * port.sx, thick);
  for (let c = c0; c <= c1; c++) ctx.fillRect(port.x(c) - thick / 2, port.y(0), thick, port.rows * port.sy);
}

function drawNan(ctx: CanvasRenderingContext2D, port: Viewport, source: Source): void {
  if (Math.min(port.sx, port.sy) < 5) return;
  const { r0, r1, c0, c1 } = port.visible();
  ctx.strokeStyle = "#ffffff";
  ctx.lineWidth = 1.25;
  for (let r = r0; r < r1; r++) {
    const values = source.row(r).values;
    for (let c = c0; c < c1; c++) {
      if (!Number.isNaN(values[c])) continue;
      const frame = { left: port.x(c) + 1, top: port.y(r) + 1, width: port.sx - 2, height: port.sy - 2 };
      clipTo(ctx, frame, () => {
        ctx.beginPath();
        for (let d = -port.sy; d < port.sx; d += 6) {
          ctx.moveTo(frame.left + d, frame.top + port.sy);
          ctx.lineTo(frame.left + d + port.sy, frame.top);
        }
        ctx.stroke();
      });
    }
  }
}

function drawNumbers(
  ctx: CanvasRenderingContext2D,
  port: Viewport,
  source: Source,
  pic: Picture,
  palette: Palette,
): void {
  const { r0, r1, c0, c1 } = port.visible();
  clipTo(ctx, port.frame, () => {
    ctx.font = Math.min(port.sx, port.sy) >= 30 ? SMALL : TINY;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (let r = r0; r < r1; r++) {
      const values = source.row(r).values;
      for (let c = c0; c < c1; c++) {
        // Numbers that would all read "<.01" are left to the pointer.
        if (values[c] < 0.005) continue;
        if (Number.isNaN(values[c])) {
          ctx.fillStyle = palette.css(values[c], pic.max);
          ctx.fillRect(port.x(c + 0.5) - 11, port.y(r + 0.5) - 7, 22, 14);
        }
        ctx.fillStyle = palette.ink(values[c], pic.max);
        ctx.fillText(short(values[c]), port.x(c + 0.5), port.y(r + 0.5) + 0.5);
      }
    }
  });
}

/** The stored exact weights over a pooled map, once a query's row can be told from its neighbours. */
function drawLargest(
  ctx: CanvasRenderingContext2D,
  port: Viewport,
  source: Source,
  pic: Picture,
  palette: Palette,
  ink: Ink,
): void {
  if (Math.min(port.sx, port.sy) < 2) return;
  const { r0, r1 } = port.visible();
  const outlined = Math.min(port.sx, port.sy) >= 5;
  clipTo(ctx, port.frame, () => {
    ctx.strokeStyle = ink.accent;
    ctx.lineWidth = 1;
    for (let r = r0; r < r1; r++) {
      for (const { col, value } of source.largest(r)) {
        const [x, y] = [port.x(col), port.y(r)];
        ctx.fillStyle = palette.css(value, pic.max);
        ctx.fillRect(x, y, port.sx, port.sy);
        if (outlined) ctx.strokeRect(x + 0.5, y + 0.5, port.sx - 1, port.sy - 1);
      }
    }
  });
}

function drawMarks(ctx: CanvasRenderingContext2D, port: Viewport, marks: Marks, ink: Ink): void {
  const { frame } = port;
  const right = Math.min(frame.width, port.cols * port.sx);
  const bottom = Math.min(frame.height, port.rows * port.sy);
  clipTo(ctx, { left: frame.left - 4, top: frame.top - 4, width: right + 8, height: bottom + 8 }, () => {
    ctx.strokeStyle = ink.accent;
    ctx.lineWidth = 1.5;
    const thin = (size: number): number => Math.max(size, 2);
    if (marks.row !== null) ctx.strokeRect(frame.left - 1, port.y(marks.row) - 1, right + 2, thin(port.sy) + 2);
    if (marks.col !== null) ctx.strokeRect(port.x(marks.col) - 1, frame.top - 1, thin(port.sx) + 2, bottom + 2);
    ctx.fillStyle = ink.accent;
    for (const row of marks.rows) ctx.fillRect(frame.left - 4, port.y(row), 3, thin(port.sy));
    for (const col of marks.cols) ctx.fillRect(port.x(col), frame.top - 4, thin(port.sx), 3);
    if (marks.row !== null && marks.col !== null) {
      ctx.lineWidth = 3;
      ctx.strokeRect(port.x(marks.col) - 1, port.y(marks.row) - 1, thin(port.sx) + 2, thin(port.sy) + 2);
    }
  });
}

/** The least of 1, 2, 5, 10, 20, 50 … that is enough. */
export function roundStride(least: number): number {
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((digit) => digit * ten).find((stride) => stride >= least) ?? 1;
}

/** Every nth index has room for a label; marked ones always get theirs. */
function labelled(from: number, to: number, size: number, marked: number | null): number[] {
  const stride = roundStride(LABEL_HEIGHT / size);
  const out: number[] = [];
  for (let i = Math.ceil(from / stride) * stride; i < to; i += stride) {
    if (marked !== null && i !== marked && Math.abs(i - marked) * size < LABEL_HEIGHT) continue;
    out.push(i);
  }
  if (marked !== null && marked >= from && marked < to && !out.includes(marked)) out.push(marked);
  return out;
}

/** A token and its position: two runs, so that the token's direction cannot move the number. */
function drawLabel(
  ctx: CanvasRenderingContext2D,
  axis: Axis,
  index: number,
  right: number,
  ink: Ink,
  hot: boolean,
): void {
  const position = String(axis.positions[index]);
  ctx.font = SMALL;
  ctx.textAlign = "right";
  ctx.direction = "ltr";
  ctx.fillStyle = hot ? ink.accent : ink.muted;
  ctx.fillText(position, right, 0);
  const word = clip(axis.labels[index], LABEL);
  const room = right - ctx.measureText(position).width - 6;
  ctx.font = hot ? BOLD : FONT;
  ctx.fillStyle = hot ? ink.accent : axis.tokens[index]?.special ? ink.muted : ink.text;
  ctx.direction = isRtl(word) ? "rtl" : "ltr";
  ctx.fillText(word, room, 0);
}

function drawRowLabels(ctx: CanvasRenderingContext2D, port: Viewport, axis: Axis, marks: Marks, ink: Ink): void {
  const { r0, r1 } = port.visible();
  const frame = { left: 0, top: port.frame.top - 6, width: port.frame.left - 5, height: port.frame.height + 12 };
  clipTo(ctx, frame, () => {
    ctx.textBaseline = "middle";
    for (const row of labelled(r0, r1, port.sy, marks.row)) {
      ctx.save();
      ctx.translate(0, port.y(row + 0.5));
      drawLabel(ctx, axis, row, port.frame.left - 9, ink, row === marks.row || marks.rows.has(row));
      ctx.restore();
    }
  });
}

function drawColumnLabels(
  ctx: CanvasRenderingContext2D,
  port: Viewport,
  axis: Axis,
  marks: Marks,
  ink: Ink,
  angle: number,
): void {
  const { c0, c1 } = port.visible();
  const frame = { left: port.frame.left - 6, top: 0, width: port.frame.width + 90, height: port.frame.top - 5 };
  clipTo(ctx, frame, () => {
    ctx.textBaseline = "middle";
    for (const col of labelled(c0, c1, port.sx, marks.col)) {
      const hot = col === marks.col || marks.cols.has(col);
      ctx.save();
      ctx.translate(port.x(col + 0.5), port.frame.top - 8);
      if (angle === 0) ctx.translate(0, -5);
      else ctx.rotate(angle);
      drawColumnLabel(ctx, axis, col, ink, hot, angle === 0);
      ctx.restore();
    }
  });
}

/** Number first, nearest to the matrix; then the token. */
function drawColumnLabel(
  ctx: CanvasRenderingContext2D,
  axis: Axis,
  index: number,
  ink: Ink,
  hot: boolean,
  level: boolean,
): void {
  const position = String(axis.positions[index]);
  const word = clip(axis.labels[index], LABEL);
  ctx.font = SMALL;
  ctx.textAlign = "left";
  ctx.direction = "ltr";
  const digits = ctx.measureText(position).width;
  ctx.font = hot ? BOLD : FONT;
  const length = ctx.measureText(word).width;
  const start = level ? -(digits + 5 + length) / 2 : 0;
  ctx.font = SMALL;
  ctx.fillStyle = hot ? ink.accent : ink.muted;
  ctx.fillText(position, start, 0);
  ctx.font = hot ? BOLD : FONT;
  ctx.fillStyle = hot ? ink.accent : axis.tokens[index]?.special ? ink.muted : ink.text;
  const rtl = isRtl(word);
  ctx.direction = rtl ? "rtl" : "ltr";
  ctx.textAlign = rtl ? "right" : "left";
  ctx.fillText(word, start + digits + 5 + (rtl ? length : 0), 0);
}
