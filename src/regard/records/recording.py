"""A recording: what attention did in one run, as plain data that can be written, read and shown without torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from regard.records.mask_program import MaskProgram
from regard.records.table import Table


def attribute_of(probe_type: str) -> str:
    """The usual attribute of a type of probe: ``TopK`` → ``top_k``, ``LogSumExp`` → ``log_sum_exp``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", probe_type).lower()


@dataclass(frozen=True)
class Token:
    """One token of a sequence.

    Args:
        text: The token as the tokenizer writes it, markers included.
        start: First byte of the token in the sequence's UTF-8 text; −1 for a token without text.
        end: The byte after its last; −1 for a token without text.
        special: Whether the tokenizer added it (start, separator, padding).
    """

    text: str
    start: int
    end: int
    special: bool = False


@dataclass(frozen=True)
class Sequence:
    """The tokens of one input of one batch item, and the text they come from.

    Args:
        name: What calls refer to it by, such as ``"input"`` or ``"source"``.
        text: The text; empty where there is none (images, redacted recordings).
        tokens: Its tokens, padding included, so that token i is key i of the model.
    """

    name: str
    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Model:
    """Which model was watched: its name, the SHA-256 of its weights and its class, where they are known."""

    name: str
    weights_sha256: str | None = None
    architecture: str | None = None


@dataclass(frozen=True)
class Coverage:
    """Whether one attention module was seen: ``status`` is "seen", "not seen" or "partly"."""

    name: str
    status: str
    reason: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """One attention call and the probe values of it.

    A float array of ``values`` is float32 or float64; a uint16 array holds the bits of bfloat16 numbers, which numpy
    does not have (``regard.records.widen`` turns them into float32).

    Args:
        name: Path of the attention module in the model.
        kind: "self" or "cross".
        sequence_q: Name of the sequence the queries belong to.
        sequence_k: Name of the sequence the keys belong to.
        q_positions: Absolute position of each query, for each batch item or once for all.
        kv_start: Absolute position of the first key.
        kv_len: How many keys there are.
        num_heads: Query heads.
        num_kv_heads: Key heads; divides ``num_heads``.
        scale: What multiplies the scores.
        logit_softcap: The soft cap of the scores, if any.
        has_sinks: Whether a learned sink takes part of the mass.
        mask: Which keys each query may see; None where there was no mask or it cannot be stored.
        mask_stored: False where there was a mask and it is not in ``mask``.
        values: Probe values by attribute (``"entropy"``, ``"top_k.indices"``, …).
        probes: Attribute to the probe's type and options: ``{"top_k": {"type": "TopK", "k": 16}}``.
        exact: Attributes whose values are exact.
        pooled: Attributes whose values are means over bins.
        layer: Number of the layer, where the model has one.
        notes: Honest remarks about this call.
    """

    name: str
    kind: Literal["self", "cross"]
    sequence_q: str
    sequence_k: str
    q_positions: Int[np.ndarray, "batch_or_1 q"]
    kv_start: int
    kv_len: int
    num_heads: int
    num_kv_heads: int
    scale: float
    logit_softcap: float | None
    has_sinks: bool
    mask: MaskProgram | None
    mask_stored: bool
    values: Mapping[str, np.ndarray]
    probes: Mapping[str, Mapping[str, Any]]
    exact: tuple[str, ...]
    pooled: tuple[str, ...]
    layer: int | None
    notes: tuple[str, ...] = ()

    @property
    def q_len(self) -> int:
        """How many queries there are."""
        return int(self.q_positions.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """Everything that was seen in one run.

    Args:
        model: The model that was watched.
        sequences: For each batch item, its sequences.
        calls: Every attention call, in order.
        coverage: Per attention module, whether it was seen and if not, why.
        notes: Honest remarks about the whole run.
        tables: What was gathered for people to read first.
        regard_version: The version that made the recording.
        created: When, in ISO 8601; None where that must not be told.
    """

    model: Model
    sequences: tuple[tuple[Sequence, ...], ...]
    calls: tuple[Call, ...]
    coverage: tuple[Coverage, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    regard_version: str = field(default="")
    created: str | None = None

    def save(self, path: str | os.PathLike[str], *, as_zip: bool | None = None, redact_text: bool = False) -> Path:
        """Write the recording as a folder, or as the zip of that folder.

        It is written beside the target and then renamed, so a reader never meets half of it. An earlier recording at
        ``path`` is replaced; anything else there is left alone and refused.

        Args:
            path: Where; by custom ``NAME.regard``.
            as_zip: One zip file instead of a folder; None means: a zip if ``path`` ends in ``.zip``.
            redact_text: Leave out the text, the tokens' strings, tables of words, and stored queries and keys, which
                can reveal it.
                Positions, byte offsets and every other value stay.

        Returns:
            The path that was written.

        Raises:
            ConfigError: The recording contradicts itself (every problem is listed), or the folder of ``path`` is
                missing or cannot be written to.
            FormatError: ``path`` holds something that is not a recording.
            OSError: It could not be written after all (a full disk); names ``path``.

        Cost:
            One more copy of at most one chunk (64 MiB) in memory, or of the largest value if that is larger.
        """
        from regard.records._save import save

        return save(self, path, as_zip=as_zip, redact_text=redact_text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording: a folder or a zip.

        Everything is checked: checksums, sizes, shapes, dtypes and that the parts agree with each other.

        Args:
            path: The folder or the zip.

        Returns:
            The recording, equal bit for bit to what was saved.

        Raises:
            FormatError: It is not a recording, is damaged, or was made by a newer major version of the format.
        """
        from regard.records._load import load

        return load(Path(path))
