"""The contract suite can fail: every way of breaking attention below is noticed by check_backend.

A mutant changes one thing in the code that serves a backend and leaves the suite alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.ops import _call, _lower, _tiles, masks
from regard.ops._autograd import RUNNERS
from regard.ops._backends import reference, tiled
from regard.ops._call import Call
from regard.ops._tiles import plan
from regard.ops.testing import check_backend
from regard.records.mask_program import Op

pytestmark = pytest.mark.usefixtures("unchecked")
Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch, str], None]
MUTANTS: dict[str, Mutant] = {}
TILED_ONLY: dict[str, Mutant] = {}
REFERENCE_ONLY: dict[str, Mutant] = {}


def mutant(registry: dict[str, Mutant]) -> Callable[[Mutant], Mutant]:
    def register(function: Mutant) -> Mutant:
        registry[function.__name__] = function
        return function

    return register


def change_call(patch: Patch, backend: str, change: Callable[[Call], Call]) -> None:
    """Let the backend compute another call than it was asked for."""
    runner = RUNNERS[backend]
    patch.setitem(RUNNERS, backend, lambda call: runner(change(call)))


def change_output(patch: Patch, backend: str, change: Callable[[Call, Tensor], Tensor]) -> None:
    runner = RUNNERS[backend]
    patch.setitem(RUNNERS, backend, lambda call: change(call, runner(call)))


def change_rule(patch: Patch, op: Op, rule: Callable[..., Tensor]) -> None:
    """Let one instruction of a mask mean something else; block maps are switched off, for they would disagree."""
    leaf = _lower.Lowered._leaf

    def changed(
        self: Any, code: Op, operands: Any, geometry: Any, query: Any, key: Any, rows: Any, keys: Any
    ) -> Tensor:
        if code is op:
            return rule(self, operands, query, key, rows, keys)
        return leaf(self, code, operands, geometry, query, key, rows, keys)

    def everything(call: Call, q_block: int = 16, k_block: int = 64) -> Any:
        made = plan(replace(call, mask=None), q_block, k_block)
        return replace(made, every=[[False] * len(row) for row in made.every])

    patch.setattr(_lower.Lowered, "_leaf", changed)
    patch.setattr(tiled, "blocks_of", everything)


@mutant(MUTANTS)
def causal_does_not_see_itself(patch: Patch, backend: str) -> None:
    change_rule(patch, Op.CAUSAL, lambda self, operands, query, key, rows, keys: key < query)


@mutant(MUTANTS)
def causal_sees_one_ahead(patch: Patch, backend: str) -> None:
    change_rule(patch, Op.CAUSAL, lambda self, operands, query, key, rows, keys: key <= query + 1)


@mutant(MUTANTS)
def window_is_one_too_wide(patch: Patch, backend: str) -> None:
    change_rule(patch, Op.WINDOW, lambda self, operands, query, key, rows, keys: (query - key).abs() <= operands[0])


@mutant(MUTANTS)
def prefix_is_one_too_long(patch: Patch, backend: str) -> None:
    change_rule(
        patch,
        Op.PREFIX,
        lambda self, operands, query, key, rows, keys: key <= self.tensors[operands[0]][:, None, None, None],
    )


@mutant(MUTANTS)
def padding_is_inverted(patch: Patch, backend: str) -> None:
    change_rule(
        patch,
        Op.PADDING,
        lambda self, operands, query, key, rows, keys: ~self.tensors[operands[0]][:, None, None, keys],
    )


@mutant(MUTANTS)
def padding_documents_see_each_other(patch: Patch, backend: str) -> None:
    def rule(self: Any, operands: Any, query: Any, key: Any, rows: slice, keys: slice) -> Tensor:
        same: Tensor = self.tensors[operands[0]][:, None, None, keys] == self.tensors[operands[1]][:, None, rows, None]
        return same

    change_rule(patch, Op.DOCUMENTS, rule)


@mutant(MUTANTS)
def and_is_or(patch: Patch, backend: str) -> None:
    patch.setattr(masks.Mask, "__and__", lambda self, other: masks.Or(self, other))


@mutant(MUTANTS)
def not_is_forgotten(patch: Patch, backend: str) -> None:
    patch.setattr(masks.Mask, "__invert__", lambda self: self)


@mutant(MUTANTS)
def causal_is_aligned_at_the_start(patch: Patch, backend: str) -> None:
    def change(call: Call) -> Call:
        positions = torch.arange(call.geometry.q_len)[None]
        return replace(call, geometry=replace(call.geometry, q_positions=positions))

    change_call(patch, backend, change)


@mutant(MUTANTS)
def every_row_of_the_batch_sits_where_the_first_does(patch: Patch, backend: str) -> None:
    def change(call: Call) -> Call:
        return replace(call, geometry=replace(call.geometry, q_positions=call.geometry.q_positions[:1]))

    change_call(patch, backend, change)


@mutant(MUTANTS)
def the_mask_is_ignored(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: replace(call, mask=None))


@mutant(MUTANTS)
def the_scale_is_one_percent_off(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: replace(call, scale=call.scale * 1.01))


@mutant(MUTANTS)
def sinks_are_ignored(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: replace(call, sinks=None))


@mutant(MUTANTS)
def the_soft_cap_is_ignored(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: replace(call, logit_softcap=None))


@mutant(MUTANTS)
def the_bias_of_the_first_head_serves_all(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: call if call.bias is None else replace(call, bias=call.bias[:, :1]))


@mutant(MUTANTS)
def the_lowest_number_of_a_bias_does_not_block(patch: Patch, backend: str) -> None:
    patch.setattr(_call, "blocks", lambda bias: bias == float("-inf"))


@mutant(MUTANTS)
def kv_heads_are_dealt_out_in_turn(patch: Patch, backend: str) -> None:
    def change(call: Call) -> Call:
        assert call.value is not None
        heads = call.query.shape[1]
        order = torch.arange(heads) % max(call.key.shape[1], 1)
        return replace(call, key=call.key[:, order], value=call.value[:, order])

    change_call(patch, backend, change)


@mutant(MUTANTS)
def an_empty_row_is_uniform(patch: Patch, backend: str) -> None:
    def change(call: Call, output: Tensor) -> Tensor:
        allowed = call.allowed(slice(None), slice(None))
        if allowed is None or call.value is None or call.value.shape[2] == 0:
            return output
        empty = ~allowed.any(-1, keepdim=True).expand(*output.shape[:3], 1)
        mean = call.value.nan_to_num(0, 0, 0).mean(2, keepdim=True).repeat_interleave(call.group, 1)
        return torch.where(empty, mean, output)

    change_output(patch, backend, change)


@mutant(MUTANTS)
def nan_leaks_through_the_mask(patch: Patch, backend: str) -> None:
    patch.setattr(reference, "_known_finite", lambda tensor: True)
    patch.setattr(tiled, "is_finite", lambda tensor: True)


@mutant(MUTANTS)
def the_output_is_rounded_to_bfloat16(patch: Patch, backend: str) -> None:
    change_output(patch, backend, lambda call, output: output.bfloat16().to(output.dtype))


@mutant(MUTANTS)
def the_gradient_of_the_query_is_lost(patch: Patch, backend: str) -> None:
    change_call(patch, backend, lambda call: replace(call, query=call.query.detach()))


@mutant(MUTANTS)
def the_input_is_scaled_in_place(patch: Patch, backend: str) -> None:
    def change(call: Call) -> Call:
        with torch.no_grad():
            if call.key.is_contiguous():
                call.key.mul_(1.0001)
        return call

    change_call(patch, backend, change)


@mutant(REFERENCE_ONLY)
def the_soft_cap_comes_after_the_bias(patch: Patch, backend: str) -> None:
    scores = reference._scores

    def changed(call: Call, allowed: Tensor | None) -> Tensor:
        if call.logit_softcap is None or call.bias is None:
            return scores(call, allowed)
        plain = scores(replace(call, logit_softcap=None), allowed)
        return call.logit_softcap * torch.tanh(plain / call.logit_softcap)

    patch.setattr(reference, "_scores", changed)


@mutant(TILED_ONLY)
def the_last_block_of_keys_is_skipped(patch: Patch, backend: str) -> None:
    def changed(call: Call) -> Any:
        made = plan(call, 16, 64)
        return replace(made, some=[[*row[:-1], False] if len(row) > 1 else row for row in made.some])

    patch.setattr(tiled, "blocks_of", changed)


@mutant(TILED_ONLY)
def every_block_is_taken_for_full(patch: Patch, backend: str) -> None:
    def changed(call: Call) -> Any:
        made = plan(call, 16, 64)
        return replace(made, every=made.some)

    patch.setattr(tiled, "blocks_of", changed)


@mutant(TILED_ONLY)
def the_running_maximum_is_not_applied_to_the_sum(patch: Patch, backend: str) -> None:
    normalised = tiled._normalised

    def changed(call: Call, rows: slice, top: Tensor, total: Tensor, output: Tensor, sees: Tensor) -> Any:
        return normalised(call, rows, top, total * 1.001, output, sees)

    patch.setattr(tiled, "_normalised", changed)


@mutant(TILED_ONLY)
def backward_forgets_the_slope_of_the_soft_cap(patch: Patch, backend: str) -> None:
    forward, logits = tiled.forward, _tiles.tile_logits

    def changed(*args: Any) -> Any:
        made = logits(*args)
        return made if made.capped is None else replace(made, capped=torch.zeros_like(made.capped))

    patch.setattr(tiled, "tile_logits", changed)
    patch.setattr(tiled, "forward", forward)


ALL = [
    *((name, backend) for name in MUTANTS for backend in ("reference", "tiled")),
    *((name, "tiled") for name in TILED_ONLY),
    *((name, "reference") for name in REFERENCE_ONLY),
]


@pytest.mark.parametrize(("name", "backend"), ALL, ids=[f"{name}-{backend}" for name, backend in ALL])
def test_a_mutant_is_noticed(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (MUTANTS | TILED_ONLY | REFERENCE_ONLY)[name](monkeypatch, backend)
    with pytest.raises(AssertionError, match="breaks the contract"):
        check_backend(backend, dtypes=[torch.float32])
