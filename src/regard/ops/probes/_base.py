"""What a probe is: an exact definition on the weight matrix and a form that reads it strip by strip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import UnsupportedError, message
from regard.ops._strip import Geometry, Strip
from regard.ops.probes._fused import Answer, Question
from regard.records import attribute_of

Kind = Literal["row", "column", "either"]


class State(ABC):
    """What one probe has gathered so far in one attention layer.

    A state outlives a call: during generation the strips of every step are shown to the same state, so row values
    are appended along the queries and column values grow with the keys.
    """

    @abstractmethod
    def update(self, strip: Strip) -> None:
        """Take in the next rows.

        Rows of one call come in order of the query index; calls in order of time. A call shows at least one strip, of
        height 0 when it has no queries. The strip's tensors belong to the caller, who may overwrite them afterwards:
        copy what is kept, change nothing.
        """

    def absorb(self, answer: Answer) -> None:
        """Take in a whole call by the answer to the question that the probe asked of it."""
        raise NotImplementedError(type(self).__name__)

    @abstractmethod
    def value(self) -> Any:
        """The probe's value over everything seen so far: a tensor, or a frozen dataclass of tensors.

        Detached, and unchanged by later updates. ConfigError when nothing was seen yet.
        """

    @abstractmethod
    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order (a beam search moved its hypotheses)."""


class Probe(ABC):
    """A question about attention weights that is answered in linear memory.

    Subclasses are frozen dataclasses: hashable by value, safe to share. To add one, write a subclass and run
    ``regard.ops.probes.check_probe`` on it. Where every query has its own value, start from ``RowProbe``.
    """

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """Whether values belong to queries ("row"), to keys or bins ("column"), or are plain weights ("either")."""

    @property
    def attribute(self) -> str:
        """Name of the result on an observation: ``name`` if given, else the class in snake case."""
        return getattr(self, "name", None) or attribute_of(type(self).__name__)

    @abstractmethod
    def define(self, strip: Strip) -> Any:
        """The definition: the value from one strip that holds the whole weight matrix."""

    @abstractmethod
    def begin(self) -> State:
        """An empty state."""

    def question(self, geometry: Geometry) -> Question | None:
        """What a fast backend can answer for this probe in one pass; None where it must be shown strips."""
        return None

    def merge(
        self,
        values: Sequence[Any],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> Any:
        """Combine the values of key shards of the same rows (row probes only).

        A sink belongs to exactly one of the shards, whichever it is, as if it were one of its keys.

        Args:
            values: One value per shard, each as if the shard's keys (and sink) were all there are.
            shares: exp(lse_shard − lse) per shard: the mass of the whole row that lies in the shard; 0 where the shard
                has nothing for this row. They sum to one, or to zero for an empty row.
            sink_shares: ``SinkShare`` of each shard by itself; needed when there are sinks, and None otherwise.

        Returns:
            The value of the whole rows.

        Raises:
            UnsupportedError: It is not a row probe.
        """
        problem = f"it is a {self.kind} probe, which merges in two phases, not by lse."
        raise UnsupportedError(message(f"{type(self).__name__}.merge", problem))
