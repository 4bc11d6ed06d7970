/** The payload, as Python writes it into the page (schema 1). */

export const SCHEMA = 1;

export interface Token {
  /** The piece as the tokenizer names it. */
  t: string;
  /** UTF-16 offsets into the sequence's text; -1 where the token has no text of its own. */
  s: number;
  e: number;
  special: boolean;
  /** The visible group (pieces of one character share it), this piece's place in it, and how many there are. */
  g: number;
  gi: number;
  gn: number;
  /** Padding before the text: kept so that positions count it, and not shown. */
  pad?: boolean;
}

export interface Sequence {
  text: string;
  tokens: Token[];
}

export interface Item {
  sequences: Record<string, Sequence>;
}

export interface MapRecord {
  blob: string;
  rows: number;
  cols: number;
  floor_log2: number;
  step: number;
}

export interface TopKRecord {
  indices: string;
  weights: string;
  rest: string;
  k: number;
}

export interface CallRecord {
  name: string;
  layer: number | null;
  kind: "self" | "cross";
  heads: number;
  q: number;
  k: number;
  queries: string;
  keys: string;
  q_positions: number[][];
  k_start: number;
  exact: boolean;
  weights: string | null;
  map: MapRecord | null;
  topk: TopKRecord | null;
  entropy: string | null;
  /** Mass on the first keys, and how many those are. */
  first: string | null;
  first_n: number | null;
  sink: string | null;
  key_mass: string | null;
  flags: string[];
}

export interface BlobRecord {
  dtype: "f32" | "u8" | "i32";
  shape: number[];
  data: string;
}

export interface Coverage {
  name: string;
  status: string;
  reason: string;
}

/** Parts of a text by name, and for each row its pairs [column, value] in the order they are shown. */
export interface TableRecord {
  name: string;
  note: string;
  rows: string[];
  columns: string[];
  cells: [number, number][][];
  /** Whether all columns are shown in their order; else, of each row, the largest. */
  ordered: boolean;
  chosen: number[];
  /** Rows and columns of an image's patches, where the columns are those. */
  grid: [number, number] | null;
}

export interface Payload {
  schema: number;
  regard: string;
  title: string;
  model: { name: string; sha256: string | null; architecture: string | null };
  created: string | null;
  notes: string[];
  coverage: Coverage[];
  items: Item[];
  tables: TableRecord[];
  calls: CallRecord[];
  blobs: Record<string, BlobRecord>;
}

/** A problem the reader of the page can understand; anything else is a defect of the page. */
export class PayloadError extends Error {}

/** Check what the rest of the page relies on, so that a wrong payload is named here and not drawn as nonsense. */
export function checkPayload(data: unknown): Payload {
  if (data === null || typeof data !== "object") {
    throw new PayloadError(
      "This is the empty viewer: it carries no recording. Make a page with `regard look` or `regard view`.",
    );
  }
  const payload = data as Payload;
  if (payload.schema !== SCHEMA) {
    throw new PayloadError(
      `This viewer reads payload schema ${SCHEMA}, but the page carries schema ${String(payload.schema)} ` +
        `(written by regard ${String(payload.regard)}). Make the page again with one version of regard.`,
    );
  }
  if (!Array.isArray(payload.items) || payload.items.length === 0) throw new PayloadError("The payload has no items.");
  if (!Array.isArray(payload.calls)) throw new PayloadError("The payload has no list of calls.");
  for (const call of payload.calls) checkCall(call, payload);
  if (!Array.isArray(payload.tables)) throw new PayloadError("The payload has no list of tables.");
  for (const table of payload.tables) checkTable(table);
  return payload;
}

function checkTable(table: TableRecord): void {
  if (table.cells.length !== table.rows.length) {
    throw new PayloadError(
      `${table.name}: there are ${table.cells.length} rows of cells for ${table.rows.length} rows.`,
    );
  }
  for (const [column] of table.cells.flat()) {
    if (!(column in table.columns)) throw new PayloadError(`${table.name}: there is no column ${column}.`);
  }
  if (table.grid && table.grid[0] * table.grid[1] !== table.columns.length) {
    throw new PayloadError(`${table.name}: ${table.columns.length} columns are no grid of ${table.grid.join("×")}.`);
  }
}

function checkCall(call: CallRecord, payload: Payload): void {
  for (const name of [call.queries, call.keys]) {
    payload.items.forEach((item, index) => {
      if (!item.sequences[name]) throw new PayloadError(`${call.name}: item ${index} has no sequence "${name}".`);
    });
  }
  const rows = call.q_positions.length;
  if (rows !== 1 && rows !== payload.items.length) {
    throw new PayloadError(`${call.name}: q_positions has ${rows} rows for ${payload.items.length} items.`);
  }
  for (const row of call.q_positions) {
    if (row.length !== call.q) {
      throw new PayloadError(
        `${call.name}: q_positions has ${row.length} entries, but the call has ${call.q} queries.`,
      );
    }
  }
}
