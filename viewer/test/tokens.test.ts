import { describe, expect, it } from "vitest";
import { unitsOf } from "../src/block";
import { clip, groupText, isRtl, label, visible } from "../src/tokens";
import { axes, call, sentence, token } from "./make";

describe("visible", () => {
  it.each([
    [" a", "␣a"],
    ["a b", "a b"],
    ["  ", "␣␣"],
    ["\n", "↵"],
    ["\t", "⇥"],
    ["", "∅"],
    ["\0", "⟨0000⟩"],
    ["\u200b", "⟨200B⟩"],
    ["\u202eabc", "⟨202E⟩abc"],
    ["\ud83d", "⟨D83D⟩"],
    ["👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦"],
    ["\u0301", "◌\u0301"],
    ["☺\ufe0f", "☺\ufe0f"],
    ["银行", "银行"],
    ["<b>", "<b>"],
  ])("%j is written %j", (text, shown) => {
    expect(visible(text)).toBe(shown);
  });
});

describe("clip", () => {
  it("cuts between graphemes", () => {
    expect(clip("👨‍👩‍👧‍👦".repeat(5), 3)).toBe(`${"👨‍👩‍👧‍👦".repeat(2)}…`);
    expect(clip("👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 3)).toBe("👨‍👩‍👧‍👦👨‍👩‍👧‍👦");
    expect(clip("x".repeat(10_000), 4)).toBe("xxx…");
  });
});

describe("isRtl", () => {
  it.each([
    ["السلام", true],
    ["שלום", true],
    ["12 السلام", true],
    ["bank", false],
    ["银", false],
    ["a السلام", false],
    ["...", false],
  ])("%s", (text, rtl) => {
    expect(isRtl(text)).toBe(rtl);
  });
});

describe("label", () => {
  it("turns vocabulary marks into glyphs", () => {
    const sequence = { text: "a hello\nĠ", tokens: [token("Ġhello", 2, 7), token("Ċ", 7, 8), token("▁a", 0, 1)] };
    expect(label(sequence, 0)).toBe("␣hello");
    expect(label(sequence, 1)).toBe("↵");
    expect(label(sequence, 2)).toBe("␣a");
  });

  it("leaves a letter that only looks like a mark", () => {
    const sequence = { text: "Ġenna", tokens: [token("Ġenna", 0, 5)] };
    expect(label(sequence, 0)).toBe("Ġenna");
  });

  it("numbers the pieces of one character", () => {
    const tokens = [0, 1, 2].map((gi) => token("?", 0, 1, { gi, gn: 3 }));
    const sequence = { text: "银行", tokens };
    expect(label(sequence, 1)).toBe("银 2/3");
    expect(groupText(sequence, 2)).toBe("银");
  });
});

describe("unitsOf", () => {
  it("keeps the text between tokens and writes every token once", () => {
    const units = unitsOf(sentence("the  river\nbank"));
    expect(units.map((unit) => unit.before + unit.text + unit.after).join("")).toBe("the  river\nbank");
    expect(units.flatMap((unit) => unit.positions)).toEqual([0, 1, 2]);
  });

  it("makes one unit of the pieces of a character", () => {
    const pieces = [0, 1, 2].map((gi) => token("?", 0, 1, { gi, gn: 3 }));
    const units = unitsOf({ text: "银行", tokens: [...pieces, token("行", 1, 2, { g: 1 })] });
    expect(units.map((unit) => [unit.text, unit.positions])).toEqual([
      ["银", [0, 1, 2]],
      ["行", [3]],
    ]);
  });

  it("writes tokens without text, repeated offsets and no text at all by their names", () => {
    const special = token("[CLS]", -1, -1, { special: true });
    expect(unitsOf({ text: "ab", tokens: [special, token("ab", 0, 2), token("ab", 0, 2)] }).map((u) => u.kind)).toEqual(
      ["special", "", "apart"],
    );
    expect(unitsOf({ text: "", tokens: [token("x", 0, 1)] }).map((u) => u.text)).toEqual(["x"]);
  });
});

describe("padding before the text", () => {
  const bare = { text: "a b", tokens: [0, 0].map(() => token("[PAD]", -1, -1, { pad: true, special: true })) };
  const tokens = [...bare.tokens, token("a", 0, 1), token("b", 2, 3)];
  const spelled = sentence("[PAD] [PAD] a b");
  for (const one of spelled.tokens.slice(0, 2)) one.pad = true;

  it.each([
    ["without a text of its own", { text: "a b", tokens }],
    ["given as text", spelled],
  ])("is not written: %s", (_, sequence) => {
    const units = unitsOf(sequence);
    expect(units.map((unit) => [unit.before, unit.text, unit.positions])).toEqual([
      ["", "a", [2]],
      [" ", "b", [3]],
    ]);
  });

  it("has no place on an axis, and positions count it", () => {
    const { q, k } = axes(call({ q: 4, k: 4 }), spelled);
    expect([q.start, q.count, Array.from(q.positions), q.labels]).toEqual([2, 2, [2, 3], ["a", "b"]]);
    expect([k.start, k.at.get(2), k.at.get(1)]).toEqual([2, 0, undefined]);
  });

  it("may be all there is", () => {
    expect(unitsOf(bare)).toEqual([]);
    expect(axes(call({ q: 2, k: 2 }), bare).k.count).toBe(0);
  });
});
