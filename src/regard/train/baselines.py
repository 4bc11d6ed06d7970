"""What a model has to beat: classic answers to the same tasks that need no network and take a second.

sentiment and topics    majority, NaiveBayes
summaries               lead, extractive_oracle (an upper bound for choosing sentences, which sees the reference),
                        oracle_sentences (the same as numbers, to learn from)
answers in a text       overlap_answer
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from regard.errors import ConfigError, all_problems, message, missing_extra, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.summaries import rouge
from regard.train.metrics.words import mostly_han, word_spans, words_of

__all__ = ["NaiveBayes", "extractive_oracle", "lead", "majority", "oracle_sentences", "overlap_answer"]


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
