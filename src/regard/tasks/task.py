"""The shape all tasks share: what one must say to be trained, evaluated, used and looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from regard import records
from regard.errors import ConfigError, UnsupportedError, all_problems, message, must_be
from regard.tasks.architectures import ARCHITECTURE, TRANSFORMER, Architecture, architecture_of
from regard.tasks.report import Report
from regard.tasks.trained import TaskInfo, Trained
from regard.text import Examples, ReadOptions, same_input, split
from regard.train.data import TrainData
from regard.train.objective import Objective

E = TypeVar("E")  # an example
P = TypeVar("P")  # a prediction


@dataclass(frozen=True)
class Preset:
    """Sizes of a model, and how it is trained.

    Args:
        model: Settings of the Transformer.
        training: Settings of the training, as ``TrainSettings`` takes them.
        vocab_size: Of the tokenizer that is trained with it; 0 where there is none.
        max_tokens: The longest text, special tokens included; 0 where there is none.
        others: Settings of the other architectures, by name. With this vocabulary each has as many weights as the
            Transformer, within 3 %.
    """

    model: Mapping[str, Any]
    training: Mapping[str, Any]
    vocab_size: int = 0
    max_tokens: int = 0
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings_for(self, tokenizer: Any, architecture: str = TRANSFORMER) -> dict[str, Any]:
        """Settings of a model whose tokens are those of a tokenizer, or that has none."""
        if tokenizer is None:
            return dict(self.model)
        ids = {
            "pad_id": tokenizer.pad_token_id,
            "bos_id": tokenizer.bos_token_id,
            "eos_id": tokenizer.eos_token_id,
        }
        if architecture != TRANSFORMER:
            sizes = {"dropout_p": self.model["dropout_p"], **self.others[architecture]}
            return {**sizes, **ids, "vocab_size": len(tokenizer)}
        return {**self.model, **ids, "max_len": self.max_tokens, "vocab_size": len(tokenizer)}


class Task(ABC, Generic[E, P]):
    """Something a model is trained to do.

    Subclasses are stateless: all that a training decides is in ``Trained``.

    Attributes:
        name: What it is called on the command line.
        summary: What it does, in a few words.
        auto: The Auto class of transformers that has its head.
        pairs: Whether its tokenizer numbers the parts of what it reads, such as two texts.
        two_texts: Whether an input may be two texts.
        takes: An input, as it stands on the command line.
        lines: Whether every line of a file is an input on the command line, or the whole file is one.
        tokenizer: What kind suits it; None where it neither reads nor writes text.
        choices: What else its training may be asked, by name, with what is done when nobody asks.
        architectures: What a new model may be beside the Transformer, by name; ``choices`` then has "architecture".
        fewest: Examples, below which none can be held out.
        presets: Sizes by name.
        fine_tuning: Settings of a training that goes on from a checkpoint.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    auto: ClassVar[str]
    pairs: ClassVar[bool] = False
    two_texts: ClassVar[bool] = False
    takes: ClassVar[str] = "TEXT"
    lines: ClassVar[bool] = True
    tokenizer: ClassVar[str | None] = "bpe"
    choices: ClassVar[Mapping[str, Any]] = {}
    architectures: ClassVar[Mapping[str, Architecture]] = {}
    fewest: ClassVar[int] = 10
    presets: ClassVar[Mapping[str, Preset]]
    fine_tuning: ClassVar[Mapping[str, Any]] = {"learning_rate": 5e-5, "warmup": 20, "schedule": "linear"}

    @abstractmethod
    def read(self, data: Any, options: ReadOptions) -> Examples[E]:
        """Read a person's file."""

    def divide(self, examples: Examples[E], *, count: int, seed: int) -> tuple[Examples[E], Examples[E]]:
        """Hold some examples out, to validate on; those that ask the same stay together."""
        return split(examples, count=count, seed=seed, group=same_input)

    @abstractmethod
    def texts(self, examples: Sequence[E]) -> Iterable[str]:
        """All texts, for a tokenizer to be trained on."""

    @abstractmethod
    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """A model that has learned nothing."""

    def details(self, examples: Sequence[E]) -> dict[str, Any]:
        """What the examples decide about the model, such as ``labels``.

        Raises:
            ConfigError: nothing can be learned from them.
        """
        return {}

    def head(self, details: Mapping[str, Any]) -> str:
        """The Auto class of transformers that has the head: ``auto``, unless the choices decide.

        Raises:
            ConfigError: a choice is none of those there are.
        """
        return self.auto

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """What the model decides about its inputs, such as the size of images; it overrules what the examples say.

        Args:
            model: The model before its first step.
            checkpoint: What it was loaded from, if anything.
            details: What the examples and the choices say.

        Raises:
            ConfigError: it is no model for this task.
        """
        return {ARCHITECTURE: architecture_of(model, self.architectures)} if self.architectures else {}

    @abstractmethod
    def data(self, trained: Trained, examples: Examples[E], *, seed: int = 0) -> tuple[TrainData, int]:
        """What the model reads and should say, as numbers; and how many examples are too long for it."""

    @abstractmethod
    def objective(self, trained: Trained, *, label_smoothing: float) -> Objective:
        """What training makes small.

        Raises:
            ConfigError: a setting cannot be used for this task.
        """

    @abstractmethod
    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[P]:
        """Use the model."""

    @abstractmethod
    def evaluate(self, trained: Trained, examples: Examples[E], **options: Any) -> Report:
        """Use the model on examples whose answer is known, and say how good that is."""

    @abstractmethod
    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[P, records.Recording]:
        """Use the model on one input while its attention is watched."""

    def explain(self, trained: Trained, given: Any, **options: Any) -> tuple[P, records.Explanation]:
        """Use the model on one input, and say what its prediction depends on.

        Raises:
            UnsupportedError: the task explains nothing.
        """
        problem = f"{self.name} explains nothing; classify does."
        raise UnsupportedError(message("explain", problem))


def info_of(
    task: Task[Any, Any], tokenizer: Any, *, max_tokens: int, details: Mapping[str, Any], **known: Any
) -> TaskInfo:
    """What a folder will say about a model of this task."""
    from regard.text import vocabulary_hash

    digest = None if tokenizer is None else vocabulary_hash(tokenizer.backend_tokenizer)
    return TaskInfo(
        task=task.name,
        auto=task.head(details),
        vocabulary_sha256=digest,
        max_tokens=max_tokens,
        details=dict(details),
        **known,
    )


def files_of(data: Any, *, counts: Sequence[int] = (1,), expected: str = "one file") -> Any:
    """A path, or a tuple of as many as a task reads.

    Args:
        data: What ``train`` was given.
        counts: How many files there may be.
        expected: That in words.

    Raises:
        ConfigError: there are as many as no task reads.
    """
    if not isinstance(data, tuple | list):
        return data
    if len(data) not in counts:
        raise ConfigError(message("train", must_be("data", expected, f"{len(data)} files")))
    return data[0] if len(data) == 1 else tuple(data)


def check_texts(inputs: Sequence[Any]) -> None:
    """Refuse what is no text, for a task that reads one text at a time.

    Raises:
        ConfigError: an input is none; shows it.
    """
    for given in inputs:
        if not isinstance(given, str):
            raise ConfigError(message("predict", must_be("inputs", "texts", f"{given!r:.80}")))


def is_pair(given: Any) -> bool:
    """Whether an input is two texts."""
    return isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(text, str) for text in given)


def count_problems(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """What is wrong with options that are whole numbers of at least 1, or None."""
    return [
        must_be(name, "an integer of at least 1, or None", repr(options[name]))
        for name in names
        if options.get(name) is not None and not (type(options[name]) is int and options[name] >= 1)
    ]


def unknown_options(options: Mapping[str, Any], known: Sequence[str], *, of: str) -> list[str]:
    """What is wrong with the names of options, as sentences.

    Args:
        options: By name.
        known: The names there are.
        of: What they are options of.
    """
    verb = "are" if len(known) > 1 else "is"
    there = f"there {verb} {', '.join(known) or 'none'}"
    return [f"there is no option `{name}` of {of}; {there}." for name in options if name not in known]


def check_no_options(options: Mapping[str, Any], *, of: str) -> None:
    """Refuse every option of a task that has none.

    Raises:
        ConfigError: there are some.
    """
    if problems := unknown_options(options, (), of=of):
        raise all_problems("predict", problems)


def fitting(rows: Sequence[Mapping[str, Any]], limit: int) -> list[int]:
    """The numbers of the rows none of whose sequences is longer than a limit."""
    return [
        index
        for index, row in enumerate(rows)
        if all(isinstance(value, int) or len(value) <= limit for value in row.values())
    ]
