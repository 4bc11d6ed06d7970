"""Which column of a file is what: by the names it has, by the names a person gives, or by a rule of the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from regard.errors import all_problems, must_be
from regard.text._gathering import Gathering
from regard.text._rows import Row, Rows
from regard.text.examples import Place

Column = int | tuple[str, ...]  # the place in a row of a table, from 0, or a path of keys
Chosen = Mapping[str, Column]

_LISTED = 6


class Missing:
    """What a row of JSON gives for a field that it does not have."""


MISSING = Missing()


@dataclass(frozen=True)
class Role:
    """Something a reader looks for in a row.

    Args:
        name: Its key in ``ReadOptions.columns``.
        aliases: Names of columns that mean it, the likeliest first, in lower case.
        needed: Whether a file without it cannot be read.
    """

    name: str
    aliases: tuple[str, ...]
    needed: bool = True


@dataclass(frozen=True)
class Layout:
    """What a reader knows of the files it reads.

    Args:
        roles: What it looks for.
        guess: The columns of a file whose names say nothing: from its rows (those below a header) to columns by role.
        is_header: Whether the names of line 1 are a header although they are no aliases.
    """

    roles: tuple[Role, ...]
    guess: Callable[[Rows, Sequence[Row]], Chosen]
    is_header: Callable[[Sequence[str]], bool] = lambda names: False


def values_of(rows: Rows, layout: Layout, gathering: Gathering[Any]) -> Iterator[tuple[Place, list[object]]]:
    """What stands in the columns of every role, row by row; ``MISSING`` for what is not needed and not there.

    Raises:
        ConfigError: ``columns`` names roles that are not the reader's.
        FormatError: A needed column is not there.
    """
    if not rows.peeked:
        return
    columns, header = _choose(rows, layout, gathering)
    _say(rows, columns, header, gathering)
    wanted = [(role, columns.get(role.name)) for role in layout.roles]
    width = len(rows.peeked[0][1])
    least = max((column for column in columns.values() if isinstance(column, int)), default=0)
    for place, row in islice(rows, int(header), None):
        if rows.is_table and not least < len(row) <= width:
            gathering.skip(f"{_counted(len(row), 'column')} instead of {width:,}", place)
            continue
        found = [MISSING if column is None else value_of(row, column) for _, column in wanted]
        lacking = [
            role.name for (role, _), value in zip(wanted, found, strict=True) if role.needed and value is MISSING
        ]
        if lacking:
            gathering.skip(f"no {lacking[0]}", place)
        else:
            yield place, found


def value_of(row: Row, column: Column) -> object:
    """What stands in a column of a row; ``MISSING`` where there is nothing."""
    if isinstance(column, int):
        return cast("Sequence[str]", row)[column]
    value: object = row
    for key in column:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def plain(name: str) -> str:
    """A name as it is compared: without spaces around it, in lower case, with ``_`` for what joins its words."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _choose(rows: Rows, layout: Layout, gathering: Gathering[Any]) -> tuple[Chosen, bool]:
    """The column of every role, and whether line 1 is a header."""
    named = gathering.options.columns
    known = {role.name for role in layout.roles}
    if not known >= set(named):
        expected = f"a mapping from roles ({', '.join(role.name for role in layout.roles)})"
        actual = f"one from {', '.join(repr(name) for name in named if name not in known)}"
        raise all_problems(gathering.caller, [must_be("columns", expected, actual)])
    header = rows.is_table and _has_header(rows, layout, gathering)
    columns: dict[str, Column] = {role: _named(rows, role, column, header) for role, column in named.items()}
    names = (
        {plain(name): place for place, name in reversed(list(enumerate(rows.names)))}
        if header or not rows.is_table
        else {}
    )
    for role in layout.roles:
        place = next(
            (names[alias] for alias in role.aliases if names.get(alias) not in (None, *columns.values())), None
        )
        if role.name not in columns and place is not None:
            columns[role.name] = place
    if not rows.is_table:
        columns = {role: (rows.names[c],) if isinstance(c, int) else c for role, c in columns.items()}
    needed = [role.name for role in layout.roles if role.needed]
    if not named and not columns.keys() >= set(needed):
        columns = {**layout.guess(rows, [row for _, row in rows.peeked[header:]])} or columns
    for name in needed:
        if name not in columns:
            raise rows.lacking(f"a column for `{name}`")
    return columns, header


def _has_header(rows: Rows, layout: Layout, gathering: Gathering[Any]) -> bool:
    options, names = gathering.options, [plain(name) for name in rows.names]
    if options.header is not None:
        return options.header
    if any(plain(column) in names and not column.isdigit() for column in options.columns.values()):
        return True
    known = all(set(role.aliases) & set(names) for role in layout.roles if role.needed)
    return known or layout.is_header(rows.names)


def _named(rows: Rows, role: str, column: str, header: bool) -> Column:
    """A column that a person named."""
    if rows.is_table:
        names = [plain(name) for name in rows.names] if header else []
        if plain(column) in names:
            return names.index(plain(column))
        if column.isdigit() and 1 <= int(column) <= len(rows.names):
            return int(column) - 1
    for path in () if rows.is_table else ((column,), tuple(column.split("."))):
        if any(value_of(row, path) is not MISSING for _, row in rows.peeked):
            return path
    raise rows.lacking(f"a column {column!r} for `{role}`")


def _say(rows: Rows, columns: Chosen, header: bool, gathering: Gathering[Any]) -> None:
    """Which columns are used and which are not, and what line 1 is."""
    if rows.is_table:
        titles = [f"column {i} {name!r}" if header else f"column {i}" for i, name in enumerate(rows.names, start=1)]
        used = {role: titles[column] for role, column in columns.items() if isinstance(column, int)}
        others = [title for place, title in enumerate(titles) if place not in columns.values()]
        line = f" (line {rows.peeked[0][0].line} is {'a header' if header else 'data, not a header'})"
    else:
        paths = {role: column for role, column in columns.items() if isinstance(column, tuple)}
        used, line = {role: f"field {'.'.join(path)!r}" for role, path in paths.items()}, ""
        tops = {path[0] for path in paths.values()}
        others = [f"field {name!r}" for name in rows.names if name not in tops]
    gathering.note(", ".join(f"{role} is {title}" for role, title in used.items()) + line)
    if others:
        more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        gathering.note(f"{', '.join(others[:_LISTED])}{more} {'is' if len(others) == 1 else 'are'} not used")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
