"""The suite that any attention backend must pass, and the error budget it is judged by.

``check_backend("name")`` runs a registered backend on every rule of attention: masks, biases, positions, layouts,
empty rows, non-finite values that nobody may see, gradients. It needs torch only, so that a backend from elsewhere can
run it in its own tests.

How far a result may be off is not a number somebody liked. It follows from what plain torch does in the same dtype:

    |result − exact| <= 2 · (largest |plain − exact| + one rounding band)

where ``exact`` is float64 on the same (already rounded) inputs, ``plain`` is softmax(q·kᵀ)·v written with torch
operators in the dtype under test, and the band is what rounding each number once may do: eps·(1 + largest |logit|)
times the sum of the absolute values of the terms that were added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import UnsupportedError
from regard.ops._contract import Scene, scenes
from regard.ops.attention import attend
from regard.ops.biases import BLOCKING

__all__ = ["Budget", "ContractReport", "check_backend", "dense_attention", "error_budget"]


@dataclass(frozen=True, eq=False)
class Budget:
    """The exact value of one tensor and how far a result in the dtype under test may be from it.

    Args:
        exact: float64.
        allowed: Largest absolute error of each element.
    """

    exact: Float[Tensor, "..."]
    allowed: Float[Tensor, "..."]

    def excess(self, result: Float[Tensor, "..."]) -> float:
        """Return the largest error as a share of what is allowed: 1 or less passes, inf where NaN is misplaced."""
        if result.shape != self.exact.shape:
            return float("inf")
        if result.numel() == 0:
            return 0.0
        difference = (result.detach().double() - self.exact).abs()
        agreed = (result == self.exact) | (result.isnan() & self.exact.isnan())
        share = torch.where(agreed, 0.0, difference / self.allowed)
        return float(share.nan_to_num(nan=float("inf"), posinf=float("inf")).max())

    def problem(self, name: str, result: Float[Tensor, "..."]) -> str | None:
        """Say in one line what is wrong with the result, or None."""
        if result.shape != self.exact.shape:
            return f"{name} must have shape {tuple(self.exact.shape)}, but has {tuple(result.shape)}"
        excess = self.excess(result)
        return None if excess <= 1 else f"{name} is {excess:.3g} times as far off as its budget allows"


@dataclass(frozen=True)
class ContractReport:
    """What ``check_backend`` found.

    Args:
        backend: Its name.
        passed: Every scene that was computed, with its dtype, as "scene/dtype".
        refused: Scene to the reasons the backend gave for refusing it.
    """

    backend: str
    passed: tuple[str, ...]
    refused: dict[str, str]


def dense_attention(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    value: Float[Tensor, "batch num_kv_heads kv_len value_dim"],
    *,
    allowed: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "batch num_heads q_len value_dim"], Float[Tensor, "batch num_heads q_len kv_len"]]:
    """Attend as a textbook does, with torch operators in the dtype of the inputs: the yardstick, not the product.

        softmax(softcap(scale·q·kᵀ) + bias, masked by −inf, beside the sink)·v; empty rows are zero

    Args:
        query: As for attend().
        key: As for attend().
        value: As for attend(); what nobody may see must be finite.
        allowed: The mask, dense; broadcastable to [batch, num_heads, q_len, kv_len].
        bias: As for attend().
        scale: As for attend().
        logit_softcap: As for attend().
        sinks: As for attend().

    Returns:
        The output, and the weights without the sink's column.
    """
    logits, _ = _dense_logits(query, key, allowed, bias, scale, logit_softcap)
    sink = _sink_column(sinks, logits)
    beside = logits if sink is None else torch.cat([logits, sink], -1)
    empty = (beside == float("-inf")).all(-1, keepdim=True)
    weights = torch.softmax(beside.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)[..., : key.shape[2]]
    return weights @ _repeat(value, query.shape[1]), weights


def error_budget(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    value: Float[Tensor, "batch num_kv_heads kv_len value_dim"],
    grad_output: Float[Tensor, "batch num_heads q_len value_dim"] | None = None,
    *,
    allowed: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Float[Tensor, "..."] | None = None,
) -> dict[str, Budget]:
    """Compute what every result of a call must be, and how exactly, in the dtype of ``query``.

    Args:
        query: Values that nobody may see must already be finite: the yardstick multiplies them by zero.
        key: As for attend().
        value: As for attend().
        grad_output: With it, gradients are judged too.
        allowed: The mask, dense; broadcastable to [batch, num_heads, q_len, kv_len].
        bias: As for attend(), any float dtype.
        scale: As for attend().
        logit_softcap: As for attend().
        sinks: As for attend().

    Returns:
        Budgets for "output" and "weights" and, with ``grad_output``, for "query", "key", "value", "bias", "sinks":
        the gradients.
    """
    options: dict[str, Any] = {"allowed": allowed, "scale": scale, "logit_softcap": logit_softcap}
    tensors = {"query": query, "key": key, "value": value, "bias": bias, "sinks": sinks}
    exact = _evaluate(tensors, grad_output, torch.float64, options)
    # float64 cannot be measured against itself: there the error is that of float32 in units of eps
    measured_in = torch.float32 if query.dtype == torch.float64 else query.dtype
    plain = _evaluate(tensors, grad_output, measured_in, options)
    eps, tiny = torch.finfo(query.dtype).eps, torch.finfo(query.dtype).tiny
    band = _magnitudes(tensors, grad_output, options)
    budgets = {}
    for name, truth in exact.items():
        error = (plain[name].double() - truth).abs().nan_to_num(nan=0.0, posinf=0.0)
        largest = float(error.max()) if error.numel() else 0.0
        largest *= eps / torch.finfo(measured_in).eps
        budgets[name] = Budget(truth, 2 * (largest + eps * band[name] + tiny))
    return budgets


def check_backend(
    name: str,
    *,
    device: str | torch.device = "cpu",
    dtypes: Sequence[torch.dtype] = (torch.float64, torch.float32, torch.bfloat16, torch.float16),
    gradients: bool = True,
) -> ContractReport:
    """Run a registered backend on every rule of attention and on its gradients.

    A backend may refuse a scene by raising UnsupportedError with its reasons; it may not compute a wrong answer, and it
    must take plain attention in at least one of the dtypes.

    Args:
        name: What one writes as ``attend(..., backend=name)``.
        device: Where to run.
        dtypes: Which to try.
        gradients: Whether to judge the backward pass too.

    Returns:
        What passed and what was refused with which reasons.

    Raises:
        AssertionError: Listing everything that was wrong.
        BackendUnavailableError: If the backend cannot run on this machine.

    Example:
        >>> report = check_backend("tiled", dtypes=[torch.float32])
        >>> "plain/float32" in report.passed
        True
    """
    passed: list[str] = []
    refused: dict[str, str] = {}
    problems: list[str] = []
    for dtype in dtypes:
        for scene in scenes(dtype, torch.device(device)):
            title = f"{scene.name}/{str(dtype).removeprefix('torch.')}"
            try:
                found = _judge(scene, name, gradients)
            except UnsupportedError as reasons:
                if not str(reasons).strip():
                    problems.append(f"{title}: refused without a reason")
                refused[title] = str(reasons)
                continue
            problems += [f"{title}: {problem}" for problem in found]
            passed += [] if found else [title]
    if not any(title.startswith("plain/") for title in passed):
        problems.append("plain attention was not computed in any dtype")
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise AssertionError(f"check_backend(): {name!r} breaks the contract in {len(problems)} places:{listed}")
    return ContractReport(name, tuple(passed), refused)


def _judge(scene: Scene, backend: str, gradients: bool) -> list[str]:
    """Compute one scene and list what is wrong with the output, the gradients, and the inputs afterwards."""
    leaves = scene.leaves(gradients)
    before = {name: leaf.detach().clone() for name, leaf in leaves.items()}
    options: dict[str, Any] = {**leaves, **scene.options(), "backend": backend}
    output = attend(**options)
    problems = []
    if output.dtype != scene.query.dtype:
        problems.append(f"output must be {scene.query.dtype}, but is {output.dtype}")
    results = {"output": output}
    grad_output = scene.grad_output(output)
    if gradients:
        wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
        gradient = torch.autograd.grad(output, wanted, grad_output, allow_unused=True)
        for leaf_name, leaf, found in zip(leaves, wanted, gradient, strict=True):
            results[leaf_name] = torch.zeros_like(leaf) if found is None else found
    budgets = error_budget(**scene.yardstick(), grad_output=grad_output if gradients else None)
    for result_name, result in results.items():
        title = result_name if result_name == "output" else f"gradient of {result_name}"
        problem = budgets[result_name].problem(title, result)
        problems += [problem] if problem else []
    for leaf_name, leaf in leaves.items():
        if not torch.equal(leaf.detach().nan_to_num(), before[leaf_name].nan_to_num()):
            problems.append(f"{leaf_name} was changed in place")
    return problems


def _dense_logits(
    query: Tensor,
    key: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    logit_softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """Return the masked logits, and which cells are visible."""
    head_dim = query.shape[3]
    factor = scale if scale is not None else (head_dim**-0.5 if head_dim else 1.0)
    logits = (query * factor) @ _repeat(key, query.shape[1]).mT
    if logit_softcap is not None:
        logits = logit_softcap * torch.tanh(logits / logit_softcap)
    visible = torch.ones_like(logits, dtype=torch.bool)
    if allowed is not None:
        visible = visible & allowed
    if bias is not None:
        visible = visible & ~((bias.double() <= BLOCKING) | (bias == torch.finfo(bias.dtype).min))
        logits = logits + torch.where(visible, bias.to(logits.dtype), 0.0)
    return logits.masked_fill(~visible, float("-inf")), visible


def _repeat(tensor: Tensor, num_heads: int) -> Tensor:
    return tensor.repeat_interleave(num_heads // max(tensor.shape[1], 1), 1) if tensor.shape[1] else tensor


def _sink_column(sinks: Tensor | None, logits: Tensor) -> Tensor | None:
    if sinks is None:
        return None
    column = sinks.view(1, -1, 1, 1) if sinks.dim() == 1 else sinks
    return column.to(logits.dtype).expand(*logits.shape[:3], 1)


def _evaluate(
    tensors: dict[str, Tensor | None], grad_output: Tensor | None, dtype: torch.dtype, options: dict[str, Any]
) -> dict[str, Tensor]:
    """Run plain attention in a dtype, and its backward pass."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    leaves = {
        name: tensor.detach().to(tensor.dtype if name == "bias" else dtype).requires_grad_(grad_output is not None)
        for name, tensor in given.items()
    }
    bias = leaves.get("bias")
    with torch.enable_grad():
        output, weights = dense_attention(
            leaves["query"], leaves["key"], leaves["value"], bias=bias, sinks=leaves.get("sinks"), **options
        )
    results = {"output": output.detach(), "weights": weights.detach()}
    if grad_output is not None:
        found = torch.autograd.grad(output, list(leaves.values()), grad_output.to(dtype), allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
            results[name] = torch.zeros_like(leaf) if gradient is None else gradient
    return {name: result.double() for name, result in results.items()}


def _magnitudes(
    tensors: dict[str, Tensor | None], grad_output: Tensor | None, options: dict[str, Any]
) -> dict[str, Tensor]:
    """Compute, per result, the sum of the absolute values of its terms, times how much a rounded logit moves it."""
    wide = {name: None if tensor is None else tensor.detach().double() for name, tensor in tensors.items()}
    query, key, value = wide["query"], wide["key"], wide["value"]
    assert query is not None
    assert key is not None
    assert value is not None
    bias = tensors["bias"]
    bias = bias.detach() if bias is not None else None
    logits, visible = _dense_logits(query, key, options["allowed"], bias, options["scale"], options["logit_softcap"])
    _, weights = dense_attention(query, key, value, bias=bias, sinks=wide["sinks"], **options)
    weights = weights.nan_to_num()
    seen = logits[visible].abs().nan_to_num(posinf=0.0)
    condition = 1.0 + (float(seen.max()) if seen.numel() else 0.0)
    heads, head_dim = query.shape[1], query.shape[3]
    values = _repeat(value, heads).abs()
    bands = {"output": weights @ values, "weights": weights}
    if grad_output is not None:
        factor = options["scale"] if options["scale"] is not None else (head_dim**-0.5 if head_dim else 1.0)
        upstream = grad_output.double().abs()
        at_weights = upstream @ values.mT
        total = (weights * at_weights).sum(-1, keepdim=True)
        at_logits = weights * (at_weights + total)
        bands["query"] = abs(factor) * (at_logits @ _repeat(key, heads).abs())
        bands["key"] = _fold(abs(factor) * (at_logits.mT @ query.abs()), key)
        bands["value"] = _fold(weights.mT @ upstream, value)
        if bias is not None:
            bands["bias"] = at_logits.sum_to_size(bias.shape)
        sinks = wide["sinks"]
        if sinks is not None:
            bands["sinks"] = total.sum((0, 2, 3)) if sinks.dim() == 1 else total.sum_to_size(sinks.shape)
    return {name: condition * band.nan_to_num() for name, band in bands.items()}


def _fold(per_head: Tensor, like: Tensor) -> Tensor:
    """Sum the gradient of repeated heads back onto the kv heads."""
    batch, kv_heads, kv_len, dim = like.shape
    groups = per_head.shape[1] // max(kv_heads, 1)
    return per_head.view(batch, kv_heads, groups, kv_len, dim).sum(2)
