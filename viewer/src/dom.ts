/** Building the page. Text reaches it only as text nodes, so nothing in a token can become markup. */

type Child = Node | string | null;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

export interface Attributes {
  on?: Handlers;
  [name: string]: string | number | boolean | Handlers | undefined;
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value as Handlers)) {
        element.addEventListener(event, handler as EventListener);
      }
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child) => child !== null));
}

/** A value as a share of the largest; NaN has none. */
export function bar(value: number, top: number): HTMLElement {
  const element = el("span", { class: "bar" });
  element.style.setProperty("--part", String(Number.isNaN(value) || top <= 0 ? 0 : value / top));
  return element;
}

/** Size a canvas for the screen's pixels and return its context, scaled so that drawing counts in CSS pixels. */
export function prepare(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  ratio = devicePixelRatio || 1,
): CanvasRenderingContext2D {
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  if (!ctx) throw new Error("no 2d canvas");
  ctx.setTransform(w / width, 0, 0, h / height, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

/** A canvas that holds one pixel per value. */
export function bitmap(width: number, height: number, fill: (pixels: Uint8ClampedArray) => void): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const ctx = canvas.getContext("2d");
  if (!ctx) throw new Error("no 2d canvas");
  const image = ctx.createImageData(width, height);
  fill(image.data);
  ctx.putImageData(image, 0, 0);
  return canvas;
}

export function cssVariable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Several calls in one frame become one. */
export function onceAFrame(work: () => void): () => void {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}
