"""Gradients for backends that autograd cannot see through, and the custom op that compilers see.

In eager mode an ``autograd.Function`` carries the call. Under ``torch.compile`` the call crosses a custom-op boundary
as integers and tensors: that is what lowering a mask is for. Either way the backward pass is itself differentiable:
when a second derivative is asked for, the gradient is taken through ``reference``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.ops._backends import native, reference, tiled
from regard.ops._backends import torch as sdpa
from regard.ops._call import Call
from regard.ops._lower import Lowered
from regard.ops._strip import Geometry, statistics_dtype
from regard.records import Op

Grads = tuple[Tensor | None, ...]


def run_tiled(call: Call) -> Tensor:
    """The output by ``tiled``, differentiable."""
    if torch.compiler.is_compiling():
        return _run_op(call)
    if not call.needs_grad:
        return tiled.forward(call).output.to(call.query.dtype)
    return _Tiled.apply(call, *call.inputs)  # type: ignore[no-untyped-call, no-any-return]


def run_native(call: Call) -> Tensor:
    """The output by ``native``, differentiable any number of times."""
    if call.is_empty:
        return reference.forward(call.with_dense_bias())  # zeros, or nothing: there is no work for a kernel
    if torch.compiler.is_compiling() or not native.is_readable(call):
        return _run_native_op(call.with_dense_bias())
    if not call.needs_grad:
        output = native.forward(call).output
        assert output is not None
        return output
    return _Native.apply(call, *call.inputs)  # type: ignore[no-untyped-call, no-any-return]


def run_sdpa(call: Call) -> Tensor:
    """The output by ``torch``, differentiable any number of times."""
    if torch.compiler.is_compiling() or not call.needs_grad:
        return sdpa.forward(call)
    return _Sdpa.apply(call, *call.inputs)  # type: ignore[no-untyped-call, no-any-return]


def with_inputs(call: Call, inputs: tuple[Tensor | None, ...]) -> Call:
    """The same call on other tensors."""
    query, key, value, bias, sinks = inputs
    assert query is not None
    assert key is not None
    return replace(call, query=query, key=key, value=value, bias=bias, sinks=sinks)


def _differentiable(call: Call, inputs: tuple[Tensor | None, ...], grad: Tensor, wanted: tuple[bool, ...]) -> Grads:
    """Gradients through ``reference``, connected to the inputs and to ``grad`` so that they can be differentiated."""
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want and tensor is not None]
    output = reference.forward(with_inputs(call, inputs).with_dense_bias())
    grads = iter(torch.autograd.grad(output, chosen, grad, create_graph=True, allow_unused=True))
    return tuple(next(grads) if want else None for want in wanted)


def _other_tensors(call: Call) -> tuple[Tensor, ...]:
    """What backward reads of mask and bias, saved like inputs, so that torch notices when somebody writes to them."""
    slopes = () if call.alibi is None else (call.alibi.slopes,)
    return (*slopes, *(() if call.mask is None else call.mask.tensors))


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Tensor | None) -> Tensor:
        done = tiled.forward(call)
        ctx.call, ctx.done = call, done
        ctx.save_for_backward(*inputs, *_other_tensors(call))
        return done.output.to(call.query.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, *Grads]:
        wanted = ctx.needs_input_grad[1:]
        inputs = ctx.saved_tensors[: len(wanted)]
        if torch.is_grad_enabled():
            return None, *_differentiable(ctx.call, inputs, grad, wanted)
        found = tiled.backward(with_inputs(ctx.call, inputs), ctx.done, grad)
        grads = (found.query, found.key, found.value, found.bias, found.sinks)
        return None, *(
            found.to(tensor.dtype) if want and tensor is not None and found is not None else None
            for found, tensor, want in zip(grads, inputs, wanted, strict=True)
        )


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Tensor | None) -> Tensor:
        done = native.forward(call)
        assert done.output is not None
        ctx.call = call
        ctx.save_for_backward(*inputs, done.output, done.lse, *_other_tensors(call))
        return done.output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, *Grads]:
        wanted = ctx.needs_input_grad[1:]
        saved = ctx.saved_tensors  # once: under gradient checkpointing, reading it recomputes and hands over
        inputs, (output, lse) = saved[: len(wanted)], saved[len(wanted) : len(wanted) + 2]
        if torch.is_grad_enabled():
            return None, *_differentiable(ctx.call, inputs, grad, wanted)
        found = native.backward(with_inputs(ctx.call, inputs), native.Done(output, lse, []), grad, wanted)
        return None, *(
            found.to(tensor.dtype) if tensor is not None and found is not None else None
            for found, tensor in zip(found, inputs, strict=True)
        )


class _Sdpa(torch.autograd.Function):
    """SDPA with its own gradient, and with ``reference``'s when that gradient must itself be differentiated."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Tensor | None) -> Tensor:
        with torch.enable_grad():
            inner = tuple(
                None if tensor is None else tensor.detach().requires_grad_(tensor.requires_grad) for tensor in inputs
            )
            output = sdpa.forward(with_inputs(call, inner))
        ctx.call, ctx.inner, ctx.output = call, inner, output
        ctx.save_for_backward(*inputs, *_other_tensors(call))
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, *Grads]:
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            return None, *_differentiable(ctx.call, ctx.saved_tensors[: len(wanted)], grad, wanted)
        chosen = [tensor for tensor, want in zip(ctx.inner, wanted, strict=True) if want]
        # torch's kernel for CPUs reads the memory of a negated view as it is
        grads = iter(torch.autograd.grad(ctx.output, chosen, grad.resolve_neg(), retain_graph=True))
        return None, *(next(grads) if want else None for want in wanted)


# What crosses the custom-op boundary: the tensors of a call, and everything else as numbers.
_OpArguments = tuple[Any, ...]


def _pack(call: Call) -> _OpArguments:
    """The arguments of the custom ops for a call. A predicate becomes a dense tensor here, inside the graph."""
    mask, geometry = call.mask, call.geometry
    if mask is not None and mask.functions:
        dense = mask.allowed(geometry, slice(None), slice(None))
        mask = Lowered((int(Op.ALLOWED), 0), (dense.contiguous(),))
    return (
        call.query,
        call.key,
        call.value,
        list(mask.tensors) if mask is not None else [],
        call.bias,
        call.sinks,
        geometry.q_positions,
        call.seed,
        list(mask.code) if mask is not None else [],
        geometry.kv_start,
        call.scale,
        call.logit_softcap,
        call.dropout_p,
    )


def _unpack(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    bias: Tensor | None,
    sinks: Tensor | None,
    q_positions: Tensor,
    seed: Tensor | None,
    code: list[int],
    kv_start: int,
    scale: float,
    logit_softcap: float | None,
    dropout_p: float,
) -> Call:
    batch, heads, q_len, _ = query.shape
    geometry = Geometry(
        batch, heads, q_len, key.shape[2], q_positions, kv_start, statistics_dtype(query.dtype), query.device
    )
    mask = Lowered(tuple(code), tuple(tensors)) if code else None
    return Call(
        "attend", query, key, value, geometry, mask, bias, scale, logit_softcap, sinks, dropout_p, seed
    )  # fmt: skip


@torch.library.custom_op("regard::tiled", mutates_args=())
def tiled_op(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    bias: Tensor | None,
    sinks: Tensor | None,
    q_positions: Tensor,
    seed: Tensor | None,
    code: list[int],
    kv_start: int,
    scale: float,
    logit_softcap: float | None,
    dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output in the dtype of the query, output in the dtype of the statistics, lse."""
    call = _unpack(
        query, key, value, tensors, bias, sinks, q_positions, seed, code, kv_start, scale, logit_softcap, dropout_p
    )
    done = tiled.forward(call)
    return done.output.to(query.dtype, copy=True), done.output, done.lse


@tiled_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_others: Any) -> tuple[Tensor, Tensor, Tensor]:
    dtype = statistics_dtype(query.dtype)
    shape = (*query.shape[:3], value.shape[3])
    return query.new_empty(shape), query.new_empty(shape, dtype=dtype), query.new_empty(query.shape[:3], dtype=dtype)


@torch.library.custom_op("regard::tiled_backward", mutates_args=())
def tiled_backward_op(
    grad: Tensor,
    output: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    bias: Tensor | None,
    sinks: Tensor | None,
    q_positions: Tensor,
    seed: Tensor | None,
    code: list[int],
    kv_start: int,
    scale: float,
    logit_softcap: float | None,
    dropout_p: float,
    bias_wanted: bool,
    sinks_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, bias and sinks; the last two are empty where not wanted."""
    bias_ = bias.detach().requires_grad_(bias_wanted) if bias is not None else None
    sinks_ = sinks.detach().requires_grad_(sinks_wanted) if sinks is not None else None
    call = _unpack(
        query, key, value, tensors, bias_, sinks_, q_positions, seed, code, kv_start, scale, logit_softcap, dropout_p
    )
    found = tiled.backward(call, tiled.Forward(output, lse), grad)
    nothing = query.new_empty(0)
    return (
        found.query.to(query.dtype),
        found.key.to(key.dtype),
        found.value.to(value.dtype),
        nothing if found.bias is None or bias is None else found.bias.to(bias.dtype),
        nothing.clone() if found.sinks is None or sinks is None else found.sinks.to(sinks.dtype),
    )


@torch.library.custom_op("regard::native", mutates_args=())
def native_op(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    bias: Tensor | None,
    sinks: Tensor | None,
    q_positions: Tensor,
    seed: Tensor | None,
    code: list[int],
    kv_start: int,
    scale: float,
    logit_softcap: float | None,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """Output and lse."""
    call = _unpack(
        query, key, value, tensors, bias, sinks, q_positions, seed, code, kv_start, scale, logit_softcap, dropout_p
    )
    done = native.forward(call)
    assert done.output is not None
    return done.output, done.lse


@native_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    shape = query.shape[:3]
    return query.new_empty((*shape, value.shape[3])), query.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("regard::native_backward", mutates_args=())
def native_backward_op(
    grad: Tensor,
    output: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tensors: list[Tensor],
    bias: Tensor | None,
    sinks: Tensor | None,
    q_positions: Tensor,
    seed: Tensor | None,
    code: list[int],
    kv_start: int,
    scale: float,
    logit_softcap: float | None,
    dropout_p: float,
    bias_wanted: bool,
    sinks_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, bias and sinks; the last two are empty where not wanted."""
    call = _unpack(
        query, key, value, tensors, bias, sinks, q_positions, seed, code, kv_start, scale, logit_softcap, dropout_p
    )
    wanted = (True, True, True, bias_wanted, sinks_wanted)
    found = native.backward(call, native.Done(output, lse, []), grad, wanted)
    query_grad, key_grad, value_grad, bias_grad, sinks_grad = (
        query.new_empty(0) if gradient is None or tensor is None else gradient.to(tensor.dtype)
        for gradient, tensor in zip(found, call.inputs, strict=True)
    )
    return query_grad, key_grad, value_grad, bias_grad, sinks_grad


@tiled_backward_op.register_fake
@native_backward_op.register_fake
def _(grad: Tensor, output: Tensor, lse: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Any:
    _tensors, bias, sinks = others[:3]
    bias_wanted, sinks_wanted = others[-2:]
    return (
        torch.empty_like(query, memory_format=torch.contiguous_format),
        torch.empty_like(key, memory_format=torch.contiguous_format),
        torch.empty_like(value, memory_format=torch.contiguous_format),
        bias.new_empty(bias.shape) if bias_wanted else query.new_empty(0),
        sinks.new_empty(sinks.shape) if sinks_wanted else query.new_empty(0),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, tensors, bias, sinks, q_positions, seed, *numbers = inputs
    ctx.numbers, ctx.count = numbers, len(tensors)
    ctx.has = bias is not None, sinks is not None, seed is not None
    ctx.set_materialize_grads(False)
    optional = [tensor for tensor in (bias, sinks, seed) if tensor is not None]
    ctx.save_for_backward(query, key, value, q_positions, *output[-2:], *tensors, *optional)


def _op_backward(backward_op: Callable[..., Grads], ctx: Any, grad: Tensor | None, *_others: Any) -> tuple[Any, ...]:
    query, key, value, q_positions, output, lse, *rest = ctx.saved_tensors
    tensors, optional = rest[: ctx.count], iter(rest[ctx.count :])
    bias, sinks, seed = (next(optional) if has else None for has in ctx.has)
    # torch takes an empty list of integers for a list of tensors
    no_code: list[None] | None = None if ctx.numbers[0] else []
    nothing = None, None, no_code, None, None, None, None
    if grad is None:
        return None, None, None, [None] * ctx.count, None, None, *nothing
    wanted = (*ctx.needs_input_grad[:3], *ctx.needs_input_grad[4:6])
    arguments = (query, key, value, tensors, bias, sinks, q_positions, seed, *ctx.numbers)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        inputs = (query, key, value, bias, sinks)
        grads = _differentiable(_unpack(*arguments), inputs, grad, wanted)
    else:
        grads = backward_op(grad, output, lse, *arguments, wanted[3], wanted[4])
    chosen = [found if want else None for found, want in zip(grads, wanted, strict=True)]
    return *chosen[:3], [None] * ctx.count, *chosen[3:], *nothing


tiled_op.register_autograd(partial(_op_backward, tiled_backward_op), setup_context=_setup)
native_op.register_autograd(partial(_op_backward, native_backward_op), setup_context=_setup)


def _run_op(call: Call) -> Tensor:
    output: Tensor = tiled_op(*_pack(call))[0]
    return output


def _run_native_op(call: Call) -> Tensor:
    output: Tensor = native_op(*_pack(call))[0]
    return output


Runner = Callable[[Call], Tensor]
RUNNERS: dict[str, Runner] = {
    "native": run_native,
    "torch": run_sdpa,
    "tiled": run_tiled,
    "reference": reference.forward,
}
