"""What a model has to beat: classic answers to the same tasks that need no network and take a second.

sentiment and topics    majority, NaiveBayes
summaries               lead, extractive_oracle (an upper bound for choosing sentences, which sees the reference),
                        oracle_sentences (the same as numbers, to learn from)
answers in a text       overlap_answer
alignments of words     IbmModel1
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from regard.errors import ConfigError, all_problems, message, missing_extra, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.summaries import rouge
from regard.train.metrics.words import mostly_han, word_spans, words_of

__all__ = ["IbmModel1", "NaiveBayes", "extractive_oracle", "lead", "majority", "oracle_sentences", "overlap_answer"]


def majority(labels: Sequence[str]) -> str:
    """The label that occurs most often, and of equals the first: what every classifier has to beat.

    Args:
        labels: Those of the training set.

    Raises:
        ConfigError: There are none.
    """
    if not len(labels):
        raise ConfigError(message("majority", must_be("labels", "at least one", "empty")))
    return Counter(labels).most_common(1)[0][0]


@dataclass(frozen=True)
class NaiveBayes:
    """A classifier that counts words, and takes them for independent.

        log p(class | text) = log p(class) + Σ over words of log p(word | class) + constant

    Words are those of ``words_of``: in Chinese, characters. There, and for "not good", ``ngrams=2`` adds pairs.

    Args:
        vectorizer: scikit-learn's counter of words, fitted.
        classifier: scikit-learn's multinomial naive Bayes, fitted.

    Source:
        Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic classification".
    """

    vectorizer: Any
    classifier: Any

    @classmethod
    def fit(cls, texts: Sequence[str], labels: Sequence[str], *, ngrams: int = 1, smoothing: float = 1.0) -> NaiveBayes:
        """Count the words of every class.

        Args:
            texts: The training set.
            labels: The class of each.
            ngrams: The longest run of words that counts as one more word.
            smoothing: How often every word is taken to have been seen in every class beforehand.

        Raises:
            ShapeError: Not as many labels as texts.
            ConfigError: No texts, no words in any of them, or options out of range.
            BackendUnavailableError: scikit-learn is not installed.
        """
        caller = "NaiveBayes.fit"
        check_numbers(caller, texts=texts, labels=labels)
        problems = [] if ngrams >= 1 else [must_be("ngrams", "at least 1", ngrams)]
        if not 0 < smoothing < math.inf:
            problems.append(must_be("smoothing", "more than 0", smoothing))
        if not any(map(words_of, texts)):
            problems.append(must_be("texts", "with at least one word", "without any"))
        if problems:
            raise all_problems(caller, problems)
        try:
            from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped]
            from sklearn.naive_bayes import MultinomialNB  # type: ignore[import-untyped]
        except ImportError as error:
            raise missing_extra("scikit-learn", "train", "NaiveBayes") from error
        vectorizer = CountVectorizer(analyzer=partial(_terms, ngrams=ngrams))
        classifier = MultinomialNB(alpha=smoothing)
        classifier.fit(vectorizer.fit_transform(texts), list(labels))
        return cls(vectorizer, classifier)

    def predict(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The likeliest class of each text; words never seen before do not count.

        Args:
            texts: Any number of them.
        """
        if not len(texts):
            return ()
        return tuple(map(str, self.classifier.predict(self.vectorizer.transform(texts))))


@dataclass(frozen=True, eq=False)
class IbmModel1:
    """Which words of two languages belong together, from pairs of sentences that mean the same, by counting.

    Every target word comes from one source word, or from none (the null word), each as likely before it is seen:

        p(j from i) = t(target_j | source_i) / sum over i' of t(target_j | source_i'),  i' also the null word
        t(f | e) = expected number of f from e / expected number of words from e

    computed in turn, from the same t for all. It knows no order and no positions.

    Args:
        source_words: The number of each source word; 0 is the null word.
        target_words: The number of each target word.
        pairs: source number · target words + target number, of those seen in one pair of sentences; ascending.
        probabilities: t of each.

    Source:
        Brown et al. 1993, "The mathematics of statistical machine translation", section 4.1; Och and Ney 2003, as what
        other alignments are held against.

    Example:
        >>> from regard.train.baselines import IbmModel1
        >>> german, english = ["das Haus", "das Buch", "Buch"], ["the house", "the book", "book"]
        >>> model = IbmModel1.fit([line.split() for line in german], [line.split() for line in english])
        >>> sorted(model.links(["das", "Buch"], ["the", "book"]))
        [(0, 0), (1, 1)]
    """

    source_words: Mapping[str, int]
    target_words: Mapping[str, int]
    pairs: Int64[np.ndarray, " pairs"]
    probabilities: Float64[np.ndarray, " pairs"]

    @classmethod
    def fit(
        cls, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], *, iterations: int = 10
    ) -> IbmModel1:
        """Expectation and maximisation, some times.

        Args:
            sources: The words of every source sentence.
            targets: The words of every target sentence.
            iterations: How often; every one makes the targets likelier.

        Raises:
            ShapeError: There are not as many targets as sources.
            ConfigError: There are none, or no iterations.

        Cost:
            (source words + 1) · target words of every pair, in time and memory.
        """
        check_numbers("IbmModel1.fit", sources=sources, targets=targets)
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ConfigError(message("IbmModel1.fit", must_be("iterations", "at least 1", repr(iterations))))
        source_words, target_words = _numbered(sources, start=1), _numbered(targets, start=0)
        keys, places, reached = [], [], 0
        for source, target in zip(sources, targets, strict=True):
            starts = np.array([0, *(source_words[word] for word in source)], dtype=np.int64)
            ends = np.array([target_words[word] for word in target], dtype=np.int64)
            keys.append((starts[None] * len(target_words) + ends[:, None]).ravel())
            places.append(np.repeat(np.arange(reached, reached + len(ends)), len(starts)))
            reached += len(ends)
        pairs, of_link = np.unique(np.concatenate(keys), return_inverse=True)
        place, source_of = np.concatenate(places), pairs // max(1, len(target_words))
        probabilities = np.ones(len(pairs))  # the same for all: the first expectation divides
        for _ in range(iterations):
            likely = probabilities[of_link]
            expected = likely / np.bincount(place, likely, minlength=reached)[place]
            counts = np.bincount(of_link, expected, minlength=len(pairs))
            probabilities = counts / np.bincount(source_of, counts)[source_of]
        return cls(source_words, target_words, pairs, probabilities)

    def probability(self, source: str | None, target: str) -> float:
        """t(target | source), 0 for words that never met.

        Args:
            source: A source word; None for the null word.
            target: A target word.
        """
        return float(self._table([0 if source is None else self.source_words.get(source, -1)], [target])[0, 0])

    def posteriors(self, source: Sequence[str], target: Sequence[str]) -> Float64[np.ndarray, "target source_and_null"]:
        """Where each target word comes from: a row for each, the null word first; all zeros for one it does not know.

        Args:
            source: The words of a source sentence.
            target: The words of its target.
        """
        table = self._table([0, *(self.source_words.get(word, -1) for word in source)], target)
        total = table.sum(axis=1, keepdims=True)
        shares: np.ndarray = np.divide(table, total, out=np.zeros_like(table), where=total > 0)
        return shares

    def links(self, source: Sequence[str], target: Sequence[str]) -> frozenset[tuple[int, int]]:
        """The likeliest alignment, as (source, target): of equals the null word counts, then the first.

        Args:
            source: The words of a source sentence.
            target: The words of its target.
        """
        best = self.posteriors(source, target).argmax(axis=1)
        return frozenset((int(place) - 1, row) for row, place in enumerate(best) if place)

    def _table(self, sources: Sequence[int], target: Sequence[str]) -> Float64[np.ndarray, "target sources"]:
        """The t of every target word and source number; −1 is a word that is not known."""
        ends = np.array([self.target_words.get(word, -1) for word in target], dtype=np.int64)[:, None]
        starts = np.array(sources, dtype=np.int64)[None]
        keys = np.where((ends >= 0) & (starts >= 0), starts * len(self.target_words) + ends, -1)
        at = np.searchsorted(self.pairs, keys).clip(max=max(0, len(self.pairs) - 1))
        if not len(self.pairs):
            return np.zeros(keys.shape)
        return np.where(self.pairs[at] == keys, self.probabilities[at], 0.0)


def lead(sentences: Sequence[str], count: int = 3) -> str:
    """The first sentences as a summary: hard to beat on news.

    Args:
        sentences: The document.
        count: How many.
    """
    return _joined(sentences[:count])


def extractive_oracle(sentences: Sequence[str], references: Sequence[str], *, count: int = 3) -> str:
    """The sentences of ``oracle_sentences`` as a summary: what choosing sentences can reach at most, nearly.

    It looks at the reference, so it is a bound and no system.

    Args:
        sentences: The document.
        references: One right summary or several.
        count: The most sentences to choose.
    """
    return _joined([sentences[index] for index in oracle_sentences(sentences, references, count=count)])


def oracle_sentences(sentences: Sequence[str], references: Sequence[str], *, count: int = 3) -> tuple[int, ...]:
    """The numbers of the sentences that agree best with the reference: what a model that chooses learns from.

    Sentence after sentence the one is added that raises ROUGE-1 F1 + ROUGE-2 F1 most, until none does or there are
    ``count``.

    Args:
        sentences: The document.
        references: One right summary or several.
        count: The most sentences to choose.

    Returns:
        Numbers from 0, in the order of the document.

    Source:
        Nallapati et al. 2017, "SummaRuNNer", section 3.
    """
    chosen: tuple[int, ...] = ()
    best = 0.0
    while len(chosen) < count:
        tried = [tuple(sorted((*chosen, index))) for index in range(len(sentences)) if index not in chosen]
        scores = [_agreement(_joined([sentences[index] for index in some]), references) for some in tried]
        if not scores or max(scores) <= best:
            break
        best = max(scores)
        chosen = tried[scores.index(best)]
    return chosen


def overlap_answer(question: str, context: str, *, longest: int = 20, nearness: float = 0.9) -> str:
    """The words that stand where a context agrees best with a question, and that the question lacks.

        value = Σ over places of the question's words of nearness^distance · log(1 + 1 / how often the context has it)

    The context is cut into runs of words, at its sentence ends and at every word of the question. The run around which
    the value is greatest is the answer; of equals the longest, then the first. No learning, and no understanding.

    Args:
        question: The question.
        context: Where the answer is looked for.
        longest: In words; in Chinese, characters. Longer runs are cut off.
        nearness: How much a word of the question counts at each step further away, 0 to 1.

    Returns:
        A part of the context, as it is written; empty when every word of it is in the question.

    Raises:
        ConfigError: An option is out of range.

    Source:
        After the distance-based windows of Richardson et al. 2013 (MCTest) and Rajpurkar et al. 2016 (SQuAD).
    """
    problems = [] if longest >= 1 else [must_be("longest", "at least 1", longest)]
    if not 0 < nearness <= 1:
        problems.append(must_be("nearness", "more than 0 and at most 1", nearness))
    if problems:
        raise all_problems("overlap_answer", problems)
    spans = word_spans(context)
    words = [context[start:end].lower() for start, end in spans]
    asked = {question[start:end].lower() for start, end in word_spans(question)}
    number = Counter(words)
    values = [math.log1p(1 / number[word]) if word in asked else 0.0 for word in words]
    before = _nearby(values, nearness)
    after = _nearby(values[::-1], nearness)[::-1]
    best, answer = (-1.0, 0), ""
    for first, end in _runs(context, spans, [word in asked for word in words]):
        length = min(end - first, longest)
        value = before[first] + after[end]
        if (value, length) > best:
            best, answer = (value, length), context[spans[first][0] : spans[first + length - 1][1]]
    return answer


def _nearby(values: Sequence[float], nearness: float) -> list[float]:
    """For every gap between words the sum of the values before it, each less by every step away."""
    return list(accumulate(values, lambda total, value: (total + value) * nearness, initial=0.0))


def _runs(context: str, spans: Sequence[tuple[int, int]], taken: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First word and end of every run of words that are not taken, within a sentence."""
    first = 0
    for place in range(len(spans) + 1):
        over = place == len(spans)
        ends = not over and place > first and _SENTENCE_END.search(context, spans[place - 1][1], spans[place][0] + 1)
        if over or taken[place] or ends:
            if place > first:
                yield first, place
            first = place if ends and not taken[place] else place + 1


_SENTENCE_END = re.compile(r"[。！？!?\n]|\.\s")


def _joined(sentences: Sequence[str]) -> str:
    return ("" if mostly_han(sentences) else " ").join(sentences)


def _agreement(summary: str, references: Sequence[str]) -> float:
    scores = rouge([summary], [references])
    return scores.rouge1.f1 + scores.rouge2.f1


def _terms(text: str, *, ngrams: int) -> list[str]:
    words = words_of(text)
    return [
        " ".join(words[start : start + length])
        for length in range(1, ngrams + 1)
        for start in range(len(words) - length + 1)
    ]


def _numbered(sentences: Sequence[Sequence[str]], *, start: int) -> dict[str, int]:
    """A number for each word, in the order they come."""
    words = dict.fromkeys(word for sentence in sentences for word in sentence)
    return {word: number for number, word in enumerate(words, start=start)}
