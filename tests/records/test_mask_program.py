"""The numpy evaluator of masks against a triple loop, and programs that cannot be evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UnsupportedError
from regard.records import MaskProgram, Op, instructions

BATCH, HEADS = 2, 3


@st.composite
def programs(draw, q: int, k: int):
    """Code and arrays of random rules, and the same thing said one triple at a time."""
    arrays: list[np.ndarray] = []

    def array(values: np.ndarray) -> int:
        arrays.append(values)
        return len(arrays) - 1

    def bits(*shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool).reshape(shape)

    def ids(*shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count)), dtype=np.int64).reshape(
            shape
        )

    def rule():
        op = draw(st.sampled_from([op for op in Op if op not in (Op.AND, Op.OR, Op.NOT, Op.WHERE)]))
        b = draw(st.sampled_from([1, BATCH]))
        match op:
            case Op.EVERYTHING:
                return (op,), lambda b, h, i, j, pi, pj: True
            case Op.CAUSAL:
                return (op,), lambda b, h, i, j, pi, pj: pj <= pi
            case Op.WINDOW:
                size = draw(st.integers(0, 4))
                return (op, size), lambda b, h, i, j, pi, pj: abs(pi - pj) < size
            case Op.PADDING:
                keep = bits(b, k)
                return (op, array(keep)), lambda b, h, i, j, pi, pj: keep[b % len(keep), j]
            case Op.DOCUMENTS:
                keys, queries = ids(b, k), ids(draw(st.sampled_from([1, BATCH])), q)
                return (
                    (op, array(keys), array(queries)),
                    lambda b, h, i, j, pi, pj: keys[b % len(keys), j] == queries[b % len(queries), i] >= 0,
                )
            case Op.PREFIX:
                length = ids(b)
                return (op, array(length)), lambda b, h, i, j, pi, pj: pj < length[b % len(length)]
            case Op.ALLOWED:
                shape = [draw(st.sampled_from([1, full])) for full in (BATCH, HEADS, q, k)]
                allowed = bits(*shape)
                return (op, array(allowed)), lambda b, h, i, j, pi, pj: allowed[
                    tuple(x % n for x, n in zip((b, h, i, j), shape, strict=True))
                ]

    def tree(depth: int):
        kind = draw(st.sampled_from(["rule", "and", "or", "not"])) if depth else "rule"
        if kind == "rule":
            return rule()
        left, says_left = tree(depth - 1)
        if kind == "not":
            return (*left, Op.NOT), lambda *at: not says_left(*at)
        right, says_right = tree(depth - 1)
        if kind == "and":
            return (*left, *right, Op.AND), lambda *at: says_left(*at) and says_right(*at)
        return (*left, *right, Op.OR), lambda *at: says_left(*at) or says_right(*at)

    code, says = tree(2)
    return tuple(int(word) for word in code), tuple(arrays), says


@given(data=st.data(), q=st.integers(1, 4), k=st.integers(1, 4), start=st.integers(0, 3), kv_start=st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_against_a_triple_loop(data, q, k, start, kv_start):
    code, arrays, says = data.draw(programs(q, k))
    program = MaskProgram(code, arrays)
    assert program.problems() == []
    q_positions = np.array([[start + i + b for i in range(q)] for b in range(BATCH)], dtype=np.int64)
    k_positions = np.arange(kv_start, kv_start + k, dtype=np.int64)
    rows = slice(data.draw(st.integers(0, q - 1)), q)
    keys = slice(data.draw(st.integers(0, k - 1)), k)
    tile = program.allowed(q_positions[:, rows], k_positions[keys], rows=rows, keys=keys)
    tile = np.broadcast_to(tile, (BATCH, HEADS, q - rows.start, k - keys.start))
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(rows.start, q):
                for j in range(keys.start, k):
                    expected = bool(says(b, h, i, j, q_positions[b, i], k_positions[j]))
                    assert tile[b, h, i - rows.start, j - keys.start] == expected, (b, h, i, j)


def test_and_or_not_read_what_came_before():
    code = (Op.CAUSAL, Op.WINDOW, 2, Op.AND, Op.NOT)
    assert list(instructions(code)) == [(Op.CAUSAL, ()), (Op.WINDOW, (2,)), (Op.AND, ()), (Op.NOT, ())]
    allowed = MaskProgram(code).allowed(np.array([[0, 1, 2]]), np.array([0, 1, 2]))
    assert (~allowed[0, 0]).tolist() == [[True, False, False], [True, True, False], [False, True, True]]


@pytest.mark.parametrize(
    ("code", "arrays", "expected"),
    [
        ((), (), "leaves 0 results"),
        ((1, 1), (), "leaves 2 results"),
        ((99,), (), "no instruction"),
        ((-1,), (), "no instruction"),
        ((1, 7), (), "AND at place 1 has too little"),
        ((9,), (), "NOT at place 0 has too little"),
        ((2,), (), "ends within WINDOW"),
        ((3, 0), (), "reads array 0 of 0"),
        ((3, 0), (np.zeros((1, 3)),), "must read bool with 2 axes"),
        ((4, 0, 0), (np.zeros(3, dtype=np.int64),), "must read int64 with 2 axes"),
        ((10, 0), (), "never stored"),
    ],
)
def test_programs_with_problems(code, arrays, expected):
    assert any(expected in problem for problem in MaskProgram(code, arrays).problems())


def test_where_is_refused():
    with pytest.raises(UnsupportedError, match="Python function"):
        MaskProgram((Op.WHERE, 0)).allowed(np.array([[0]]), np.array([0]))
