"""Who computes a row: regard, and its peers by name.

A side is a function without arguments that does the whole work once and returns what it found by name, so that both
sides can be held against the same exact values. Masks and biases of peers are made before, outside the time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import ops
from regard.bench.inputs import Inputs
from regard.bench.rows import TOP_K
from regard.nn import MultiHeadAttention

Found = dict[str, Tensor]
Side = Callable[[], Found]
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]

_COPIES = 4  # of the dense weights that an eager side may hold at once


class UnavailablePeerError(Exception):
    """A peer that cannot run here, and why."""


def regard_side(inputs: Inputs, *, backend: str = "auto") -> Side:
    """What is measured."""
    options = {**inputs.options(), "backend": backend}
    if inputs.row.work == "module":
        return _module_side(inputs)
    if not inputs.row.observed:
        return _with_gradients(inputs, lambda query, key, value: ops.attend(query, key, value, **options))
    probes = inputs.probes()

    def observed() -> Found:
        output, seen = ops.observe(inputs.query, inputs.key, inputs.value, probes, **options)
        top = seen.top_k
        return {
            "output": output,
            "entropy": seen.entropy,
            "top_k.weights": top.weights,
            "top_k.indices": top.indices,
            "top_k.rest": top.rest,
            "key_mass": seen.key_mass,
            "heat_map": seen.heat_map,
        }

    return observed


def peer_side(name: str, inputs: Inputs) -> Side:
    """A peer of a row.

    Raises:
        UnavailablePeerError: It cannot run here.
    """
    return _PEERS[name](inputs)


def explain(inputs: Inputs, *, backend: str = "auto") -> ops.Explanation:
    """Who serves regard's side, and why."""
    options = {"mask": None, "bias": None} if inputs.row.work == "module" else inputs.options()
    return ops.explain_backend(
        inputs.query,
        inputs.key,
        inputs.value,
        **options,
        backend=backend,  # type: ignore[arg-type]
    )


def _with_gradients(inputs: Inputs, attention: Attention) -> Side:
    leaves = (inputs.query, inputs.key, inputs.value)
    if inputs.grad is None:
        return lambda: {"output": attention(*leaves)}

    def train() -> Found:
        output = attention(*leaves)
        query, key, value = torch.autograd.grad(output, leaves, inputs.grad)
        return {"output": output.detach(), "query": query, "key": key, "value": value}

    return train


def _sdpa(inputs: Inputs, **options: Any) -> Side:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **options)

    return _with_gradients(inputs, attention)


def _sdpa_bias(inputs: Inputs) -> Side:
    bias, allowed = inputs.bias, inputs.visible()
    assert bias is not None
    return _sdpa(inputs, attn_mask=bias if allowed is None else bias.masked_fill(~allowed, -torch.inf))


def _eager(inputs: Inputs) -> Side:
    """The output with the weights, which is how weights are read today."""
    _need_memory(inputs)
    kept: list[Tensor] = []

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights, output = _dense(inputs, query, key, value)
        kept[:] = [weights]  # a caller of this has them: they may not be freed early
        return output

    return _with_gradients(inputs, attention)


def _dense(inputs: Inputs, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    shape, allowed = inputs.row.shape, inputs.visible()
    # The heads of a group are rows of one product: keys are not repeated.
    together = query.reshape(shape.batch, shape.num_kv_heads, -1, shape.head_dim)
    scores = (together * shape.head_dim**-0.5) @ key.mT
    scores = scores.view(shape.batch, shape.num_heads, shape.q_len, shape.kv_len)
    if inputs.bias is not None:
        scores = scores + inputs.bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = torch.softmax(scores, -1)
    output = weights.view(shape.batch, shape.num_kv_heads, -1, shape.kv_len) @ value
    return weights, output.view(shape.batch, shape.num_heads, shape.q_len, shape.head_dim)


def _eager_probes(inputs: Inputs) -> Side:
    _need_memory(inputs)

    def observed() -> Found:
        weights, output = _dense(inputs, inputs.query, inputs.key, inputs.value)
        return {"output": output, **dense_probes(weights, inputs.row.heat_map)}

    return observed


def dense_probes(weights: Tensor, bins: int) -> Found:
    """The four probes of a dense weight matrix, [batch, heads, queries, keys], as one writes them in torch."""
    batch, heads, queries, keys = weights.shape
    best = weights.topk(min(TOP_K, keys), dim=-1)
    return {
        "entropy": torch.special.entr(weights).sum(-1),
        "top_k.weights": best.values,
        "top_k.indices": best.indices,
        "top_k.rest": weights.sum(-1) - best.values.sum(-1),
        "key_mass": weights.sum(-2),
        "heat_map": weights.view(batch, heads, bins, queries // bins, bins, keys // bins).sum(-1).mean(3),
    }


def _need_memory(inputs: Inputs) -> None:
    wanted = _COPIES * inputs.row.shape.cells * inputs.query.element_size()
    free = _free_bytes(inputs.query.device)
    if free is not None and wanted > free:
        raise UnavailablePeerError(f"its weights need about {wanted / 1e9:.0f} GB, {free / 1e9:.0f} GB are free")


def _free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def _flex(inputs: Inputs) -> Side:
    if inputs.query.device.type == "cpu" and shutil.which(os.environ.get("CXX", "c++")) is None:
        raise UnavailablePeerError("torch.compile needs a C++ compiler, and there is none")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    shape, device = inputs.row.shape, inputs.query.device.type
    blocks = None
    if inputs.row.case != "plain":
        allowed = inputs.visible()
        assert allowed is not None
        blocks = create_block_mask(
            lambda batch, head, query, key: allowed[0, 0, query, key],
            None,
            None,
            shape.q_len,
            shape.kv_len,
            device=device,
        )
    compiled = torch.compile(flex_attention, dynamic=False)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = compiled(query, key, value, block_mask=blocks)
        assert isinstance(output, Tensor)
        return output

    side = _with_gradients(inputs, attention)
    try:
        side()  # compiles
    except RuntimeError as error:
        raise UnavailablePeerError(f"torch.compile failed: {str(error).splitlines()[0]}") from error
    return side


def _projections(inputs: Inputs) -> tuple[nn.MultiheadAttention, MultiHeadAttention, Tensor]:
    """Both modules with the same weights, and the tokens they read."""
    shape = inputs.row.shape
    width = shape.num_heads * shape.head_dim
    theirs = nn.MultiheadAttention(width, shape.num_heads, batch_first=True)
    ours = MultiHeadAttention(width, shape.num_heads)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * width**-0.5)
        for part, linear in enumerate((ours.query, ours.key, ours.value)):
            linear.weight.copy_(theirs.in_proj_weight.chunk(3)[part])
            linear.bias.copy_(theirs.in_proj_bias.chunk(3)[part])
        ours.output.load_state_dict(theirs.out_proj.state_dict())
    tokens = inputs.query.detach().transpose(1, 2).reshape(shape.batch, shape.q_len, width)
    return theirs.to(tokens).eval(), ours.to(tokens).eval(), tokens


def _module_side(inputs: Inputs) -> Side:
    _, ours, tokens = _projections(inputs)
    return lambda: {"output": ours(tokens)}


def _mha(inputs: Inputs, *, need_weights: bool) -> Side:
    theirs, _, tokens = _projections(inputs)
    options = {"need_weights": need_weights, "average_attn_weights": False}
    return lambda: {"output": theirs(tokens, tokens, tokens, **options)[0]}


_PEERS: dict[str, Callable[[Inputs], Side]] = {
    "sdpa": _sdpa,
    "sdpa_causal": lambda inputs: _sdpa(inputs, is_causal=True),
    "sdpa_mask": lambda inputs: _sdpa(inputs, attn_mask=inputs.visible()),
    "sdpa_bias": _sdpa_bias,
    "sdpa_gqa": lambda inputs: _sdpa(inputs, enable_gqa=True),
    "eager": _eager,
    "eager_probes": _eager_probes,
    "mha": lambda inputs: _mha(inputs, need_weights=False),
    "mha_weights": lambda inputs: _mha(inputs, need_weights=True),
    "flex": _flex,
}
"""Peers by name. ``sdpa…`` is torch's ``scaled_dot_product_attention`` told the mask in that way; ``eager`` keeps its
weights; ``eager_probes`` also takes the four probes of them; ``mha`` is ``nn.MultiheadAttention``, without and with
``need_weights``; ``flex`` is compiled FlexAttention."""

SLOW_PEERS = frozenset({"flex"})
"""Peers that need more seconds to get ready than ``--quick`` has."""
