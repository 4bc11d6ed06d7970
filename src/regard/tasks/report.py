"""What an evaluation found: figures for machines, a page for people, and the examples that went worst."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, message, must_be

_SHOWN = 10


@dataclass(frozen=True)
class Example:
    """One example of an evaluation.

    Args:
        given: What the model read.
        wanted: What it should have said.
        said: What it said.
        score: How good that is; higher is better.
        place: Where the example came from.
    """

    given: str
    wanted: str
    said: str
    score: float
    place: str = ""


@dataclass(frozen=True)
class Report:
    """What an evaluation found.

    Args:
        task: What was evaluated.
        count: How many examples.
        figures: Name to value: numbers, signatures, tables as nested lists.
        lines: The same for people.
        examples: All of them.
    """

    task: str
    count: int
    figures: dict[str, Any]
    lines: tuple[str, ...] = ()
    examples: tuple[Example, ...] = field(default=(), repr=False)

    def worst(self, count: int = _SHOWN) -> tuple[Example, ...]:
        """The examples of the lowest scores, in their order where scores are equal."""
        return tuple(sorted(self.examples, key=lambda example: example.score)[:count])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        worst = [asdict(example) for example in self.worst()]
        return {"task": self.task, "examples": self.count, **self.figures, "worst": worst}

    def __str__(self) -> str:
        return "\n".join((f"{self.task}: {self.count:,} examples", *self.lines))

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write ``NAME.json`` and a readable ``NAME.md``.

        Args:
            path: With or without the ending.

        Returns:
            Both paths.

        Raises:
            ConfigError: the path names no file.
        """
        data, page = report_places(path)
        data.parent.mkdir(parents=True, exist_ok=True)
        data.write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        page.write_text(self._page(), encoding="utf-8")
        return data, page

    def _page(self) -> str:
        lines = [f"# {self.task}: {self.count:,} examples", "", "```", *self.lines, "```", "", "## The worst examples"]
        for example in self.worst():
            lines += ["", f"- {example.place or 'example'} (score {example.score:.3f})"]
            for name in ("given", "wanted", "said"):
                lines.append(f"    - {name}: {_quoted(getattr(example, name))}")
        return "\n".join(lines) + "\n"


def report_places(path: str | Path) -> tuple[Path, Path]:
    """Where a report goes: its figures, and its page.

    Args:
        path: With or without the ending.

    Raises:
        ConfigError: the path names no file.
    """
    stem = Path(path).with_suffix("") if Path(path).suffix in (".json", ".md") else Path(path)
    if not stem.name:
        raise ConfigError(message("save", must_be("path", "the name of a report", f"the folder {str(path)!r}")))
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.md")


def _quoted(text: str) -> str:
    """A text inside a page: what would be markup stays text."""
    flat = " ".join(text.split())
    return "`" + flat.replace("`", "'") + "`" if flat else "(nothing)"
