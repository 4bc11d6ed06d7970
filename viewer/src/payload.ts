/** From base64 text to typed arrays, decoded once and only when asked for. */

import { type BlobRecord, checkPayload, type Payload, PayloadError } from "./schema";

export type Numbers = Float32Array | Uint8Array | Int32Array;

/** The recording that Python wrote into the page. */
export function readPayload(root: ParentNode = document): Payload {
  const block = root.querySelector("#regard-data");
  let data: unknown;
  try {
    data = JSON.parse(block?.textContent ?? "null");
  } catch (error) {
    throw new PayloadError(`The page's data block is not valid JSON: ${(error as Error).message}`);
  }
  return checkPayload(data);
}

/** The newer built-in is many times faster; the loop serves browsers that lack it. */
export function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
  const builtin = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (builtin.fromBase64) return builtin.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  if (typeof DecompressionStream === "undefined") {
    throw new PayloadError(
      "This browser cannot decompress the page's data. Chrome 80, Firefox 113, Safari 16.4 or newer can.",
    );
  }
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  // A damaged stream rejects both sides; the reading side is the one that reports it.
  const written = writer.write(bytes).then(() => writer.close());
  written.catch(() => undefined);
  const parts: Uint8Array<ArrayBuffer>[] = [];
  const reader = stream.readable.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
  return new Blob(parts).arrayBuffer();
}

const WIDTH = { f32: 4, i32: 4, u8: 1 } as const;

/** Bytes are little-endian in the page; every machine a browser runs on today is too. */
export function typed(record: BlobRecord, buffer: ArrayBuffer, id: string): Numbers {
  const count = record.shape.reduce((product, n) => product * n, 1);
  const width = WIDTH[record.dtype];
  if (buffer.byteLength !== count * width) {
    throw new PayloadError(
      `Blob "${id}" should hold ${count * width} bytes (${record.dtype} ${record.shape.join("×")}), but holds ${buffer.byteLength}.`,
    );
  }
  if (record.dtype === "f32") return new Float32Array(buffer);
  if (record.dtype === "i32") return new Int32Array(buffer);
  return new Uint8Array(buffer);
}

/** The page's blobs by id. The base64 text is dropped once its numbers are there. */
export class BlobStore {
  private readonly records: Record<string, BlobRecord>;
  private readonly pending = new Map<string, Promise<Numbers>>();

  constructor(records: Record<string, BlobRecord>) {
    this.records = records;
  }

  get(id: string): Promise<Numbers> {
    let promise = this.pending.get(id);
    if (!promise) {
      promise = this.decode(id);
      this.pending.set(id, promise);
    }
    return promise;
  }

  async floats(id: string): Promise<Float32Array> {
    const numbers = await this.get(id);
    if (!(numbers instanceof Float32Array)) throw new PayloadError(`Blob "${id}" should hold f32.`);
    return numbers;
  }

  private async decode(id: string): Promise<Numbers> {
    const record = this.records[id];
    if (!record) throw new PayloadError(`The payload names blob "${id}", but does not hold it.`);
    let buffer: ArrayBuffer;
    try {
      buffer = await inflate(bytesOfBase64(record.data));
    } catch (error) {
      if (error instanceof PayloadError) throw error;
      throw new PayloadError(`Blob "${id}" is damaged: ${(error as Error).message}`);
    }
    record.data = "";
    return typed(record, buffer, id);
  }
}
