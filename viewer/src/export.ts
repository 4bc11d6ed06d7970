/** The matrix as a picture, the weights as a table. */

import { Palette, type Scale } from "./color";
import { el, prepare } from "./dom";
import { drawMatrix, FONT, gutters, type Ink, NO_MARKS, picture } from "./draw";
import type { View } from "./view";
import { Viewport } from "./viewport";
import type { Source } from "./weights";

/** A CSV field: quoted where it must be, quotes doubled. */
export function field(text: string): string {
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Exact weights, one pair a line, every digit the float32 has. A pooled source gives its stored exact weights. */
export function csvOf(source: Source): string {
  const lines = ["query_position,query,key_position,key,weight"];
  const name = (axis: Source["q"], index: number): string => field(axis.tokens[index]?.t ?? "");
  const add = (row: number, col: number, value: number): void => {
    const number = Number.isNaN(value) ? "NaN" : String(value);
    lines.push(
      `${source.q.positions[row]},${name(source.q, row)},${source.k.positions[col]},${name(source.k, col)},${number}`,
    );
  };
  for (let row = 0; row < source.q.count; row++) {
    if (source.exact) for (const [col, value] of source.row(row).values.entries()) add(row, col, value);
    else for (const { col, value } of source.largest(row)) add(row, col, value);
  }
  return `${lines.join("\r\n")}\r\n`;
}

const PAPER: Ink = { text: "#16181d", muted: "#5a606c", line: "#d9d7d2", accent: "#b8400a", ground: "#ffffff" };

/** The whole matrix with its labels on white paper, twice the screen's resolution. */
export function pictureOf(source: Source, title: string, scale: Scale): HTMLCanvasElement {
  const palette = new Palette("light", scale);
  const pic = picture(source, palette);
  const canvas = document.createElement("canvas");
  const probe = canvas.getContext("2d");
  if (!probe) throw new Error("no 2d canvas");
  const long = Math.max(source.q.count, source.k.count);
  const cell = Math.max(long > 400 ? 0 : 6, Math.min(40, 1000 / long));
  const room = gutters(probe, source.q, source.k, 1200, cell);
  const port = new Viewport();
  port.rows = source.q.count;
  port.cols = source.k.count;
  port.sx = cell;
  port.sy = cell;
  const head = 34;
  port.frame = { left: room.left, top: room.top + head, width: cell * port.cols, height: cell * port.rows };
  const width = Math.max(420, port.frame.left + port.frame.width + room.right + 12);
  const height = port.frame.top + port.frame.height + 14;
  const ctx = prepare(canvas, width, height, 2);
  ctx.fillStyle = PAPER.ground;
  ctx.fillRect(0, 0, width, height);
  ctx.fillStyle = PAPER.text;
  ctx.font = FONT.replace("12px", "600 14px");
  ctx.textBaseline = "middle";
  ctx.fillText(title, 12, 18, width - 24);
  drawMatrix(ctx, port, source, pic, palette, PAPER, NO_MARKS, room.angle);
  return canvas;
}

function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A file name that says which head it is. */
export function fileName(view: View, head: number, heads: string, ending: string): string {
  const part = heads === "head" ? `head-${head}` : heads === "layer" ? "mean-of-layer" : "mean-of-all";
  const name = heads === "all" ? view.call.kind : view.call.name;
  return `attention-${name.replace(/[^\w.-]+/g, "_").slice(0, 80)}-${part}.${ending}`;
}

export function saveCsv(source: Source, name: string): void {
  download(new Blob([csvOf(source)], { type: "text/csv;charset=utf-8" }), name);
}

export function savePng(source: Source, title: string, scale: Scale, name: string): Promise<void> {
  return new Promise((resolve) => {
    pictureOf(source, title, scale).toBlob((blob) => {
      if (blob) download(blob, name);
      resolve();
    }, "image/png");
  });
}
