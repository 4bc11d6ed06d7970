"""Images with labels or captions: folders, tables of paths, and the IDX files of MNIST. Decoded when they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.errors import FormatError, message, missing_extra
from regard.text._columns import Chosen, Layout, Role, values_of
from regard.text._folders import files_of, label_folders
from regard.text._gathering import Gathering
from regard.text._lines import open_unpacked
from regard.text._rows import Row, Rows
from regard.text.examples import Examples, Place
from regard.text.options import ReadOptions
from regard.text.pairs import FilePath

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

_IMAGE = Role("image", ("image", "path", "file", "filename", "file_name", "image_path", "img", "图片", "图像", "文件"))
_LABEL = Role("label", ("label", "class", "category", "标签", "类别"))
_CAPTION = Role("caption", ("caption", "text", "description", "sentence", "标题", "描述"))
_IDX = b"\0\0\x08"  # unsigned bytes; the fourth byte is the number of dimensions


@dataclass(frozen=True, eq=False)
class Picture:
    """An image: a file, or its pixels.

    Args:
        source: Path of the file, or uint8 pixels [height, width] or [height, width, channels].
    """

    source: Path | np.ndarray

    def pixels(self) -> np.ndarray:
        """The pixels, uint8 [height, width, channels]: 1 channel (grey) or 3 (red, green, blue).

        A file is decoded at every call, turned as its camera says; transparency is dropped.

        Raises:
            BackendUnavailableError: Pillow is not installed, and the image is a file.
            FormatError: The file is no image.
        """
        found = self.source if isinstance(self.source, np.ndarray) else _decoded(self.source)
        return found if found.ndim == 3 else found[:, :, None]


@dataclass(frozen=True, eq=False)
class LabelledImage(Picture):
    """An image and the class it is in.

    Args:
        label: The label, as it is written.
    """

    label: str


@dataclass(frozen=True, eq=False)
class CaptionedImage(Picture):
    """An image and what it shows, in words.

    Args:
        caption: The words.
    """

    caption: str


def read_labelled_images(
    path: FilePath | tuple[FilePath, FilePath], *, options: ReadOptions | None = None
) -> Examples[LabelledImage]:
    """Read images with labels.

    - A folder with a folder per label, images in it.
    - A TSV, CSV or JSON Lines file of ``image`` and ``label``; paths are relative to the file.
    - Two IDX files, (images, labels), as MNIST has them.

    Args:
        path: The folder, the file, or the two files.
        options: How a table is written. Roles of ``columns``: ``image``, ``label``.

    Returns:
        The images, not decoded yet. Those whose file is missing are skipped and counted.

    Raises:
        OSError: A file cannot be read.
        FormatError: There are no images with labels, or as many labels as images.
    """
    gathering = Gathering[LabelledImage]("read_labelled_images", "images", options or ReadOptions())
    if isinstance(path, tuple):
        paths = [Path(part) for part in path]
        found: Iterator[tuple[Place, Path | np.ndarray, object]] = _idx_pair(paths[0], paths[1], gathering)
    else:
        paths = [Path(path)]
        layout = Layout((_IMAGE, _LABEL), _guess("label"))
        found = _tree(paths[0], gathering) if paths[0].is_dir() else _table(paths[0], layout, gathering)
    for place, source, written in found:
        label = gathering.label(written, place)
        if label is not None:
            gathering.add(LabelledImage(source, label), place)
    return gathering.finished(paths)


def read_captioned_images(path: FilePath, *, options: ReadOptions | None = None) -> Examples[CaptionedImage]:
    """Read images with captions: a TSV, CSV or JSON Lines file of ``image`` and ``caption``.

    Args:
        path: The file; paths of images are relative to it.
        options: How it is written. Roles of ``columns``: ``image``, ``caption``.

    Returns:
        The images, not decoded yet; one for every caption. Those whose file is missing are skipped and counted.

    Raises:
        OSError: The file cannot be read.
        FormatError: It does not hold images with captions.
    """
    gathering = Gathering[CaptionedImage]("read_captioned_images", "images", options or ReadOptions())
    for place, source, written in _table(Path(path), Layout((_IMAGE, _CAPTION), _guess("caption")), gathering):
        caption = gathering.text(written, "caption", place)
        if caption is not None:
            gathering.add(CaptionedImage(source, caption), place)
    return gathering.finished([Path(path)])


def read_idx(path: FilePath) -> np.ndarray:
    """Read an IDX file of unsigned bytes, packed by gzip or not, as an array.

    Args:
        path: The file.

    Raises:
        OSError: The file cannot be read.
        FormatError: It is not such a file, or not all of one.
    """
    with open_unpacked(Path(path), caller="read_idx") as stream:
        data = stream.read()
    if not data.startswith(_IDX) or len(data) < 4 + 4 * data[3]:
        problem = f"{path} must be an IDX file of unsigned bytes, but begins with 0x{data[:4].hex()}."
        raise FormatError(message("read_idx", problem))
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", count=data[3], offset=4))
    held, wanted = len(data) - 4 - 4 * data[3], math.prod(shape)
    if held != wanted:
        problem = f"{path} must hold {wanted:,} bytes for its shape {shape}, but holds {held:,}."
        raise FormatError(message("read_idx", problem))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def _idx_pair(
    images: Path, labels: Path, gathering: Gathering[LabelledImage]
) -> Iterator[tuple[Place, Path | np.ndarray, object]]:
    pixels, classes = read_idx(images), read_idx(labels)
    if pixels.ndim not in (3, 4) or classes.ndim != 1 or len(pixels) != len(classes):
        problem = (
            f"`path` must be as many images as labels, but {images} is {pixels.shape} and {labels} is {classes.shape}."
        )
        raise FormatError(message(gathering.caller, problem))
    for index, (image, label) in enumerate(zip(pixels, classes, strict=True)):
        yield Place(str(images), 1, f"image {index}"), image, str(label)


def _tree(folder: Path, gathering: Gathering[LabelledImage]) -> Iterator[tuple[Place, Path | np.ndarray, object]]:
    for child in label_folders(folder, gathering):
        for path in files_of(child):
            place = Place(str(path), 1)
            if path.suffix.lower() in SUFFIXES:
                yield place, path, child.name
            else:
                gathering.skip(f"not an image ({path.suffix or path.name})", place)


def _table(
    path: Path, layout: Layout, gathering: Gathering[LabelledImage] | Gathering[CaptionedImage]
) -> Iterator[tuple[Place, Path | np.ndarray, object]]:
    rows = Rows(path, gathering)
    if rows.format not in ("tsv", "csv", "jsonl", "json"):
        raise rows.file.fail(f"a table or JSON of images, but is read as {rows.format!r}.")
    for place, (image, written) in values_of(rows, layout, gathering):
        name = gathering.text(image, "image", place)
        if name is None:
            continue
        source = path.parent / name
        if _is_file(source):
            yield place, source, written
        else:
            gathering.skip("image that is not there", place)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; what is too long to be a name, such as a caption, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _guess(role: str) -> Callable[[Rows, Sequence[Row]], Chosen]:
    """Of two columns without names, the image is the first."""
    return lambda rows, first: {"image": 0, role: 1} if rows.is_table and len(rows.names) == 2 else {}


def _decoded(path: Path) -> np.ndarray:
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise missing_extra("pillow", "train", "decoding images") from error
    try:
        with Image.open(path) as image:
            turned = ImageOps.exif_transpose(image)
            if turned.mode.startswith("I") or turned.mode == "F":
                return _deep(np.asarray(turned))
            return np.asarray(turned.convert("L" if turned.mode in ("1", "L", "LA") else "RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise FormatError(message("pixels", f"{path} must be an image, but cannot be decoded: {error}")) from error


def _deep(values: np.ndarray) -> np.ndarray:
    """Grey values of 16 bits as 8: the upper ones."""
    grey: np.ndarray = np.clip(values, 0, 65535).astype(np.uint32) >> 8
    return grey.astype(np.uint8)
