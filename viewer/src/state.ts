/** What the page shows now. Panels read it and subscribe to it; they never talk to each other. */

import type { Scale } from "./color";
import type { View } from "./view";

export type Heads = "head" | "layer" | "all";
export type Direction = "out" | "in";
export type Theme = "auto" | "light" | "dark";
export type Side = "q" | "k";

/** The token under the pointer or the text cursor: one position, or all pieces of one character. */
export interface Hover {
  readonly side: Side;
  readonly positions: readonly number[];
}

/** A cell of the matrix, in indices of the axes. */
export interface Point {
  readonly row: number;
  readonly col: number;
}

/** Selected positions of each sequence by name. */
export type Selection = ReadonlyMap<string, ReadonlySet<number>>;

export interface State {
  readonly item: number;
  readonly call: number;
  readonly head: number;
  readonly heads: Heads;
  readonly scale: Scale;
  readonly withoutFirst: boolean;
  readonly direction: Direction;
  readonly theme: Theme;
  readonly sort: "layer" | "entropy";
  readonly hover: Hover | null;
  readonly point: Point | null;
  readonly selection: Selection;
  /** The weights of the chosen head or heads, once they are decoded. */
  readonly view: View | null;
}

export type Key = keyof State;
type Listener = (state: State, changed: ReadonlySet<Key>) => void;

export class Store {
  private current: State;
  private readonly listeners: Listener[] = [];

  constructor(initial: State) {
    this.current = initial;
  }

  get state(): State {
    return this.current;
  }

  set(patch: Partial<State>): void {
    const changed = new Set<Key>();
    for (const key of Object.keys(patch) as Key[]) if (this.current[key] !== patch[key]) changed.add(key);
    if (changed.size === 0) return;
    this.current = { ...this.current, ...patch };
    this.tell(changed);
  }

  /** Announce a change that the state does not hold, such as the system's own theme. */
  touch(key: Key): void {
    this.tell(new Set([key]));
  }

  private tell(changed: ReadonlySet<Key>): void {
    for (const listener of this.listeners) listener(this.current, changed);
  }

  subscribe(listener: Listener): void {
    this.listeners.push(listener);
  }
}

export const INITIAL: State = {
  item: 0,
  call: 0,
  head: 0,
  heads: "head",
  scale: "linear",
  withoutFirst: false,
  direction: "out",
  theme: "auto",
  sort: "layer",
  hover: null,
  point: null,
  selection: new Map(),
  view: null,
};

/** The selection after a click: alone, or added to and taken from what is there. */
export function toggled(selection: Selection, sequence: string, positions: readonly number[], add: boolean): Selection {
  const before = selection.get(sequence) ?? new Set<number>();
  const all = positions.every((position) => before.has(position));
  const next = new Map(add ? selection : []);
  let set: Set<number>;
  if (add) {
    set = new Set(before);
    for (const position of positions) all ? set.delete(position) : set.add(position);
  } else {
    set = all && before.size === positions.length ? new Set() : new Set(positions);
  }
  if (set.size > 0) next.set(sequence, set);
  else next.delete(sequence);
  return next;
}
