"""The C++ kernels on x86-64 CPUs: output, lse and probes of a call in one pass, and its gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from regard.ops._backends import native_library
from regard.ops._backends.native_library import CBias, CCall, CGradients, CMask, CProbe, CTensor
from regard.ops._call import Call
from regard.ops._key_ranges import key_ranges
from regard.ops.biases import BLOCKING
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.transforms import in_transform

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
LARGEST_TOP_K = 64
LARGEST_DIM = 256


@dataclass(frozen=True, eq=False)
class Done:
    """What a forward call returns.

    Args:
        output: [batch, heads, q_len, value_dim] in the dtype of the query; None where only probes were asked.
        lse: Natural log of the denominators, sinks included.
        answers: One per question.
    """

    output: Tensor | None
    lse: Float[Tensor, "batch heads q"]
    answers: list[Answer]


def reasons_against(call: Call) -> list[str]:
    """Why this backend cannot take the call."""
    query, value = call.query, call.value
    if query.device.type != "cpu":
        return ["it runs on CPUs"]
    if not installed():
        return [no_kernels()]
    reasons = []
    if query.dtype not in DTYPES:
        reasons.append("float64 is for other backends")
    if max(query.shape[3], 0 if value is None else value.shape[3]) > LARGEST_DIM:
        reasons.append(f"head_dim or value_dim is above {LARGEST_DIM}")
    if call.dropout_p > 0:
        reasons.append("no dropout")
    return reasons


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def installed() -> bool:
    """Whether there are kernels for this CPU."""
    return native_library.kernels() is not None


def no_kernels() -> str:
    """Why there are none."""
    if native_library.wanted_isa() == "none":
        return "REGARD_ISA=none switches its kernels off"
    return "no kernels for this CPU are installed (`regard doctor` says more)"


def reasons_against_measuring(call: Call) -> list[str]:
    """Why this backend cannot measure the call's weights."""
    query = call.query
    if query.device.type != "cpu":
        return ["it runs on CPUs"]
    if native_library.kernels() is None:
        return [no_kernels()]
    reasons = ["a length is 0"] if call.is_empty else []
    if query.dtype not in DTYPES:
        reasons.append("float64 is for other backends")
    if query.shape[3] > LARGEST_DIM:
        reasons.append(f"head_dim is above {LARGEST_DIM}")
    if in_transform() or forward_ad._current_level >= 0:
        reasons.append("a transform is active")
    if not is_readable(call):
        reasons.append("a tensor has no memory of its own")
    return reasons


def is_readable(call: Call) -> bool:
    """Whether the memory of the call's tensors holds their values.

    A mode may be active (FakeTensorMode, say), a subclass may stand for other tensors, and torch has tensors that are
    zero or negated without having been written. Where this is False the custom op still serves: torch hands it plain
    tensors.
    """
    if torch._C._len_torch_dispatch_stack() > 0:
        return False
    slopes = None if call.alibi is None else call.alibi.slopes
    return all(tensor is None or is_plain(tensor) for tensor in (*call.inputs, slopes))


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor's memory holds its values."""
    own = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    return own and not tensor.is_neg() and not tensor._is_zerotensor()


def answers(question: Question) -> bool:
    """Whether the kernels can answer it."""
    return question.kind != Asked.TOP_K or question.size <= LARGEST_TOP_K


def forward(call: Call, questions: Sequence[Question] = (), *, output: bool = True) -> Done:
    """The output and the answers to all questions."""
    kept: list[object] = []  # what the structures point to
    value = call.value if output else None
    rows = call.query.shape[:3]
    out = None if value is None else call.query.new_empty(*rows, value.shape[3])
    lse = _empty(*rows)
    probes, found = _probes(call, questions, kept)
    asked = _describe(call, value, kept)
    asked.output = CTensor() if out is None else c_tensor(out)
    asked.lse = lse.data_ptr()
    if probes is not None:
        asked.probes, asked.num_probes = ctypes.cast(probes, ctypes.c_void_p), len(probes)
    check(_library().regard_forward(ctypes.byref(asked)))
    lse_answer = {Asked.LOG_SUM_EXP: Answer(call.geometry, lse)}
    return Done(
        out, lse, [lse_answer.get(question.kind, answer) for question, answer in zip(questions, found, strict=True)]
    )


ALL_INPUTS = (True, True, True, True, True)


def backward(
    call: Call,
    done: Done,
    grad: Float[Tensor, "batch heads q value_dim"],
    wanted: tuple[bool, ...] = ALL_INPUTS,
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value, bias and sinks, by recomputing the weights from lse.

    Args:
        call: The call.
        done: What ``forward`` returned for it.
        grad: Of the output.
        wanted: Which of the five to compute.

    Returns:
        The five, in float32; None where not wanted, or where the call has no such input.

    Cost:
        Five products of queries and keys. Extra memory is linear in the lengths, but for the gradient of a bias: a
        matrix for every head, summed only then over the axes along which the bias broadcasts.
    """
    assert done.output is not None
    kept: list[object] = []
    asked = _describe(call, call.value, kept)
    grad = grad if is_plain(grad) else grad.clone()
    grad, output = _rows(grad.to(call.query.dtype)), _rows(done.output)
    query, key, value = (
        _empty(*tensor.shape) if want and tensor is not None else None
        for tensor, want in zip((call.query, call.key, call.value), wanted, strict=False)
    )
    bias = sinks = None
    if wanted[3] and call.bias is not None:
        bias = _empty(*call.query.shape[:3], call.key.shape[2])
    results = (None if tensor is None else tensor.data_ptr() for tensor in (query, key, value, bias))
    gradients = CGradients(c_tensor(grad), c_tensor(output), done.lse.data_ptr(), *results)
    check(_library().regard_backward(ctypes.byref(asked), ctypes.byref(gradients)))
    if bias is not None and call.bias is not None:
        bias = bias.sum_to_size(call.bias.shape)
    if wanted[4] and call.sinks is not None:
        sinks = _sink_gradient(call.sinks.detach(), done.lse, grad, output)
    return query, key, value, bias, sinks


def _sink_gradient(sinks: Tensor, lse: Tensor, grad: Tensor, output: Tensor) -> Tensor:
    """A sink's value is zero: the gradient of its score is −share · Σ grad · output."""
    share = (sinks.float() - lse).exp().masked_fill(lse == -torch.inf, 0)  # a sink of −inf beside no key takes nothing
    return (-share * (grad.float() * output.float()).sum(dim=3)).sum_to_size(sinks.shape)


def _describe(call: Call, value: Tensor | None, kept: list[object]) -> CCall:
    """The call as a C structure, its results not yet set."""
    query, key = _rows(call.query), _rows(call.key)
    value = None if value is None else _rows(value)
    positions = call.geometry.q_positions
    batch, heads, q_len, head_dim = query.shape
    sinks = None if call.sinks is None else call.sinks.detach().float().expand(batch, heads, q_len)
    kept += [query, key, value, positions, sinks]
    return CCall(
        DTYPES[query.dtype],
        torch.get_num_threads(),
        batch,
        heads,
        key.shape[1],
        q_len,
        key.shape[2],
        head_dim,
        0 if value is None else value.shape[3],
        call.scale,
        call.logit_softcap or 0.0,
        c_tensor(query),
        c_tensor(key),
        CTensor() if value is None else c_tensor(value),
        positions.data_ptr(),
        0 if positions.shape[0] == 1 else positions.stride(0),
        call.geometry.kv_start,
        _mask(call, kept),
        _bias(call, kept),
        None if sinks is None else sinks.data_ptr(),
        *((0, 0, 0) if sinks is None else sinks.stride()),
    )


def check(status: int) -> None:
    """Raise what a status means."""
    if status != 0:
        raise MemoryError("regard's native kernels could not get the memory they need")


def _rows(tensor: Tensor) -> Tensor:
    """The tensor with a contiguous last axis."""
    tensor = tensor.detach()
    return tensor if tensor.stride(3) == 1 or tensor.shape[3] == 1 else tensor.contiguous()


def c_tensor(tensor: Tensor) -> CTensor:
    """A tensor of four dimensions as the kernels are given it."""
    batch, head, row, _ = tensor.stride()
    return CTensor(tensor.data_ptr(), batch, head, row)


def _mask(call: Call, kept: list[object]) -> CMask:
    ranges = None if call.mask is None else key_ranges(call.mask, call.geometry, scan=_scan, cut=_cut)
    if ranges is None:
        return CMask()
    kept.append(ranges)
    low, high, tiles, bits = ranges.low, ranges.high, ranges.tiles, ranges.bits
    batch, head = (0 if low.shape[axis] == 1 else low.stride(axis) for axis in (0, 1))
    mask = CMask(low.data_ptr(), high.data_ptr(), batch, head)
    if tiles is not None and bits is not None:
        mask.tiles, mask.bits = tiles.data_ptr(), bits.data_ptr()
        mask.tiles_batch, mask.tiles_head = (0 if tiles.shape[axis] == 1 else tiles.stride(axis) for axis in (0, 1))
    return mask


def _scan(allowed: Tensor) -> tuple[Tensor, Tensor, bool]:
    """First allowed key of each row, one past the last, and whether any row has a gap between them."""
    batch, heads, q_len, kv_len = allowed.shape
    low = _empty(batch, heads, q_len, dtype=torch.int32)
    high = torch.empty_like(low)
    gaps = _library().regard_mask_ranges(
        allowed.data_ptr(), batch, heads, q_len, kv_len, _strides(allowed), low.data_ptr(), high.data_ptr()
    )
    return low, high, gaps > 0


def _cut(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The tensor as tiles of bits: which tile is where, and the bits of each."""
    batch, heads, q_len, kv_len = allowed.shape
    tiles = _empty(batch, heads, -(-q_len // 16), -(-kv_len // 64), dtype=torch.int32)
    arguments = (allowed.data_ptr(), batch, heads, q_len, kv_len, _strides(allowed), tiles.data_ptr())
    count = _library().regard_mask_tiles(*arguments, None)
    bits = _empty(count, 16, dtype=torch.int64)
    if count:
        _library().regard_mask_tiles(*arguments, bits.data_ptr())
    return tiles, bits


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Room for results, of the type the kernels write and in memory, whatever torch's defaults are."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def _library() -> ctypes.CDLL:
    library = native_library.kernels()
    assert library is not None
    return library


def _strides(tensor: Tensor) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 4)(
        *(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    )


def _bias(call: Call, kept: list[object]) -> CBias:
    if call.alibi is not None:
        slopes = call.alibi.slopes.float().contiguous()
        kept.append(slopes)
        return CBias(slopes=slopes.data_ptr())
    if call.bias is None:
        return CBias()
    bias = call.bias.detach()
    blocked = max(BLOCKING, torch.finfo(bias.dtype).min)
    if bias.dtype not in DTYPES:
        bias = bias.float()
    if bias.shape[3] > 1 and bias.stride(3) not in (0, 1):
        bias = bias.contiguous()
    kept.append(bias)
    strides = [0 if size == 1 else step for size, step in zip(bias.shape, bias.stride(), strict=True)]
    return CBias(bias.data_ptr(), *strides, DTYPES[bias.dtype], blocked)


def _probes(
    call: Call, questions: Sequence[Question], kept: list[object]
) -> tuple[ctypes.Array[CProbe] | None, list[Answer]]:
    """The questions as C structures, and the answers that will be written."""
    structures: list[CProbe] = []
    answers: list[Answer] = []
    for question in questions:
        answer = Answer(call.geometry, *_places(call, question))
        answers.append(answer)
        if question.kind == Asked.LOG_SUM_EXP:
            continue
        numbers = (ctypes.c_int64 * len(question.numbers))(*question.numbers)
        kept.append(numbers)
        structures.append(
            CProbe(
                question.kind,
                question.size,
                question.cols,
                question.length,
                ctypes.cast(numbers, ctypes.c_void_p),
                answer.values.data_ptr(),
                None if answer.keys is None else answer.keys.data_ptr(),
                None if answer.rest is None else answer.rest.data_ptr(),
            )
        )
    if not structures:
        return None, answers
    array = (CProbe * len(structures))(*structures)
    kept.append(array)
    return array, answers


def _places(call: Call, question: Question) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Tensors for an answer: values, keys, rest."""
    rows = call.query.shape[:3]
    size, kv_len = question.size, call.key.shape[2]
    match question.kind:
        case Asked.LOG_SUM_EXP:
            return _empty(0), None, None
        case Asked.TOP_K:
            return _empty(*rows, size), _empty(*rows, size, dtype=torch.int64), _empty(*rows)
        case Asked.OFFSETS | Asked.SPANS:
            return _empty(*rows, size), None, None
        case Asked.KEY_MASS:
            return _empty(*rows[:2], kv_len, dtype=torch.float64), None, None
        case Asked.HEAT_MAP:
            return _empty(*rows[:2], size, question.cols, dtype=torch.float64), None, None
        case Asked.WEIGHTS:
            return _empty(*rows[:2], size, kv_len), None, None
        case _:
            return _empty(*rows), None, None
