"""What every comparison of texts checks first: as many on both sides, at least one, and texts they are."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from regard.errors import ConfigError, ShapeError, all_problems, message, must_be

References = Sequence[str] | Sequence[Sequence[str]]
"""For every segment one text, or several of which each is right."""


def check_numbers(caller: str, hint: str | None = None, /, **sides: Sized) -> None:
    """Refuse sides of different lengths, and empty ones.

    Args:
        caller: The public function, for the message.
        hint: What may have gone wrong.
        sides: What must be as many, by the names of the arguments.

    Raises:
        ShapeError: The numbers differ; names both.
        ConfigError: There is nothing to compare.
    """
    (first, least), *others = sides.items()
    for name, side in others:
        if len(side) != len(least):
            problem = must_be(name, f"as many as `{first}` ({len(least)})", len(side))
            raise ShapeError(message(caller, problem, hint=hint))
    if not len(least):
        raise ConfigError(message(caller, must_be(first, "at least one", "empty")))


def with_references(
    caller: str, texts: Sequence[str], references: References, names: tuple[str, str] = ("hypotheses", "references")
) -> list[tuple[str, ...]]:
    """The references of every segment, as tuples, after everything was checked.

    Args:
        caller: The public function, for the messages.
        texts: What a system wrote.
        references: What it should have written.
        names: What the caller calls the two.

    Raises:
        ShapeError: There are not as many references as texts.
        ConfigError: There is nothing to compare, a segment has no reference, or something is no text.
    """
    problems = [
        must_be(name, "a sequence of texts", "one text")
        for name, side in zip(names, (texts, references), strict=True)
        if isinstance(side, str)
    ]
    if problems:
        raise all_problems(caller, problems)
    one, other = names
    hint = (
        f"`{other}` holds, for each segment, one text or a list of texts; sacreBLEU's own lists are the other way round"
    )
    check_numbers(caller, hint, **{one: texts, other: references})
    listed = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in references]
    problems += [
        must_be(f"{one}[{index}]", "a text", f"a {type(text).__name__}")
        for index, text in enumerate(texts)
        if not isinstance(text, str)
    ]
    for index, entries in enumerate(listed):
        if not entries:
            problems.append(must_be(f"{other}[{index}]", "at least one text", "empty"))
        problems += [
            must_be(f"{other}[{index}]", "texts only", f"with a {type(text).__name__}")
            for text in entries
            if not isinstance(text, str)
        ]
    if problems:
        raise all_problems(caller, problems)
    return listed
