"""``from_torch``: outputs and gradients of torch's own modules, for every way they can be made."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn import from_torch
from regard.ops import Causal, Mask, Padding

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": nn.functional.silu, "module": nn.ELU()}
CHOICES = list(itertools.product((True, False), ACTIVATIONS, (True, False)))
KEEP = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


@pytest.fixture(autouse=True)
def without_the_warnings_of_torch() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        yield


def options(norm_first: bool, activation: str, bias: bool) -> dict[str, Any]:
    chosen = {"norm_first": norm_first, "activation": ACTIVATIONS[activation], "bias": bias}
    return {"dropout": 0.0, "batch_first": True, "dim_feedforward": 24, **chosen}


def blocked(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def same(theirs: nn.Module, wanted: Tensor, ours: nn.Module, found: Tensor, *inputs: Tensor) -> None:
    """Outputs and the gradients of inputs and of every parameter are equal to 1e-5."""
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    weight = torch.randn_like(wanted)
    grads = [torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True) for out in (found, wanted)]
    torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-5)
    sums = []
    for module, out in ((ours, found), (theirs, wanted)):
        grads = torch.autograd.grad((out * weight).sum(), [p for p in module.parameters() if p.requires_grad])
        sums.append(sorted(float(grad.square().sum()) for grad in split_up(module, grads)))
    torch.testing.assert_close(torch.tensor(sums[0]), torch.tensor(sums[1]), atol=1e-5, rtol=1e-4)


def split_up(module: nn.Module, grads: Any) -> Iterator[Tensor]:
    """Gradients of parameters, those of torch's packed projections in three parts."""
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    for name, grad in zip(names, grads, strict=True):
        yield from grad.chunk(3) if "in_proj" in name else (grad,)


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"bias": False},
        {"kdim": 6, "vdim": 5},
        {"add_zero_attn": True},
        {"batch_first": False},
    ],
)
def test_attention(made: dict[str, Any]) -> None:
    theirs = nn.MultiheadAttention(16, 4, **{"batch_first": True, **made})
    nn.init.normal_(theirs.out_proj.weight)
    ours = from_torch(theirs)
    query = torch.randn(2, 3, 16, requires_grad=True)
    key, value = torch.randn(2, 6, made.get("kdim", 16)), torch.randn(2, 6, made.get("vdim", 16))
    flip = (lambda t: t) if theirs.batch_first else (lambda t: t.transpose(0, 1))
    wanted, weights = theirs(flip(query), flip(key), flip(value), key_padding_mask=~KEEP, average_attn_weights=False)
    found, ours_weights = ours(query, key, value, Padding(KEEP), need_weights=True)
    torch.testing.assert_close(ours_weights, weights[..., :6], atol=1e-5, rtol=0)
    same(theirs, flip(wanted), ours, found, query)


@pytest.mark.parametrize("choice", CHOICES)
def test_encoder(choice: tuple[bool, str, bool]) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, **options(*choice))
    theirs = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16, eps=1e-3) if choice[0] else None)
    ours, x = from_torch(theirs), torch.randn(2, 6, 16, requires_grad=True)
    wanted = theirs(x, mask=blocked(6), src_key_padding_mask=~KEEP)
    same(theirs, wanted, ours, ours(x, Causal() & Padding(KEEP)), x)


@pytest.mark.parametrize("choice", CHOICES)
def test_decoder(choice: tuple[bool, str, bool]) -> None:
    layer = nn.TransformerDecoderLayer(16, 4, **options(*choice))
    theirs = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(16))
    ours = from_torch(theirs)
    x, memory = torch.randn(2, 5, 16, requires_grad=True), torch.randn(2, 6, 16, requires_grad=True)
    wanted = theirs(x, memory, tgt_mask=blocked(5), memory_key_padding_mask=~KEEP)
    same(theirs, wanted, ours, ours(x, memory, Causal(), Padding(KEEP)), x, memory)


@pytest.mark.parametrize("choice", CHOICES)
def test_transformer(choice: tuple[bool, str, bool]) -> None:
    theirs = nn.Transformer(16, 4, 2, 2, **options(*choice))
    ours = from_torch(theirs)
    source, target = torch.randn(2, 6, 16, requires_grad=True), torch.randn(2, 5, 16, requires_grad=True)
    wanted = theirs(source, target, tgt_mask=blocked(5), src_key_padding_mask=~KEEP, memory_key_padding_mask=~KEEP)
    seen: Mask = Padding(KEEP)
    same(theirs, wanted, ours, ours(source, target, seen, Causal(), seen), source, target)


def test_f11_evaluation_equals_the_fused_path_of_torch() -> None:
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, batch_first=True), 2).eval()
    ours, x = from_torch(theirs), torch.randn(2, 6, 16)
    assert not ours.training
    with torch.no_grad():
        wanted = theirs(x, src_key_padding_mask=~KEEP)
        torch.testing.assert_close(ours(x, Padding(KEEP))[KEEP], wanted[KEEP], atol=1e-5, rtol=0)


def test_parameters_are_copies_of_the_same_dtype_learned_or_not() -> None:
    theirs = nn.TransformerEncoderLayer(16, 4, batch_first=True, dtype=torch.float64, dropout=0.25)
    theirs.linear1.weight.requires_grad_(False)
    ours = from_torch(theirs)
    assert ours.feed_forward.wide.weight.dtype == torch.float64
    assert not ours.feed_forward.wide.weight.requires_grad
    assert ours.feed_forward.wide.weight.data_ptr() != theirs.linear1.weight.data_ptr()
    assert (ours.dropout.p, ours.feed_forward.dropout.p, ours.self.dropout_p) == (0.25, 0.25, 0.25)


class Doubled(nn.TransformerEncoderLayer):
    def forward(self, *args: Any, **options: Any) -> Tensor:
        return 2 * super().forward(*args, **options)


class DoubledAttention(nn.MultiheadAttention):
    pass


def changed(**parts: nn.Module) -> nn.TransformerEncoderLayer:
    """A layer with other parts than its own."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    for name, part in parts.items():
        setattr(layer, name, part)
    return layer


def hooked() -> nn.TransformerEncoderLayer:
    layer = changed()
    layer.linear1.register_forward_hook(lambda module, inputs, output: 2 * output)
    return layer


@pytest.mark.parametrize(
    "parts",
    [
        {"norm2": nn.LayerNorm(16, eps=0.7)},
        {"norm1": nn.RMSNorm(16), "norm2": nn.RMSNorm(16, eps=0.1)},
        {"norm1": nn.Identity()},
        {"norm1": nn.LayerNorm(16, elementwise_affine=False)},
    ],
)
def test_every_norm_is_taken_as_it_is(parts: dict[str, nn.Module]) -> None:
    theirs, x = changed(**parts), torch.randn(2, 5, 16)
    torch.testing.assert_close(from_torch(theirs)(x), theirs(x), atol=1e-5, rtol=0)
    stack = nn.TransformerEncoder(changed(), 1, norm=nn.LayerNorm(16, elementwise_affine=False))
    torch.testing.assert_close(from_torch(stack)(x), stack(x), atol=1e-5, rtol=0)


def test_an_activation_with_parameters_is_copied_and_a_shared_layer_stays_shared() -> None:
    theirs = nn.TransformerEncoderLayer(16, 4, 32, activation=nn.PReLU(), batch_first=True)
    assert from_torch(theirs).feed_forward.activation is not theirs.activation
    stack = nn.TransformerEncoder(theirs, 3)
    stack.layers[2] = stack.layers[0]
    ours = from_torch(stack)
    assert ours.layers[2] is ours.layers[0]
    assert ours.layers[1] is not ours.layers[0]


def test_a_parametrised_part_is_read_as_it_is() -> None:
    theirs, x = changed(), torch.randn(2, 5, 16)
    nn.utils.parametrizations.weight_norm(theirs.linear1)
    torch.testing.assert_close(from_torch(theirs)(x), theirs(x), atol=1e-5, rtol=0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("module", "error", "text"),
    [
        (nn.MultiheadAttention(8, 2, add_bias_kv=True), NotImplementedError, "add_bias_kv"),
        (nn.Linear(2, 2), TypeError, "`module` must be an nn.MultiheadAttention.*but is a Linear"),
        (
            nn.TransformerEncoder(nn.Linear(2, 2), 1, enable_nested_tensor=False),
            NotImplementedError,
            "`layers` must be an nn.TransformerEncoderLayer itself, but is a Linear",
        ),
        (Doubled(16, 4, 32), NotImplementedError, "`module` must be an nn.TransformerEncoderLayer itself, but is a D"),
        (DoubledAttention(16, 4), NotImplementedError, "an nn.MultiheadAttention itself, but is a DoubledAttention"),
        (changed(norm1=nn.BatchNorm1d(16)), NotImplementedError, "`norm1` must be an nn.LayerNorm itself or an nn.RMS"),
        (changed(linear1=nn.Sequential(nn.Linear(16, 32))), NotImplementedError, "`linear1` must be an nn.Linear"),
        (changed(dropout2=nn.Dropout(0.9)), NotImplementedError, r"different shares \(0.0, 0.9\)"),
        (hooked(), NotImplementedError, "`module` has a forward hook at linear1, which would be lost"),
    ],
)
def test_what_cannot_be_converted_is_named(module: nn.Module, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        from_torch(module)  # type: ignore[call-overload]
