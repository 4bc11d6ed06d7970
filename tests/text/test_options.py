from __future__ import annotations

import dataclasses
import json

import pytest

from regard.errors import ConfigError
from regard.text import ReadOptions


def test_options_are_stored_as_json_and_come_back() -> None:
    options = ReadOptions(delimiter="_!_", columns={"text": "4", "label": "3"}, header=False)
    assert ReadOptions(**json.loads(json.dumps(dataclasses.asdict(options)))) == options


@pytest.mark.usefixtures("unchecked")
def test_options_name_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        ReadOptions(encoding="rot13", format="xlsx", delimiter="", columns={"text": "0"}, max_bad_share=2)
    assert str(raised.value) == (
        "ReadOptions(): 5 problems:"
        "\n  - `encoding` must be an encoding of text that Python knows, but is 'rot13'."
        "\n  - `format` must be one of auto, tsv, csv, jsonl, json, text, fasttext, conll, but is 'xlsx'."
        "\n  - `delimiter` must be characters without quotes and line ends, but is ''."
        "\n  - `columns['text']` must be the name of a column, or its number from 1, as a string, but is '0'."
        "\n  - `max_bad_share` must be between 0 and 1, but is 2."
    )


@pytest.mark.usefixtures("unchecked")
def test_options_of_another_type_are_named() -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)`encoding` must be .*, but is 1.*`columns\['text'\]` must be .*, but is 4"
    ):
        ReadOptions(encoding=1, columns={"text": 4})
