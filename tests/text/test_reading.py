import pytest

from regard.errors import FormatError
from regard.text import read_text


def test_text_is_read_as_it_is(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("中\r\n👍\n".encode())
    assert read_text(path) == "中\r\n👍\n"


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(path) == "abc"


def test_the_line_and_the_byte_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nth\xe9ee")
    with pytest.raises(FormatError, match=r"a\.txt, line 3: must be UTF-8, but byte 10 is 0xe9"):
        read_text(path)


def test_utf16_is_recognised(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("hello", encoding="utf-16")
    with pytest.raises(FormatError, match="must be UTF-8, but looks like UTF-16"):
        read_text(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none.txt")
