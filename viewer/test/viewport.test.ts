import { describe, expect, it } from "vitest";
import { roundStride } from "../src/draw";
import { Viewport } from "../src/viewport";

function port(rows: number, cols: number): Viewport {
  const made = new Viewport();
  made.rows = rows;
  made.cols = cols;
  made.frame = { left: 50, top: 20, width: 400, height: 400 };
  made.fit();
  return made;
}

describe("viewport", () => {
  it("shows all at first, square", () => {
    const made = port(100, 200);
    expect(made.sx).toBe(2);
    expect(made.sy).toBe(2);
    expect(made.visible()).toEqual({ r0: 0, r1: 100, c0: 0, c1: 200 });
  });

  it("stretches a very long matrix", () => {
    const made = port(1, 400);
    expect([made.sx, made.sy]).toEqual([1, 46]);
  });

  it("keeps the cell under the pointer where it is", () => {
    const made = port(200, 200);
    const before = made.cellAt(250, 220);
    made.zoomBy(8, 250, 220);
    expect(made.cellAt(250, 220)).toEqual(before);
    expect(made.zoom).toBeCloseTo(8, 9);
  });

  it("stays within the matrix", () => {
    const made = port(200, 200);
    made.zoomBy(4, 50, 20);
    made.panBy(-500, -500);
    expect([made.ox, made.oy]).toEqual([0, 0]);
    made.panBy(1e6, 1e6);
    expect(made.visible()).toMatchObject({ r1: 200, c1: 200 });
    made.zoomBy(1e-6, 100, 100);
    expect(made.zoom).toBe(1);
  });

  it("finds cells and brings them into sight", () => {
    const made = port(200, 200);
    expect(made.cellAt(49, 100)).toBeNull();
    expect(made.cellAt(made.x(7) + 0.5, made.y(9) + 0.5)).toEqual({ row: 9, col: 7 });
    made.zoomBy(10, 50, 20);
    made.reveal(199, 150);
    const { r0, r1, c0, c1 } = made.visible();
    expect(r0 <= 199 && 199 < r1 && c0 <= 150 && 150 < c1).toBe(true);
  });

  it("labels round positions", () => {
    expect([0.3, 1, 1.1, 3, 7, 69, 100].map(roundStride)).toEqual([1, 1, 2, 5, 10, 100, 100]);
  });
});
