"""Which words of a context stand in the question, too: what a reader who knows nothing yet looks for first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from regard.train.metrics.words import word_spans

MOST = 3  # words of a run that are told from fewer


def matches(
    question: str, context: str, starts: Int64[np.ndarray, "tokens"], ends: Int64[np.ndarray, "tokens"]
) -> Int64[np.ndarray, "tokens"]:
    """For every token of a context the length of the longest run of words around it that the question has, too.

    Words are those of ``words_of``: in Chinese every character is one, which says little when it stands alone, and
    much in a run of two or three. Capital letters do not matter.

    Args:
        question: The question.
        context: The context.
        starts: First character of every token in the context.
        ends: The character after its last.

    Returns:
        0 for what the question lacks, up to ``MOST``.

    Source:
        Chen et al. 2017, arXiv:1704.00051, section 3.2: "exact match".
    """
    spans = word_spans(context)
    words = [context[start:end].lower() for start, end in spans]
    asked = [question[start:end].lower() for start, end in word_spans(question)]
    found = np.zeros(len(context) + 1, dtype=np.int64)
    for length in range(1, MOST + 1):
        runs = {tuple(asked[first : first + length]) for first in range(len(asked) - length + 1)}
        for first in range(len(words) - length + 1):
            if tuple(words[first : first + length]) in runs:
                found[spans[first][0] : spans[first + length - 1][1]] = length
    return np.array(
        [found[start : max(end, start + 1)].max() for start, end in zip(starts, ends, strict=True)], np.int64
    )
