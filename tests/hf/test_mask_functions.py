"""transformers' masks as values: what is recognised, and that it allows the same cells."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, masking_utils
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    packed_sequence_mask_function,
    padding_mask_function,
    remap_positions_for_packed_sequence,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
    sliding_window_overlay,
)

from regard.hf.lazy_mask import LazyMask, MaskRule
from regard.hf.mask_functions import is_causal
from regard.ops import Allowed, Causal, Documents, Padding, SlidingWindow, Where, weights
from regard.ops.masks import And

BATCH = 2
POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]]).expand(BATCH, -1)
PACKED = (POSITIONS == 0).cumsum(1)
BLOCKS = torch.tensor([[-1, 0, 0, 0, -1, -1, 1, 1, -1, 2, 2, -1], [-1] * 12])
KEEP = torch.ones(BATCH, 12, dtype=torch.bool)
KEEP[1, :3] = False


def late_keys(b, h, q, k):
    return k >= 2


FUNCTIONS = {
    "causal": (causal_mask_function, {Causal}),
    "full": (bidirectional_mask_function, set()),
    "window": (sliding_window_causal_mask_function(3), {Causal, SlidingWindow}),
    "window that reaches everything": (sliding_window_causal_mask_function(12), {Causal}),
    "both sides": (sliding_window_bidirectional_mask_function(3), {SlidingWindow}),
    "window alone": (sliding_window_overlay(3), {Where}),
    "chunks": (chunked_causal_mask_function(4, torch.tensor([0, 3])), {Causal, Documents}),
    "one chunk": (chunked_causal_mask_function(40, torch.tensor([0, 0])), {Causal}),
    "blocks": (or_masks(causal_mask_function, blockwise_overlay(BLOCKS)), {Causal, Documents}),
    "packed": (
        and_masks(
            remap_positions_for_packed_sequence(causal_mask_function, POSITIONS), packed_sequence_mask_function(PACKED)
        ),
        {Causal, Documents},
    ),
    "packed window": (
        and_masks(
            remap_positions_for_packed_sequence(sliding_window_causal_mask_function(2), POSITIONS),
            packed_sequence_mask_function(PACKED),
        ),
        {Causal, SlidingWindow, Documents},
    ),
    "packed chunks": (
        and_masks(
            remap_positions_for_packed_sequence(chunked_causal_mask_function(2, torch.zeros(2).long()), POSITIONS),
            packed_sequence_mask_function(PACKED),
        ),
        {Where, Documents},
    ),
    "remapped only": (remap_positions_for_packed_sequence(causal_mask_function, POSITIONS), {Where}),
    "padding": (and_masks(causal_mask_function, padding_mask_function(KEEP)), {Causal, Padding}),
    "a person's": (and_masks(causal_mask_function, late_keys), {Causal, Where}),
    "union with everything": (or_masks(causal_mask_function, bidirectional_mask_function), set()),
}
PLACES = {"whole": (0, 12, 0, 12), "decoding": (11, 1, 0, 12), "sliding cache": (9, 2, 6, 5), "rows": (4, 3, 0, 12)}


def kinds(mask):
    """The classes of a mask's leaves."""
    if mask is None:
        return set()
    parts = [getattr(mask, name) for name in ("left", "right", "mask") if hasattr(mask, name)]
    return set().union(*map(kinds, parts)) if parts else {type(mask)}


def cells(mask, rule):
    """What a mask allows, read off the weights of equal scores."""
    query = torch.zeros(rule.batch, 1, rule.place.q_len, 1)
    key = torch.zeros(rule.batch, 1, rule.kv_len, 1)
    return weights(query, key, mask=mask, q_start=rule.q_start, kv_start=rule.kv_start) > 0


@pytest.mark.parametrize("keep", [None, KEEP], ids=["no pads", "pads"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_cells_are_allowed(name, place, keep):
    function, expected = FUNCTIONS[name]
    q_start, q_len, kv_start, kv_len = PLACES[place]
    call = {"batch_size": BATCH, "q_length": q_len, "kv_length": kv_len, "q_offset": q_start, "kv_offset": kv_start}
    call |= {"mask_function": function, "attention_mask": keep}
    rule = MaskRule.of_call(**call)
    dense = sdpa_mask(**call, allow_is_causal_skip=False)
    assert torch.equal(cells(rule.mask, rule), dense[..., : rule.kv_len])
    assert not dense[..., rule.kv_len :].any(), "keys that matter were cut off"
    assert torch.equal(rule.dense(), dense)
    if place == "whole":
        assert kinds(rule.mask) == expected | ({Padding} if keep is not None else set())
    assert Allowed not in kinds(rule.mask)


def test_a_function_of_scalars_is_mapped():
    table = torch.rand(12, 12) < 0.5

    def looked_up(b, h, q, k):
        return table[q, k] if True else None

    call = {"batch_size": BATCH, "q_length": 5, "kv_length": 12, "q_offset": 7, "use_vmap": True}
    call["mask_function"] = and_masks(causal_mask_function, looked_up)
    rule = MaskRule.of_call(**call)
    assert torch.equal(cells(rule.mask, rule), sdpa_mask(**call, allow_is_causal_skip=False)[..., : rule.kv_len])


def test_which_functions_are_causal():
    assert is_causal(FUNCTIONS["window"][0])
    assert is_causal(FUNCTIONS["packed"][0])
    assert not is_causal(FUNCTIONS["blocks"][0])
    assert not is_causal(FUNCTIONS["both sides"][0])
    assert not is_causal(late_keys)


def test_a_static_cache_is_cut_to_its_used_part():
    rule = MaskRule.of_call(batch_size=1, q_length=2, kv_length=100, q_offset=torch.tensor(5))
    assert rule.kv_len == 7
    assert isinstance(rule.mask, Causal)


def test_the_offset_of_a_static_cache_is_read_at_once():
    offset = torch.tensor(5)
    rule = MaskRule.of_call(batch_size=1, q_length=1, kv_length=8, q_offset=offset)
    offset.add_(1)
    assert rule.q_start == 5


def lazy(q_len=4, kv_len=6):
    return LazyMask(MaskRule.of_call(batch_size=2, q_length=q_len, kv_length=kv_len, q_offset=2))


def test_a_lazy_mask_is_a_tensor_without_cells():
    mask = lazy()
    assert (tuple(mask.shape), mask.dtype, mask.dim(), mask.device.type) == ((2, 1, 4, 6), torch.bool, 4, "cpu")
    assert isinstance(mask, torch.Tensor)
    assert mask.detach() is mask
    assert mask.to("cpu") is mask
    assert repr(mask) == "LazyMask((2, 1, 4, 6))"


def test_cutting_rows_and_first_keys_stays_lazy_and_is_right():
    mask, dense = lazy(), lazy().rule.dense()
    for index in (
        (slice(None), slice(None), slice(-2, None), slice(None)),
        (slice(None), slice(None), slice(1, 3)),
        (slice(None), slice(None), slice(None), slice(None, 5)),
        (slice(None),) * 4,
    ):
        cut = mask[index]
        assert isinstance(cut, LazyMask)
        assert torch.equal(cut.rule.dense(), dense[index])
        assert torch.equal(cut.filled(), dense[index])
        assert cut.shape == dense[index].shape


def test_everything_else_gets_the_dense_mask():
    mask, dense = lazy(), lazy().rule.dense()
    assert torch.equal(mask[:, 0], dense[:, 0])
    assert torch.equal(mask[:, :, :, 2:], dense[:, :, :, 2:])
    assert torch.equal(~mask, ~dense)
    assert torch.equal(mask & dense, dense)
    assert torch.equal(mask.float(), dense.float())
    assert torch.equal(torch.where(mask, 1.0, 0.0), dense.float())


def test_transformers_makes_lazy_masks_for_regard():
    config = LlamaConfig(hidden_size=8, num_attention_heads=2)
    config._attn_implementation = "regard"
    embeds = torch.zeros(2, 12, 8)
    mask = masking_utils.create_causal_mask(config, embeds, KEEP.long(), None)
    assert isinstance(mask, LazyMask)
    assert isinstance(mask.rule.mask, And)
