"""A character map in the form SentencePiece and ``tokenizers`` read: a double-array trie and its replacements.

``tokenizers.normalizers.Precompiled`` takes such a map as bytes: the size of the trie, the trie (one 32-bit unit per
node, darts-clone's layout), and the replacement strings, each ended by a NUL. A unit holds the label that leads to it
(8 bits), whether a key ends there (1 bit), and the distance, by exclusive or, to the block of its children (22 bits).

Source:
    darts-clone, ``DoubleArrayUnit``; SentencePiece, ``normalizer.cc``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from regard.errors import ConfigError, message

_BLOCK = 256
_SEARCHED = 4
_HAS_LEAF = 1 << 8
_LEAF = 1 << 31
_LARGEST_OFFSET = 1 << 21


def charsmap(replacements: Mapping[str, str]) -> bytes:
    """Write a map from characters to replacements as ``Precompiled`` reads it.

    Args:
        replacements: Character to what it becomes; "" removes it. NUL cannot be a key.

    Returns:
        The bytes for ``tokenizers.normalizers.Precompiled``.

    Raises:
        ConfigError: The map is too large for the form, which has 22 bits for a distance.
    """
    texts = bytearray()
    root = _Node()
    for key in sorted(replacements):
        root.add(key.encode(), len(texts))
        texts += replacements[key].encode() + b"\0"
    units = _Units()
    units.place(root, 0)
    trie = struct.pack(f"<{len(units.values)}I", *units.values)
    return struct.pack("<I", len(trie)) + trie + bytes(texts)


@dataclass
class _Node:
    """A node of an ordinary trie over bytes."""

    children: dict[int, _Node] = field(default_factory=dict)
    value: int | None = None

    def add(self, key: bytes, value: int) -> None:
        node = self
        for byte in key:
            node = node.children.setdefault(byte, _Node())
        node.value = value


class _Units:
    """The array of units, grown by blocks."""

    def __init__(self) -> None:
        self.values = [0] * _BLOCK
        self._taken = {0}
        self._bases: set[int] = set()

    def place(self, node: _Node, at: int) -> None:
        """Give a node's children a block of their own, and write the way to it into the node's unit."""
        labels = sorted(node.children) if node.value is None else [0, *sorted(node.children)]
        base = self._find(labels)
        offset = at ^ base
        if offset >= _LARGEST_OFFSET:
            raise ConfigError(message("charsmap", "`replacements` must fit into one trie, but are too many."))
        self.values[at] |= offset << 10
        for label in labels:
            self.values[base ^ label] = label
        if node.value is not None:
            self.values[at] |= _HAS_LEAF
            self.values[base] = _LEAF | node.value
        for label, child in node.children.items():
            self.place(child, base ^ label)

    def _find(self, labels: list[int]) -> int:
        """A base whose places for these labels are all free; only the newest blocks are searched."""
        for place in range(max(1, len(self.values) - _SEARCHED * _BLOCK), len(self.values)):
            base = place ^ labels[0]
            if place in self._taken or base in self._bases:
                continue
            places = [base ^ label for label in labels]
            if self._taken.isdisjoint(places):
                break
        else:
            base = len(self.values)
            places = [base ^ label for label in labels]
            self.values += [0] * _BLOCK
        self._bases.add(base)
        self._taken.update(places)
        return base
