"""Short texts for long ones: by choosing sentences that carry weight, or by writing new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch

from regard import records
from regard.errors import ConfigError, all_problems, message, must_be
from regard.hf import RegardEncoderConfig, RegardForTokenClassification
from regard.tasks.encoding import batched, collate
from regard.tasks.extracts import NUMBERED, Sentences, Stretch, stretches
from regard.tasks.report import Example, Report
from regard.tasks.task import Preset, Task, count_problems, files_of, unknown_options
from regard.tasks.trained import Trained
from regard.tasks.watching import watched
from regard.tasks.writing import new_writer, observe_writing, write, writing_data
from regard.text import Document, Examples, ReadOptions, joined, read_documents, sentences
from regard.train.baselines import extractive_oracle, lead, oracle_sentences
from regard.train.data import RowData, TrainData
from regard.train.metrics import rouge
from regard.train.objective import NextToken, Objective, OneClassOfParts, mean_of_parts

_BATCH_TOKENS = 8192
_HEADS = {"extractive": "AutoModelForTokenClassification", "abstractive": "AutoModelForSeq2SeqLM"}
_CHOOSES = {"positions": "learned", "num_segments": NUMBERED}
_TOKENS_OF_A_CHARACTER, _SPECIAL = 3, 4  # the most: of Chinese in bytes, and what stands around a text
_WRITING = {"no_repeat_ngram_size": 3}  # a summary says nothing twice


@dataclass(frozen=True)
class Weighed:
    """A sentence of a document.

    Args:
        text: The sentence.
        weight: The probability that it belongs to a summary, as the model sees it.
        chosen: Whether it is part of this one.
    """

    text: str
    weight: float
    chosen: bool


@dataclass(frozen=True)
class Summary:
    """A document in short.

    Args:
        text: The summary.
        sentences: All sentences of the document, for one that was chosen from them; else nothing.
    """

    text: str
    sentences: tuple[Weighed, ...] = ()

    def __str__(self) -> str:
        return self.text


class Summarize(Task[Document, Summary]):
    """A short text for a long one."""

    name: ClassVar[str] = "summarize"
    summary: ClassVar[str] = "long texts into short ones: their sentences of most weight, or new ones"
    auto: ClassVar[str] = _HEADS["extractive"]
    pairs: ClassVar[bool] = True  # sentences have numbers
    lines: ClassVar[bool] = False
    choices: ClassVar[Mapping[str, Any]] = {"style": "extractive"}
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {"embed_dim": 64, "num_heads": 2, "num_layers": 2, "ff_dim": 128, "dropout_p": 0.1},
            vocab_size=2000,
            training={"learning_rate": 2e-3, "warmup": 100, "epochs": 10, "patience": 3},
            max_tokens=512,
        ),
        "small": Preset(
            {"embed_dim": 128, "num_heads": 4, "num_layers": 2, "ff_dim": 256, "dropout_p": 0.3},
            vocab_size=8000,
            training={"learning_rate": 1e-3, "warmup": 200, "epochs": 20, "patience": 4},
            max_tokens=512,
        ),
        "base": Preset(
            {"embed_dim": 256, "num_heads": 8, "num_layers": 4, "ff_dim": 1024, "dropout_p": 0.3},
            vocab_size=16000,
            training={"batch_tokens": 8192, "learning_rate": 5e-4, "warmup": 400, "epochs": 20, "patience": 4},
            max_tokens=512,
        ),
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {**Task.fine_tuning, "batch_tokens": 4096, "epochs": 3}

    def read(self, data: Any, options: ReadOptions) -> Examples[Document]:
        """A table or JSON Lines with texts and summaries.

        Raises:
            ConfigError: several files.
        """
        return read_documents(files_of(data), options=options)

    def texts(self, examples: Sequence[Document]) -> Iterable[str]:
        """Documents and summaries: they share one vocabulary."""
        for example in examples:
            yield example.text
            yield from example.summaries

    def details(self, examples: Sequence[Document]) -> dict[str, Any]:
        """How many sentences summaries have, and how many characters the longest has."""
        written = [summary for example in examples for summary in example.summaries]
        usual = fmean(max(1, len(sentences(summary))) for summary in written) if written else 1
        return {"count": round(usual), "longest": max(map(len, written), default=0)}

    def head(self, details: Mapping[str, Any]) -> str:
        """Classes of tokens, or a decoder.

        Raises:
            ConfigError: the style is none of the two.
        """
        if details["style"] not in _HEADS:
            expected = " or ".join(f'"{style}"' for style in _HEADS)
            raise ConfigError(message("train", must_be("style", expected, repr(details["style"]))))
        return _HEADS[details["style"]]

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """An encoder with a linear map of every state, or the Transformer."""
        if details["style"] == "abstractive":
            return new_writer(preset, tokenizer)
        settings = {**preset.settings_for(tokenizer), **_CHOOSES, "num_labels": 2}
        return RegardForTokenClassification(RegardEncoderConfig(**settings))

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """Whether it is told the numbers of sentences: models that began with nothing are.

        Raises:
            ConfigError: it has other classes than two.
        """
        if details["style"] == "abstractive":
            return {}
        if model.config.num_labels != 2:
            problem = must_be(
                "model", "one that tells two classes of tokens apart", f"one of {model.config.num_labels}"
            )
            raise ConfigError(message("train", problem))
        own = model.config.model_type == RegardEncoderConfig.model_type
        return {"numbered": own and model.config.num_segments == NUMBERED}

    def data(self, trained: Trained, examples: Examples[Document], *, seed: int = 0) -> tuple[TrainData, int]:
        """Stretches of documents, with the class of every sentence; or the ids of documents and summaries.

        A sentence belongs to the summary where it is one of ``oracle_sentences``. No document is too long to choose
        from; to write about, it can be. Of several summaries the first is written.
        """
        if _style(trained) == "abstractive":
            texts, summaries = [one.text for one in examples], [one.summaries[0] for one in examples]
            return writing_data(trained, texts, summaries, examples.places)
        rows, places, left_out = list[dict[str, Any]](), list[str](), 0
        for example, place in zip(examples, examples.places, strict=True):
            document = Sentences.of(example.sentences or example.text)
            right = oracle_sentences(document.listed, example.summaries, count=trained.info.details["count"])
            found = _stretches(trained, document)
            left_out += not found
            for one in found:
                labels = [int(number in right) for number in range(one.first, one.first + one.count)]
                rows.append({**one.row, "parts": one.parts, "labels": labels})
                places.append(str(place))
        lengths = [(len(row["input_ids"]),) for row in rows]
        return RowData(rows, lengths, lambda batch: collate(batch, trained.tokenizer), places), left_out

    def objective(self, trained: Trained, *, label_smoothing: float) -> Objective:
        """Cross-entropy of the class of every sentence, or of every token of the summary."""
        return NextToken(label_smoothing) if _style(trained) == "abstractive" else OneClassOfParts(label_smoothing)

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Summary]:
        """The summary of each document.

        Args:
            trained: The model.
            inputs: Texts of any length, or lists of their sentences. One that writes reads their beginning only, as
                far as it can.
            **options: ``count``, the sentences that are chosen (as many as the summaries it learned from have); for a
                model that writes ``num_beams`` (5), ``max_new_tokens``, ``length_penalty`` and what else ``generate``
                takes.

        Raises:
            ConfigError: an option is none of these, or an input neither a text nor sentences.
        """
        documents = [_document(given) for given in inputs]
        if _style(trained) == "abstractive":
            texts = [document.text for document in documents]
            return [Summary(written.text) for written in write(trained, texts, **_writing(trained, options))]
        count = _count(trained, options)
        weights = _weights(trained, [_stretches(trained, document) for document in documents])
        return [_chosen(document, found, count) for document, found in zip(documents, weights, strict=True)]

    def evaluate(self, trained: Trained, examples: Examples[Document], **options: Any) -> Report:
        """ROUGE, and beside it that of the first sentences, and the most that choosing can reach."""
        documents = [example.sentences or example.text for example in examples]
        said = [one.text for one in self.predict(trained, documents, **options)]
        wanted, count = [example.summaries for example in examples], _asked_or_usual(trained, options)
        listed = [Sentences.of(document).listed for document in documents]
        found = rouge(said, wanted)
        first = rouge([lead(one, count) for one in listed], wanted)
        bound = rouge(
            [extractive_oracle(one, each, count=count) for one, each in zip(listed, wanted, strict=True)], wanted
        )
        figures = {
            "rouge": found.as_dict(),
            "baseline": {"name": f"lead-{count}", **first.as_dict()},
            "oracle": bound.as_dict(),
        }
        lines = [
            *str(found).split("\n"),
            f"without a model, the first {count} of the sentences:",
            *(f"  {line}" for line in str(first).split("\n")),
            f"at most, choosing {count} with the summaries in view:",
            *(f"  {line}" for line in str(bound).split("\n")),
        ]
        rows = [
            Example(example.text, " | ".join(example.summaries), one, score, str(place))
            for example, one, score, place in zip(examples, said, found.rouge_l.segments, examples.places, strict=True)
        ]
        return Report(self.name, len(rows), figures, tuple(lines), tuple(rows))

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Summary, records.Recording]:
        """The summary of one document, and where the model looked.

        Of a long document that sentences are chosen from, the stretch with the sentence of most weight is shown.

        Raises:
            ConfigError: as for ``predict``, or the document has no sentences.
        """
        document = _document(given)
        if not document.listed:
            raise ConfigError(message("observe", "the document must have something in it, but is empty."))
        if _style(trained) == "abstractive":
            written, recording = observe_writing(trained, document.text, **_writing(trained, options))
            return Summary(written.text), recording
        count, found = _count(trained, options), _stretches(trained, document)
        (weights,) = _weights(trained, [found])
        best = max(range(len(weights)), key=weights.__getitem__)
        shown = next(one for one in found if best < one.first + one.count)
        summary = _chosen(document, weights, count)
        recording = watched(
            trained,
            lambda: trained.model(**{name: torch.tensor([ids]) for name, ids in shown.row.items()}),
            [(shown.sequence,)],
            length=len(shown.parts),
            notes=_notes(summary, found, shown),
        )
        return summary, replace(recording, tables=(_table(summary),))


def _style(trained: Trained) -> str:
    return str(trained.info.details["style"])


def _document(given: Any) -> Sentences:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
        problem = must_be("inputs", "texts, or lists of their sentences", f"{given!r:.80}")
        raise ConfigError(message("predict", problem))
    return Sentences.of(given)


def _count(trained: Trained, options: Mapping[str, Any]) -> int:
    """How many sentences are chosen; all options are checked."""
    problems = unknown_options(options, ("count",), of="summaries that are chosen")
    problems += count_problems(options, ("count",))
    if problems:
        raise all_problems("predict", problems)
    return _asked_or_usual(trained, options)


def _asked_or_usual(trained: Trained, options: Mapping[str, Any]) -> int:
    """As many sentences as are asked for, or as the summaries have that were learned from."""
    asked = options.get("count")
    return int(trained.info.details["count"] if asked is None else asked)


def _writing(trained: Trained, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a summary is written: no longer than those that were learned from."""
    if options.get("count") is not None:
        problem = must_be(
            "count", "for summaries that are chosen, not written; max_new_tokens limits these", options["count"]
        )
        raise ConfigError(message("predict", problem))
    longest = _TOKENS_OF_A_CHARACTER * trained.info.details["longest"] + _SPECIAL
    return {**_WRITING, "max_new_tokens": min(longest, trained.info.max_tokens - 1), **options}


def _stretches(trained: Trained, document: Sentences) -> list[Stretch]:
    limit, numbered = trained.info.max_tokens, trained.info.details["numbered"]
    return stretches(trained.tokenizer, document, max_tokens=limit, numbered=numbered)


def _weights(trained: Trained, documents: Sequence[Sequence[Stretch]]) -> list[list[float]]:
    """The weight of every sentence of every document."""
    every = [one for found in documents for one in found]

    @torch.no_grad()
    def run(batch: list[int]) -> list[list[float]]:
        chosen = [every[index] for index in batch]
        read = collate([{**one.row, "parts": one.parts} for one in chosen], trained.tokenizer)
        parts = read.pop("parts")
        logits = mean_of_parts(trained.model(**read).logits.float(), parts, max(one.count for one in chosen))
        weights = logits.softmax(dim=-1)[..., 1].tolist()
        return [row[: one.count] for row, one in zip(weights, chosen, strict=True)]

    found = iter(batched([one.row for one in every], batch_tokens=_BATCH_TOKENS, run=run))
    return [[weight for _ in stretched for weight in next(found)] for stretched in documents]


def _chosen(document: Sentences, weights: Sequence[float], count: int) -> Summary:
    """The sentences of most weight, in the order of the document; of equals the first."""
    best = sorted(range(len(weights)), key=lambda number: -weights[number])[:count]
    listed = zip(document.listed, weights, strict=True)
    weighed = tuple(Weighed(text, weight, number in best) for number, (text, weight) in enumerate(listed))
    return Summary(joined(one.text for one in weighed if one.chosen), weighed)


def _table(summary: Summary) -> records.Table:
    """Every sentence with its weight."""
    return records.Table(
        name="Sentences",
        note="The probability that a sentence belongs to the summary; ✓ marks those that were chosen.",
        rows=("weight",),
        ordered=True,
        columns=tuple(one.text for one in summary.sentences),
        values=np.array([[one.weight for one in summary.sentences]]),
        chosen=tuple(number for number, one in enumerate(summary.sentences) if one.chosen),
    )


def _notes(summary: Summary, found: Sequence[Stretch], shown: Stretch) -> list[str]:
    """What a person should know who looks at one stretch."""
    notes = []
    if len(found) > 1:
        part = f"sentences {shown.first + 1} to {shown.first + shown.count} of {len(summary.sentences)}"
        notes.append(
            f"The model read {len(found)} stretches; this is the one with the sentence of most weight: {part}."
        )
    return notes
