"""A recording of format 1.0 that every later version must read. It holds one made sentence.

To write it anew, when the major version of the format changes: ``python -m tests.records.test_golden``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from regard.records import Call, Coverage, MaskProgram, Model, Op, Recording, Sequence, Token

GOLDEN = Path(__file__).parent.parent / "golden" / "recording-1.0.zip"


def made() -> Recording:
    """What the golden file holds, without any random number."""
    tokens = (Token("<s>", -1, -1, True), Token("A", 0, 1), Token("中", 2, 5), Token("\ud83d", 6, 10))
    rows = np.tril(np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4))
    rows /= rows.sum(-1, keepdims=True)
    call = Call(
        name="layer.0",
        kind="self",
        sequence_q="input",
        sequence_k="input",
        q_positions=np.arange(4, dtype=np.int64)[None],
        kv_start=0,
        kv_len=4,
        num_heads=1,
        num_kv_heads=1,
        scale=0.1,
        logit_softcap=30.0,
        has_sinks=False,
        mask=MaskProgram((Op.CAUSAL, Op.PADDING, 0, Op.AND), (np.ones((1, 4), dtype=bool),)),
        mask_stored=True,
        values={"rows": rows, "key": np.arange(8, dtype=np.uint16).reshape(1, 1, 4, 2)},
        probes={"rows": {"type": "Rows", "indices": None}},
        exact=("rows",),
        pooled=(),
        layer=0,
        notes=("made",),
    )
    return Recording(
        model=Model("made", "ab" * 32, None),
        sequences=((Sequence("input", "A 中 👍", tokens),),),
        calls=(call,),
        coverage=(Coverage("layer.0", "seen"), Coverage("layer.1", "not seen", "no call")),
        notes=("a remark",),
        regard_version="0.1.0",
    )


def plain(recording: Recording) -> tuple:
    """Everything in a recording, comparable."""
    calls = [
        {
            **vars(call),
            "q_positions": call.q_positions.tolist(),
            "mask": (call.mask.code, [array.tolist() for array in call.mask.arrays]),
            "values": {name: (value.dtype.name, value.tolist()) for name, value in call.values.items()},
        }
        for call in recording.calls
    ]
    return replace(recording, calls=()).__dict__, calls


def test_the_golden_recording_is_read_as_it_was_written():
    assert plain(Recording.load(GOLDEN)) == plain(made())


if __name__ == "__main__":
    made().save(GOLDEN)
