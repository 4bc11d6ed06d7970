"""Small recordings made of given weights, and a stand-in for the viewer."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest

from regard.records import Call, Model, Recording, Sequence, Token
from regard.view import _page

TEMPLATE = f"<!doctype html>\n<title>viewer</title>\n{_page.SLOT}\n<script>void 0</script>\n"


@pytest.fixture(autouse=True)
def template(tmp_path_factory, monkeypatch):
    """A stand-in for the viewer, so that these tests need no build."""
    path = tmp_path_factory.mktemp("static") / "viewer.html"
    path.write_text(TEMPLATE, encoding="utf-8")
    monkeypatch.setattr(_page, "TEMPLATE", path)
    return path


def words(*texts: str, name: str = "input", special: tuple[int, ...] = ()) -> Sequence:
    """A sequence of words with a blank between them; special ones have no text."""
    tokens, text = [], ""
    for number, word in enumerate(texts):
        if number in special:
            tokens.append(Token(word, -1, -1, True))
            continue
        start = len(text.encode("utf-8", "surrogatepass"))
        tokens.append(Token(word, start, start + len(word.encode("utf-8", "surrogatepass"))))
        text += f"{word} "
    return Sequence(name, text, tuple(tokens))


def call_of(values: dict[str, np.ndarray], *, q: int, k: int, heads: int = 1, **changes: Any) -> Call:
    known = {
        "name": "layer.0",
        "kind": "self",
        "sequence_q": "input",
        "sequence_k": "input",
        "q_positions": np.arange(q, dtype=np.int64)[None],
        "kv_start": 0,
        "kv_len": k,
        "num_heads": heads,
        "num_kv_heads": heads,
        "scale": 1.0,
        "logit_softcap": None,
        "has_sinks": False,
        "mask": None,
        "mask_stored": True,
        "values": values,
        "probes": {},
        "exact": (),
        "pooled": (),
        "layer": 0,
    }
    return Call(**{**known, **changes})


def call_of_rows(rows: np.ndarray, **changes: Any) -> Call:
    """A call that holds every weight; rows [batch, heads, q, k]."""
    _, heads, q, k = rows.shape
    return call_of({"rows": rows}, q=q, k=k, heads=heads, **changes)


def recording_of(*calls: Call, sequences: tuple[tuple[Sequence, ...], ...] = (), **changes: Any) -> Recording:
    return Recording(
        model=Model("made", None, "MadeModel"), sequences=sequences, calls=calls, regard_version="0.1.0", **changes
    )


def softmax_rows(batch: int, heads: int, q: int, k: int, *, causal: bool = False, seed: int = 0) -> np.ndarray:
    scores = 3 * np.random.default_rng(seed).standard_normal((batch, heads, q, k))
    if causal:
        scores[..., np.arange(k) > np.arange(q)[:, None] + k - q] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def payload_in(html: str) -> dict[str, Any]:
    """What a browser would read from the page; refuses NaN as a browser does."""
    (content,) = re.findall(r'<script type="application/json" id="regard-data">(.*?)</script>', html, re.DOTALL)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(content, parse_constant=refuse)


def blob(payload: dict[str, Any], name: str) -> np.ndarray:
    record = payload["blobs"][name]
    dtype = {"f32": "<f4", "u8": "u1", "i32": "<i4"}[record["dtype"]]
    return np.frombuffer(zlib.decompress(base64.b64decode(record["data"])), dtype=dtype).reshape(record["shape"])
