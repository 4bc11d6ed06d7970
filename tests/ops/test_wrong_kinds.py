"""Things of the wrong kind are refused where they are given, by the name of the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import ConfigError, DTypeError
from regard.ops import Causal, Documents, Entropy, Padding, Prefix, SlidingWindow, Where, attend, measure, observe

Q = torch.zeros(1, 1, 3, 4)
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: SlidingWindow(1.5), ("SlidingWindow()", "`size`", "int", "float")),
        (lambda: SlidingWindow(True), ("SlidingWindow()", "`size`", "int", "bool")),
        (lambda: Where(3), ("Where()", "`fn`", "function", "int")),
        (lambda: Padding(None), ("Padding()", "`keep`", "tensor", "NoneType")),
        (lambda: Padding([[True]]), ("Padding()", "`keep`", "tensor", "list")),
        (lambda: Documents([0, 1]), ("Documents()", "`key_ids`", "tensor", "list")),
        (lambda: Prefix(2.0), ("Prefix()", "`length`", "int", "float")),
        (lambda: Causal() & torch.ones(3, 3).bool(), ("masks", "Tensor", "Allowed")),
    ],
)
def test_masks(build: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(DTypeError) as error:
        build()
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("answer", [1, torch.zeros(3, 3), torch.ones(3, 3).long()])
@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_a_predicate_that_does_not_answer_yes_or_no(answer: Any, backend: Any) -> None:
    with pytest.raises(DTypeError, match="`fn` must be a function that returns a bool tensor"):
        attend(Q, Q, Q, mask=Where(lambda b, h, i, j: answer), backend=backend)


def test_a_predicate_may_leave_out_leading_axes() -> None:
    found = attend(Q, Q, torch.eye(3)[None, None], mask=Where(lambda b, h, i, j: (i >= j)[0, 0]))
    torch.testing.assert_close(found, attend(Q, Q, torch.eye(3)[None, None], mask=Causal()))


@pytest.mark.parametrize("probes", [Entropy(), None, [3], ["entropy"]])
def test_probes(probes: Any) -> None:
    with pytest.raises(ConfigError, match=r"observe\(\): `probes` must be a list of probes"):
        observe(Q, Q, Q, probes)
    with pytest.raises(ConfigError, match=r"measure\(\): `probes` must be a list of probes"):
        measure(Q, Q, probes)


@pytest.mark.parametrize("name", ["scale", "logit_softcap", "dropout_p"])
@pytest.mark.parametrize("value", ["x", [1.0], torch.ones(2)])
def test_numbers(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` must be"):
        attend(Q, Q, Q, **{name: value})


@pytest.mark.parametrize("value", ["a", 1.5, None])
def test_kv_start(value: Any) -> None:
    with pytest.raises(ConfigError, match="`kv_start` must be an int"):
        attend(Q, Q, Q, kv_start=value)
