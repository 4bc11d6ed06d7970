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


ENCODINGS = {"UTF-16LE": "utf-16-le", "UTF-16BE": "utf-16-be", "UTF-32LE": "utf-32-le", "UTF-32BE": "utf-32-be"}
TEXTS = {
    "English": "The bank is by the river bank.\r\n",
    "one letter": "a",
    "Russian": "Банк стоит на берегу реки.\n",
    "Hindi": "बैंक नदी के किनारे है।\n",
    "Chinese": "银行在河岸边。\n虽然昨天天气很糟糕\n",
    "emoji": "👍🏽 yes 👨‍👩‍👧\n",
}


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["no mark", "mark"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ENCODINGS)
def test_wider_encodings_are_recognised_and_named(tmp_path, name, text, mark):
    path = tmp_path / "a.txt"
    path.write_bytes((mark + TEXTS[text]).encode(ENCODINGS[name]))
    with pytest.raises(FormatError) as raised:
        read_text(path)
    assert str(raised.value) == f"read_text(): {path} must be UTF-8, but is {name}; convert it from {name} to UTF-8."


@pytest.mark.parametrize(
    "content",
    [b"a\0b", b"\0", b"\0\0\0\0", b"name\0other\0third\0", b"abc\0def\0", "中\0文".encode(), b"\x1b[31mred\x1b[0m\0\0"],
)
def test_a_text_with_nul_in_it_is_a_text(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert read_text(path) == content.decode()


@pytest.mark.parametrize("content", [b"th\xe9", b"na\xefve!", "банк".encode("cp1251"), b"\xff\xfe\xff"])
def test_what_is_no_wider_encoding_is_not_called_one(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="line 1: must be UTF-8, but byte"):
        read_text(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none.txt")
