/** Which part of the matrix is on the screen: cell sizes and an offset, in CSS pixels. */

export interface Frame {
  /** The plot's place on the canvas. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

const MAX_CELL = 72;
export const FIT_CELL = 46;

export class Viewport {
  rows = 1;
  cols = 1;
  frame: Frame = { left: 0, top: 0, width: 1, height: 1 };
  /** Cell width and height. */
  sx = 1;
  sy = 1;
  /** Pixels of the content left of and above the plot. */
  ox = 0;
  oy = 0;

  /** Cell sizes at which all of the matrix is seen. Cells are square unless one side is much longer. */
  fitCells(): { sx: number; sy: number } {
    const sx = Math.min(FIT_CELL, this.frame.width / this.cols);
    const sy = Math.min(FIT_CELL, this.frame.height / this.rows);
    const both = Math.min(sx, sy);
    const long = Math.max(this.rows, this.cols) / Math.min(this.rows, this.cols) > 6;
    return long ? { sx, sy } : { sx: both, sy: both };
  }

  fit(): void {
    const { sx, sy } = this.fitCells();
    this.sx = sx;
    this.sy = sy;
    this.ox = 0;
    this.oy = 0;
  }

  /** How far in: 1 when all is seen. */
  get zoom(): number {
    return this.sx / this.fitCells().sx;
  }

  get canZoomIn(): boolean {
    return Math.max(this.sx, this.sy) < MAX_CELL - 0.01;
  }

  /** Zoom by a factor around a point of the canvas. */
  zoomBy(factor: number, x: number, y: number): void {
    const least = this.fitCells();
    const col = (x - this.frame.left + this.ox) / this.sx;
    const row = (y - this.frame.top + this.oy) / this.sy;
    const most = Math.max(MAX_CELL, least.sx, least.sy);
    const zoom = Math.max(1, this.zoom * factor);
    this.sx = Math.min(most, least.sx * zoom);
    this.sy = Math.min(most, least.sy * zoom);
    this.ox = col * this.sx - (x - this.frame.left);
    this.oy = row * this.sy - (y - this.frame.top);
    this.clamp();
  }

  panBy(dx: number, dy: number): void {
    this.ox += dx;
    this.oy += dy;
    this.clamp();
  }

  clamp(): void {
    this.ox = Math.max(0, Math.min(this.ox, this.cols * this.sx - this.frame.width));
    this.oy = Math.max(0, Math.min(this.oy, this.rows * this.sy - this.frame.height));
  }

  /** Bring a cell into sight. */
  reveal(row: number, col: number): void {
    if (col * this.sx < this.ox) this.ox = col * this.sx;
    if ((col + 1) * this.sx > this.ox + this.frame.width) this.ox = (col + 1) * this.sx - this.frame.width;
    if (row * this.sy < this.oy) this.oy = row * this.sy;
    if ((row + 1) * this.sy > this.oy + this.frame.height) this.oy = (row + 1) * this.sy - this.frame.height;
    this.clamp();
  }

  x(col: number): number {
    return this.frame.left + col * this.sx - this.ox;
  }

  y(row: number): number {
    return this.frame.top + row * this.sy - this.oy;
  }

  /** The cell at a point of the canvas, or null outside the matrix. */
  cellAt(x: number, y: number): { row: number; col: number } | null {
    const { left, top, width, height } = this.frame;
    if (x < left || y < top || x >= left + width || y >= top + height) return null;
    const col = Math.floor((x - left + this.ox) / this.sx);
    const row = Math.floor((y - top + this.oy) / this.sy);
    if (row < 0 || col < 0 || row >= this.rows || col >= this.cols) return null;
    return { row, col };
  }

  /** Visible cells, ends excluded. */
  visible(): { r0: number; r1: number; c0: number; c1: number } {
    const { width, height } = this.frame;
    return {
      r0: Math.max(0, Math.floor(this.oy / this.sy)),
      r1: Math.min(this.rows, Math.ceil((this.oy + height) / this.sy)),
      c0: Math.max(0, Math.floor(this.ox / this.sx)),
      c1: Math.min(this.cols, Math.ceil((this.ox + width) / this.sx)),
    };
  }
}
