"""Files as lines: packed or not, in any encoding, numbered as an editor numbers them."""

from __future__ import annotations

import gzip
import random

import pytest

from regard.errors import FormatError
from regard.text import ReadOptions, read_pairs, read_texts
from tests.text.files import write

PAIRS = "Hello\t你好\nBye\t再见\n"


def test_gzip_is_told_by_its_content_and_not_by_the_name(tmp_path) -> None:
    packed = gzip.compress(PAIRS.encode())
    for name in ("a.tsv.gz", "a.tsv", "a.txt"):
        assert len(read_pairs(write(tmp_path / name, packed))) == 2
    assert len(read_pairs(write(tmp_path / "plain.tsv.gz", PAIRS))) == 2


@pytest.mark.parametrize("cut", [12, -8])
def test_a_damaged_gzip_file_is_named(tmp_path, cut) -> None:
    packed = gzip.compress(random.Random(0).randbytes(1 << 21).hex().encode())
    path = write(tmp_path / "a.txt.gz", packed[:cut])
    with pytest.raises(FormatError, match=r"a\.txt\.gz must be a whole gzip file, but is damaged: "):
        read_texts(path)


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [(b"PK\x03\x04\0\0", "a zip archive"), (b"PAR1\0", "a Parquet file"), (b"\xfd7zXZ\0\0", "packed by xz")],
)
def test_other_kinds_of_files_are_named(tmp_path, beginning, kind) -> None:
    path = write(tmp_path / "a.tsv", beginning + b"anything")
    with pytest.raises(FormatError, match=rf"must be text, or text packed by gzip, but is {kind}"):
        read_pairs(path)


def test_a_dash_is_a_file_and_a_missing_file_an_os_error(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_pairs("-")
    write(tmp_path / "-", PAIRS)
    assert len(read_pairs("-")) == 2
    with pytest.raises(IsADirectoryError):
        read_pairs(tmp_path)


def test_an_empty_file_and_a_file_of_blank_lines_hold_nothing(tmp_path) -> None:
    for content in ("", "\n\n", "\ufeff"):
        path = write(tmp_path / "a.tsv", content)
        with pytest.raises(FormatError, match=r"a\.tsv must hold pairs, but holds none\."):
            read_pairs(path)
        with pytest.raises(FormatError, match=r"must hold texts, but holds none"):
            read_texts(path)


def test_a_whole_file_is_one_text_and_is_kept(tmp_path) -> None:
    text = "  First.\r\n\r\n\u3000第二行\u2028still\tit \n\n"
    found = read_texts(write(tmp_path / "a.txt", text))
    assert list(found) == [text]
    assert found.report() == "1 text read from a.txt"


def test_lines_longer_than_what_is_read_at_once(tmp_path) -> None:
    lines = ["长" * 700_000, "b" * 1_500_000, "", "é" * 3]
    path = write(tmp_path / "a.txt", "\r\n".join(lines))
    assert list(read_texts(path, lines=True)) == [line for line in lines if line]
    other = write(tmp_path / "b.txt", "\n".join("1234"))
    assert [place.line for place in read_pairs((path, other)).places] == [1, 2, 4]


def test_a_character_on_the_border_of_what_is_read_at_once(tmp_path) -> None:
    for shift in range(4):
        text = "x" * ((1 << 20) - shift) + "𠮷\nend"
        assert list(read_texts(write(tmp_path / "a.txt", text), lines=True)) == text.split("\n")
        assert list(
            read_texts(write(tmp_path / "b.txt", f"\ufeff{text}".encode("utf-16-be")), lines=True)
        ) == text.split("\n")
    path = write(tmp_path / "c.txt", ("x" * 99 + "\n").encode() * 20_000 + "好\n".encode("gbk"))
    with pytest.raises(FormatError, match=r"c\.txt, line 20001: must be UTF-8, but byte 2000000 is 0xba"):
        read_texts(path)


def test_what_follows_a_wrong_byte_is_not_shown_when_nothing_reads_it(tmp_path) -> None:
    path = write(tmp_path / "a.txt", b"\x81\x8d\xff\xff\x00\xff")
    with pytest.raises(FormatError, match="hint: no encoding tried reads it all"):
        read_texts(path, options=ReadOptions(encoding="utf-8"))
