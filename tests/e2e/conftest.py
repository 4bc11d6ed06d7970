"""Pages for the browser tests: payloads straight from the schema, and a browser that notices every misbehaviour."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TEMPLATE = Path(__file__).parents[2] / "src/regard/view/static/viewer.html"
EMPTY = '<script type="application/json" id="regard-data">null</script>'
CHROMIUM = os.environ.get("REGARD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


# ---- the payload -----------------------------------------------------------------------------------------------------


def blob(array: np.ndarray) -> dict[str, Any]:
    name = {"float32": "f32", "uint8": "u8", "int32": "i32"}[array.dtype.name]
    data = zlib.compress(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes())
    return {"dtype": name, "shape": list(array.shape), "data": base64.b64encode(data).decode()}


def html_of(payload: dict[str, Any]) -> str:
    """Fill the built page as `regard.view` does: ASCII, and nothing that could end the data block."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    page = TEMPLATE.read_text(encoding="utf-8")
    assert page.count(EMPTY) == 1
    return page.replace(EMPTY, EMPTY.replace("null", text))


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def words(text: str, pieces: list[str], *, special: tuple[str, ...] = ("[CLS]", "[SEP]", "<s>")) -> dict[str, Any]:
    """A sequence whose pieces are found in the text one after the other; special pieces have no text."""
    tokens: list[dict[str, Any]] = []
    at = 0
    for index, piece in enumerate(pieces):
        if piece in special:
            tokens.append({"t": piece, "s": -1, "e": -1, "special": True, "g": index, "gi": 0, "gn": 1})
            continue
        plain = piece.removeprefix("##")
        start = text.index(plain, at)
        at = start + len(plain)
        s = utf16(text[:start])
        tokens.append({"t": piece, "s": s, "e": s + utf16(plain), "special": False, "g": index, "gi": 0, "gn": 1})
    return {"text": text, "tokens": tokens}


def softmax(scores: np.ndarray) -> np.ndarray:
    scores = scores - np.max(scores, axis=-1, keepdims=True, initial=-1e30)
    grown = np.exp(scores)
    return (grown / grown.sum(-1, keepdims=True)).astype(np.float32)


def patterns(q: int, k: int, heads: int, seed: int, *, causal: bool = False) -> np.ndarray:
    """Weights that look like heads of a trained model: previous token, itself, the first, the last, bands, noise."""
    rng = np.random.default_rng(seed)
    i, j = np.arange(q)[:, None] * (k / max(q, 1)), np.arange(k)[None, :]
    shapes = [
        -np.abs(i - 1 - j) * 2.5,
        -np.abs(i - j) * 1.5,
        np.where(j == 0, 4.0, 0.0) + 0 * i,
        np.where(j == k - 1, 4.0, 0.0) + 0 * i,
        -np.abs(i + 1 - j) * 2.0,
        -((i - j) ** 2) / (2 * (k / 5) ** 2),
        np.where((np.floor(i) % 3) == (j % 3), 2.5, 0.0),
    ]
    out = np.empty((heads, q, k), np.float32)
    for head in range(heads):
        scores = shapes[(head + seed) % len(shapes)] + rng.normal(0, 0.7, (q, k))
        if causal:
            scores = np.where(j > np.arange(q)[:, None] + k - q, -1e30, scores)
        out[head] = softmax(scores)
    return out


def entropy(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (-np.where(weights > 0, weights * np.log(weights), 0).sum(-1)).astype(np.float32)


@dataclass
class Recording:
    """A payload being built, with the arrays it was built from."""

    title: str = "The bank is by the river bank"
    items: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    blobs: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    coverage: list[dict[str, str]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    schema: int = 1

    def store(self, array: np.ndarray) -> str:
        name = f"b{len(self.blobs)}"
        self.blobs[name] = blob(array)
        return name

    def base(self, name: str, heads: int, q: int, k: int, **more: Any) -> dict[str, Any]:
        call = {
            "name": name, "layer": None, "kind": "self", "heads": heads, "q": q, "k": k,
            "queries": "input", "keys": "input", "q_positions": [list(range(q))], "k_start": 0,
            "exact": True, "weights": None, "map": None, "topk": None,
            "entropy": None, "first": None, "sink": None, "key_mass": None, "flags": [],
        }  # fmt: skip
        return call | more

    def add_exact(self, name: str, weights: np.ndarray, **more: Any) -> None:
        """`weights` float32 [items, heads, q, k]."""
        _, heads, q, k = weights.shape
        self.weights.append(weights)
        statistics = {"entropy": self.store(entropy(weights)), "key_mass": self.store(weights.sum(-2))}
        self.calls.append(self.base(name, heads, q, k, weights=self.store(weights), **statistics, **more))

    def add_pooled(self, name: str, weights: np.ndarray, *, bins: int = 256, k: int = 16, **more: Any) -> None:
        """Store [items, heads, q, kv] weights as Python does for long inputs."""
        items, heads, q, kv = weights.shape
        self.weights.append(weights)
        order = np.argsort(-weights, axis=-1, kind="stable")[..., :k]
        top = np.take_along_axis(weights, order, -1)
        rows, cols = min(bins, q), min(bins, kv)
        row_edges = -(-np.arange(rows) * q // rows)
        col_edges = -(-np.arange(cols) * kv // cols)
        pooled = np.add.reduceat(np.add.reduceat(weights, row_edges, axis=2), col_edges, axis=3)
        pooled /= np.diff(np.append(row_edges, q))[:, None]
        floor, step = -24.0, 24.0 / 254
        with np.errstate(divide="ignore"):
            level = np.round((np.log2(pooled) - floor) / step) + 1
        steps = np.where(pooled == 0, 0, np.clip(level, 1, 255)).astype(np.uint8)
        self.calls.append(
            self.base(
                name, heads, q, kv, exact=False,
                map={"blob": self.store(steps), "rows": rows, "cols": cols, "floor_log2": floor, "step": step},
                topk={
                    "indices": self.store(order.astype(np.int32)), "weights": self.store(top),
                    "rest": self.store((1 - top.sum(-1)).astype(np.float32)), "k": k,
                },
                entropy=self.store(entropy(weights)), key_mass=self.store(weights.sum(-2)), **more,
            )
        )  # fmt: skip
        assert items == len(self.items)

    def payload(self) -> dict[str, Any]:
        return {
            "schema": self.schema, "regard": "0.1.0", "title": self.title,
            "model": {"name": "all-MiniLM-L6-v2", "sha256": "0" * 64, "architecture": "BertModel"},
            "created": "2026-11-29", "notes": self.notes, "coverage": self.coverage, "tables": self.tables,
            "items": self.items, "calls": self.calls, "blobs": self.blobs,
        }  # fmt: skip


# ---- recordings the tests share --------------------------------------------------------------------------------------

BANK = ["[CLS]", "the", "bank", "is", "by", "the", "river", "bank", ",", "not", "here", "[SEP]"]


def bank(layers: int = 6, heads: int = 12) -> Recording:
    """Twelve tokens, six layers of twelve heads, exact."""
    made = Recording(notes=["The weights are exact (float32)."])
    made.items = [{"sequences": {"input": words("the bank is by the river bank, not here", BANK)}}]
    for layer in range(layers):
        name = f"encoder.layer.{layer}.attention.self"
        made.add_exact(name, patterns(12, 12, heads, layer)[None], layer=layer)
        made.coverage.append({"name": name, "status": "seen", "reason": "scaled_dot_product_attention"})
    return made


def long(tokens: int = 2048, layers: int = 2, heads: int = 4, seed: int = 0) -> Recording:
    """A long causal text, pooled."""
    rng = np.random.default_rng(seed)
    vocabulary = [
        "the",
        "a",
        "river",
        "bank",
        "of",
        "water",
        "money",
        "stone",
        "light",
        "old",
        "quiet",
        "runs",
        "under",
    ]
    chosen = [str(word) for word in rng.choice(vocabulary, tokens - 1)]
    chosen = [word + ("." if n % 17 == 16 else "") for n, word in enumerate(chosen)]
    text = " ".join(chosen)
    made = Recording(title=f"A text of {tokens} tokens", notes=["Long input: maps are pooled, top 16 are exact."])
    made.items = [{"sequences": {"input": words(text, ["<s>", *chosen])}}]
    i, j = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    for layer in range(layers):
        weights = np.empty((1, heads, tokens, tokens), np.float32)
        for head in range(heads):
            width = 4.0 * 4 ** ((head + layer) % 4)
            scores = -np.abs(i - j) / width + rng.gumbel(0, 1, (tokens, tokens)) + np.where(j == 0, 3.0, 0)
            weights[0, head] = softmax(np.where(j > i, -1e30, scores))
        made.add_pooled(f"model.layers.{layer}.self_attn", weights, layer=layer)
    return made


def table(name: str, rows: list[str], columns: list[str], cells: list[Any], **more: Any) -> dict[str, Any]:
    """A table as Python writes it."""
    known = {"name": name, "note": f"How {name} was made.", "rows": rows, "columns": columns, "cells": cells}
    return {**known, "ordered": False, "chosen": [], "grid": None, **more}


def three_tables() -> list[dict[str, Any]]:
    """One of words, one of sentences, one of an image's patches."""
    words = [[[2, 0.75], [0, 0.125]], [[1, 0.5]], []]
    patches = [[[patch, round(0.02 * patch, 3)] for patch in range(6)], [[patch, 0.1] for patch in range(6)]]
    sentences = ["The river is quiet.", "银行在河边。", "It was late."]
    return [
        table("words", ["the bank", "河", "<s>"], ["die", "Bank", "Fluss"], words, chosen=[2]),
        table("sentences", ["weight"], sentences, [[[0, 0.2], [1, 0.8], [2, 0.0]]], ordered=True, chosen=[1]),
        table("patches", ["red", "圆"], [f"{n // 3},{n % 3}" for n in range(6)], patches, grid=[2, 3]),
    ]


def cross() -> Recording:
    """Translation: encoder, decoder and cross-attention; the decoder's rows begin at position 2."""
    made = Recording(title="Translation", tables=three_tables())
    source = words("the river bank is quiet", ["the", "river", "bank", "is", "quiet", "[SEP]"])
    target = words("das Flussufer ist still heute", ["<s>", "das", "Fluss", "##ufer", "ist", "still", "heute"])
    made.items = [{"sequences": {"source": source, "target": target}}]
    made.add_exact("encoder.0", patterns(6, 6, 4, 1)[None], layer=0, queries="source", keys="source")
    decoder = {"queries": "target", "q_positions": [[2, 3, 4, 5]]}
    made.add_exact("decoder.0.self", patterns(4, 6, 4, 2, causal=True)[None], layer=0, keys="target", **decoder)
    made.add_exact("decoder.0.cross", patterns(4, 6, 4, 3)[None], layer=0, kind="cross", keys="source", **decoder)
    return made


def scripts() -> Recording:
    """Chinese in byte pieces, emoji, combining marks, Arabic, white space."""
    text = "银行在河边。 👨‍👩‍👧‍👦 e\u0301 السلام عليكم\n  hello"
    made = Recording(title="银行在河边 · السلام", notes=["12 % of the tokens are unknown to this model."])
    spans = [
        ("银", 3),
        ("行", 3),
        ("在", 1),
        ("河", 1),
        ("边", 1),
        ("。", 1),
        (" ", 1),
        ("👨‍👩‍👧‍👦", 5),
        (" ", 1),
        ("e\u0301", 2),
    ]
    spans += [(" ", 1), ("السلام", 1), (" ", 1), ("عليكم", 1), ("\n", 1), ("  hello", 1)]
    tokens: list[dict[str, Any]] = []
    at = 0
    for group, (piece, count) in enumerate(spans):
        end = at + utf16(piece)
        for n in range(count):
            name = piece if count == 1 else f"<0x{0xE4 + n:02X}>"
            name = {"\n": "Ċ", "  hello": "ĠĠhello"}.get(piece, name)
            tokens.append({"t": name, "s": at, "e": end, "special": False, "g": group, "gi": n, "gn": count})
        at = end
    made.items = [{"sequences": {"input": {"text": text, "tokens": tokens}}}]
    for layer in range(2):
        made.add_exact(f"layer.{layer}", patterns(len(tokens), len(tokens), 6, layer)[None], layer=layer)
    return made


HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "<!--<script>",
    "</script><img src=x onerror=alert(1)>",
    "\"onmouseover=alert(1) '",
    "<b>",
    "\ud83d",
    "\udc4d x",
    "\x00",
    "\u202eabc",
    "x" * 10_000,
    "&lt;i&gt;",
]


def hostile() -> Recording:
    """Tokens that try to become markup, in every field that holds text."""
    evil = HOSTILE[3]
    made = Recording(title=f"{evil} {HOSTILE[2]}", notes=[evil, HOSTILE[0]])
    tokens = []
    at = 0
    for group, piece in enumerate(HOSTILE):
        end = at + utf16(piece)
        tokens.append({"t": piece, "s": at, "e": end, "special": False, "g": group, "gi": 0, "gn": 1})
        at = end + 1
    made.items = [{"sequences": {evil: {"text": " ".join(HOSTILE), "tokens": tokens}}}]
    made.coverage = [{"name": evil, "status": evil, "reason": HOSTILE[2]}]
    cells = [[[column, 0.5] for column in range(len(HOSTILE))] for _ in HOSTILE]
    made.tables = [
        table(evil, HOSTILE, HOSTILE, cells, chosen=[3]),
        table(evil, [evil, evil], HOSTILE, cells[:2], ordered=True),
        table(evil, HOSTILE, HOSTILE, cells, grid=[3, 4]),
    ]
    made.add_exact(evil, patterns(12, 12, 2, 0)[None], queries=evil, keys=evil, flags=[evil])
    return made


# ---- the browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium found (set REGARD_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@dataclass
class Opened:
    """A page and what went wrong on it."""

    page: Any
    trouble: list[str]

    def state(self) -> dict[str, Any]:
        return self.page.evaluate("regard.state()")

    def point_at(self, row: int, col: int) -> None:
        spot = self.page.evaluate(f"regard.pointOf({row}, {col})")
        self.page.mouse.move(spot["x"], spot["y"])


@pytest.fixture
def open_html(browser, tmp_path):
    """Open HTML from a file, offline; afterwards: no request, console error, dialog or crash may have happened."""
    opened: list[Opened] = []

    def open_it(html: str, *, width: int = 1440, height: int = 900, ready: bool = True, **context: Any) -> Opened:
        path = tmp_path / f"page-{len(opened)}.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_context(viewport={"width": width, "height": height}, offline=True, **context).new_page()
        one = Opened(page, [])
        own = path.as_uri()
        page.on("request", lambda r: None if r.url == own or r.url[:5] in ("data:", "blob:") else note(one, r.url))
        page.on("console", lambda m: note(one, m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: note(one, str(e)))
        page.on("dialog", lambda d: (note(one, f"dialog {d.message}"), d.dismiss()))
        page.goto(own)
        if ready:
            page.evaluate("regard.ready")
        opened.append(one)
        return one

    yield open_it
    for one in opened:
        one.page.context.close()
        assert one.trouble == []


def note(opened: Opened, what: str) -> None:
    opened.trouble.append(what)


def until(page: Any, expression: str, seconds: float = 10) -> None:
    """Wait for an expression to be true. (`wait_for_function` evaluates strings, which the page's policy forbids.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


@pytest.fixture
def open_page(open_html):
    """Open a recording."""
    return lambda recording, **options: open_html(html_of(recording.payload()), **options)


@pytest.fixture(scope="session")
def recordings():
    """The builders above, for test modules (which cannot import this file)."""
    from types import SimpleNamespace

    return SimpleNamespace(
        Recording=Recording, bank=bank, long=long, cross=cross, scripts=scripts, hostile=hostile,
        until=until, html_of=html_of, words=words, table=table, patterns=patterns, HOSTILE=HOSTILE, BANK=BANK,
    )  # fmt: skip
