"""From people's images to the pixels a model reads: any size and any number of channels become the model's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from regard.errors import ConfigError, FormatError, message, must_be
from regard.hf.hub import local_copy
from regard.tasks.trained import INFO
from regard.text.images import Picture

_SAMPLE = 2000  # images whose mean and spread stand for those of all
_MEASURED = 64  # pixels along a side
_FEWEST = 4  # patches along a side: a smaller image is made larger
_NAMED = 5
_LUMINANCE = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow has it
_PROCESSOR = "preprocessor_config.json"


@dataclass(frozen=True)
class ImageForm:
    """How a model's images are read.

    Args:
        image_size: Height and width, in pixels.
        channels: 1 for grey, 3 for colour.
        mean: Of each channel, of values from 0 to 1; it becomes 0.
        std: Of each channel; it becomes 1.
    """

    image_size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> ImageForm:
        """What the folder of a model says."""
        mean, std = (tuple(details[name]) for name in ("mean", "std"))
        return cls(details["image_size"], details["channels"], mean, std)

    def read(self, pictures: Sequence[Picture], names: Sequence[str] = ()) -> np.ndarray:
        """Decode images: their middle, a square as large as fits, in the model's size and channels.

        Args:
            pictures: The images.
            names: What to call pixels that cannot be read; files have names.

        Returns:
            uint8 [images, channels, image_size, image_size].

        Raises:
            FormatError: Some are no images; names them.
            OSError: A file cannot be read.

        Cost:
            image_size² · channels bytes for every image.
        """
        read = np.zeros((len(pictures), self.channels, self.image_size, self.image_size), dtype=np.uint8)
        for index, pixels in _decoded(pictures, names):
            read[index] = _fitted(pixels, size=self.image_size, channels=self.channels)
        return read

    def tensor(
        self, pixels: UInt8[np.ndarray, "images channels height width"]
    ) -> Float[Tensor, "images channels height width"]:
        """Pixels as a model reads them: (value / 255 − mean) / std."""
        shape = (1, self.channels, 1, 1)
        mean, std = torch.tensor(self.mean).view(shape), torch.tensor(self.std).view(shape)
        return (torch.from_numpy(pixels).float() / 255 - mean) / std

    def as_dict(self) -> dict[str, Any]:
        """For the folder of a model."""
        return {**asdict(self), "mean": list(self.mean), "std": list(self.std)}


def picture_of(given: Any) -> Picture:
    """An input as a picture: the path of a file, an array of pixels, or a picture already.

    Raises:
        ConfigError: it is none of those.
    """
    if isinstance(given, Picture):
        return given
    if isinstance(given, str | Path):
        return Picture(Path(given))
    if isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim in (2, 3):
        return Picture(given)
    what = f"an array of {given.dtype} {given.shape}" if isinstance(given, np.ndarray) else f"a {type(given).__name__}"
    expected = "the path of an image, or uint8 pixels [height, width] or [height, width, channels]"
    raise ConfigError(message("predict", must_be("inputs", expected, what)))


def named(picture: Picture, place: str) -> str:
    """What to call an image in a report: its file, or where its pixels stood."""
    return str(picture.source) if isinstance(picture.source, Path) else place


def same_picture(picture: Picture) -> str | bytes:
    """What two examples of one image have in common: its file, or its pixels."""
    source = picture.source
    return source.tobytes() if isinstance(source, np.ndarray) else str(source)


def measured(pictures: Sequence[Picture]) -> dict[str, Any]:
    """What images have in common: ``side`` (their usual shorter one), ``channels``, ``mean`` and ``std``.

    Of many, 2,000 evenly spread ones are looked at; large ones are made small first, as the model will see them.

    Raises:
        FormatError: Some are no images; names them.
        OSError: A file cannot be read.
    """
    step = max(1, -(-len(pictures) // _SAMPLE))
    sides, channels = [], 1
    total, squares, count = np.zeros(3), np.zeros(3), 0
    for _, pixels in _decoded(pictures[::step]):
        sides.append(min(pixels.shape[:2]))
        channels = max(channels, pixels.shape[2])
        small = _fitted(pixels, size=min(sides[-1], _MEASURED), channels=pixels.shape[2])
        values = small.reshape(len(small), -1) / 255.0
        total += values.sum(axis=1)  # grey counts as three equal channels
        squares += (values**2).sum(axis=1)
        count += values.shape[1]
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    std[std < 1e-3] = 1.0  # images of one value have no spread that could be made 1
    return {
        "side": int(median(sides)),
        "channels": channels,
        "mean": mean[:channels].tolist(),
        "std": std[:channels].tolist(),
    }


def image_settings(settings: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's settings for these images: what was asked for, else the images' own size where that is smaller.

    Args:
        settings: With ``image_size``, the largest, and ``patch_size``.
        details: With ``image_size``, which may be None, and what ``measured`` found.
    """
    patch, size = settings["patch_size"], details["image_size"]
    if size is None:
        fitting = min(settings["image_size"], details["side"]) // patch * patch
        size = max(fitting, _FEWEST * patch)
    return {**settings, "image_size": size, "num_channels": details["channels"]}


def form_of(config: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
    """How a model's images are read: by its configuration, and where a checkpoint says more, by that.

    Args:
        config: Of the part that reads images.
        checkpoint: The folder or hub id it was loaded from, if any.
        details: What the examples say: ``mean`` and ``std``, for a checkpoint that does not; and ``image_size``.

    Raises:
        ConfigError: the checkpoint does not say how large its images are, they are not square, or of another size than
            was asked for.
    """
    said = {} if checkpoint is None else _said_by(local_copy(checkpoint))
    size = getattr(config, "image_size", None) or said.get("crop_size") or said.get("size")
    side = _side(size, checkpoint)
    if details["image_size"] not in (None, side):
        problem = must_be("image_size", f"{side}, that of the model, or left out", details["image_size"])
        raise ConfigError(message("train", problem))
    channels = int(getattr(config, "num_channels", 3))
    means = []
    for name in ("mean", "std"):
        value = said.get(f"image_{name}") if said.get("do_normalize", True) else [float(name == "std")] * channels
        value = details[name] if value is None else value
        means.append(tuple(value) if len(value) == channels else (float(np.mean(value)),) * channels)
    return ImageForm(side, channels, *means).as_dict()


def _side(size: Any, checkpoint: str | None) -> int:
    if isinstance(size, Mapping):
        size = [size[name] for name in ("height", "width", "shortest_edge") if size.get(name) is not None]
    sides = set(size) if isinstance(size, Sequence) else {size}
    if len(sides) == 1 and isinstance(side := sides.pop(), int):
        return side
    said = "does not say" if size is None else f"says {size}"
    raise ConfigError(message("train", f"{checkpoint} must read square images of a size it says, but {said}."))


def _said_by(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of its images: one of ours in its details, others in the form of transformers."""
    ours = _json(folder / INFO).get("details", {})
    if "mean" in ours:
        return {"image_mean": ours["mean"], "image_std": ours["std"]}
    return _json(folder / _PROCESSOR)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(message("train", f"{path} must be JSON, but is not ({error}).")) from error
    return said


def _decoded(pictures: Sequence[Picture], names: Sequence[str] = ()) -> Iterator[tuple[int, np.ndarray]]:
    """The pixels of all images, each with its number; says at the end which of them are none.

    Raises:
        FormatError: Some are no images; names them.
        OSError: A file cannot be read.
    """
    problems = []
    for index, picture in enumerate(pictures):
        try:
            pixels = picture.pixels()
        except FormatError as error:
            problems.append(str(error).removeprefix("pixels(): "))
            continue
        if 0 not in pixels.shape and pixels.shape[2] in (1, 3):
            yield index, pixels
            continue
        name = named(picture, names[index] if names else f"image {index}")
        problems.append(must_be(name, "of at least one pixel and 1 or 3 channels", f"of shape {pixels.shape}"))
    if len(problems) == 1:
        raise FormatError(message("read", problems[0]))
    if problems:
        more = [f"and {len(problems) - _NAMED} more"] if len(problems) > _NAMED else []
        listed = "".join(f"\n  - {problem}" for problem in [*problems[:_NAMED], *more])
        raise FormatError(message("read", f"{len(problems)} of {len(pictures)} images cannot be read:{listed}"))


def _fitted(pixels: np.ndarray, *, size: int, channels: int) -> np.ndarray:
    """The middle square of an image in another size: [channels, size, size]."""
    height, width, found = pixels.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[top : top + side, left : left + side]
    if channels == 1 and found == 3:
        square = np.rint(square @ np.array(_LUMINANCE)).astype(np.uint8)[..., None]
    planes = np.ascontiguousarray(square.transpose(2, 0, 1))
    if side != size:
        image = torch.from_numpy(planes)[None].float()
        made = functional.interpolate(image, (size, size), mode="bilinear", antialias=True)
        planes = made[0].round().clamp(0, 255).byte().numpy()
    return np.broadcast_to(planes, (channels, size, size))
