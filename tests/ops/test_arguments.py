"""What is refused, as what, and in which words (DESIGN §2, lines 3, 4 and 12; STYLE, Errors)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ConfigError, DTypeError, Error, ShapeError, UnsupportedError
from regard.ops import (
    Allowed,
    Blocked,
    Causal,
    Documents,
    Padding,
    Prefix,
    SlidingWindow,
    attend,
    explain_backend,
    observe,
    weights,
)
from regard.ops._validate import _check_tensors
from regard.ops.probes import Entropy
from tests.ops.backends import ALL, each_backend, skip_unavailable

pytestmark = pytest.mark.usefixtures("unchecked")


def call(
    batch: int = 2, heads: int = 2, q_len: int = 3, kv_len: int = 4, dim: int = 8, **changes: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "query": torch.randn(batch, heads, q_len, dim),
        "key": torch.randn(batch, heads, kv_len, dim),
        "value": torch.randn(batch, heads, kv_len, dim),
    }
    return made | changes


def refused(kind: type[Error], *words: str, function: Any = attend, **arguments: Any) -> str:
    """The call is refused, and the message holds every one of these words."""
    with pytest.raises(kind) as caught:
        function(**arguments)
    text = str(caught.value)
    missing = [word for word in words if word not in text]
    assert not missing, f"the message lacks {missing}:\n{text}"
    return text


# shapes


def test_kv_lengths_that_differ_are_named_with_every_shape() -> None:
    text = refused(
        ShapeError,
        "attend(): `value` must have the same kv_len as `key` (7), but has 6.",
        "query",
        "(2, 8, 5, 16)",
        "(2, 2, 7, 16)",
        "(2, 2, 6, 24)",
        "float32",
        "cpu",
        "num_heads=8",
        "num_kv_heads=2",
        query=torch.zeros(2, 8, 5, 16),
        key=torch.zeros(2, 2, 7, 16),
        value=torch.zeros(2, 2, 6, 24),
    )
    assert text.count("\n") >= 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": torch.zeros(2, 2, 4, 6)}, ("key", "head_dim", "8", "6")),
        ({"key": torch.zeros(3, 2, 4, 8)}, ("key", "batch", "2", "3")),
        ({"value": torch.zeros(3, 2, 4, 8)}, ("value", "batch", "2", "3")),
        ({"value": torch.zeros(2, 1, 4, 8)}, ("value", "num_kv_heads", "2", "1")),
        ({"query": torch.zeros(2, 3, 8)}, ("query", "4", "(2, 3, 8)", "batch", "num_heads")),
        ({"key": torch.zeros(4, 8)}, ("key", "4", "(4, 8)")),
        ({"sinks": torch.zeros(3)}, ("sinks", "2", "3")),
        ({"bias": torch.zeros(5, 4)}, ("bias", "(5, 4)")),
        ({"bias": torch.zeros(2, 2, 3, 5)}, ("bias", "(2, 2, 3, 5)")),
        ({"mask": torch.ones(5, 4).bool()}, ("mask", "(5, 4)")),
        ({"mask": torch.ones(3, 3, 4).bool()}, ("mask", "(3, 3, 4)")),
        ({"mask": torch.ones(2, 3, 3, 4).bool()}, ("mask", "(2, 3, 3, 4)")),
        ({"mask": torch.ones(1, 2, 2, 3, 4).bool()}, ("mask", "(1, 2, 2, 3, 4)")),
        ({"mask": Padding(torch.ones(2, 5).bool())}, ("Padding", "5", "4")),
        ({"mask": Padding(torch.ones(3, 4).bool())}, ("Padding", "3", "2")),
        ({"mask": Documents(torch.zeros(2, 5).long())}, ("Documents", "5", "4")),
        ({"mask": Allowed(torch.ones(2, 2, 3, 5).bool())}, ("Allowed", "(2, 2, 3, 5)")),
        ({"mask": Causal() & Padding(torch.ones(2, 5).bool())}, ("Padding", "5", "4")),
        ({"mask": Prefix(torch.zeros(3).long())}, ("Prefix", "3", "2")),
        ({"q_start": torch.zeros(3).long()}, ("q_start", "3", "2")),
    ],
)
def test_shapes_that_do_not_fit_are_named(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(ShapeError, *words, **call(**changes))


@each_backend
def test_a32_f8_heads_that_do_not_divide_name_both_numbers(backend: str) -> None:
    skip_unavailable(backend)
    for heads, kv_heads in ((5, 2), (6, 4), (2, 4)):
        refused(
            ShapeError,
            f"num_heads={heads}",
            f"num_kv_heads={kv_heads}",
            query=torch.zeros(1, heads, 3, 4),
            key=torch.zeros(1, kv_heads, 3, 4),
            value=torch.zeros(1, kv_heads, 3, 4),
            backend=backend,
        )


def test_g9_input_without_batch_is_refused_naming_the_axes() -> None:
    flat = torch.zeros(3, 4)
    refused(ShapeError, "query", "(3, 4)", "batch", "num_heads", "q_len", "head_dim", query=flat, key=flat, value=flat)


def test_messages_name_the_function_that_was_called() -> None:
    wrong = call(key=torch.zeros(2, 2, 4, 6))
    refused(ShapeError, "observe(): ", function=observe, probes=[Entropy()], **wrong)
    del wrong["value"]
    refused(ShapeError, "weights(): ", function=weights, **wrong)


# dtypes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": torch.zeros(2, 2, 4, 8).double()}, ("key", "float32", "float64")),
        ({"value": torch.zeros(2, 2, 4, 8).bfloat16()}, ("value", "float32", "bfloat16")),
        ({"query": torch.zeros(2, 2, 3, 8).long()}, ("query", "int64")),
        ({"bias": torch.zeros(3, 4).long()}, ("bias", "int64")),
        ({"bias": torch.ones(3, 4).bool()}, ("bias", "bool", "mask")),
        ({"sinks": torch.zeros(2).long()}, ("sinks", "int64")),
        ({"q_start": torch.zeros(2)}, ("q_start", "float32", "int64")),
    ],
)
def test_dtypes_that_do_not_fit_are_named(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(DTypeError, *words, **call(**changes))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("function", [attend, weights])
def test_a5_a45_an_integer_mask_is_refused_naming_allowed(dtype: torch.dtype, function: Any) -> None:
    arguments = call(mask=torch.ones(3, 4, dtype=dtype))
    if function is weights:
        del arguments["value"]
    name = str(dtype).removeprefix("torch.")
    refused(DTypeError, "mask", name, "bool", "Allowed", function=function, **arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a45_a_float_mask_is_refused_naming_bias(dtype: torch.dtype) -> None:
    refused(
        DTypeError,
        "mask",
        str(dtype).removeprefix("torch."),
        "bool",
        "bias",
        **call(mask=torch.zeros(3, 4, dtype=dtype)),
    )


def test_the_way_out_of_an_integer_mask_that_the_message_names_works() -> None:
    integers = torch.tensor([[1, 1, 0, 0]] * 3)
    arguments = call()
    expected = attend(**arguments, mask=integers.bool())
    assert torch.equal(attend(**arguments, mask=Allowed(integers != 0)), expected)
    assert torch.equal(attend(**arguments, mask=Blocked(integers == 0)), expected)


@pytest.mark.parametrize("shape", [(3, 4), (2, 1, 3, 4), (1, 2, 1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a3_a_bias_of_only_zeros_and_ones_is_refused_as_a_mistaken_mask(shape: Any, dtype: torch.dtype) -> None:
    bias = torch.zeros(shape, dtype=dtype)
    bias[..., :2] = 1
    refused(Error, "bias", "0", "1", "mask", **call(bias=bias))


@pytest.mark.parametrize(
    "bias",
    [
        torch.zeros(3, 4),
        torch.ones(3, 4),
        torch.tensor([0.0, 1.0, -1.0, 0.0]).expand(3, 4),
        torch.tensor([0.0, 1.0, float("-inf"), 0.0]).expand(3, 4),
        torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(3, 4).clone().requires_grad_(),
    ],
    ids=["zeros", "ones", "three values", "blocking", "learned"],
)
def test_a3_other_biases_are_taken_as_they_are(bias: Tensor) -> None:
    arguments = call()
    logits = arguments["query"] @ arguments["key"].mT / 8**0.5 + bias
    torch.testing.assert_close(attend(**arguments, bias=bias), torch.softmax(logits, -1) @ arguments["value"])


# masks that could be read in two ways


@pytest.mark.parametrize(("batch", "q_len", "kv_len"), [(4, 4, 4), (2, 2, 5), (3, 3, 1)])
def test_a8_a14_a_2d_mask_that_could_be_padding_is_refused(batch: int, q_len: int, kv_len: int) -> None:
    arguments = call(batch=batch, q_len=q_len, kv_len=kv_len)
    mask = torch.ones(batch, kv_len, dtype=torch.bool)
    refused(ShapeError, "mask", "Padding(keep)", "mask[None, None]", **arguments, mask=mask)
    for plain in (mask[None, None], Padding(mask)):
        assert attend(**arguments, mask=plain).shape == (batch, 2, q_len, 8)


def test_a14_a_2d_mask_that_is_only_padding_is_refused_naming_padding() -> None:
    refused(ShapeError, "mask", "Padding(keep)", "(2, 4)", **call(batch=2, q_len=3, mask=torch.ones(2, 4).bool()))


def test_a14_a_2d_mask_of_one_batch_row_is_queries_by_keys() -> None:
    arguments = call(batch=1, q_len=1)
    mask = torch.tensor([[True, False, True, True]])
    assert torch.equal(attend(**arguments, mask=mask), attend(**arguments, mask=mask[None, None]))


# numbers


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("function", [attend, weights])
def test_a25_an_illegal_soft_cap_is_refused(cap: float, function: Any) -> None:
    arguments = call()
    if function is weights:
        del arguments["value"]
    refused(ConfigError, "logit_softcap", str(cap), function=function, **arguments, logit_softcap=cap)


@pytest.mark.parametrize("dropout_p", [-0.1, 1.5, float("nan")])
def test_a43_an_illegal_dropout_is_refused(dropout_p: float) -> None:
    refused(ConfigError, "dropout_p", str(dropout_p), **call(), dropout_p=dropout_p)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    refused(ConfigError, "scale", str(scale), **call(), scale=scale)


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.5, 0.125])
@each_backend
def test_scale_multiplies(backend: str, scale: float) -> None:
    skip_unavailable(backend)
    arguments = call()
    weighted = torch.softmax(arguments["query"] @ arguments["key"].mT * scale, -1) @ arguments["value"]
    try:
        output = attend(**arguments, scale=scale, backend=backend)
    except UnsupportedError:
        assert backend in ("torch", "native")
        return
    torch.testing.assert_close(output, weighted)


def test_all_problems_are_told_at_once() -> None:
    refused(ConfigError, "logit_softcap", "dropout_p", **call(), logit_softcap=-1.0, dropout_p=2.0)


def test_unknown_words_are_refused_with_the_known_ones() -> None:
    refused(ConfigError, "backend", "fastest", *ALL, **call(), backend="fastest")
    refused(ConfigError, "q_start", "middle", "end", "start", **call(), q_start="middle")


@pytest.mark.parametrize("size", [0, -1])
def test_a20_a_window_without_keys_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"SlidingWindow.*size.*{size}"):
        SlidingWindow(size)


def test_mask_and_bias_are_keywords() -> None:
    arguments = call()
    with pytest.raises(TypeError):
        attend(arguments["query"], arguments["key"], arguments["value"], Causal())  # type: ignore[misc]


def test_something_that_is_no_mask_is_refused() -> None:
    refused(DTypeError, "mask", "str", **call(), mask="causal")


# backends


def test_explain_backend_says_which_and_why() -> None:
    arguments = call()
    text = str(explain_backend(**arguments, mask=Causal()))
    assert any(name in text for name in ALL)
    assert len(text) > 20, "and why"
    doubled = {name: tensor.double() for name, tensor in arguments.items()}
    capped = str(explain_backend(**doubled, logit_softcap=1.0))
    assert "not torch: no logit_softcap" in capped, "who cannot take the call is named with the reason"
    assert "not native: float64" in capped or "no kernels" in capped


def test_a_named_backend_refuses_instead_of_falling_back() -> None:
    """torch's kernel knows no sinks: naming it must not quietly run something else."""
    text = refused(UnsupportedError, "torch", "sinks", **call(), sinks=torch.zeros(2), backend="torch")
    assert "no backend" not in text.lower() or "torch" in text


def test_a_named_torch_backend_refuses_what_it_does_wrong() -> None:
    broken = call()
    broken["query"][0, 0, 0] = float("nan")  # scaled_dot_product_attention would hide it (A44)
    refused(UnsupportedError, "torch", "NaN", **broken, mask=Causal(), backend="torch")


@pytest.mark.parametrize("name", ["query", "key", "value", "bias", "sinks"])
def test_arguments_that_are_no_tensors_are_named(name):
    # The shape checks of the test suite would refuse these before attend() can; a person has no such checks.
    arguments = {**dict.fromkeys(("query", "key", "value"), torch.zeros(1, 1, 2, 4)), name: [0.0]}
    with pytest.raises(DTypeError, match=rf"attend\(\): `{name}` must be a tensor, but is a list"):
        _check_tensors("attend", **arguments)


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("name", ["auto", *ALL])
def test_no_heads_give_an_empty_output(name, mask):
    query, key, value = torch.zeros(1, 0, 3, 5), torch.zeros(1, 0, 4, 5), torch.zeros(1, 0, 4, 6)
    output, seen = observe(query, key, value, [Entropy()], mask=mask, backend=name)
    assert output.shape == (1, 0, 3, 6)
    assert seen.entropy.shape == (1, 0, 3)
    assert weights(query, key, mask=mask).shape == (1, 0, 3, 4)
