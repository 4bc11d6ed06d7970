from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import ConfigError, FormatError
from regard.text import Labelled, ReadOptions, read_labelled
from tests.text.files import write


def test_a_folder_per_label_with_a_text_per_file(tmp_path) -> None:
    write(tmp_path / "pos" / "1.txt", "warm\nand funny \n")
    write(tmp_path / "pos" / "2.txt", "很好看")
    write(tmp_path / "neg" / "1.txt", "too long\n")
    write(tmp_path / "neg" / "2.txt", " \n")
    write(tmp_path / "neg" / ".hidden", "x")
    found = read_labelled(tmp_path)
    assert list(found) == [Labelled("too long", "neg"), Labelled("warm\nand funny", "pos"), Labelled("很好看", "pos")]
    assert [place.file for place in found.skipped["empty text"]] == [str(tmp_path / "neg" / "2.txt")]
    assert "the label is the name of the folder: neg, pos" in found.notes


@pytest.mark.parametrize("rows", ["1\tgood film\n0\tbad film\n", "good film\t1\nbad film\t0\n"])
def test_the_label_of_two_columns_is_the_short_one_or_the_one_of_few_values(tmp_path, rows) -> None:
    assert [row.label for row in read_labelled(write(tmp_path / "a.tsv", rows))] == ["1", "0"]
    longer = [f"ab{i}\tvery positive indeed\n" for i in range(9)] + ["abc\tnot at all positive\n"]
    found = read_labelled(write(tmp_path / "b.tsv", "".join(longer)))
    assert {row.label for row in found} == {"very positive indeed", "not at all positive"}


def test_tables_of_several_files_follow_each_other(tmp_path) -> None:
    paths = [write(tmp_path / f"{i}.tsv", f"text\tlabel\nrow {i}\t{i}\n") for i in range(2)]
    found = read_labelled(paths)
    assert [(row.text, place.file) for row, place in zip(found, found.places, strict=True)] == [
        ("row 0", str(paths[0])),
        ("row 1", str(paths[1])),
    ]
    mixed = [*paths, write(tmp_path / "pos.txt", "plain\n")]
    with pytest.raises(
        FormatError, match=r"pos\.txt must be a file of texts with labels, but is plain text without any"
    ):
        read_labelled(mixed)
    with pytest.raises(ConfigError, match=r"read_labelled\(\): `path` must be at least one file, but is empty\."):
        read_labelled([])


def test_pairs_of_texts_with_a_label(tmp_path) -> None:
    path = write(tmp_path / "a.jsonl", '{"premise": "It rains.", "hypothesis": "下雨。", "label": 0}\n')
    assert list(read_labelled(path)) == [Labelled("It rains.", "0", "下雨。")]
    missing = write(tmp_path / "b.tsv", "sentence1\tsentence2\tlabel\na\t\t1\nb\tc\t0\n")
    found = read_labelled(missing)
    assert (list(found), [place.line for place in found.skipped["empty pair"]]) == ([Labelled("b", "0", "c")], [2])


def test_labels_that_look_wrong_are_said(tmp_path) -> None:
    path = write(tmp_path / "one.tsv", "".join(f"text {i}\tpos\n" for i in range(10)))
    assert "every label is 'pos': there is nothing to tell apart" in read_labelled(path).notes
    rows = "".join(f"text {i}\t{i % 2}\n" for i in range(20))
    path = write(tmp_path / "header.tsv", f"what was said\thow it was meant\n{rows}")
    found = read_labelled(path)
    assert "the label 'how it was meant' is on line 1 only: a header? header=True skips it" in found.notes
    again = read_labelled(path, options=ReadOptions(header=True))
    assert len(again) == 20
    assert again.notes == (
        "text is column 1 'what was said', label is column 2 'how it was meant' (line 1 is a header)",
    )


def test_what_a_folder_per_label_holds_beside_texts_is_counted(tmp_path) -> None:
    for name, text in (
        ("pos/a.txt", "good"),
        ("neg/b.txt", "bad"),
        ("pos/more/c.txt", "lost"),
        ("notes.txt", "beside"),
    ):
        write(tmp_path / name, text)
    found = read_labelled(tmp_path)
    assert sorted(example.text for example in found) == ["bad", "good"]
    skipped = {reason: [Path(place.file).name for place in places] for reason, places in found.skipped.items()}
    assert skipped == {"file beside the folders of labels": ["notes.txt"], "folder inside that of a label": ["more"]}
