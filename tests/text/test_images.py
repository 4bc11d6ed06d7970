from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from regard.errors import BackendUnavailableError, FormatError
from regard.text import ReadOptions, read_captioned_images, read_idx, read_labelled_images
from tests.text.files import write

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 9


def picture(path, pixels=PIXELS, **options):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path, **options)
    return path


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def test_a_folder_per_label(tmp_path) -> None:
    for label in ("cat", "狗"):
        for i in range(2):
            picture(tmp_path / label / f"{i}.png", PIXELS + i)
    write(tmp_path / "cat" / "notes.txt", "x")
    write(tmp_path / "cat" / ".hidden", "x")
    found = read_labelled_images(tmp_path)
    assert [image.label for image in found] == ["cat", "cat", "狗", "狗"]
    assert np.array_equal(found[1].pixels(), PIXELS + 1)
    assert [place.file for place in found.skipped["not an image (.txt)"]] == [str(tmp_path / "cat" / "notes.txt")]


def test_tables_of_paths_beside_them(tmp_path) -> None:
    picture(tmp_path / "img" / "a.png")
    table = write(tmp_path / "a.tsv", "img/a.png\tred\nimg/none.png\tblue\nimg/a.png\tgreen\n")
    found = read_labelled_images(table)
    assert [(image.source, image.label) for image in found] == [(tmp_path / "img/a.png", x) for x in ("red", "green")]
    assert [place.line for place in found.skipped["image that is not there"]] == [2]
    rows = write(tmp_path / "a.jsonl", '{"image": "img/a.png", "caption": "一只猫"}\n')
    (image,) = read_captioned_images(rows)
    assert (image.caption, image.pixels().shape) == ("一只猫", (2, 3, 3))
    with pytest.raises(FormatError, match="a column for `label`, but has these fields: image, caption"):
        read_labelled_images(rows)
    named = write(tmp_path / "b.csv", "what,where\nred,img/a.png\n")
    options = ReadOptions(columns={"image": "where", "label": "what"})
    assert [image.label for image in read_labelled_images(named, options=options)] == ["red"]


@pytest.mark.parametrize(
    ("mode", "shape"), [("1", (2, 3, 1)), ("L", (2, 3, 1)), ("RGB", (2, 3, 3)), ("RGBA", (2, 3, 3)), ("P", (2, 3, 3))]
)
def test_pixels_are_bytes_of_one_or_three_channels(tmp_path, mode, shape) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "x").mkdir()
    image.fromarray(PIXELS).convert(mode).save(tmp_path / "x" / "a.png")
    pixels = read_labelled_images(tmp_path)[0].pixels()
    assert (pixels.shape, pixels.dtype) == (shape, np.uint8)


def test_sixteen_bits_become_eight_and_a_turned_photo_is_turned(tmp_path) -> None:
    deep = np.array([[0, 255, 256], [511, 65280, 65535]], dtype=np.uint16)
    picture(tmp_path / "x" / "a.png", deep)
    exif = pytest.importorskip("PIL.Image").Exif()
    exif[0x0112] = 6  # the camera was turned: shown turned by a quarter
    picture(tmp_path / "x" / "b.png", exif=exif)
    first, second = (image.pixels() for image in read_labelled_images(tmp_path))
    assert first[:, :, 0].tolist() == [[0, 0, 1], [1, 255, 255]]
    assert np.array_equal(second, np.rot90(PIXELS, -1))


def test_a_broken_image_is_named_when_it_is_used(tmp_path, monkeypatch) -> None:
    pytest.importorskip("PIL")
    path = write(tmp_path / "x" / "a.png", b"\x89PNG\r\n\x1a\nnothing")
    (image,) = read_labelled_images(tmp_path)
    with pytest.raises(FormatError, match=r"a\.png must be an image, but cannot be decoded"):
        image.pixels()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        image.pixels()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BackendUnavailableError, match=r"decoding images needs the package `pillow`.*regard\[train\]"):
        image.pixels()


def test_idx_files(tmp_path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5)).astype(np.uint8)
    paths = (
        write(tmp_path / "images.gz", gzip.compress(idx(images))),
        write(tmp_path / "labels", idx(np.array([7, 0, 7]))),
    )
    found = read_labelled_images(paths)
    assert [image.label for image in found] == ["7", "0", "7"]
    assert np.array_equal(np.stack([image.pixels() for image in found]), images[:, :, :, None])
    assert str(found.places[2]).endswith("images.gz, line 1, image 2")
    twice = read_labelled_images((write(tmp_path / "twice", idx(images[[0, 0, 1]])), paths[1]))
    assert not any("duplicate" in note for note in twice.notes)


def test_wrong_idx_files_are_named(tmp_path) -> None:
    images, labels = idx(np.zeros((3, 4, 5))), idx(np.zeros(2))
    short = write(tmp_path / "short", images[:-1])
    with pytest.raises(FormatError, match=r"short must hold 60 bytes for its shape \(3, 4, 5\), but holds 59"):
        read_idx(short)
    with pytest.raises(FormatError, match=r"must be an IDX file of unsigned bytes, but begins with 0x89504e47"):
        read_idx(write(tmp_path / "png", b"\x89PNG"))
    pair = (write(tmp_path / "images", images), write(tmp_path / "labels", labels))
    with pytest.raises(FormatError, match=r"as many images as labels, .*images is \(3, 4, 5\) and .*labels is \(2,\)"):
        read_labelled_images(pair)


def test_plain_text_is_no_table_of_images(tmp_path) -> None:
    with pytest.raises(FormatError, match="must be a table or JSON of images, but is read as 'text'"):
        read_captioned_images(write(tmp_path / "a.txt", "text"))


def test_a_caption_before_its_image_is_no_name_of_a_file(tmp_path) -> None:
    path = write(tmp_path / "a.tsv", f"{'long ' * 80}\ta.png\n" * 4)
    with pytest.raises(FormatError, match="image that is not there"):
        read_captioned_images(path)
