"""What a file is, by its name and its first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from regard.text._lines import TextFile
from regard.text._tables import Malformed
from regard.text._values import line_values
from regard.text.options import Format, ReadOptions

LABEL_PREFIX = "__label__"
_JSON_LINES = (".jsonl", ".ndjson")
_TABS = (".tsv", ".tab")
_TOKENS = (".conll", ".conllu", ".conll2003", ".bio", ".iob", ".iob2")
_TAG = re.compile(r"[BIOESLUM](?:-\S+)?$")
_INSIDE = re.compile(r"[BIESLUM]-\S+$")
_DOCUMENT_START = "-DOCSTART-"
_SHARE_WITH_TABS = 0.9
_LOOKED_AT = 200


def suffix_of(path: Path) -> str:
    """The end of a file's name, without that of its packing: ``.tsv`` for ``a.tsv.gz``."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def stem_of(path: Path) -> str:
    """The name of a file without its end and that of its packing: ``pos`` for ``pos.txt.gz``."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def format_of(file: TextFile, options: ReadOptions) -> Format:
    """The format that was named, or what the file's name and first lines say."""
    suffix = suffix_of(file.path)
    if options.format != "auto":
        return options.format
    if options.delimiter is not None:
        return "csv" if suffix == ".csv" else "tsv"
    if suffix == ".csv":
        return "csv"
    sample = file.sample()
    lines = list(islice((line for line in sample if line.strip()), _LOOKED_AT))
    found = _json_format(lines, suffix)
    if found is not None:
        return found
    if suffix in _TOKENS or _is_tokens(sample):
        return "conll"
    if lines and all(line.lstrip().startswith(LABEL_PREFIX) for line in lines):
        return "fasttext"
    with_tabs = sum("\t" in line.strip(" ") for line in lines)
    return "tsv" if suffix in _TABS or (lines and with_tabs >= _SHARE_WITH_TABS * len(lines)) else "text"


def is_document_start(line: str) -> bool:
    """Whether a line of a file with one token per line begins a document, and holds no token."""
    return line.startswith(_DOCUMENT_START)


def _json_format(lines: Sequence[str], suffix: str) -> Format | None:
    """Whether JSON stands one value per line, or as it pleases; None if it is none."""
    first = lines[0].strip() if lines else ""
    named = suffix == ".json" or suffix in _JSON_LINES
    if not named and not first.startswith(("{", "[")):
        return None
    values = [value for *_, value in line_values(enumerate(lines))]
    objects = sum(isinstance(value, dict) for value in values)
    if first.startswith("["):
        sure = named or first.startswith("[{") or first == "["
        return "json" if sure or not isinstance(values[0], Malformed) else None
    if objects and 2 * objects >= len(values) and (len(values) > 1 or suffix != ".json"):
        return "jsonl"
    if first == "{" or suffix == ".json" or (named and not objects and first.startswith("{")):
        return "json"
    return "jsonl" if named else None


def _is_tokens(sample: Sequence[str]) -> bool:
    """Whether every line is a token and its tags, and sentences end at blank lines (CoNLL)."""
    lines = [line for line in sample if line.strip() and not line.startswith("#")]
    if lines and is_document_start(lines[0]):
        return True
    rows = [line.split() for line in lines]
    if len(rows) < 2 or any(len(row) < 2 for row in rows):
        return False
    return any(
        all(_TAG.match(row[column]) for row in rows) and any(_INSIDE.match(row[column]) for row in rows)
        for column in (-1, -2)
    )
