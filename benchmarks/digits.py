"""How well a vision Transformer trained from nothing reads digits.

    python benchmarks/digits.py --data DIR [--minutes 10]

mnist_t10k: the first 8,000 images to learn from (400 of them to validate on), the last 2,000 to test.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import torch
from runs import arguments, run, size_of
from setting import setting, write

from regard.tasks import evaluate

SEED, TEST = 1, 2000
_HEADS = {"images": 16, "labels": 8}  # bytes before the values of an IDX file
_ITEM = {"images": 28 * 28, "labels": 1}


def parts(data: Path, folder: Path) -> dict[str, tuple[Path, Path]]:
    """Images and labels of both parts, as IDX files."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Path]] = {"train": [], "test": []}
    for kind, name in (("images", "t10k-images-idx3-ubyte"), ("labels", "t10k-labels-idx1-ubyte")):
        whole = gzip.decompress((data / "mnist_t10k" / f"{name}.gz").read_bytes())
        head, values = whole[: _HEADS[kind]], whole[_HEADS[kind] :]
        count = len(values) // _ITEM[kind]
        cut = (count - TEST) * _ITEM[kind]
        for part, kept, number in (("train", values[:cut], count - TEST), ("test", values[cut:], TEST)):
            path = folder / f"{part}-{kind}-{name[-11:]}"
            path.write_bytes(head[:4] + number.to_bytes(4, "big") + head[8:] + kept)
            found[part].append(path)
    return {part: (images, labels) for part, (images, labels) in found.items()}


def main() -> None:
    parser = arguments(__doc__, minutes=10)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings: dict[str, Any] = {"minutes": given.minutes, "preset": given.preset}
    files = parts(given.data, given.runs / "digits-data")
    trained, known = run("classify-image", files["train"], given.runs / "digits", seed=SEED, **settings)
    accuracy = evaluate(trained, files["test"]).figures["accuracy"]
    figures = {"accuracy": accuracy, "seconds": known["seconds"], "parameters": size_of(trained)}
    write("digits", {"setting": setting(seed=SEED, threads=given.threads, **settings), **figures})


if __name__ == "__main__":
    main()
