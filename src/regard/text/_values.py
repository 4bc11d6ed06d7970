"""Values of JSON, one per line or many in one text, each with its line; what is wrong with one costs that one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from regard.text._tables import Malformed

Value = object
_BETWEEN = re.compile(r"[\s,]*")
_STARTS = re.compile(r"^([ \t]*)[\[{]", flags=re.MULTILINE)
_NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")


class Number(str):
    """A number of JSON as it is written: ``01`` is not ``1``, and ``1.0`` is not ``1``."""


class NotANumber:
    """``NaN`` and ``Infinity``, which Python writes and JSON does not know."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name


class _TwiceError(ValueError):
    """A key stands twice in one object."""


def line_values(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, Value]]:
    """One value per line (JSON Lines), each all of its line (""); lines without anything on them give None."""
    for number, line in lines:
        yield number, "", _value(line) if line.strip() else None


def text_values(text: str) -> Iterator[tuple[int, Value]]:
    """The values of a text: those of an array, or one after another, on as many lines as they please.

    After something that is no JSON, reading goes on at the next line that begins with a bracket, no deeper than the
    value did; where a value does not begin its line, behind the next object that ends before another begins.
    """
    at = _BETWEEN.match(text).end()  # type: ignore[union-attr]  # it matches the empty text
    in_array = text.startswith("[", at)
    at += in_array
    line, counted = 1, 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, at), at
        if at == len(text):
            return
        if in_array and text.startswith("]", at):
            if text[at + 1 :].strip():
                yield line, Malformed("not JSON: text behind the array")
            return
        try:
            value, at = _DECODER.raw_decode(text, at)
        except _TwiceError as error:
            value, at = Malformed(str(error)), _behind(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            value, at = _wrong(error), _next_start(text, at, _place(error, at))
        yield line, value


def _value(line: str) -> Value:
    try:
        value, end = _DECODER.raw_decode(line, len(line) - len(line.lstrip()))
    except (json.JSONDecodeError, RecursionError) as error:
        return _wrong(error)
    except _TwiceError as error:
        return Malformed(str(error))
    rest = line[end:].strip()
    if rest == ",":
        return Malformed("not JSON: a comma behind the value")
    return Malformed("not JSON: more than one value on a line") if rest else value


def _wrong(error: json.JSONDecodeError | RecursionError) -> Malformed:
    said = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
    return Malformed(f"not JSON: {said[0].lower()}{said[1:]}")


def _place(error: json.JSONDecodeError | RecursionError, at: int) -> int:
    """Where the text stops being JSON."""
    return error.pos if isinstance(error, json.JSONDecodeError) else at


def _next_start(text: str, at: int, wrong: int) -> int:
    """Where the next value begins, after one that began at a place and is wrong at another."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    if before.strip() and (found := _NEXT_OBJECT.search(text, wrong)):
        return found.end()
    end = text.find("\n", at)
    lines = _STARTS.finditer(text, end + 1) if end >= 0 else iter(())
    deepest = len(text) if before.strip() else len(before)
    return next((found.end() - 1 for found in lines if len(found[1]) <= deepest), len(text))


def _behind(text: str, at: int) -> int:
    """Behind a value whose keys repeat, which may be no JSON further on."""
    try:
        return int(json.JSONDecoder().raw_decode(text, at)[1])
    except (json.JSONDecodeError, RecursionError) as error:
        return _next_start(text, at, _place(error, at))


def _object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _TwiceError(f"key {twice!r} stands twice")
    return found


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=NotANumber, object_pairs_hook=_object)
