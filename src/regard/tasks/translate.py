"""Texts in one language to texts in another, or any text to any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard import records
from regard.tasks.architectures import ARCHITECTURE, TRANSFORMER, TRANSLATORS, Architecture
from regard.tasks.report import Example, Report
from regard.tasks.task import Preset, Task, files_of
from regard.tasks.trained import Trained
from regard.tasks.writing import new_writer, observe_writing, write, writing_data
from regard.text import Examples, ReadOptions, TextPair, linked, read_pairs, split
from regard.train.data import TrainData
from regard.train.metrics import bleu, chrf
from regard.train.objective import NextToken

_TRAINING = {"label_smoothing": 0.1}


def _recurrent(layers: int, widths: Mapping[str, tuple[int, int]]) -> dict[str, Mapping[str, Any]]:
    """Settings of the recurrent architectures: of each the widths of embeddings and of the decoder's state."""
    depth = {"encoder_layers": layers, "decoder_layers": layers}
    return {
        name: {"embed_dim": embed_dim, "hidden_dim": hidden_dim, **depth}
        for name, (embed_dim, hidden_dim) in widths.items()
    }


@dataclass(frozen=True)
class Translation:
    """What a source became.

    Args:
        text: The target.
    """

    text: str

    def __str__(self) -> str:
        return self.text


class Translate(Task[TextPair, Translation]):
    """A target for a source."""

    name: ClassVar[str] = "translate"
    summary: ClassVar[str] = "texts from one language to another"
    auto: ClassVar[str] = "AutoModelForSeq2SeqLM"
    choices: ClassVar[Mapping[str, Any]] = {ARCHITECTURE: TRANSFORMER}
    architectures: ClassVar[Mapping[str, Architecture]] = TRANSLATORS
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {"embed_dim": 128, "num_heads": 4, "num_layers": 2, "ff_dim": 256, "dropout_p": 0.1},
            vocab_size=4000,
            training={**_TRAINING, "batch_tokens": 2000, "learning_rate": 2e-3, "warmup": 200, "epochs": 10},
            max_tokens=256,
            others=_recurrent(
                1,
                {
                    "lstm": (96, 196),
                    "lstm-additive": (88, 176),
                    "lstm-dot": (88, 184),
                    "gru": (104, 204),
                    "gru-additive": (96, 180),
                    "gru-dot": (96, 192),
                },
            ),
        ),
        "small": Preset(
            {"embed_dim": 256, "num_heads": 8, "num_layers": 3, "ff_dim": 1024, "dropout_p": 0.3},
            vocab_size=8000,
            training={
                **_TRAINING,
                "batch_tokens": 3000,
                "learning_rate": 1e-3,
                "warmup": 500,
                "schedule": "cosine",
                "epochs": 30,
            },
            max_tokens=512,
            others=_recurrent(
                2,
                {
                    "lstm": (208, 416),
                    "lstm-additive": (192, 396),
                    "lstm-dot": (200, 396),
                    "gru": (232, 456),
                    "gru-additive": (216, 428),
                    "gru-dot": (216, 440),
                },
            ),
        ),
        "base": Preset(
            {"embed_dim": 512, "num_heads": 8, "num_layers": 6, "ff_dim": 2048, "dropout_p": 0.1},
            vocab_size=16000,
            training={
                **_TRAINING,
                "batch_tokens": 8000,
                "learning_rate": 7e-4,
                "warmup": 4000,
                "epochs": 20,
            },
            max_tokens=512,
            others=_recurrent(
                2,
                {
                    "lstm": (584, 1172),
                    "lstm-additive": (544, 1100),
                    "lstm-dot": (552, 1112),
                    "gru": (648, 1308),
                    "gru-additive": (608, 1208),
                    "gru-dot": (616, 1232),
                },
            ),
        ),
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {**Task.fine_tuning, "batch_tokens": 2000, "epochs": 3}

    def read(self, data: Any, options: ReadOptions) -> Examples[TextPair]:
        """A table with two columns, or two files whose lines belong together.

        Raises:
            ConfigError: more than two files.
        """
        files = files_of(data, counts=(1, 2), expected="a table, or two files whose lines belong together")
        return read_pairs(files, options=options)

    def divide(
        self, examples: Examples[TextPair], *, count: int, seed: int
    ) -> tuple[Examples[TextPair], Examples[TextPair]]:
        """No sentence, of either language, is on both sides."""
        return split(examples, count=count, seed=seed, group=linked(examples))

    def texts(self, examples: Sequence[TextPair]) -> Iterable[str]:
        """Sources and targets: they share one vocabulary."""
        for example in examples:
            yield example.source
            yield example.target

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """The Transformer, with one table of embeddings; or a recurrent encoder–decoder."""
        chosen = details[ARCHITECTURE]
        if chosen == TRANSFORMER:
            return new_writer(preset, tokenizer)
        return self.architectures[chosen].new(preset.settings_for(tokenizer, chosen))

    def data(self, trained: Trained, examples: Examples[TextPair], *, seed: int = 0) -> tuple[TrainData, int]:
        """Ids of source and target."""
        sources, targets = [example.source for example in examples], [example.target for example in examples]
        return writing_data(trained, sources, targets, examples.places)

    def objective(self, trained: Trained, *, label_smoothing: float) -> NextToken:
        """Cross-entropy of every token of the target."""
        return NextToken(label_smoothing)

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Translation]:
        """The target of each source.

        Args:
            trained: The model.
            inputs: Sources; longer ones than the model reads lose their end.
            **options: ``num_beams`` (5), ``max_new_tokens``, ``length_penalty`` and what else ``generate`` takes.
        """
        return [Translation(written.text) for written in write(trained, inputs, **options)]

    def evaluate(self, trained: Trained, examples: Examples[TextPair], **options: Any) -> Report:
        """BLEU and chrF, with their signatures."""
        said = [one.text for one in self.predict(trained, [example.source for example in examples], **options)]
        wanted = [example.target for example in examples]
        total, characters = bleu(said, wanted), chrf(said, wanted)
        listed = [
            Example(example.source, example.target, one, score, str(place))
            for example, one, score, place in zip(examples, said, characters.segments, examples.places, strict=True)
        ]
        figures = {"bleu": total.as_dict(), "chrf": characters.as_dict()}
        return Report(self.name, len(listed), figures, (str(total), str(characters)), tuple(listed))

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Translation, records.Recording]:
        """The target of one source, and where every token of it looked."""
        written, recording = observe_writing(trained, given, **options)
        return Translation(written.text), recording
