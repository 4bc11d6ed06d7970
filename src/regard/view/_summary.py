"""A recording in a few numbers, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from regard.errors import ConfigError, message, must_be
from regard.records import Recording
from regard.view import _tokens
from regard.view._item import ItemCall
from regard.view._pairs import Pair as Pair
from regard.view._pairs import strongest
from regard.view._seen import Seen


@dataclass(frozen=True)
class LayerSummary:
    """One attention call: means over its heads and queries; None where nothing recorded can tell."""

    name: str
    layer: int | None
    kind: str
    entropy: float | None
    first: float | None


@dataclass(frozen=True)
class HeadSummary:
    """One head: its mean entropy in nats."""

    name: str
    layer: int | None
    head: int
    entropy: float


@dataclass(frozen=True)
class Summary:
    """What ``summary`` found: layers in order, pairs from the strongest, heads from the most focused."""

    model: str
    item: int
    items: int
    layers: tuple[LayerSummary, ...]
    pairs: tuple[Pair, ...]
    focused: tuple[HeadSummary, ...]
    notes: tuple[str, ...]


def summary(recording: Recording, *, item: int = 0, pairs: int = 10, heads: int = 5, special: bool = False) -> Summary:
    """The numbers a person wants first.

    Rows of padding, rows that see no key and rows with NaN are left out. Exact rows are used where there are any, else
    the recorded top-k; then a weight that is not among a row's top counts as 0, and the notes say so.

    Args:
        recording: What was seen.
        item: Which item of the batch.
        pairs: How many (query → key) pairs to list. They are pairs of positions: two equal words are two.
        heads: How many of the most focused heads to list.
        special: Whether pairs with a special token count too; they often outweigh all others.

    Raises:
        ConfigError: There is no such item.
    """
    items = _tokens.batch_size(recording)
    if not 0 <= item < items:
        plural = "the recording has 1 item" if items == 1 else f"the recording has {items} items"
        raise ConfigError(message("summary", must_be("item", f"from 0 to {items - 1} ({plural})", item)))
    sequences = _tokens.sequences_of(recording, item)
    padding = {name: _tokens.padding_of(recording, item, sequence) for name, sequence in sequences.items()}
    calls = [ItemCall(Seen(call), item, padding) for call in recording.calls]
    notes = [note for call in calls for note in call.notes()]
    return Summary(
        model=recording.model.name,
        item=item,
        items=items,
        layers=tuple(_layer(call) for call in calls),
        pairs=strongest(calls, sequences, pairs, special=special),
        focused=_focused(calls, heads),
        notes=tuple(dict.fromkeys([*recording.notes, *notes])),
    )


def _layer(call: ItemCall) -> LayerSummary:
    entropy, first = call.mean(call.seen.entropy), call.mean(call.first())
    return LayerSummary(call.call.name, call.call.layer, call.call.kind, entropy, first)


def _focused(calls: Items[ItemCall], count: int) -> tuple[HeadSummary, ...]:
    heads = [
        HeadSummary(call.call.name, call.call.layer, head, entropy)
        for call in calls
        for head, entropy in call.entropies().items()
    ]
    return tuple(sorted(heads, key=lambda head: head.entropy)[:count])
