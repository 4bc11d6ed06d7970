"""Tables: quotes, headers, columns by name and number, rows of other widths."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, FormatError
from regard.text import Labelled, ReadOptions, TextPair, read_labelled, read_pairs
from regard.text._tables import Malformed, guessed_delimiter, table_rows
from tests.text.files import write

FIELDS = st.text(st.sampled_from('ab"好,; \n'), max_size=6)


@given(st.lists(st.lists(FIELDS, min_size=2, max_size=4), min_size=1, max_size=6))
def test_what_pythons_writer_writes_is_read_back(rows) -> None:
    held = io.StringIO(newline="")
    csv.writer(held, lineterminator="\n").writerows(rows)
    lines = list(enumerate(held.getvalue().removesuffix("\n").split("\n"), start=1))
    found = list(table_rows(lines, delimiter=",", quoted=True))
    assert [row.fields for row in found] == rows
    assert sum(row.lines for row in found) == len(lines)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('a,"b""c",d', ["a", 'b"c', "d"]),
        ('5" disk,x', ['5" disk', "x"]),
        ('"a" ,b', ["a", "b"]),
        ('"",', ["", ""]),
        (",,", ["", "", ""]),
    ],
)
def test_quotes(line, fields) -> None:
    assert [row.fields for row in table_rows([(1, line)], delimiter=",", quoted=True)] == [fields]


def test_several_characters_between_quoted_fields() -> None:
    rows = table_rows([(1, '"a||b"||c'), (2, "d||e")], delimiter="||", quoted=True)
    assert [row.fields for row in rows] == [["a||b", "c"], ["d", "e"]]


def test_a_wrong_quote_costs_its_own_line() -> None:
    lines = list(enumerate(['"a" b,1', "c,2", '"open,3', "d,4"], start=1))
    found = list(table_rows(lines, delimiter=",", quoted=True))
    assert [(row.line, row.fields) for row in found] == [
        (1, Malformed("text behind a closing quote")),
        (2, ["c", "2"]),
        (3, Malformed("quote that is never closed")),
        (4, ["d", "4"]),
    ]


@pytest.mark.parametrize(("delimiter", "said"), [(",", None), (";", "';'"), ("\t", "'\\t'"), ("|", "'|'")])
def test_the_delimiter_of_csv_is_what_its_lines_agree_on(tmp_path, delimiter, said) -> None:
    rows = [["text", "label"], ["one; two, three|four", "1"], ['say "hi"', "0"]]
    held = io.StringIO(newline="")
    csv.writer(held, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    found = read_labelled(write(tmp_path / "a.csv", held.getvalue()))
    assert list(found) == [Labelled("one; two, three|four", "1"), Labelled('say "hi"', "0")]
    assert (f"columns are cut at {said}" in found.notes) == (said is not None)


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [("review\tsentiment", 0, 1), ("评论\t标签", 0, 1), ("Label\tSentence", 1, 0), ("id\ttext\tcategory", 1, 2)],
)
def test_headers_are_found_by_the_names_in_them(tmp_path, header, text, label) -> None:
    rows = [[f"{column} {i}" for column in header.split("\t")] for i in range(3)]
    path = write(tmp_path / "a.tsv", "\n".join([header, *("\t".join(row) for row in rows)]))
    found = read_labelled(path)
    assert [(row.text, row.label) for row in found] == [(row[text], row[label]) for row in rows]
    name = header.split("\t")[text]
    assert found.notes[0].startswith(f"text is column {text + 1} {name!r}, ")
    assert found.notes[0].endswith("(line 1 is a header)")
    assert len(read_labelled(path, options=ReadOptions(header=False, columns={"text": "1", "label": "2"}))) == 4


@pytest.mark.parametrize("header", ["en\tzh", "English\tChinese", "英文\t中文", "zh-CN\ten_US", "source\ttarget"])
def test_headers_of_pairs(tmp_path, header) -> None:
    path = write(tmp_path / "a.tsv", f"{header}\nHello\t你好\n")
    assert list(read_pairs(path)) == [TextPair("Hello", "你好")]


@pytest.mark.parametrize("first", ["Hi\tIt", "No.\tNein.", "so\tso", "Text\tWort"])
def test_short_texts_are_no_header(tmp_path, first) -> None:
    assert len(read_pairs(write(tmp_path / "a.tsv", f"{first}\nHello\t你好\n"))) == 2


def test_columns_by_name_number_and_both(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", "n\tZH\tde\tEN\n1\t好\tgut\tgood\n2\t坏\tschlecht\tbad\n")
    for columns in ({"source": "zh", "target": "en"}, {"source": "2", "target": "EN"}, {"source": "Zh", "target": "4"}):
        found = read_pairs(path, options=ReadOptions(columns=columns))
        assert list(found) == [TextPair("好", "good"), TextPair("坏", "bad")]
    with pytest.raises(
        FormatError, match=r"a column 'fr' for `target`, but has these on line 1: 1 'n', 2 'ZH', 3 'de', 4 'EN'"
    ):
        read_pairs(path, options=ReadOptions(columns={"source": "zh", "target": "fr"}))
    with pytest.raises(FormatError, match="a column '5' for `target`"):
        read_pairs(path, options=ReadOptions(columns={"source": "zh", "target": "5"}))
    with pytest.raises(FormatError, match="a column for `target`"):
        read_pairs(path, options=ReadOptions(columns={"source": "zh"}))
    with pytest.raises(ConfigError) as raised:
        read_pairs(path, options=ReadOptions(columns={"src": "zh"}))
    assert str(raised.value) == (
        "read_pairs(): `columns` must be a mapping from roles (source, target), but is one from 'src'."
    )


def test_a_row_that_is_wider_is_skipped_and_a_shorter_one_if_it_lacks_something(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "text,label,note\na,1,x\nb,0\nc, d,1,x\ne\nf,1,\n")
    found = read_labelled(path)
    assert [row.text for row in found] == ["a", "b", "f"]
    skipped = {reason: [place.line for place in places] for reason, places in found.skipped.items()}
    assert skipped == {"4 columns instead of 3": [4], "1 column instead of 3": [5]}


def test_quotes_around_fields_of_tsv_are_said(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", 'one\t"say ""hi"""\ntwo\tb\nthree\tc\n')
    assert "1 row holds a field in double quotes, which are kept: quoted=True drops them" in read_pairs(path).notes
    speech = write(tmp_path / "b.tsv", '"Yes."\tb\ntwo\tb2\nthree\tc\n')
    assert not any("quotes" in note for note in read_pairs(speech).notes)


def test_plain_text_is_no_table(tmp_path) -> None:
    path = write(tmp_path / "a.txt", "just a line\nand another\n")
    with pytest.raises(FormatError) as raised:
        read_pairs(path)
    assert str(raised.value) == (
        f"read_pairs(): {path} must be a table of pairs (TSV, CSV, JSON), but is read as 'text'.\n"
        "  hint: give two files, (source, target), or ReadOptions(delimiter=…, format=…)."
    )
    with pytest.raises(FormatError, match="must be a file of texts with labels, but is plain text without any"):
        read_labelled(path)


def test_too_many_bad_rows_are_an_error_that_says_what_was_read(tmp_path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,1\nb, c,1\nd, e,0\n")
    with pytest.raises(FormatError) as raised:
        read_labelled(path)
    assert str(raised.value) == (
        f"read_labelled(): {path} must hold labelled texts, but 2 of 3 rows are bad: "
        "3 columns instead of 2 (lines 3, 4); more than `max_bad_share` (0.5) allows.\n"
        "  hint: text is column 1 'text', label is column 2 'label' (line 1 is a header)"
    )
    assert len(read_labelled(path, options=ReadOptions(max_bad_share=0.7))) == 1
    assert len(read_labelled(path, options=ReadOptions(max_bad_share=1.0))) == 1


def test_a_quote_that_a_sample_does_not_close_says_nothing_of_the_delimiter() -> None:
    sample = ["text;label", "a, b;x", '"one, two', "three, four, five", "six"]
    assert guessed_delimiter(sample) == ";"


@pytest.mark.parametrize(
    ("first", "pair"),
    [("id\ten\tzh", ("Hello", "你好")), ("Index\tEnglish\tChinese", ("Hello", "你好")), ("Hi\tno\tde", ("Hi", "no"))],
)
def test_languages_beside_numbers_are_names_of_columns(tmp_path, first, pair) -> None:
    path = write(tmp_path / "a.tsv", f"{first}\n1\tHello\t你好\n2\tBye\t再见\n")
    assert read_pairs(path)[0] == TextPair(*pair)


def test_lines_that_are_blank_in_both_files_are_no_bad_rows(tmp_path) -> None:
    one, other = write(tmp_path / "a.en", "one\n\n\n\ntwo\n"), write(tmp_path / "a.zh", "一\n\n\n\n二\n")
    found = read_pairs((one, other), options=ReadOptions(max_bad_share=0.0))
    assert [pair.source for pair in found] == ["one", "two"]
    assert {reason: len(places) for reason, places in found.skipped.items()} == {"blank line": 3}
