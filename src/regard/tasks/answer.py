"""Answers that stand in a text: a question, its context, and where the answer begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float64, Int64

from regard import records
from regard.errors import ConfigError, all_problems, message, must_be
from regard.hf import RegardEncoderConfig, RegardForQuestionAnswering
from regard.tasks.encoding import batched, collate
from regard.tasks.hiding import HidingData
from regard.tasks.matches import MOST
from regard.tasks.report import Example, Report
from regard.tasks.tables import MEAN, word_table, words_of
from regard.tasks.task import Preset, Task, count_problems, files_of, is_pair, unknown_options
from regard.tasks.trained import Trained
from regard.tasks.watching import watched
from regard.tasks.windows import Passage, Window, read_passage
from regard.text import Examples, Question, ReadOptions, read_questions, split
from regard.train.baselines import overlap_answer
from regard.train.data import TrainData
from regard.train.metrics import exact_match_and_f1
from regard.train.objective import SpanEnds

_SEGMENTS = 2 + MOST  # the question, and the context by what it has in common with it
_SHAPE = {"positions": "rotary", "num_segments": _SEGMENTS}
_TRAINING = {"batch_rows": 32, "schedule": "cosine"}
_BATCH_TOKENS = 8192
_USUAL = 0.99  # of the answers; a few that are a page long would let every answer be one
_HIDDEN = 0.15  # of the words, from a model that is told which ones a text shares with its question
_LEAST_SPREAD = 0.5  # of logarithms: answers of one length do not rule out those of half or of twice
_OPTIONS = ("stride", "longest")
_NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class Answered:
    """What a text answers.

    Args:
        text: The answer as it stands in the context; empty where there is none.
        start: Its first character in the context; None where there is none.
        score: Its probability among all answers that were possible, "none" included where the model may say so.
    """

    text: str
    start: int | None
    score: float

    def __str__(self) -> str:
        return f"{self.text or _NO_ANSWER}\t{self.score:.3f}"


class Answer(Task[Question, Answered]):
    """The answer to a question, as it stands in a text."""

    name: ClassVar[str] = "answer"
    summary: ClassVar[str] = "questions whose answers stand in a text"
    auto: ClassVar[str] = "AutoModelForQuestionAnswering"
    pairs: ClassVar[bool] = True
    two_texts: ClassVar[bool] = True
    takes: ClassVar[str] = "QUESTION --pair CONTEXT"
    tokenizer: ClassVar[str | None] = "word"  # an answer ends where a token does: in Chinese at any character
    presets: ClassVar[Mapping[str, Preset]] = {
        "tiny": Preset(
            {**_SHAPE, "embed_dim": 64, "num_heads": 2, "num_layers": 2, "ff_dim": 128, "dropout_p": 0.0},
            vocab_size=2000,
            training={**_TRAINING, "learning_rate": 2e-3, "warmup": 100, "epochs": 10},
            max_tokens=256,
        ),
        "small": Preset(
            {**_SHAPE, "embed_dim": 128, "num_heads": 4, "num_layers": 3, "ff_dim": 256, "dropout_p": 0.1},
            vocab_size=8000,
            training={**_TRAINING, "learning_rate": 1e-3, "warmup": 200, "epochs": 8},
            max_tokens=640,
        ),
        "base": Preset(
            {**_SHAPE, "embed_dim": 256, "num_heads": 8, "num_layers": 4, "ff_dim": 1024, "dropout_p": 0.1},
            vocab_size=16000,
            training={**_TRAINING, "batch_tokens": 8192, "learning_rate": 5e-4, "warmup": 400, "epochs": 8},
            max_tokens=768,
        ),
    }
    fine_tuning: ClassVar[Mapping[str, Any]] = {**Task.fine_tuning, "batch_rows": 16, "epochs": 3}

    def read(self, data: Any, options: ReadOptions) -> Examples[Question]:
        """SQuAD's form, JSON Lines or a table with contexts, questions and answers.

        Raises:
            ConfigError: several files.
        """
        return read_questions(files_of(data), options=options)

    def divide(
        self, examples: Examples[Question], *, count: int, seed: int
    ) -> tuple[Examples[Question], Examples[Question]]:
        """Hold questions out together with all others about their contexts, where there is more than one context."""
        contexts = [example.context for example in examples]
        return split(examples, count=count, seed=seed, group=contexts if len(set(contexts)) > 1 else None)

    def texts(self, examples: Sequence[Question]) -> Iterable[str]:
        """Questions, and every context once."""
        yield from dict.fromkeys(example.context for example in examples)
        for example in examples:
            yield example.question

    def details(self, examples: Sequence[Question]) -> dict[str, Any]:
        """How long answers are, in characters, and whether there are questions without any.

        ``longest`` is what all but a hundredth are at most; ``length`` and ``spread`` are the mean and the standard
        deviation of the logarithms.

        Raises:
            ConfigError: no question has an answer.
        """
        lengths = [len(answer.text) for example in examples for answer in example.answers]
        if not lengths:
            problem = f"the data must have at least one answer, but none of {len(examples):,} questions has any."
            raise ConfigError(message("train", problem))
        longest = int(np.quantile(lengths, _USUAL, method="higher"))
        logarithms = np.log(lengths)
        return {
            "longest": longest,
            "length": float(logarithms.mean()),
            "spread": max(float(logarithms.std()), _LEAST_SPREAD),
            "no_answer": any(not example.answers for example in examples),
        }

    def new_model(self, preset: Preset, tokenizer: Any, details: Mapping[str, Any]) -> Any:
        """An encoder of both texts, and a linear map of every state: does the answer begin here, does it end here."""
        return RegardForQuestionAnswering(RegardEncoderConfig(**preset.settings_for(tokenizer)))

    def details_of(self, model: Any, checkpoint: str | None, details: Mapping[str, Any]) -> dict[str, Any]:
        """Whether it is told what a context has in common with its question: models that began with nothing are."""
        own = model.config.model_type == RegardEncoderConfig.model_type
        return {"matched": own and model.config.num_segments == _SEGMENTS}

    def data(self, trained: Trained, examples: Examples[Question], *, seed: int = 0) -> tuple[TrainData, int]:
        """Every window of every question, with the first and last token of the first answer.

        A window without the answer has none to find; one that cuts it through is left out. A question is too long when
        its answer is: no window holds it whole.
        """
        rows, places, left_out = [], [], 0
        for example, place in zip(examples, examples.places, strict=True):
            found = _targets(_passage(trained, example.question, example.context), example)
            left_out += not found
            rows += found
            places += [str(place)] * len(found)
        lengths = [(len(row["input_ids"]),) for row in rows]
        tokenizer = trained.tokenizer
        return HidingData(
            rows,
            lengths,
            lambda batch: collate(batch, tokenizer),
            places,
            share=_HIDDEN if trained.info.details["matched"] and tokenizer.unk_token_id is not None else 0.0,
            unknown=tokenizer.unk_token_id or 0,
            kept=tokenizer.all_special_ids,
            seed=seed,
        ), left_out

    def objective(self, trained: Trained, *, label_smoothing: float) -> SpanEnds:
        """Cross-entropy of the answer's first and last token; rounds are compared by answers with both right.

        Raises:
            ConfigError: smoothing is asked for: most tokens cannot be an end, and share nothing.
        """
        if label_smoothing:
            raise ConfigError(message("train", must_be("label_smoothing", "0 for answer", label_smoothing)))
        return SpanEnds()

    def predict(self, trained: Trained, inputs: Sequence[Any], **options: Any) -> list[Answered]:
        """The answer to each question.

        Args:
            trained: The model.
            inputs: Pairs (question, context). Contexts may be of any length.
            **options: ``stride``, in tokens, from one window of a long context to the next (two thirds of a window);
                ``longest``, the characters of an answer at most (as many as 99 % of those it learned from have).

        Raises:
            ConfigError: an input is no pair, or an option is none of these.
        """
        longest = _longest(trained, options)
        passages = [_passage(trained, *_pair(given), stride=options.get("stride")) for given in inputs]
        found = _found(trained, passages, longest)
        return [_answer(trained, passage, windows) for passage, windows in zip(passages, found, strict=True)]

    def evaluate(self, trained: Trained, examples: Examples[Question], **options: Any) -> Report:
        """Exact match and F1, and beside them those of the words that stand nearest to the question's."""
        said = self.predict(trained, [(example.question, example.context) for example in examples], **options)
        golds = [[answer.text for answer in example.answers] for example in examples]
        found = exact_match_and_f1([one.text for one in said], golds)
        nearest = [overlap_answer(example.question, example.context) for example in examples]
        lexical = exact_match_and_f1(nearest, golds, scheme=found.scheme)
        listed = [
            Example(
                given=f"{example.question}\n{example.context}",
                wanted=" | ".join(dict.fromkeys(wanted)) or _NO_ANSWER,
                said=one.text or _NO_ANSWER,
                score=score,
                place=str(place),
            )
            for example, wanted, one, score, place in zip(
                examples, golds, said, found.segments, examples.places, strict=True
            )
        ]
        baseline = {"name": "overlap_answer", "exact_match": lexical.exact_match, "f1": lexical.f1}
        figures = {**found.as_dict(), "baseline": baseline}
        beside = f"without a model, the words nearest to the question's: {str(lexical).splitlines()[0]}"
        return Report(self.name, len(listed), figures, (*str(found).split("\n"), beside), tuple(listed))

    def observe(self, trained: Trained, given: Any, **options: Any) -> tuple[Answered, records.Recording]:
        """The answer to one question, and where the model looked in the window it is in.

        Args:
            trained: The model.
            given: A pair (question, context).
            **options: As for ``predict``.

        Raises:
            ConfigError: as for ``predict``, or the context is empty.
        """
        longest = _longest(trained, options)
        passage = _passage(trained, *_pair(given), stride=options.get("stride"))
        if not passage.windows:
            raise ConfigError(message("observe", "the context must have something in it, but is empty."))
        (found,) = _found(trained, [passage], longest)
        answer = _answer(trained, passage, found)
        shown = max(range(len(found)), key=lambda number: found[number].best)
        window = passage.windows[shown]
        inputs = {name: torch.tensor([ids]) for name, ids in window.row.items()}
        sequence = passage.sequence(window)
        run = partial(trained.model, **inputs)
        notes, best = _notes(passage, shown, answer), None if answer.start is None else found[shown]
        recording = watched(trained, run, [(sequence,)], length=len(sequence.tokens), notes=notes)
        return answer, replace(recording, tables=_tables(trained, run, sequence, window, found=best))


@dataclass(frozen=True)
class _Found:
    """What a model finds in one window.

    Args:
        start: First character of the best answer.
        end: The character after its last.
        best: Sum of the logits of its ends, and of what its length says; −∞ where nothing can be an answer.
        total: Logarithm of the sum of exp over all possible answers.
        none: Sum of the logits of "no answer".
    """

    start: int
    end: int
    best: float
    total: float
    none: float


@dataclass(frozen=True)
class _Lengths:
    """How long answers are, in characters.

    The ends of an answer are found each by itself: a model that is not sure of them would else begin at one likely
    answer and end at another.

    Args:
        longest: The most.
        mean: Of the logarithms.
        spread: Their standard deviation.
    """

    longest: int
    mean: float
    spread: float

    def likeliness(self, lengths: Int64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """The logarithm of a log-normal density over the logarithms, 0 for the usual length."""
        distance: Float64[np.ndarray, "*shape"] = (np.log(lengths.clip(1)) - self.mean) / self.spread
        return -(distance**2) / 2


def _pair(given: Any) -> tuple[str, str]:
    if not is_pair(given):
        hint = "on the command line: regard answer QUESTION --context TEXT, or --file FILE"
        problem = must_be("inputs", "pairs of a question and its context", f"{given!r:.80}")
        raise ConfigError(message("predict", problem, hint=hint))
    return given[0], given[1]


def _passage(trained: Trained, question: str, context: str, *, stride: int | None = None) -> Passage:
    limit, matched = trained.info.max_tokens, trained.info.details["matched"]
    return read_passage(trained.tokenizer, question, context, max_tokens=limit, stride=stride, matched=matched)


def _longest(trained: Trained, options: Mapping[str, Any]) -> int:
    """The most characters of an answer; all options are checked."""
    problems = unknown_options(options, _OPTIONS, of="answer")
    problems += count_problems(options, _OPTIONS)
    if problems:
        raise all_problems("predict", problems)
    asked = options.get("longest")
    return int(trained.info.details["longest"] if asked is None else asked)


def _targets(passage: Passage, example: Question) -> list[dict[str, Any]]:
    """The windows of a question with the places of its answer; none where no window holds it whole."""
    if not example.answers:
        return [_row(window, window.none, window.none) for window in passage.windows]
    answer = example.answers[0]
    tokens = passage.touching(answer.start, answer.start + len(answer.text))
    rows, held = [], False
    for window in passage.windows:
        inside = range(max(tokens.start, window.first), min(tokens.stop, window.first + len(window.starts)))
        if not inside:
            rows.append(_row(window, window.none, window.none))
        elif inside == tokens:
            shift = window.place - window.first
            rows.append(_row(window, tokens.start + shift, tokens.stop - 1 + shift))
            held = True
    return rows if held else []


def _row(window: Window, start: int, end: int) -> dict[str, Any]:
    return {**window.row, "start_positions": start, "end_positions": end}


def _found(trained: Trained, passages: Sequence[Passage], longest: int) -> list[list[_Found]]:
    """What the model finds in every window of every passage."""
    lengths = _Lengths(longest, trained.info.details["length"], trained.info.details["spread"])
    windows = [window for passage in passages for window in passage.windows]

    @torch.no_grad()
    def run(batch: list[int]) -> list[_Found]:
        read = trained.model(**collate([windows[index].row for index in batch], trained.tokenizer))
        starts, ends = (logits.double().cpu().numpy() for logits in (read.start_logits, read.end_logits))
        return [
            _best(windows[index], start, end, lengths) for index, start, end in zip(batch, starts, ends, strict=True)
        ]

    found = iter(batched([window.row for window in windows], batch_tokens=_BATCH_TOKENS, run=run))
    return [[next(found) for _ in passage.windows] for passage in passages]


def _best(
    window: Window, start: Float64[np.ndarray, "row"], end: Float64[np.ndarray, "row"], lengths: _Lengths
) -> _Found:
    """The span of the context with the largest sum of logits and of what its length says."""
    inside = slice(window.place, window.place + len(window.starts))
    reach = window.ends[None, :] - window.starts[:, None]
    seen = window.visible
    one_token = np.eye(len(seen), dtype=bool)  # an answer, however long it is
    allowed = (np.triu(reach <= lengths.longest) | one_token) & seen[:, None] & seen[None, :]
    sums = np.where(allowed, start[inside, None] + end[None, inside] + lengths.likeliness(reach), -np.inf)
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    return _Found(
        start=int(window.starts[first]),
        end=int(window.ends[last]),
        best=float(sums[first, last]),
        total=float(np.logaddexp.reduce(sums, axis=None)),
        none=float(start[window.none] + end[window.none]),
    )


def _answer(trained: Trained, passage: Passage, found: Sequence[_Found]) -> Answered:
    """The best answer of all windows; none where all of them rather say so, and the model has learned to."""
    none = min((window.none for window in found), default=0.0)
    best = max(found, key=lambda window: window.best, default=None)
    if best is None or best.best == -np.inf:
        return Answered("", None, 1.0)
    total = float(np.logaddexp.reduce([window.total for window in found]))
    if trained.info.details["no_answer"]:
        total = float(np.logaddexp(total, none))
        if none >= best.best:
            return Answered("", None, float(np.exp(none - total)))
    # A tokenizer that drops accents drops the marks of a visible character, too: they belong to the answer.
    start, end = records.TextOffsets(passage.context).clusters((best.start, best.end))
    return Answered(passage.context[start:end], start, float(np.exp(best.best - total)))


def _tables(
    trained: Trained,
    run: Callable[[], Any],
    sequence: records.Sequence,
    window: Window,
    *,
    found: _Found | None,
) -> tuple[records.Table, ...]:
    """What the words of the question look at in the window, and which of them are the answer, if there is one."""
    words = words_of(sequence)
    asked = [word for word in words if word.tokens.start < window.place]
    told = words[len(asked) :]
    places = set[int]()
    if found is not None:
        inside = np.flatnonzero((window.starts < found.end) & (window.ends > found.start))
        places = set((inside + window.place).tolist())
    return word_table(
        trained.model,
        run,
        kind="self",
        rows=asked,
        columns=told,
        name="From the question to the text",
        note=f"The share of the attention of each word of the question, {MEAN}. The answer is in bold.",
        chosen=[number for number, word in enumerate(told) if places & set(word.tokens)],
    )


def _notes(passage: Passage, shown: int, answer: Answered) -> list[str]:
    """What a person should know who looks at one window."""
    window, notes = passage.windows[shown], []
    if len(passage.windows) > 1:
        part = f"characters {int(window.starts[0]):,} to {int(window.ends[-1]):,} of the context"
        notes.append(f"The model read {len(passage.windows)} windows; this is the one with the best answer: {part}.")
    if answer.start is None:
        return [*notes, "The model found no answer."]
    end = answer.start + len(answer.text)
    where = f"characters {answer.start:,} to {end:,} of the context"
    return [*notes, f"The answer is {where}, with a probability of {answer.score:.3f}."]  # the table has its words
