from __future__ import annotations

import json

import pytest

from regard.errors import FormatError
from regard.text import Document, ReadOptions, joined, read_documents
from tests.text.files import write


def rows_file(path, *rows):
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def test_lists_and_texts_on_either_side(tmp_path) -> None:
    path = rows_file(
        tmp_path / "a.jsonl",
        {"source": ["We look.", "We see."], "target": ["Looking helps.", "See."], "id": 1},
        {"source": ["我们看。", "看见了。", " "], "target": "看"},
        {"source": "One text. Two sentences.", "target": ["Short."]},
    )
    found = read_documents(path)
    assert list(found) == [
        Document("We look. We see.", ("Looking helps.", "See."), ("We look.", "We see.")),
        Document("我们看。看见了。", ("看",), ("我们看。", "看见了。")),
        Document("One text. Two sentences.", ("Short.",)),
    ]
    assert found.notes == ("text is field 'source', summary is field 'target'", "field 'id' is not used")


@pytest.mark.parametrize(
    ("text", "summary"), [("article", "highlights"), ("document", "summary"), ("abstract", "title"), ("正文", "标题")]
)
def test_names_that_are_known(tmp_path, text, summary) -> None:
    path = rows_file(tmp_path / "a.jsonl", {summary: "short", text: "a long text"})
    assert list(read_documents(path)) == [Document("a long text", ("short",))]


def test_what_is_empty_is_skipped_and_named(tmp_path) -> None:
    whole = {"text": "a long text", "summary": "short"}
    path = rows_file(
        tmp_path / "a.jsonl", whole, whole | {"text": []}, whole | {"summary": ["", " "]}, whole | {"text": ["a", 1]},
        whole | {"text": ["a", ["b"]]}, whole, whole, whole,
    )  # fmt: skip
    found = read_documents(path)
    assert {reason: [place.line for place in places] for reason, places in found.skipped.items()} == {
        "empty text": [2],
        "empty summary": [3],
        "text is a list": [5],
    }
    assert found[1].text == "a 1"


def test_tables(tmp_path) -> None:
    two = write(tmp_path / "two.tsv", "a long text\tshort\nanother long one\ttoo\n")
    assert [document.summaries for document in read_documents(two)] == [("short",), ("too",)]
    three = write(tmp_path / "three.tsv", "task\ta long text\tshort\ntask\tanother long one\ttoo\n")
    with pytest.raises(FormatError, match="for `text`, but has these on line 1: 1 'task', 2 'a long text', 3 'short'"):
        read_documents(three)
    found = read_documents(three, options=ReadOptions(columns={"text": "2", "summary": "3"}))
    assert list(found) == list(read_documents(two))
    with pytest.raises(FormatError, match="must be a table or JSON of texts with summaries, but is read as 'text'"):
        read_documents(write(tmp_path / "a.txt", "text"))


def test_parts_are_joined_as_their_writing_is() -> None:
    assert joined(["One.", "Two."]) == "One. Two."
    assert joined(["你好。", "再见。"]) == "你好。再见。"
    assert joined(["你好。", "Bye."]) == "你好。 Bye."
    assert joined(["One ", "two", "", " three"]) == "One two three"
    assert joined([]) == ""
