"""The public operation: attend, observe, weights, explain_backend."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.ops import masks
from regard.ops._backends import reference
from regard.ops._backends.native import is_readable
from regard.ops._call import QStart
from regard.ops._dispatch import Backend, Explanation, choose, run
from regard.ops._express import attend_plainly
from regard.ops._validate import make_call
from regard.ops.biases import ALiBi
from regard.ops.measure import Observation, measure_call, observe_call
from regard.ops.probes import Probe
from regard.ops.transforms import is_listened_to, through_modes


def attend(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    value: Float[Tensor, "batch num_kv_heads kv_len value_dim"],
    *,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    q_start: QStart = "end",
    kv_start: int = 0,
    backend: Backend = "auto",
) -> Float[Tensor, "batch num_heads q_len value_dim"]:
    """Exact scaled dot-product attention.

        score  = scale · q·k, then logit_softcap · tanh(score / logit_softcap), then + bias, then −inf where masked
        output = softmax(score) @ value

    Args:
        query: Queries. Any strides; float64, float32, bfloat16 or float16.
        key: Keys; query head h reads kv head h // (num_heads / num_kv_heads).
        value: Values.
        mask: What may be seen: a mask (``Causal() & Padding(keep)``), or a bool tensor with True = may attend, of
            shape [kv_len], [q_len, kv_len], [batch, q_len, kv_len] or broadcastable to four dimensions.
        bias: Added to the scores: ``ALiBi(slopes)``, or a tensor broadcastable to [batch, num_heads, q_len, kv_len].
            −inf, anything ≤ −3.38e38, or the lowest value of its dtype blocks. +inf makes its row NaN.
        scale: Multiplies q·k; head_dim^−½ by default.
        logit_softcap: Bounds scores smoothly to ±logit_softcap.
        sinks: [num_heads] or [batch, num_heads, q_len, 1]: one more logit per row, with value zero.
        dropout_p: Share of the weights dropped from the output (not from what probes see); the rest is scaled up.
        q_start: Position of query 0: "end" (the queries are the last positions, as in cached decoding), "start" (the
            position of key 0), an int, or an int64 tensor [batch].
        kv_start: Position of key 0, for a cache that has dropped its oldest keys.
        backend: "auto", "native", "torch", "tiled" or "reference". A named backend never falls back.

    Returns:
        The output, in the dtype of ``query``. A query that may see no key gets zeros.

    Raises:
        ShapeError: a shape does not fit its neighbours.
        DTypeError: a dtype is not accepted, or a mask and a bias were mixed up.
        ConfigError: a number is out of range, or a tensor is not on the device of ``query``.
        UnsupportedError: the named backend cannot take the call, or a tensor is sparse or on the meta device.

    Numerics:
        Scores and sums in float32 (float64 for float64). What lies behind the mask has no influence, NaN and Inf
        included, forward and backward. Deterministic on CPU for a given thread count.

    Cost:
        Time O(batch · heads · q_len · kv_len · (head_dim + value_dim)) less what the mask lets a backend skip; extra
        memory linear in the lengths (``reference``: quadratic).

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1.

    Example:
        >>> import torch, regard
        >>> q = k = v = torch.zeros(1, 2, 3, 4)
        >>> regard.attend(q, k, v, mask=regard.Causal()).shape
        torch.Size([1, 2, 3, 4])
    """
    if is_listened_to():
        return through_modes(
            attend,
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            scale=scale,
            logit_softcap=logit_softcap,
            sinks=sinks,
            dropout_p=dropout_p,
            q_start=q_start,
            kv_start=kv_start,
            backend=backend,
        )
    if (
        type(backend) is str
        and backend in ("auto", "native")
        and bias is None
        and sinks is None
        and logit_softcap is None
        and type(dropout_p) in (float, int)
        and dropout_p == 0
        and type(q_start) is str
        and q_start == "end"
        and type(kv_start) is int
        and kv_start == 0
        and (scale is None or (type(scale) is float and abs(scale) < 3e38))
    ):
        output = attend_plainly(query, key, value, mask, scale)
        if output is not None:
            return output
    call = make_call(
        "attend",
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        dropout_p=dropout_p,
        q_start=q_start,
        kv_start=kv_start,
    )
    return run(call, backend)


def observe(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    value: Float[Tensor, "batch num_kv_heads kv_len value_dim"],
    probes: Iterable[Probe],
    *,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    q_start: QStart = "end",
    kv_start: int = 0,
    backend: Backend = "auto",
) -> tuple[Float[Tensor, "batch num_heads q_len value_dim"], Observation]:
    """``attend``, and what the probes say of its weights.

    Args:
        query: As for ``attend``, and so is every argument not named here.
        key: As for ``attend``.
        value: As for ``attend``.
        probes: What to ask of the weights, such as ``[Entropy(), TopK(16)]``.
        mask: As for ``attend``.
        bias: As for ``attend``.
        scale: As for ``attend``.
        logit_softcap: As for ``attend``.
        sinks: As for ``attend``.
        dropout_p: As for ``attend``; probes see the weights before dropout.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.
        backend: Computes the output; where it has no probes of its own they are computed beside it.

    Returns:
        The output, bit for bit what ``attend`` returns, and an observation whose attributes are the probes' values
        (``seen.entropy``, ``seen.top_k.indices``), detached.

    Raises:
        ShapeError, DTypeError, ConfigError, UnsupportedError: as ``attend``.

    Cost:
        On the native backend the probes read the weights in the same pass; elsewhere one more product of queries and
        keys. Extra memory linear in the lengths.

    Example:
        >>> import torch, regard
        >>> q = k = v = torch.zeros(1, 2, 3, 4)
        >>> out, seen = regard.observe(q, k, v, [regard.Entropy()])
        >>> seen.entropy.exp().round()[0, 0].tolist()
        [3.0, 3.0, 3.0]
    """
    call = make_call(
        "observe",
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        dropout_p=dropout_p,
        q_start=q_start,
        kv_start=kv_start,
    )
    seen = Observation(probes, caller="observe")
    in_one_pass = choose(call, backend).backend == "native" and not call.needs_grad
    if in_one_pass and not call.is_empty and not torch.compiler.is_compiling() and is_readable(call):
        return observe_call(call, seen), seen
    return run(call, backend), measure_call(call, seen)


def weights(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    *,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    q_start: QStart = "end",
    kv_start: int = 0,
) -> Float[Tensor, "batch num_heads q_len kv_len"]:
    """The whole weight matrix, for short inputs; differentiable.

    Args:
        query: As for ``attend``, and so are all others.
        key: As for ``attend``.
        mask: As for ``attend``.
        bias: As for ``attend``.
        scale: As for ``attend``.
        logit_softcap: As for ``attend``.
        sinks: As for ``attend``.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.

    Returns:
        Weights per head, in float32 (float64 for float64), exactly 0 where masked. A row sums to 1, less the sink's
        share; a row that may see no key is all 0.

    Raises:
        ShapeError, DTypeError, ConfigError, UnsupportedError: as ``attend``.

    Cost:
        Quadratic memory: batch · num_heads · q_len · kv_len floats. For long inputs ask for probes (``observe``).

    Example:
        >>> import torch, regard
        >>> q = k = torch.zeros(1, 1, 2, 4)
        >>> regard.weights(q, k, mask=regard.Causal())[0, 0].tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    if is_listened_to():
        return through_modes(
            weights,
            query,
            key,
            mask=mask,
            bias=bias,
            scale=scale,
            logit_softcap=logit_softcap,
            sinks=sinks,
            q_start=q_start,
            kv_start=kv_start,
        )
    call = make_call(
        "weights",
        query,
        key,
        None,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        q_start=q_start,
        kv_start=kv_start,
    )
    with torch.autocast(call.query.device.type, enabled=False):
        return reference.dense(call.with_dense_bias()).weights


def explain_backend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    q_start: QStart = "end",
    kv_start: int = 0,
    backend: Backend = "auto",
) -> Explanation:
    """Which backend ``attend`` would use for the same arguments, and why not the others.

    Args:
        query: As for ``attend``, and so are all others.
        key: As for ``attend``.
        value: As for ``attend``.
        mask: As for ``attend``.
        bias: As for ``attend``.
        scale: As for ``attend``.
        logit_softcap: As for ``attend``.
        sinks: As for ``attend``.
        dropout_p: As for ``attend``.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.
        backend: As for ``attend``.

    Returns:
        The backend, the reason for it and the reasons against the others; ``print`` shows them one to a line.

    Raises:
        ShapeError, DTypeError, ConfigError, UnsupportedError: as ``attend``.

    Example:
        >>> import torch, regard
        >>> q = k = v = torch.zeros(1, 2, 3, 4)
        >>> regard.explain_backend(q, k, v, backend="reference").because
        'asked for by name'
    """
    call = make_call(
        "explain_backend",
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        dropout_p=dropout_p,
        q_start=q_start,
        kv_start=kv_start,
    )
    return choose(call, backend)
