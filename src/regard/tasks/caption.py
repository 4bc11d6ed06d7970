"""Words about images, and for every word the patches the model looked at when it wrote it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch

from regard import records
from regard.errors import ConfigError, message, must_be
from regard.hf import RegardCaptionConfig, RegardForImageCaptioning
from regard.hf.losses import IGNORED, shifted_right
from regard.tasks.image_data import PIXELS, Changes, ImageData
from regard.tasks.looking import WordMap, grid_of, map_words, patch_sequence, patch_weights, watched_image
from regard.tasks.pixels import ImageForm, form_of, image_settings, measured, named, picture_of, same_picture
from regard.tasks.report import Example, Report
from regard.tasks.tables import MEAN
from regard.tasks.task import Preset, Task, files_of
from regard.tasks.trained import Trained
from regard.tasks.writing import Written, generated, read_back, start_id
from regard.text import (
    CaptionedImage,
    Examples,
    ReadOptions,
    continuation,
    read_captioned_images,
    split,
    tokenize,
    without_lone_surrogates,
)
from regard.train.data import TrainData, padded
from regard.train.metrics import bleu
from regard.train.objective import NextToken

_BATCH = 32
_KNOWN = ("regard_caption", "vision-encoder-decoder")
_SHAPE = {"image_size": 32, "patch_size": 4}
_TRAINING = {"batch_rows": 64, "batch_tokens": 32_768, "schedule": "cosine", "weight_decay": 0.05}
_NOTE = "the row of a token shows where the model looked when it had written that token, to write the next one"


@dataclass(frozen=True)
class Description:
    """What the model says of an image.

    Args:
        text: The words.
    """

    text: str

    def __str__(self) -> str:
        return self.text


class Caption(Task[CaptionedImage, Description]):
    """A sentence about an image."""

    name: ClassVar[str] = "caption"
    summary: ClassVar[str] = "images into words"
    auto: ClassVar[str] = "AutoModelForImageTextToText"
    takes: ClassVar[str] = "IMAGE"
    tokenizer: ClassVar[str | None] = "word"  # a map for every word, and for every Chinese character
    choices: ClassVar[Mapping[str, Any]] = {"image_size": None}
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {**_SHAPE, "embed_dim": 64, "num_heads": 4, "num_layers": 2, "ff_dim": 128, "dropout_p": 0.0},
            training={**_TRAINING, "learning_rate": 2e-3, "warmup": 100, "epochs": 30},
            vocab_size=2000,
            max_tokens=64,
        ),
        "small": Preset(
            {**_SHAPE, "embed_dim": 128, "num_heads": 4, "num_layers": 3, "ff_dim": 512, "dropout_p": 0.1},
            training={**_TRAINING, "learning_rate": 1e-3, "warmup": 200, "epochs": 20},
            vocab_size=8000,
            max_tokens=64,
        ),
        "base": Preset(
            {
                "image_size": 64, "patch_size": 4, "embed_dim": 256, "num_heads": 8, "num_layers": 6, "ff_dim": 1024,
                "dropout_p": 0.1,
            },
            training={**_TRAINING, "learning_rate": 5e-4, "warmup": 1000, "epochs": 30},
            vocab_size=16000,
            max_tokens=128,
        ),
    }  # fmt: skip
    fine_tuning: ClassVar[Mapping[str, Any]] = {
        **Task.fine_tuning,
        "batch_rows": 16,
        "batch_tokens": 32_768,
        "epochs": 3,
    }

    def read(self, data: Any, options: ReadOptions) -> Examples[CaptionedImage]:
        """A table of paths and captions.

        Raises:
            ConfigError: several files.
        """
        return read_captioned_images(files_of(data, expected="one table"), options=options)

    def divide(
        self, examples: Examples[CaptionedImage], *, count: int, seed: int
    ) -> tuple[Examples[CaptionedImage], Examples[CaptionedImage]]:
        """All captions of an image are on one side."""
        return split(examples, count=count, seed=seed, group=same_picture)

    def texts(self, examples: Sequence[CaptionedImage]) -> Iterable[str]:
        """The captions."""
        return (example.caption for example in examples)

    def details(self, examples: Sequence[CaptionedImage]) -> dict[str, Any]:
        """What the images have in common."""
        return measured(examples)

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """An encoder of patches, and a decoder that looks at them."""
        settings = image_settings(preset.settings_for(tokenizer), details)
        return RegardForImageCaptioning(RegardCaptionConfig(**settings))

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """Size, channels, mean and spread of the images it reads.

        Raises:
            ConfigError: it is no model that reads an image and writes with it in view.
        """
        if model.config.model_type not in _KNOWN:
            expected = f"one of the kinds {' and '.join(_KNOWN)}"
            raise ConfigError(message("train", must_be("model", expected, f"a {model.config.model_type}")))
        return form_of(_image_config(model), checkpoint, details)

    def data(self, trained: Trained, examples: Examples[CaptionedImage], *, seed: int = 0) -> tuple[TrainData, int]:
        """Pixels, and the ids of captions, each with its end; and how many are too long."""
        form, grid = ImageForm.of(trained.info.details), grid_of(_image_config(trained.model)) or 1
        written = [caption_ids(trained, example.caption) for example in examples]
        kept = [index for index, ids in enumerate(written) if len(ids) <= trained.info.max_tokens]
        places = [str(examples.places[index]) for index in kept]
        start, fill, unknown = start_id(trained.model), _fill(trained), trained.tokenizer.unk_token_id
        end = end_id(trained)

        def collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
            labels = padded([row["labels"] for row in rows], fill=IGNORED)
            read = shifted_right(labels, start=start, pad_id=fill)
            # A word that the vocabulary lacks is nothing to learn to write.
            lacking = (labels == unknown) & (labels != end) if unknown is not None else torch.zeros_like(labels).bool()
            return {"decoder_input_ids": read, "labels": labels.masked_fill(lacking, IGNORED)}

        data = ImageData(
            form.read([examples[index] for index in kept], names=places),
            [{"labels": written[index]} for index in kept],
            [(grid**2, len(written[index])) for index in kept],
            form=form,
            collate=collate,
            places=places,
            changes=Changes.usual(form.image_size),
            seed=seed,
        )
        return data, len(examples) - len(kept)

    def objective(self, trained: Trained, *, label_smoothing: float) -> NextToken:
        """Cross-entropy of every token of the caption."""
        return NextToken(label_smoothing)

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Description]:
        """A sentence about each image.

        Args:
            trained: The model.
            inputs: Paths of images, or uint8 pixels [height, width] or [height, width, channels].
            **options: ``num_beams`` (5), ``max_new_tokens``, ``length_penalty`` and what else ``generate`` takes.
        """
        form, found = ImageForm.of(trained.info.details), list[Written]()
        pictures = [picture_of(given) for given in inputs]
        for start in range(0, len(pictures), _BATCH):
            found += _generate(trained, form.tensor(form.read(pictures[start : start + _BATCH])), options)
        return [Description(written.text) for written in found]

    def evaluate(self, trained: Trained, examples: Examples[CaptionedImage], **options: Any) -> Report:
        """The share of captions that are exactly one of the image's own, and BLEU against all of them."""
        own: dict[str | bytes, list[int]] = {}
        for index, example in enumerate(examples):
            own.setdefault(same_picture(example), []).append(index)
        firsts = [indices[0] for indices in own.values()]
        wanted = [[examples[index].caption for index in indices] for indices in own.values()]
        said = [one.text for one in self.predict(trained, [examples[index] for index in firsts], **options)]
        exact = fmean(_plain(one) in map(_plain, texts) for one, texts in zip(said, wanted, strict=True))
        found = bleu(said, wanted)
        listed = [
            Example(named(examples[index], str(place)), "\n".join(texts), one, score, str(place))
            for index, texts, one, score in zip(firsts, wanted, said, found.segments, strict=True)
            for place in [examples.places[index]]
        ]
        lines = (f"exact match {exact:.4f} ({len(listed):,} images, {len(examples):,} captions)", str(found))
        return Report(self.name, len(listed), {"exact_match": exact, "bleu": found.as_dict()}, lines, tuple(listed))

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Description, records.Recording]:
        """A sentence about one image, and which patches the model looked at for every token of it."""
        written, pixels, ids = _written(trained, given, options)
        sequence = continuation(trained.tokenizer, ids, name="caption")

        run = _reading_again(trained, pixels, ids)
        recording = watched_image(trained, run, _image_config(trained.model), written=sequence, notes=(_NOTE,))
        words = continuation(trained.tokenizer, ids[1:], name="caption")
        return Description(written.text), replace(recording, tables=_tables(trained, run, words))


def _reading_again(trained: Trained, pixels: torch.Tensor, ids: Sequence[int]) -> Callable[[], Any]:
    """A run of the model on an image and all of what it wrote."""
    inputs = {PIXELS: pixels, "decoder_input_ids": torch.tensor([ids])}
    return partial(trained.model, **inputs, use_cache=False)


def _tables(trained: Trained, run: Callable[[], Any], words: records.Sequence) -> tuple[records.Table, ...]:
    """Every word of a caption with the patches that were looked at; none of a model that does not name its patches."""
    grid = grid_of(_image_config(trained.model))
    weights = patch_weights(trained.model, run, grid=grid)
    if grid is None or not weights:
        return ()
    maps = map_words(weights, grid=grid, written=words)
    if not maps:
        return ()
    table = records.Table(
        name="Words and patches",
        note=f"Where the model looked when it wrote each word: its cross-attention, {MEAN}.",
        rows=tuple(one.word for one in maps),
        columns=tuple(patch.text for patch in patch_sequence(grid).tokens),
        values=np.stack([one.weights.reshape(-1) for one in maps]),
        grid=(grid, grid),
    )
    return (table,)


def word_maps(
    trained: Trained, given: Any, *, caption: str | None = None, layer: int | None = None, **options: Any
) -> list[WordMap]:
    """Where the model looked when it wrote each word of a caption: its cross-attention, a mean over heads.

    Args:
        trained: The model.
        given: The image, as for ``predict``.
        caption: The words; by default those the model writes.
        layer: Which layer of the decoder, from 0, or from −1 for the last; a mean over all by default.
        **options: Of ``predict``.

    Returns:
        Every word with its map. A word of several tokens has their mean; words that share a token, which the word
        tokenizer never makes, are one.

    Raises:
        ConfigError: the model does not cut images into patches, or there is no such layer.
    """
    if caption is None:
        _, pixels, ids = _written(trained, given, options)
        words = continuation(trained.tokenizer, ids[1:], name="caption")
    else:
        form = ImageForm.of(trained.info.details)
        pixels = form.tensor(form.read([picture_of(given)]))
        read = tokenize(trained.tokenizer, caption, name="caption", add_special_tokens=False)
        ids, words = [start_id(trained.model), *read.ids], read.sequence

    grid = grid_of(_image_config(trained.model))
    weights = patch_weights(trained.model, _reading_again(trained, pixels, ids), grid=grid)
    if grid is None or not weights:
        raise ConfigError(message("word_maps", "the model must look at the patches of an image, but does not."))
    if layer is not None and not -len(weights) <= layer < len(weights):
        expected = f"from {-len(weights)} to {len(weights) - 1}, or None"
        raise ConfigError(message("word_maps", must_be("layer", expected, layer)))
    # A row belongs to the token that was read last: what it wrote is the next.
    return map_words(weights if layer is None else [weights[layer]], grid=grid, written=words)


def caption_ids(trained: Trained, caption: str) -> list[int]:
    """The ids of a caption and its end."""
    text = without_lone_surrogates(caption)[0]
    ids: list[int] = trained.tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids
    return [*ids, end_id(trained)]


def end_id(trained: Trained) -> int:
    """The token that ends a caption.

    Raises:
        ConfigError: the tokenizer has none.
    """
    for name in ("eos_token_id", "sep_token_id"):
        if (found := getattr(trained.tokenizer, name, None)) is not None:
            return int(found)
    raise ConfigError(
        message("train", f"{trained.name} must have a token that ends a text, but its tokenizer has none.")
    )


def _fill(trained: Trained) -> int:
    """What fills captions up, behind their end."""
    found = trained.tokenizer.pad_token_id
    return end_id(trained) if found is None else int(found)


def _image_config(model: Any) -> Any:
    """The settings of the part that reads images."""
    return getattr(model.config, "encoder", model.config)


def _written(trained: Trained, given: Any, options: Mapping[str, Any]) -> tuple[Written, torch.Tensor, list[int]]:
    """What is written about one image: the words, the pixels, and the ids up to the end."""
    form = ImageForm.of(trained.info.details)
    pixels = form.tensor(form.read([picture_of(given)]))
    written = _generate(trained, pixels, options)[0]
    end, ids = end_id(trained), list(written.ids)
    return written, pixels, ids[: ids.index(end, 1) + 1] if end in ids[1:] else ids


def _generate(trained: Trained, pixels: torch.Tensor, options: Mapping[str, Any]) -> list[Written]:
    chosen = {
        "num_beams": 5,
        "max_new_tokens": trained.info.max_tokens - 1,
        "decoder_start_token_id": start_id(trained.model),
        "eos_token_id": end_id(trained),
        "pad_token_id": _fill(trained),
        **options,
    }
    return read_back(trained.tokenizer, generated(trained.model, {PIXELS: pixels}, chosen).tolist())


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
