"""The table of what is measured: one row per work, shape and dtype, with its peers and its targets, as data.

A row is named ``work/dtype/case/batch x heads x length x head_dim``; ``--only`` selects by that name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import Any, Literal, get_args

import torch

Work = Literal["forward", "decode", "train", "observed", "module", "small", "memory"]
"""forward: the output. decode: one query against a long cache. train: forward and backward. observed: the output and
four probes. module: the whole multi-head module, projections included. small: the cost of a call that computes next to
nothing. memory: extra peak memory of the observed call."""

Case = Literal["plain", "causal", "window", "documents", "alibi", "alibi_causal", "bias", "padding"]

Measure = Literal["speedup", "time", "overhead_us", "bytes"]
"""speedup: the peer's time over regard's, at least. time: regard's time over the peer's, at most. overhead_us: regard's
time less the peer's, microseconds per call, at most. bytes: of the row itself, per token and head, at most."""

Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

WINDOW = 256
DOCUMENTS = 16
TOP_K = 16


@dataclass(frozen=True)
class Shape:
    """The lengths of a call; keys are as many as queries, and kv heads as many as heads, unless said otherwise."""

    batch: int
    num_heads: int
    q_len: int
    head_dim: int
    kv_len: int
    num_kv_heads: int

    @property
    def cells(self) -> int:
        """Weights of the whole call."""
        return self.batch * self.num_heads * self.q_len * self.kv_len

    def __str__(self) -> str:
        length = str(self.q_len) if self.q_len == self.kv_len else f"{self.q_len}-{self.kv_len}"
        heads = str(self.num_heads) if self.num_heads == self.num_kv_heads else f"{self.num_heads}-{self.num_kv_heads}"
        return f"{self.batch}x{heads}x{length}x{self.head_dim}"


@dataclass(frozen=True)
class Target:
    """What must hold for a row.

    Args:
        peer: Compared with whom; "" for the row's own bytes.
        measure: What is compared.
        limit: With the AVX-512 kernels on two threads.
        avx2: With the AVX2 kernels; None where nothing was promised.
    """

    peer: str
    measure: Measure
    limit: float
    avx2: float | None = None

    def limit_for(self, isa: str | None, dtype: str) -> float | None:
        """The limit with these kernels, or None: bf16 was promised only where the CPU has bf16 products."""
        if isa == "avx2":
            return self.avx2
        if isa is None or (dtype == "bf16" and isa not in ("avx512_bf16", "amx_bf16")):
            return None
        return self.limit

    def met(self, value: float, limit: float) -> bool:
        """Whether a value is as good as the limit or better."""
        return value >= limit if self.measure == "speedup" else value <= limit


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        work: What is done.
        case: Which mask and bias.
        shape: Its lengths.
        dtype: Of the inputs.
        peers: Against whom, by the names in ``regard.bench.sides``; the first is the one to beat.
        targets: What must hold.
        heat_map: Rows and columns of the map, for observed calls; divides both lengths.
        threads: Fixes the number of threads; None takes what the person chose.
        quick: Whether ``--quick`` measures it.
    """

    work: Work
    case: Case
    shape: Shape
    dtype: Precision
    peers: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    heat_map: int = 256
    threads: int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        assert self.work in get_args(Work)
        assert self.case in get_args(Case)
        assert self.dtype in DTYPES
        assert {target.peer for target in self.targets} <= {*self.peers, ""}
        assert not self.observed or self.shape.q_len % self.heat_map == self.shape.kv_len % self.heat_map == 0

    @property
    def name(self) -> str:
        """Unique in a table."""
        return f"{self.work}/{self.dtype}/{self.case}/{self.shape}"

    @property
    def observed(self) -> bool:
        """Whether probes are asked too."""
        return self.work in ("observed", "memory")

    def to_json(self) -> str:
        """As text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Row:
        """The row that ``to_json`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields["shape"] = Shape(**fields["shape"])
        fields["targets"] = tuple(Target(**target) for target in fields["targets"])
        fields["peers"] = tuple(fields["peers"])
        return cls(**fields)


def shape(batch: int, heads: int, length: int, head_dim: int, *, kv_len: int = 0, kv_heads: int = 0) -> Shape:
    """A shape as people write it."""
    return Shape(batch, heads, length, head_dim, kv_len or length, kv_heads or heads)


def select(rows: tuple[Row, ...], *, only: str | None = None, quick: bool = False) -> tuple[Row, ...]:
    """Rows whose name holds ``only``, a part of it or a pattern with ``*`` and ``?``.

    With ``quick`` only the quick ones, shortest first: where time runs out, it runs out on the longest.
    """
    chosen = [row for row in rows if (row.quick or not quick) and (only is None or fnmatch(row.name, f"*{only}*"))]
    return tuple(sorted(chosen, key=lambda row: row.shape.cells) if quick else chosen)


def _forward() -> list[Row]:
    rows = []
    shapes = [
        shape(1, 12, 512, 64),
        shape(1, 12, 2048, 64),
        shape(1, 12, 8192, 64),
        shape(8, 12, 512, 64),
        shape(1, 8, 4096, 128),
    ]
    for size in shapes:
        quick = size in shapes[:2]
        more = ("eager", "flex") if size == shapes[1] else ("eager",) if size == shapes[0] else ()
        told = ("sdpa_mask", "flex") if size == shapes[1] else ()
        plain, causal = Target("sdpa", "speedup", 1.2, avx2=1.0), Target("sdpa_causal", "speedup", 1.3, avx2=1.0)
        rows += [
            Row("forward", "plain", size, "fp32", ("sdpa", *more), (plain,), quick=quick),
            Row("forward", "causal", size, "fp32", ("sdpa_causal", *told), (causal,), quick=quick),
        ]
    for size in shapes:
        quick = size in shapes[:2]
        plain, causal = Target("sdpa", "speedup", 2.2), Target("sdpa_causal", "speedup", 2.5)
        rows += [
            Row("forward", "plain", size, "bf16", ("sdpa",), (plain,), quick=quick),
            Row("forward", "causal", size, "bf16", ("sdpa_causal",), (causal,), quick=quick),
        ]
    return rows


def _masks_and_biases() -> list[Row]:
    long, middle = shape(1, 12, 8192, 64), shape(1, 12, 2048, 64)

    def speedup(peer: str, limit: float) -> tuple[Target, ...]:
        return (Target(peer, "speedup", limit),)

    return [
        Row("forward", "window", long, "fp32", ("sdpa_mask", "flex"), speedup("sdpa_mask", 15.0)),
        Row("forward", "documents", long, "fp32", ("sdpa_mask", "flex"), speedup("sdpa_mask", 15.0)),
        Row("forward", "alibi", middle, "fp32", ("sdpa_bias",), speedup("sdpa_bias", 1.25)),
        Row("forward", "alibi_causal", middle, "fp32", ("sdpa_bias",), speedup("sdpa_bias", 2.0), quick=True),
        Row("forward", "bias", middle, "fp32", ("sdpa_bias",), speedup("sdpa_bias", 1.15), quick=True),
    ]


def _decode() -> list[Row]:
    cache = shape(1, 32, 1, 128, kv_len=8192, kv_heads=8)
    limits: dict[Precision, float] = {"fp32": 5.0, "bf16": 15.0}
    return [
        Row("decode", "plain", cache, dtype, ("sdpa_gqa", "eager"), (Target("sdpa_gqa", "speedup", limit),), quick=True)
        for dtype, limit in limits.items()
    ]


def _train() -> list[Row]:
    rows = []
    for length in (512, 2048):
        size, quick = shape(1, 12, length, 64), length == 512
        plain, causal = Target("sdpa", "speedup", 1.2), Target("sdpa_causal", "speedup", 1.5)
        rows += [
            Row("train", "plain", size, "fp32", ("sdpa", "eager"), (plain,), quick=quick),
            Row("train", "causal", size, "fp32", ("sdpa_causal",), (causal,), quick=quick),
        ]
    for length in (8, 16, 32):
        size, target = shape(128, 8, length, 32), Target("sdpa_mask", "speedup", 1.5)
        rows += [
            Row("train", "padding", size, "fp32", ("sdpa_mask",), (target,), quick=length == 32),
            Row("train", "padding", size, "bf16", ("sdpa_mask",), (target,), quick=length == 32),
        ]
    return rows


def _observed() -> list[Row]:
    def row(size: Shape, dtype: Precision, limit: float, *, quick: bool = False) -> Row:
        targets = (
            Target("sdpa", "time", limit, avx2=1.5 if dtype == "fp32" else None),
            Target("eager_probes", "speedup", 3.0),
        )
        bins = 64 if size.q_len == 512 else 256
        return Row("observed", "plain", size, dtype, ("sdpa", "eager_probes"), targets, heat_map=bins, quick=quick)

    short, middle, long, wide = (
        *(shape(1, 12, length, 64) for length in (512, 2048, 8192)),
        shape(1, 8, 4096, 128),
    )
    return [
        row(short, "fp32", 1.1, quick=True),
        row(middle, "fp32", 1.05, quick=True),
        row(long, "fp32", 0.95),
        row(wide, "fp32", 0.95),
        row(middle, "bf16", 0.7),
        row(long, "bf16", 0.7),
        row(wide, "bf16", 0.7),
    ]


def _small_and_whole() -> list[Row]:
    overhead, no_slower = Target("sdpa", "overhead_us", 40.0), Target("sdpa", "speedup", 1.0)
    return [
        *(
            Row("small", "plain", shape(1, 12, length, 64), "fp32", ("sdpa",), (overhead,), threads=1, quick=True)
            for length in (16, 64)
        ),
        Row("small", "plain", shape(1, 12, 128, 64), "fp32", ("sdpa",), (no_slower,), quick=True),
        Row("small", "plain", shape(32, 12, 128, 64), "fp32", ("sdpa",), (no_slower,), quick=True),
        *(
            Row("module", "plain", shape(1, 12, length, 64), "fp32", ("mha", "mha_weights"), quick=length == 512)
            for length in (512, 2048)
        ),
        Row("memory", "plain", shape(1, 12, 8192, 64), "fp32", ("sdpa",), (Target("", "bytes", 1024.0),)),
    ]


ROWS: tuple[Row, ...] = (
    *_forward(),
    *_masks_and_biases(),
    *_decode(),
    *_train(),
    *_observed(),
    *_small_and_whole(),
)
"""Everything ``regard bench`` measures, in the order of the table."""
