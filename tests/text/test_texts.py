from __future__ import annotations

import json

import pytest

from regard.errors import FormatError
from regard.text import ReadOptions, read_texts
from tests.text.files import write


def test_a_column_of_a_table_and_a_field_of_json(tmp_path) -> None:
    path = write(tmp_path / "poems.tsv", "甲\t题\t床前明月光\n乙\t题\t疑是地上霜\n")
    with pytest.raises(FormatError, match="for `text`, but has these on line 1: 1 '甲', 2 '题', 3 '床前明月光'"):
        read_texts(path)
    assert list(read_texts(path, options=ReadOptions(columns={"text": "3"}))) == ["床前明月光", "疑是地上霜"]
    named = write(tmp_path / "named.csv", 'title,text\nOne,"a, b\nc"\n')
    assert list(read_texts(named)) == ["a, b\nc"]
    path = write(tmp_path / "a.jsonl", '{"meta": {"body": "x"}}\n{"meta": {"body": "y"}}\n{"meta": {}}\n')
    found = read_texts(path, options=ReadOptions(columns={"text": "meta.body"}))
    assert (list(found), [place.line for place in found.skipped["no text"]]) == (["x", "y"], [3])


def test_one_column_needs_no_name(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "first line\nsecond line\n")
    assert list(read_texts(path)) == ["first line", "second line"]


def test_rows_within_one_object(tmp_path) -> None:
    path = write(tmp_path / "a.json", json.dumps({"version": 1, "data": [{"text": "x"}, {"text": "y"}]}))
    found = read_texts(path)
    assert list(found) == ["x", "y"]
    assert str(found.places[1]).endswith("a.json, line 1, data[1]")


def test_an_array_with_defects(tmp_path) -> None:
    path = write(tmp_path / "a.json", '[\n {"text": "a"},\n {"text": "b",},\n {"text": "c"},\n {"text": "d"}\n] more\n')
    found = read_texts(path)
    assert list(found) == ["a", "c", "d"]
    skipped = {reason: [place.line for place in places] for reason, places in found.skipped.items()}
    assert sorted(skipped.values()) == [[3], [6]]
    assert skipped["not JSON: text behind the array"] == [6]


def test_objects_over_several_lines(tmp_path) -> None:
    path = write(tmp_path / "a.jsonl", '{\n "text": "a"\n}\n{\n "text": "b", "text": "c"\n}\n{\n "text": "d"\n}\n')
    found = read_texts(path)
    assert (list(found), [place.line for place in found.places]) == (["a", "d"], [1, 7])
    assert [place.line for place in found.skipped["key 'text' stands twice"]] == [4]


@pytest.mark.parametrize("content", ["[Music]\nLa la la\n", "{curly} words\nand more\n", "a\tb\nno tab\nno tab\n"])
def test_text_that_looks_like_something_else(tmp_path, content) -> None:
    assert list(read_texts(write(tmp_path / "a.txt", content))) == [content]


def test_the_format_can_be_named(tmp_path) -> None:
    path = write(tmp_path / "a.txt", "one\ttwo\nthree\tfour\n")
    assert list(read_texts(path, options=ReadOptions(format="text"))) == ["one\ttwo\nthree\tfour\n"]
    assert list(read_texts(path, lines=True, options=ReadOptions(format="text"))) == ["one\ttwo", "three\tfour"]


def test_parts_of_messages(tmp_path) -> None:
    parts = [{"type": "text", "text": "Look: "}, {"type": "text", "text": "河"}]
    good = {"messages": [{"role": "user", "content": parts}]}
    bad = [
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        {"messages": [{"content": "no role"}]},
        {"messages": []},
        {"messages": ["text"]},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in [good, *bad]))
    found = read_texts(path, options=ReadOptions(max_bad_share=1.0))
    assert list(found) == ["user: Look: 河\n"]
    assert {reason: places[0].line for reason, places in found.skipped.items()} == {
        "messages[] without content": 2,
        "messages[] without role": 3,
        "messages[] is no list of messages": 4,
        "messages[] is no list of objects": 5,
    }


@pytest.mark.parametrize(
    ("content", "read", "bad"),
    [
        ('[{"text": "a"}, {"text": "b",}, {"text": "c"}, {"text": "d"}]', ["a", "c", "d"], 1),
        (
            '[{"text": "a", "m": [{"x": 1}, {"x": 2}]}, {"text": "b"}, {"text": "c",}, {"text": "d"}]',
            ["a", "b", "d"],
            1,
        ),
        (
            '[\n  {\n    "text": "a",\n    "m": [\n      {"x": 1},\n      {"x": }\n    ]\n  },\n  {"text": "b"}\n]',
            ["b"],
            1,
        ),
        ('[{"m": {"x": 1, "x": 2}, "text": "a",}, {"text": "b"}]', ["b"], 1),
        ('[{"text": "b"}, {"m": {"x": 1, "x": 2', ["b"], 1),
    ],
    ids=["a comma too many", "nested", "nested on lines of their own", "twice and a comma too many", "cut off"],
)
def test_one_defect_costs_one_row_however_an_array_is_written(tmp_path, content, read, bad) -> None:
    found = read_texts(write(tmp_path / "a.json", content))
    assert list(found) == read
    assert sum(map(len, found.skipped.values())) == bad


@pytest.mark.parametrize("character", ["\ue000", "\U0001fae8"])
def test_d02_a_marked_file_may_hold_characters_that_python_does_not_know(tmp_path, character) -> None:
    path = write(tmp_path / "a.txt", f"中文 {character}\n".encode("utf-16"))
    assert list(read_texts(path)) == [f"中文 {character}\n"]
