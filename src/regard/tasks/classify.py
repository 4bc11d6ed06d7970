"""Classes of texts: sentiment, topics, whether one sentence follows from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from regard import records
from regard.errors import ConfigError, message, must_be
from regard.hf import RegardEncoderConfig, RegardForSequenceClassification
from regard.tasks.architectures import ARCHITECTURE, CLASSIFIERS, TRANSFORMER, Architecture
from regard.tasks.encoding import batched, collate, cut, encode
from regard.tasks.explaining import explain_class
from regard.tasks.hiding import HidingData
from regard.tasks.report import Example, Report
from regard.tasks.task import Preset, Task, check_no_options, fitting, is_pair
from regard.tasks.trained import Trained
from regard.tasks.watching import reading_of, watched
from regard.text import Examples, Labelled, Place, ReadOptions, read_labelled
from regard.train.data import TrainData
from regard.train.metrics import classification
from regard.train.objective import OneClass

_SHAPE = {"positions": "learned", "pooling": "max", "num_segments": 2}
_HIDDEN = 0.5  # of the words, from a model that begins with nothing: it must not rest on a few that it knows by heart
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Class:
    """What a text was taken for.

    Args:
        label: The class.
        probability: Of that class.
        probabilities: Of every class.
    """

    label: str
    probability: float
    probabilities: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.label}\t{self.probability:.3f}"


class Classify(Task[Labelled, Class]):
    """A class for a text, or for a pair of texts."""

    name: ClassVar[str] = "classify"
    summary: ClassVar[str] = "texts into classes: sentiment, topics, pairs"
    auto: ClassVar[str] = "AutoModelForSequenceClassification"
    choices: ClassVar[Mapping[str, Any]] = {ARCHITECTURE: TRANSFORMER}
    architectures: ClassVar[Mapping[str, Architecture]] = CLASSIFIERS
    pairs: ClassVar[bool] = True
    two_texts: ClassVar[bool] = True
    tokenizer: ClassVar[str | None] = "word"  # what a class hangs on is a word, or in Chinese a character
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {**_SHAPE, "embed_dim": 64, "num_heads": 2, "num_layers": 1, "ff_dim": 128, "dropout_p": 0.1},
            vocab_size=2000,
            training={"batch_rows": 32, "learning_rate": 2e-3, "warmup": 50, "epochs": 10, "patience": 3},
            max_tokens=256,
            others={
                "bilstm": {"embed_dim": 64, "hidden_dim": 52, "num_layers": 1},
                "cnn": {"embed_dim": 64, "num_filters": 64},
            },
        ),
        "small": Preset(
            {**_SHAPE, "embed_dim": 128, "num_heads": 4, "num_layers": 2, "ff_dim": 256, "dropout_p": 0.4},
            vocab_size=16000,
            training={"batch_rows": 50, "learning_rate": 1e-3, "warmup": 100, "epochs": 15, "patience": 4},
            max_tokens=512,
            others={
                "bilstm": {"embed_dim": 128, "hidden_dim": 148, "num_layers": 1},
                "cnn": {"embed_dim": 128, "num_filters": 214},
            },
        ),
        "base": Preset(
            {**_SHAPE, "embed_dim": 256, "num_heads": 8, "num_layers": 4, "ff_dim": 1024, "dropout_p": 0.3},
            vocab_size=16000,
            training={"batch_rows": 64, "learning_rate": 5e-4, "warmup": 400, "epochs": 15, "patience": 4},
            max_tokens=512,
            others={
                "bilstm": {"embed_dim": 256, "hidden_dim": 288, "num_layers": 2},
                "cnn": {"embed_dim": 256, "num_filters": 1068},
            },
        ),
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {**Task.fine_tuning, "batch_rows": 32, "epochs": 3}

    def read(self, data: Any, options: ReadOptions) -> Examples[Labelled]:
        """A table with texts and labels, fastText's form, a file or a folder for each label."""
        return read_labelled(data, options=options)

    def texts(self, examples: Sequence[Labelled]) -> Iterable[str]:
        """First and second texts."""
        for example in examples:
            yield example.text
            if example.pair is not None:
                yield example.pair

    def details(self, examples: Sequence[Labelled]) -> dict[str, Any]:
        """The labels, in the order in which the file has them.

        Raises:
            ConfigError: there is one class only.
        """
        return {"labels": distinct_labels([example.label for example in examples])}

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """An encoder, and a linear map of the highest of its states; or an LSTM from both ends, or convolutions."""
        chosen = details[ARCHITECTURE]
        settings = {**preset.settings_for(tokenizer, chosen), **named_classes(details["labels"])}
        if chosen != TRANSFORMER:
            return self.architectures[chosen].new(settings)
        return RegardForSequenceClassification(RegardEncoderConfig(**settings))

    def data(self, trained: Trained, examples: Examples[Labelled], *, seed: int = 0) -> tuple[TrainData, int]:
        """Ids, and the number of the label.

        Raises:
            ConfigError: a label is none of the model's.
        """
        numbers = label_numbers(trained, [example.label for example in examples])
        read = self._read(trained, [(example.text, example.pair) for example in examples])
        rows = [{**row, "labels": number} for row, number in zip(read, numbers, strict=True)]
        kept, tokenizer = fitting(rows, trained.info.max_tokens), trained.tokenizer
        data = HidingData(
            [rows[index] for index in kept],
            [(len(read[index]["input_ids"]),) for index in kept],
            lambda batch: collate(batch, tokenizer),
            [str(examples.places[index]) for index in kept],
            share=trained.info.details.get("hidden", 0.0) if tokenizer.unk_token_id is not None else 0.0,
            unknown=tokenizer.unk_token_id or 0,
            kept=tokenizer.all_special_ids,
            seed=seed,
        )
        return data, len(rows) - len(kept)

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """What share of the words is hidden while it learns: of a model that was trained before none."""
        return {**super().details_of(model, checkpoint, details), "hidden": 0.0 if checkpoint else _HIDDEN}

    def objective(self, trained: Trained, *, label_smoothing: float) -> OneClass:
        """Cross-entropy of the right class; rounds are compared by accuracy."""
        return OneClass(label_smoothing)

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Class]:
        """The class of each text, or pair of texts.

        Args:
            trained: The model.
            inputs: Texts, or pairs of them; longer ones than the model reads lose their end.
            **options: None.

        Raises:
            ConfigError: an input is neither a text nor a pair of texts, or there is an option.
        """
        check_no_options(options, of=self.name)
        pairs = [_pair(given) for given in inputs]
        rows = [cut(row, trained.info.max_tokens) for row in self._read(trained, pairs)]

        @torch.no_grad()
        def run(batch: list[int]) -> list[Class]:
            read = collate([rows[index] for index in batch], trained.tokenizer)
            logits = trained.model(**read).logits.float()
            return [class_of(row, trained.info.labels) for row in logits.softmax(dim=-1).tolist()]

        return batched(rows, batch_tokens=_BATCH_TOKENS, run=run)

    def evaluate(self, trained: Trained, examples: Examples[Labelled], **options: Any) -> Report:
        """Accuracy, F1 and the table of confusions."""
        asked = [example.text if example.pair is None else (example.text, example.pair) for example in examples]
        said = self.predict(trained, asked, **options)
        given = [example.text if example.pair is None else f"{example.text}\n{example.pair}" for example in examples]
        return class_report(trained, said, given, [example.label for example in examples], examples.places)

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Class, records.Recording]:
        """The class of one text, and where the model looked.

        Raises:
            ConfigError: as for ``predict``, or the model has no attention.
        """
        (said,) = self.predict(trained, [given], **options)
        text, pair = _pair(given)
        read = reading_of(trained, text, pair=pair)
        run = partial(trained.model, **read.inputs)
        length = len(read.sequence.tokens)
        return said, watched(trained, run, [(read.sequence,)], length=length, notes=read.notes)

    def explain(self, trained: Trained, given: Any, **options: Any) -> tuple[Class, records.Explanation]:
        """The class of one text, and which words its probability depends on.

        Raises:
            ConfigError: as for ``predict``; the text has no words, or there is nothing to put in the place of one.
        """
        (said,) = self.predict(trained, [given], **options)
        text, pair = _pair(given)
        return said, explain_class(trained, reading_of(trained, text, pair=pair), said.label)

    def _read(self, trained: Trained, pairs: Sequence[tuple[str, str | None]]) -> list[dict[str, list[int]]]:
        """Texts and pairs of texts, each as if it were alone."""
        twos = [(first, second) for first, second in pairs if second is not None]
        alone = iter(encode(trained.tokenizer, [first for first, second in pairs if second is None]))
        both = iter(encode(trained.tokenizer, [first for first, _ in twos], [second for _, second in twos]))
        return [next(alone if second is None else both) for _, second in pairs]


def distinct_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Every label once, in the order in which they come.

    Raises:
        ConfigError: there is one class only.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        only = f"all {len(labels)} examples are {next(iter(counts))!r}" if counts else "there are no examples"
        raise ConfigError(message("train", f"the data must have at least two classes, but {only}."))
    return tuple(counts)


def named_classes(labels: Sequence[str]) -> dict[str, Any]:
    """What the configuration of a model says about its classes."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}


def label_numbers(trained: Trained, labels: Sequence[str]) -> list[int]:
    """The model's number for every label.

    Raises:
        ConfigError: a label is none of the model's.
    """
    numbers = {label: index for index, label in enumerate(trained.info.labels)}
    unknown = sorted(set(labels) - set(numbers))
    if unknown:
        problem = f"the data must have the labels {', '.join(numbers)}, but has {', '.join(unknown)} too."
        raise ConfigError(message("train", problem))
    return [numbers[label] for label in labels]


def class_report(
    trained: Trained, said: Sequence[Class], given: Sequence[str], wanted: Sequence[str], places: Sequence[Place]
) -> Report:
    """Accuracy, F1 and the table of confusions; classes that only the examples have are in it."""
    labels = list(dict.fromkeys([*trained.info.labels, *wanted]))
    found = classification([one.label for one in said], wanted, labels=labels)
    listed = [
        Example(text, label, one.label, one.probabilities.get(label, 0.0), str(place))
        for text, label, one, place in zip(given, wanted, said, places, strict=True)
    ]
    lines = tuple(str(found).split("\n"))
    return Report(trained.info.task, len(listed), found.as_dict(), lines, tuple(listed))


def class_of(probabilities: Sequence[float], labels: Sequence[str]) -> Class:
    """The likeliest class, of equal ones the first."""
    by_label = dict(zip(labels, probabilities, strict=True))
    label = max(by_label, key=by_label.__getitem__)
    return Class(label, by_label[label], by_label)


def _pair(given: Any) -> tuple[str, str | None]:
    """A text, or two of them."""
    if isinstance(given, str):
        return given, None
    if is_pair(given):
        return given[0], given[1]
    raise ConfigError(message("predict", must_be("inputs", "texts, or pairs of texts", f"{given!r:.80}")))
