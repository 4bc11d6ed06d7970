"""A made recording with every kind of value in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regard.records import Call, Coverage, MaskProgram, Model, Op, Recording, Sequence, Table, Token

TEXT = "中 a bank 👍🏽"


def made_table(**changes: Any) -> Table:
    table = Table(
        name="What it looked at",
        note="made",
        rows=("the bank",),
        columns=("中", "a bank"),
        values=np.array([[0.25, 0.5]]),
        ordered=True,
        chosen=(1,),
        grid=(1, 2),
    )
    return replace(table, **changes)


def make_recording(seed: int = 0, *, heads: int = 2, length: int = 5, batch: int = 2) -> Recording:
    random = np.random.default_rng(seed)
    rows = random.random((batch, heads, length, length), dtype=np.float32)
    rows /= rows.sum(-1, keepdims=True)
    tokens = (
        Token("[CLS]", -1, -1, True),
        Token("ä¸Ń", 0, 3),
        Token("Ġa", 4, 5),
        Token("Ġbank", 6, 10),
        Token("x", 11, 19),
    )
    item = (Sequence("input", TEXT, tokens),)
    keep = np.ones((batch, length), dtype=bool)
    call = Call(
        name="encoder.layer.0.attention.self",
        kind="self",
        sequence_q="input",
        sequence_k="input",
        q_positions=np.arange(length, dtype=np.int64)[None],
        kv_start=0,
        kv_len=length,
        num_heads=heads,
        num_kv_heads=1,
        scale=0.1 + 0.2,
        logit_softcap=None,
        has_sinks=False,
        mask=MaskProgram((Op.CAUSAL, Op.PADDING, 0, Op.AND), (keep,)),
        mask_stored=True,
        values={
            "rows": rows,
            "entropy": np.full((batch, heads, length), np.nan, dtype=np.float32),
            "top_k.indices": np.zeros((batch, heads, length, 3), dtype=np.int64),
            "top_k.weights": rows[..., :3],
            "top_k.rest": rows[..., 3:].sum(-1),
            "query": random.integers(0, 2**16, (batch, heads, length, 4), dtype=np.uint16),
        },
        probes={"rows": {"type": "Rows"}, "entropy": {"type": "Entropy"}, "top_k": {"type": "TopK", "k": 3}},
        exact=("rows", "entropy", "top_k"),
        pooled=(),
        layer=0,
        notes=("made",),
    )
    return Recording(
        model=Model("made", "ab" * 32, "MadeModel"),
        sequences=(item,) * batch,
        calls=(call,),
        coverage=(Coverage(call.name, "seen", ""),),
        notes=("a remark",),
        tables=(made_table(),),
        regard_version="0.1.0",
        created="2026-11-29T00:00:00Z",
    )


@pytest.fixture
def recording() -> Recording:
    return make_recording()
