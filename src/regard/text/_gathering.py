"""What is done with every row of every file: cleaned, kept or skipped, counted, and said once at the end."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from regard.errors import FormatError, message
from regard.text.examples import Examples, Place, described
from regard.text.options import ReadOptions
from regard.text.surrogates import without_lone_surrogates

T = TypeVar("T")

BLANK = "blank line"
DUPLICATE = "duplicate"
_HARMLESS = (BLANK, DUPLICATE)  # not counted as bad rows
_TRIMMED = " \t\r\n"
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


@dataclass
class Count:
    """How often something was seen, and where first."""

    number: int = 0
    first: Place | None = None

    def add(self, place: Place, number: int = 1) -> None:
        """Count it."""
        self.number += number
        self.first = self.first or place

    def said(self, one: str, many: str) -> str:
        """The number before what it counts, and the first line."""
        line = self.first.line if self.first else 0
        return f"{self.number:,} {one if self.number == 1 else many} (first on line {line:,})"


class Gathering(Generic[T]):
    """The examples of a call of a reader, while they are read.

    Args:
        caller: The public function, for errors.
        noun: What the examples are, as several: "pairs".
        options: How the files are written.
    """

    def __init__(self, caller: str, noun: str, options: ReadOptions) -> None:
        self.caller, self.noun, self.options = caller, noun, options
        self._items: list[T] = []
        self._places: list[Place] = []
        self._skipped: dict[str, list[Place]] = {}
        self._notes: dict[str, None] = {}
        self._seen: set[object] = set()
        self._duplicates, self._entities, self._halves, self._trimmed = Count(), Count(), Count(), Count()

    def note(self, text: str) -> None:
        """Say something, once."""
        if text:
            self._notes.setdefault(text)

    def skip(self, reason: str, place: Place) -> None:
        """Leave a row out."""
        self._skipped.setdefault(reason, []).append(place)

    def text(self, value: object, role: str, place: Place) -> str | None:
        """Clean what is to be a text; None, and the row is skipped, when it is none.

        Spaces, tabs and line ends around it are dropped; no-break and other spaces of Unicode are part of it.
        """
        text = self.exact(value, role, place)
        return None if text is None else text.strip(_TRIMMED)

    def exact(self, value: object, role: str, place: Place) -> str | None:
        """The same, with what stands around the text: for texts that have numbered places."""
        if isinstance(value, str):
            text = self._clean(value, place)
        elif isinstance(value, bool):
            text = "true" if value else "false"
        elif value is None:
            text = ""
        else:
            self.skip(f"{role} is {kind_of(value)}", place)
            return None
        if not text.strip():
            self.skip(f"empty {role}", place)
            return None
        return text

    def label(self, value: object, place: Place) -> str | None:
        """Clean what is to be a label: as it is written, without spaces around it."""
        text = self.text(value, "label", place)
        if text is not None and isinstance(value, str) and text != value and value.strip() == text:
            self._trimmed.add(place)
        return text

    def add(self, item: T, place: Place) -> None:
        """Keep an example, unless it is a duplicate and those are dropped."""
        key = identity(item)
        if key in self._seen:
            self._duplicates.add(place)
            if self.options.drop_duplicates:
                self.skip(DUPLICATE, place)
                return
        self._seen.add(key)
        self._items.append(item)
        self._places.append(place)

    def __len__(self) -> int:
        return len(self._items)

    def finished(self, paths: Iterable[Path]) -> Examples[T]:
        """All that was kept.

        Raises:
            FormatError: Nothing was kept, or more was bad than ``max_bad_share`` of the rows.
        """
        bad = {reason: places for reason, places in self._skipped.items() if reason not in _HARMLESS}
        number = sum(map(len, bad.values()))
        names = " and ".join(map(str, paths))
        hint = "; ".join(self._notes) or None
        if not self._items:
            held = f": {number:,} rows were skipped: {described(bad)}" if number else ""
            raise FormatError(message(self.caller, f"{names} must hold {self.noun}, but holds none{held}.", hint=hint))
        if number > self.options.max_bad_share * (number + len(self._items)):
            share = f"{number:,} of {number + len(self._items):,} rows are bad: {described(bad)}"
            limit = f"more than `max_bad_share` ({self.options.max_bad_share:g}) allows"
            problem = f"{names} must hold {self.noun}, but {share}; {limit}."
            raise FormatError(message(self.caller, problem, hint=hint))
        skipped = {reason: tuple(places) for reason, places in self._skipped.items()}
        return Examples(tuple(self._items), tuple(self._places), skipped, self._said(), self.noun)

    def _said(self) -> tuple[str, ...]:
        counted = []
        if self._duplicates.number and not self.options.drop_duplicates:
            counted.append(self._duplicates.said("exact duplicate is kept", "exact duplicates are kept"))
        if self._entities.number:
            done = "unescaped" if self.options.unescape_html else "left as they are"
            counted.append(
                self._entities.said(f"text holds HTML entities, {done}", f"texts hold HTML entities, {done}")
            )
        if self._halves.number:
            what = "lone surrogate became U+FFFD", "lone surrogates became U+FFFD"
            counted.append(self._halves.said(*what))
        if self._trimmed.number:
            counted.append(self._trimmed.said("label had spaces around it", "labels had spaces around them"))
        return (*self._notes, *counted)

    def _clean(self, text: str, place: Place) -> str:
        if not text.isascii():
            text, replaced = without_lone_surrogates(text) if _is_cut(text) else (text, 0)
            if replaced:
                self._halves.add(place, replaced)
        if "&" in text and _ENTITY.search(text):
            plain = _ENTITY.sub(lambda found: html.unescape(found.group()), text)
            if plain != text:
                self._entities.add(place)
                text = plain if self.options.unescape_html else text
        return text


def kind_of(value: object) -> str:
    """What a value of JSON is, for a person."""
    kinds = {list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), str(value))


def identity(example: object) -> Hashable:
    """What makes two examples the same: every text of them, stripped, in NFC."""
    if isinstance(example, str):
        return unicodedata.normalize("NFC", example.strip())
    if isinstance(example, tuple):
        return tuple(identity(part) for part in example)
    if is_dataclass(example):
        return tuple(identity(getattr(example, field.name)) for field in fields(example) if field.compare)
    return example.tobytes() if isinstance(example, np.ndarray) else example


def _is_cut(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
