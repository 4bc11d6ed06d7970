"""Caches: what they keep, and that reading in pieces equals reading at once, for every kind and scheme."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard.nn import ALiBi, KeyValueCache, MultiHeadAttention, RelativeBias, Rotary, YarnScaling
from regard.ops import Causal, Mask, Padding, SlidingWindow

SCHEMES = {
    "none": lambda: None,
    "rotary": lambda: Rotary(8),
    "yarn": lambda: Rotary(8, scaling=YarnScaling(2.0, 8)),
    "interleaved": lambda: Rotary(8, interleaved=True),
    "alibi": lambda: ALiBi(4),
    "relative": lambda: RelativeBias(4, num_buckets=8, max_distance=16, bidirectional=False),
}
KINDS = {"growing": {}, "static": {"max_len": 16}, "sliding": {"window": 4}}
PIECES = ((0, 5), (5, 6), (6, 7), (7, 11), (11, 12))


def attention(scheme: str, **options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(32, 4, positions=SCHEMES[scheme](), **options).eval()  # type: ignore[arg-type]


def in_pieces(module: nn.Module, x: Tensor, mask: Mask, cache: KeyValueCache) -> Tensor:
    return torch.cat([module(x[:, i:j], mask=mask, kv_cache=cache.layer(0)) for i, j in PIECES], dim=1)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_j1_reading_in_pieces_equals_reading_at_once(scheme: str, kind: str, heads: int) -> None:
    module, x = attention(scheme, num_kv_heads=heads), torch.randn(2, 12, 32)
    mask: Mask = Causal() & SlidingWindow(4) if kind == "sliding" else Causal()
    cache = KeyValueCache(**KINDS[kind])
    torch.testing.assert_close(in_pieces(module, x, mask, cache), module(x, mask=mask), atol=1e-5, rtol=0)
    assert cache.length == 12


def test_a_static_cache_holds_what_a_window_sees_too() -> None:
    module, x, mask = attention("rotary"), torch.randn(2, 12, 32), Causal() & SlidingWindow(3)
    found = in_pieces(module, x, mask, KeyValueCache(max_len=12))
    torch.testing.assert_close(found, module(x, mask=mask), atol=1e-5, rtol=0)


def test_j2_beams_go_on_with_the_rows_they_chose() -> None:
    for options in KINDS.values():
        module, x, mask = attention("rotary"), torch.randn(3, 9, 32), Causal() & SlidingWindow(4)
        cache, chosen = KeyValueCache(**options), torch.tensor([2, 0, 2, 1])
        module(x[:, :6], mask=mask, kv_cache=cache.layer(0))
        cache.reorder(chosen)
        rest = module(x[chosen, 6:], mask=mask, kv_cache=cache.layer(0))
        torch.testing.assert_close(rest, module(x[chosen], mask=mask)[:, 6:], atol=1e-5, rtol=0)


def test_another_sequence_is_projected_once_and_reordered() -> None:
    module = MultiHeadAttention(32, 4, kv_dim=6).eval()
    queries, memory = torch.randn(2, 3, 32), torch.randn(2, 5, 6)
    cache = KeyValueCache()
    first = module(queries[:, :1], memory, kv_cache=cache.layer(0, "cross"))
    later = module(queries[:, 1:], None, kv_cache=cache.layer(0, "cross"))
    torch.testing.assert_close(torch.cat([first, later], dim=1), module(queries, memory), atol=1e-6, rtol=0)
    assert cache.length == 0, "the length is that of the text"
    cache.reorder(torch.tensor([1, 1]))
    torch.testing.assert_close(
        module(queries, kv_cache=cache.layer(0, "cross")), module(queries, memory[[1, 1]]), atol=1e-6, rtol=0
    )


def test_f7_a_cache_stores_the_heads_of_keys_and_not_those_of_queries() -> None:
    cache = KeyValueCache()
    attention("none", num_kv_heads=2)(torch.randn(1, 5, 32), kv_cache=cache.layer(0))
    kept = cache.layer(0).key
    assert kept is not None
    assert kept.shape == (1, 2, 5, 8)


def test_a_sliding_cache_keeps_what_the_next_query_sees() -> None:
    cache = KeyValueCache(window=4)
    module = attention("none")
    for length, start in ((2, 0), (5, 4), (1, 5)):
        module(torch.randn(1, length, 32), mask=Causal() & SlidingWindow(4), kv_cache=cache.layer(0))
        assert cache.start == start
    kept = cache.layer(0).key
    assert kept is not None
    assert kept.shape[2] == 3


def test_padding_names_the_keys_that_are_left() -> None:
    module, x = attention("rotary"), torch.randn(2, 8, 32)
    keep = torch.ones(2, 8, dtype=torch.bool)
    keep[1, :2] = False
    mask = Causal() & SlidingWindow(3)
    cache, found = KeyValueCache(window=3), []
    for i, j in ((0, 5), (5, 6), (6, 8)):
        part = mask & Padding(keep[:, cache.start : j])
        found.append(module(x[:, i:j], mask=part, kv_cache=cache.layer(0)))
    whole = module(x, mask=mask & Padding(keep))
    torch.testing.assert_close(torch.cat(found, dim=1), whole, atol=1e-5, rtol=0)


def test_gradients_flow_through_a_growing_cache() -> None:
    module, x = attention("rotary").double(), torch.randn(1, 12, 32, dtype=torch.float64, requires_grad=True)
    (whole,) = torch.autograd.grad(module(x, mask=Causal()).square().sum(), x)
    (pieces,) = torch.autograd.grad(in_pieces(module, x, Causal(), KeyValueCache()).square().sum(), x)
    torch.testing.assert_close(pieces, whole)


def test_a_full_cache_and_another_batch_are_refused() -> None:
    module = attention("none")
    cache = KeyValueCache(max_len=4)
    module(torch.randn(2, 3, 32), kv_cache=cache.layer(0))
    with pytest.raises(ValueError, match="`max_len` must be at least 5 for this text, but is 4"):
        module(torch.randn(2, 2, 32), kv_cache=cache.layer(0))
    for options in KINDS.values():
        cache = KeyValueCache(**options)
        module(torch.randn(2, 3, 32), kv_cache=cache.layer(0))
        with pytest.raises(ValueError, match=r"keep its batch size \(2\), but has 3"):
            module(torch.randn(3, 1, 32), kv_cache=cache.layer(0))


@pytest.mark.parametrize("options", [{"max_len": 0}, {"window": 0}, {"max_len": 4, "window": 4}])
def test_kinds_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="KeyValueCache"):
        KeyValueCache(**options)


def test_positions_are_for_attention_within_a_sequence() -> None:
    with pytest.raises(ValueError, match="`key` must be None, as `positions` are for self-attention"):
        attention("rotary")(torch.randn(1, 2, 32), torch.randn(1, 3, 32))


def test_a_query_given_as_key_is_attention_within_the_sequence() -> None:
    module, x, cache = attention("rotary"), torch.randn(1, 3, 32), KeyValueCache()
    torch.testing.assert_close(module(x, x, x, kv_cache=cache.layer(0)), module(x))
    assert cache.length == 3
