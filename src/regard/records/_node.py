"""Reading JSON with types: every mismatch is an error that names the file and the place in it."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from regard.records._source import refuse


def parse(content: bytes, *, file: str) -> Node:
    """Parse a JSON object; refuses repeated names and NaN, which JSON does not have."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) < len(pairs):
            raise ValueError("a name appears twice in one object")
        return names

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def in_range(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):  # 1e999 is JSON, and infinity for Python
            raise ValueError(f"{text} is beyond every number of 64 bits")
        return number

    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant, parse_float=in_range
        )
    except (ValueError, RecursionError) as error:
        refuse(file, f"the manifest is not readable as JSON: {error}.")
    return Node(value, "the manifest", file)


class Node:
    """One value of a JSON document that knows where it is."""

    def __init__(self, value: Any, where: str, file: str) -> None:
        self.value = value
        self.where = where
        self.file = file

    def wrong(self, expected: str) -> NoReturn:
        """Refuse the file because this value is not what it must be."""
        shown = json.dumps(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        refuse(self.file, f"{self.where} must be {expected}, but is {shown}.")

    def __getitem__(self, key: str) -> Node:
        found = self.fields()
        return found[key] if key in found else self.wrong(f"an object with {key!r}")

    def fields(self) -> dict[str, Node]:
        """The value as an object."""
        if not isinstance(self.value, dict):
            self.wrong("an object")
        return {key: Node(value, f"{self.where} › {key}", self.file) for key, value in self.value.items()}

    def entries(self) -> list[Node]:
        """The value as a list."""
        if not isinstance(self.value, list):
            self.wrong("a list")
        return [Node(value, f"{self.where} [{i}]", self.file) for i, value in enumerate(self.value)]

    def text(self) -> str:
        """The value as a string."""
        return self.value if isinstance(self.value, str) else self.wrong("a string")

    def texts(self) -> tuple[str, ...]:
        """The value as a list of strings."""
        return tuple(entry.text() for entry in self.entries())

    def whole(self) -> int:
        """The value as an integer."""
        plain = isinstance(self.value, int) and not isinstance(self.value, bool)
        return int(self.value) if plain and abs(self.value) < 2**63 else self.wrong("an integer of 64 bits")

    def number(self) -> float:
        """The value as a number."""
        plain = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        try:
            return float(self.value) if plain else self.wrong("a number")
        except OverflowError:  # an integer of more than 308 digits
            self.wrong("a number of 64 bits")

    def flag(self) -> bool:
        """The value as a boolean."""
        return self.value if isinstance(self.value, bool) else self.wrong("true or false")

    @property
    def absent(self) -> bool:
        """Whether the value is null."""
        return self.value is None
