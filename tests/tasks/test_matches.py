"""What a context has in common with a question, word by word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies

from regard.tasks.matches import MOST, matches


def by_word(question: str, context: str, words: list[str]) -> list[int]:
    starts, at = [], 0
    for word in words:
        starts.append(context.index(word, at))
        at = starts[-1] + len(word)
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    return matches(question, context, np.array(starts, np.int64), np.array(ends, np.int64)).tolist()


@pytest.mark.parametrize(
    ("question", "context", "words", "expected"),
    [
        ("Who is Ann Lee?", "ann lee IS here", ["ann", "lee", "IS", "here"], [2, 2, 1, 0]),
        ("银行在哪里？", "银行，在河边", ["银", "行", "，", "在", "河", "边"], [3, 3, 3, 3, 0, 0]),
        ("a b c d e", "x a b c d y", ["x", "a", "b", "c", "d", "y"], [0, 3, 3, 3, 3, 0]),
        ("in 1998", "1998年 in1998", ["1998", "年", "in1998"], [1, 0, 0]),
        ("naïve", "NAÏVE", ["NA", "ÏVE"], [1, 1]),
        ("", "a", ["a"], [0]),
        ("?!", "?!", ["?", "!"], [0, 0]),
    ],
)
def test_runs_of_words_that_both_have(question, context, words, expected):
    assert by_word(question, context, words) == expected


def test_nothing_of_nothing():
    empty = np.zeros(0, np.int64)
    assert matches("a", "", empty, empty).shape == (0,)
    assert matches("a", "a", np.array([1]), np.array([1])).tolist() == [0]  # behind the last character


@given(strategies.text("ab中文 ", max_size=12), strategies.text("ab中文 ", max_size=12))
def test_as_trying_all_runs_finds(question, context):
    words = context.replace("中", " 中 ").replace("文", " 文 ").split()
    asked = question.replace("中", " 中 ").replace("文", " 文 ").split()
    runs = {tuple(asked[first:last]) for first in range(len(asked)) for last in range(first + 1, len(asked) + 1)}
    expected = [0] * len(words)
    for first in range(len(words)):
        for last in range(first + 1, min(first + MOST, len(words)) + 1):
            if tuple(words[first:last]) in runs:
                expected[first:last] = [max(one, last - first) for one in expected[first:last]]
    assert by_word(question, context, words) == expected
