"""Whether the sides of a row computed the same, decided before anything is timed.

A small call (up to ``CELLS`` weights, and numbers in its keys) is judged whole: every element of every side must be
within the error budget of ``regard.ops.testing`` against float64. A large call is judged twice. First by the same
budget on parts of it: the first and the last head, all their rows or ``SAMPLED_ROWS`` of them from the first to the
last (gradients need all rows). Then everywhere, by a tolerance that follows from those budgets: two results that are
each within b of the exact value are within 2·b of each other, so no element of a peer may be farther from regard's than
twice the largest b on those parts.

Probes have budgets by the same rule (``regard.bench.probe_budgets``). A large call is judged on its first head, by all
its rows.

The multi-head module rounds in three more products than a budget of attention knows. There the exact value is torch's
module in float64, ``plain`` is torch's module, and the band is eps times the largest |output| times the square root of
the width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.bench.inputs import Inputs
from regard.bench.probe_budgets import Problems, wrong_probes
from regard.bench.sides import Found, peer_side
from regard.ops.testing import Budget, error_budget

CELLS = 1 << 20
"""Numbers up to which a call is judged whole: in float64 they take 8 MiB."""

SAMPLED_ROWS = 64


@dataclass(frozen=True)
class Part:
    """A part of a call: some batch rows, whole groups of heads, some queries (None for all)."""

    batch: slice
    heads: slice
    kv_heads: slice
    queries: Tensor | None

    def of(self, name: str, tensor: Tensor) -> Tensor:
        """The part of an input or a result."""
        taken = tensor[self.batch, self.kv_heads if name in ("key", "value") else self.heads]
        return taken if self.queries is None or name in ("key", "value") else taken[:, :, self.queries]


def judge(inputs: Inputs, found: dict[str, Found]) -> Problems:
    """Say what is wrong with each side.

    Args:
        inputs: Of the row.
        found: What each side computed; "regard" among them.

    Returns:
        The sides that are wrong, each with one line that says what is; empty when all agree.
    """
    with torch.no_grad():
        if inputs.row.work == "module":
            return _by_budgets({"output": _module_budget(inputs)}, found)
        problems: Problems = {}
        allowed: dict[str, float] = {}
        for part in parts(inputs):
            budgets = _budgets(inputs, part)
            taken = {side: {name: part.of(name, result[name]) for name in budgets} for side, result in found.items()}
            problems = {**_by_budgets(budgets, taken), **problems}
            for name, budget in budgets.items():
                allowed[name] = max(allowed.get(name, 0.0), float(budget.allowed.max()))
        if inputs.row.observed:
            problems = {**_probes_wrong(inputs, found), **problems}
        if not _is_small(inputs):
            problems = {**_far_from_regard(allowed, found), **problems}
        return problems


def _is_small(inputs: Inputs) -> bool:
    shape = inputs.row.shape
    keys = shape.batch * shape.num_heads * shape.kv_len * shape.head_dim  # the yardstick repeats them for every head
    return max(shape.cells, keys) <= CELLS


def parts(inputs: Inputs) -> Iterator[Part]:
    """The parts of a call that are held against float64."""
    shape = inputs.row.shape
    everything = slice(None)
    if _is_small(inputs):
        yield Part(everything, everything, everything, None)
        return
    group = shape.num_heads // shape.num_kv_heads
    for batch, kv_head in ((0, 0), (shape.batch - 1, shape.num_kv_heads - 1)):
        queries = None
        if inputs.grad is None and group * shape.q_len * shape.kv_len > CELLS:
            queries = torch.linspace(0, shape.q_len - 1, SAMPLED_ROWS).long().to(inputs.query.device)
        yield Part(
            slice(batch, batch + 1),
            slice(kv_head * group, (kv_head + 1) * group),
            slice(kv_head, kv_head + 1),
            queries,
        )


def _budgets(inputs: Inputs, part: Part) -> dict[str, Budget]:
    given = {"query": inputs.query, "key": inputs.key, "value": inputs.value}
    tensors: dict[str, Any] = {name: part.of(name, tensor) for name, tensor in given.items()}
    bias = inputs.bias
    if bias is not None:
        bias = bias[:, part.heads] if part.queries is None else bias[:, part.heads][:, :, part.queries]
    allowed = inputs.visible(part.queries)
    if allowed is not None and allowed.shape[0] > 1:
        allowed = allowed[part.batch]
    if inputs.grad is not None:
        tensors["grad_output"] = part.of("output", inputs.grad)
    budgets = error_budget(**tensors, bias=bias, allowed=allowed)
    return {name: budget for name, budget in budgets.items() if name not in ("weights", "bias", "sinks")}


def _by_budgets(budgets: dict[str, Budget], found: dict[str, Found]) -> Problems:
    problems: Problems = {}
    for side, result in found.items():
        for name, budget in budgets.items():
            problem = budget.problem(name if name == "output" else f"gradient of {name}", result[name])
            if problem is not None:
                problems.setdefault(side, problem)
    return problems


def _far_from_regard(allowed: dict[str, float], found: dict[str, Found]) -> Problems:
    problems: Problems = {}
    ours = found["regard"]
    for side, result in found.items():
        for name, most in allowed.items():
            if side == "regard":
                wrong = not bool(ours[name].isfinite().all())
                problem = f"{name} is not finite"
            else:
                distance = float((result[name].float() - ours[name].float()).abs().max())
                wrong = not distance <= 2 * most  # NaN is wrong
                problem = f"{name} is {distance:.1e} from regard's, and may be {2 * most:.1e}"
            if wrong:
                problems.setdefault(side, problem)
    return problems


def _module_budget(inputs: Inputs) -> Budget:
    def output(dtype: torch.dtype) -> Tensor:
        tensors = {name: getattr(inputs, name).to(dtype) for name in ("query", "key", "value")}
        return peer_side("mha", replace(inputs, **tensors))()["output"].double()

    exact = output(torch.float64)
    eps, width = torch.finfo(inputs.query.dtype).eps, exact.shape[-1]
    error = (output(inputs.query.dtype) - exact).abs().max()
    allowed = 2 * (error + eps * width**0.5 * exact.abs().max())
    return Budget(exact, allowed.expand_as(exact))


def _probes_wrong(inputs: Inputs, found: dict[str, Found]) -> Problems:
    """Judge the probes of a call, or of its first head."""
    first = replace(next(parts(inputs)), queries=None)
    # A peer that computes the output alone has none.
    taken = {
        side: {name: first.of("output", value) for name, value in result.items()}
        for side, result in found.items()
        if "entropy" in result
    }
    tensors = {name: first.of(name, getattr(inputs, name)) for name in ("query", "key", "value")}
    return wrong_probes(tensors, inputs.visible, inputs.row.heat_map, taken)
