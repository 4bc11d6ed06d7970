"""What a file held: the examples, where each stands, what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")

_LISTED = 5


class Place(NamedTuple):
    """Where an example stands.

    Args:
        file: Path of the file, as it was given.
        line: Number of the line, from 1; of the first one, where an example takes several.
        within: The place within that line, for files that hold many examples in one: ``data[0].paragraphs[2]``.
    """

    file: str
    line: int
    within: str = ""

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}"
        return f"{where}, {self.within}" if self.within else where


@dataclass(frozen=True, repr=False)
class Examples(Sequence[T], Generic[T]):
    """The examples of one or several files, in their order.

    Args:
        items: The examples.
        places: Where each stands, for whoever has something to say about one of them.
        skipped: Why rows were left out, and where they stand.
        notes: What a person should know, each said once: which columns were used, what was found out.
        noun: What they are: "pairs", "texts".
    """

    items: tuple[T, ...]
    places: tuple[Place, ...]
    skipped: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    noun: str = "examples"

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Examples[T]: ...

    def __getitem__(self, index: int | slice) -> T | Examples[T]:
        return self.select(range(len(self))[index]) if isinstance(index, slice) else self.items[index]

    def __repr__(self) -> str:
        return f"<{len(self):,} {self.noun} from {_files(self.places)}>"

    def select(self, indices: Iterable[int]) -> Examples[T]:
        """Those at ``indices``, in that order; what was said about the file is not repeated."""
        chosen = tuple(indices)
        items, places = tuple(self.items[i] for i in chosen), tuple(self.places[i] for i in chosen)
        return Examples(items, places, noun=self.noun)

    def without(self, indices: Iterable[int]) -> Examples[T]:
        """All but those at ``indices``."""
        dropped = set(indices)
        return self.select(i for i in range(len(self)) if i not in dropped)

    def report(self) -> str:
        """A few lines for a person: how many, from where, what was skipped where, and the notes."""
        skipped = sum(map(len, self.skipped.values()))
        places = [*self.places, *(place for places in self.skipped.values() for place in places)]
        noun = self.noun.removesuffix("s") if len(self) == 1 else self.noun
        first = f"{len(self):,} {noun} read from {_files(places)}"
        if skipped:
            first += f"; {skipped:,} skipped: {described(self.skipped)}"
        return "\n".join([first, *(f"  {note}" for note in self.notes)])


def described(skipped: Mapping[str, Sequence[Place]]) -> str:
    """Reasons with their places: ``empty target (lines 7, 19, 40), NaN label (line 8)``."""
    several = len({place.file for places in skipped.values() for place in places}) > 1
    return ", ".join(f"{reason} ({_lines(places, name_file=several)})" for reason, places in skipped.items())


def _lines(places: Sequence[Place], *, name_file: bool) -> str:
    shown = places[:_LISTED]
    if name_file or any(place.within for place in shown):
        listed = "; ".join(str(place._replace(file=Path(place.file).name)) for place in shown)
    else:
        listed = f"line{'s' if len(places) > 1 else ''} {', '.join(f'{place.line:,}' for place in shown)}"
    more = len(places) - len(shown)
    return f"{listed} and {more:,} more" if more else listed


def _files(places: Iterable[Place]) -> str:
    names = list(dict.fromkeys(Path(place.file).name for place in places))
    return f"{len(names):,} files" if len(names) > 3 else " and ".join(names) or "nothing"
