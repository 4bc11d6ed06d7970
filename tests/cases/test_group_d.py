"""Handed cases of group D: what people's training files do, and what a reader makes of them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from regard.errors import FormatError
from regard.text import (
    Labelled,
    ReadOptions,
    TextPair,
    overlap,
    read_labelled,
    read_pairs,
    read_texts,
)
from tests.text.files import write


def lines_of(places: object) -> list[int]:
    return [place.line for place in places]  # type: ignore[attr-defined]


def test_d01_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\r\nhi,1\r\n")
    assert list(read_labelled(path)) == [Labelled("hi", "1")]
    path = write(tmp_path / "b.csv", b'\xef\xbb\xbf"a,b",c\r\n"x, y",1\r\nz,2\r\n')
    found = read_labelled(path, options=ReadOptions(columns={"text": "a,b", "label": "c"}))
    assert list(found) == [Labelled("x, y", "1"), Labelled("z", "2")]


ROWS = "text\tlabel\n好的\t正\n不行\t负\n中文\t正\n"
TOLD = [("好的", "正"), ("不行", "负"), ("中文", "正")]


@pytest.mark.parametrize("end", ["-le", "-be"])
@pytest.mark.parametrize("name", ["utf-16", "utf-32"])
def test_d02_wider_encodings_are_known_by_their_mark(tmp_path: Path, name: str, end: str) -> None:
    path = write(tmp_path / "a.tsv", f"\ufeff{ROWS}".encode(name + end))
    found = read_labelled(path)
    assert [(row.text, row.label) for row in found] == TOLD
    assert found.notes[0] == f"a.tsv was read as {(name + end).upper().replace('-LE', 'LE').replace('-BE', 'BE')}"
    assert list(read_labelled(path, options=ReadOptions(encoding=name))) == list(found)
    path = write(tmp_path / "b.tsv", ROWS.encode(name + end))
    with pytest.raises(
        FormatError, match=r"must be UTF-8, or have a byte order mark, but is UTF-\d\d.E without one"
    ) as no:
        read_labelled(path)
    assert f"ReadOptions(encoding='{(name + end).replace('-le', 'le').replace('-be', 'be')}') reads it" in str(no.value)
    assert list(read_labelled(path, options=ReadOptions(encoding=name + end))) == list(found)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "big5"])
def test_d02_other_encodings_are_read_when_they_are_named(tmp_path: Path, encoding: str) -> None:
    rows = ROWS if encoding != "big5" else ROWS.replace("负", "負")
    path = write(tmp_path / "a.tsv", rows.encode(encoding))
    found = read_labelled(path, options=ReadOptions(encoding=encoding))
    assert [(row.text, row.label.replace("負", "负")) for row in found] == TOLD
    said = f"a.tsv was read as {encoding}" in found.notes
    assert said != encoding.startswith("utf-8")
    latin = write(tmp_path / "b.tsv", "text\tlabel\nna\xefve \x96 caf\xe9\t1\n".encode("latin-1"))
    assert read_labelled(latin, options=ReadOptions(encoding="cp1252"))[0].text == "naïve – café"


def test_d02_what_is_not_utf8_is_never_guessed_and_what_would_read_it_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\nfine\t1\n好的\t0\n".encode("gbk"))
    with pytest.raises(FormatError) as raised:
        read_labelled(path)
    first, *others = str(raised.value).splitlines()
    assert first == f"read_labelled(): {path}, line 3: must be UTF-8, but byte 18 is 0xba."
    assert "gb18030    would read: 好的\t0" in "\n".join(others)
    assert others[-1] == "  hint: ReadOptions(encoding=…) names the one that reads right."


def test_d02_a_wrong_name_is_an_error_with_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n良い\t1\n".encode("shift_jis"))
    with pytest.raises(FormatError, match=r"a\.tsv, line 2: must be UTF-8, but byte 11 is 0x97\."):
        read_labelled(path)
    path = write(tmp_path / "b.tsv", "\ufefftext\tlabel\n好\t1\n".encode())
    with pytest.raises(
        FormatError, match="must be gbk, as `encoding` says, but begins with the byte order mark of UTF-8"
    ):
        read_labelled(path, options=ReadOptions(encoding="gbk"))


def test_d04_only_line_feeds_end_lines(tmp_path: Path) -> None:
    text = "a\u2028b\nc\x85d\ne\x0bf\ng\rh\ni\x1cj\n"
    path = write(tmp_path / "a.txt", text)
    assert list(read_texts(path, lines=True)) == text.removesuffix("\n").split("\n")
    other = write(tmp_path / "b.txt", "1\r\n2\r\n3\r\n4\r\n5\r\n")
    pairs = read_pairs((path, other))
    assert [pair.target for pair in pairs] == list("12345")
    assert pairs[0].source == "a\u2028b"


def test_d05_files_of_different_lengths_name_both_and_the_first_odd_line(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", "one\ntwo\nthree\nfour\nfive\n")
    target = write(tmp_path / "a.zh", "一\n\n三\n四\n")
    with pytest.raises(FormatError) as raised:
        read_pairs((source, target))
    assert str(raised.value) == (
        f"read_pairs(): `path` must be two files of as many lines, but {source} has 5 and {target} has 4.\n"
        "  hint: look at line 2 first: it is blank in a.zh only."
    )
    target = write(tmp_path / "b.zh", "一\n二\n三\u2028四\n五\n")
    with pytest.raises(FormatError, match=r"look at line 3 of b\.zh first: it holds U\+2028, which is no line end"):
        read_pairs((source, target))
    target = write(tmp_path / "c.zh", "一\n二\n三\n四")
    with pytest.raises(FormatError, match="no line is blank or holds an odd line end: compare the ends"):
        read_pairs((source, target))


def test_d08_quotes_mean_nothing_in_tsv_unless_asked_for(tmp_path: Path) -> None:
    text = 'one\t一\n"two\t二\nthree\t三\n"four"\t四\n'
    path = write(tmp_path / "a.tsv", text)
    assert [pair.source for pair in read_pairs(path)] == ["one", '"two', "three", '"four"']
    quoted = write(tmp_path / "b.tsv", 'one\t一\n"say ""hi"""\t"二\t贰"\n')
    assert list(read_pairs(quoted, options=ReadOptions(quoted=True))) == [
        TextPair("one", "一"),
        TextPair('say "hi"', "二\t贰"),
    ]


@pytest.mark.parametrize("form", ["csv", "tsv", "quoted"])
def test_d10_a_very_long_field_is_read(tmp_path: Path, form: str) -> None:
    long = "很长" * 100_000
    line = {"csv": f"{long},1", "tsv": f"{long}\t1", "quoted": f'"{long}",1'}[form]
    path = write(tmp_path / f"a.{'tsv' if form == 'tsv' else 'csv'}", f"{line}\nshort{line[-2]}0\n")
    found = read_labelled(path)
    assert [len(row.text) for row in found] == [200_000, 5]
    assert not any("unbalanced" in note for note in found.notes)


def test_d10_a_quote_that_is_never_closed_costs_its_own_line(tmp_path: Path) -> None:
    rows = [f"text {i},{i % 2}" for i in range(9_000)]
    rows[2] = '"text 2,0'
    found = read_labelled(write(tmp_path / "a.csv", "\n".join(rows)))
    assert len(found) == 8_999
    assert lines_of(found.skipped["quote that is never closed"]) == [3]


def test_d10_a_row_that_swallows_others_is_named(tmp_path: Path) -> None:
    rows = [f"{'word ' * 20}{i},{i % 2}" for i in range(3_000)]
    rows[1], rows[2_500] = f'"{rows[1]}', 'the end",1'
    found = read_labelled(write(tmp_path / "a.csv", "\n".join(rows)))
    assert any("the row on line 2 has" in note and "unbalanced quote?" in note for note in found.notes)


def test_d11_na_null_none_and_nan_are_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nnull,NA\nNone,pos\nnan,neg\nN/A,NA\n,pos\n")
    found = read_labelled(path)
    assert [row.text for row in found] == ["null", "None", "nan", "N/A"]
    assert [row.label for row in found] == ["NA", "pos", "neg", "NA"]
    assert lines_of(found.skipped["empty text"]) == [6]


def test_d12_labels_are_as_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,0\nb,1\nc,\nd,01\ne, 1\nf,1.0\n")
    found = read_labelled(path)
    assert [row.label for row in found] == ["0", "1", "01", "1", "1.0"]
    assert lines_of(found.skipped["empty label"]) == [4]
    assert "1 label had spaces around it (first on line 6)" in found.notes
    rows = [{"text": "a", "label": 0}, {"text": "b", "label": 1.0}, {"text": "c", "label": True}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [row.label for row in read_labelled(path)] == ["0", "1.0", "true"]


def test_d26_a_third_column_is_not_used_and_said_once(tmp_path: Path) -> None:
    path = write(tmp_path / "fra.txt", "Go.\tVa !\tCC-BY A\nGo.\tBouge !\tCC-BY B\nHi.\tSalut !\tCC-BY C\n")
    found = read_pairs(path)
    assert list(found) == [TextPair("Go.", "Va !"), TextPair("Go.", "Bouge !"), TextPair("Hi.", "Salut !")]
    assert found.notes == (
        "source is column 1, target is column 2 (line 1 is data, not a header)",
        "column 3 is not used",
    )


def test_d27_html_entities_are_counted_and_unescaped_once_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "it &apos;s\tA\nAT&amp;T\tB\n5 &lt; 6\tC\n&amp;lt;\tD\nR&D; ok\tE\n")
    found = read_pairs(path)
    assert [pair.source for pair in found] == ["it &apos;s", "AT&amp;T", "5 &lt; 6", "&amp;lt;", "R&D; ok"]
    assert "4 texts hold HTML entities, left as they are (first on line 1)" in found.notes
    found = read_pairs(path, options=ReadOptions(unescape_html=True))
    assert [pair.source for pair in found] == ["it 's", "AT&T", "5 < 6", "&lt;", "R&D; ok"]


DEFECTS = """{"text": "a", "label": "1", "translation": {"en": "x"}}

{"text": "b", "label": "2"},
{"text": "c", "label": "3"} {"text": "d", "label": "4"}
{"text": "e", "label": NaN}
{"text": "f", "label": "5", "label": "6"}
{"text": "g", "label": "7", "unused": NaN}
{"text": "half \\ud83d", "label": "8"}
[1, 2]
{"text": "h"}
{"text": "i", "label": "9",}
{"text": null, "label": "1"}
{"text": "j", "label": ["x", "y"]}
{"text": "k", "label": "1"}
{"text": "l", "label": "2"}
"""


def test_d29_good_rows_are_read_and_bad_ones_listed_by_line(tmp_path: Path) -> None:
    found = read_labelled(write(tmp_path / "a.jsonl", DEFECTS), options=ReadOptions(max_bad_share=0.8))
    assert [(row.text, row.label) for row in found] == [
        ("a", "1"),
        ("g", "7"),
        ("half \N{REPLACEMENT CHARACTER}", "8"),
        ("k", "1"),
        ("l", "2"),
    ]
    listed = {reason: lines_of(places) for reason, places in found.skipped.items()}
    trailing = next(reason for reason, lines in listed.items() if lines == [11])
    assert trailing.startswith("not JSON: ")
    assert listed == {
        "blank line": [2],
        "not JSON: a comma behind the value": [3],
        "not JSON: more than one value on a line": [4],
        "label is NaN": [5],
        "key 'label' stands twice": [6],
        "not a JSON object": [9],
        "no label": [10],
        trailing: [11],
        "empty text": [12],
        "label is a list": [13],
    }
    assert "1 lone surrogate became U+FFFD (first on line 8)" in found.notes
    with pytest.raises(FormatError, match=r"9 of 14 rows are bad: .*more than `max_bad_share` \(0\.5\) allows"):
        read_labelled(tmp_path / "a.jsonl")


def test_d29_an_array_on_many_lines_and_fields_within_fields(tmp_path: Path) -> None:
    rows = [{"translation": {"en": "Hello", "zh": "你好"}}, {"translation": {"en": "Bye", "zh": "再见"}}]
    path = write(tmp_path / "a.json", json.dumps(rows, indent=2, ensure_ascii=False))
    assert list(read_pairs(path)) == [TextPair("Hello", "你好"), TextPair("Bye", "再见")]
    back = ReadOptions(columns={"source": "translation.zh", "target": "translation.en"})
    found = read_pairs(path, options=back)
    assert list(found) == [TextPair("你好", "Hello"), TextPair("再见", "Bye")]
    assert lines_of(found.places) == [2, 8]


def test_d30_rows_of_the_test_set_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    train = read_labelled(write(tmp_path / "train.tsv", "".join(f"caf\u00e9 {i}\t{i % 2}\n" for i in range(8))))
    rows = [f"  {unicodedata.normalize('NFD', 'café')} {i} \t{i % 2}\n" if i % 2 else f"new {i}\t0\n" for i in range(8)]
    test = read_labelled(write(tmp_path / "test.tsv", "".join(rows)))
    found = overlap(train, test)
    assert (found.indices, found.of, found.share) == ((1, 3, 5, 7), 8, 0.5)
    assert (
        found.report() == f"4 of 8 test examples (50.0%) are also trained on (first: {tmp_path / 'test.tsv'}, line 2)"
    )
    assert [row.text for row in test.without(found.indices)] == ["new 0", "new 2", "new 4", "new 6"]
    doubled = write(tmp_path / "twice.tsv", "a\t1\n a \t1\nb\t0\na\t0\n")
    assert "1 exact duplicate is kept (first on line 2)" in read_labelled(doubled).notes
    kept = read_labelled(doubled, options=ReadOptions(drop_duplicates=True))
    assert (len(kept), lines_of(kept.skipped["duplicate"])) == (3, [2])
