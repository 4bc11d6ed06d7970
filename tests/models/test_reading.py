"""Padding anywhere, with every scheme, window and cache: as if it were not there; or a clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError
from regard.models import DecoderLM
from regard.nn import KeyValueCache, MultiHeadAttention, Places, Rotary
from regard.ops import Causal
from tests.models.test_transformers import POSITIONS, captions, encoder, lm, seq2seq, words

LAYOUTS = {
    "before": [0, 0, 0, 1, 1, 1, 1, 1, 1],
    "between": [1, 1, 1, 0, 0, 1, 1, 0, 1],
    "before and between": [0, 1, 1, 0, 1, 1, 0, 1, 1],
    "behind": [1, 1, 1, 1, 1, 1, 0, 0, 0],
}
PIECES = ((0, 4), (4, 5), (5, 7), (7, 8), (8, 9))


def padded(layout: str) -> tuple[Tensor, Tensor]:
    """Two rows, the first without padding; and which of their tokens are real."""
    keep = torch.tensor([[1] * 9, LAYOUTS[layout]]).bool()
    return words(2, 9).masked_fill(~keep, 0), keep


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_anywhere_is_as_if_it_were_not_there(positions: str, layout: str, window: int | None) -> None:
    tokens, keep = padded(layout)
    text = tokens[1:][keep[1:]][None]
    for model in (lm(positions=positions, window=window), encoder(positions=positions)):
        whole = model(tokens)
        close(whole[1, keep[1]], model(text)[0])
        close(whole[:1], model(tokens[:1]))


@pytest.mark.parametrize("says", ["never", "always", "at first"])
@pytest.mark.parametrize("cache", [{}, {"max_len": 9}, {"window": 9}])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_cache_knows_the_padding_it_has_met(positions: str, layout: str, cache: dict[str, int], says: str) -> None:
    """``keep`` is read off ``pad_id``, or given, or given for the prompt only."""
    model, (tokens, keep) = lm(positions=positions, window=4), padded(layout)
    kept, found = KeyValueCache(**cache), []
    for i, j in PIECES:
        given = says == "always" or (says == "at first" and i == 0)
        found.append(model(tokens[:, i:j], keep=keep[:, :j] if given else None, kv_cache=kept))
    close(torch.cat(found, dim=1)[1, keep[1]], model(tokens[1:][keep[1:]][None])[0])


def test_what_was_padding_by_word_stays_padding_whatever_its_id() -> None:
    tokens, keep = words(2, 9), padded("before")[1]
    for pad_id in (0, None):
        model, cache = lm(positions="rotary", pad_id=pad_id), KeyValueCache()
        model(tokens[:, :5], keep=keep[:, :5], kv_cache=cache)
        cache.reorder(torch.tensor([1, 1, 0]))
        found = model(tokens[[1, 1, 0], 5:], kv_cache=cache)
        close(found, model(tokens, keep=keep)[[1, 1, 0], 5:])


@pytest.mark.parametrize("writer", ["seq2seq", "captions"])
def test_writers_with_a_source_know_it_too(writer: str) -> None:
    tokens, keep = padded("before and between")
    model: Any = seq2seq(positions="alibi") if writer == "seq2seq" else captions(positions="alibi")
    memory = model.read(words(2, 5)) if writer == "seq2seq" else model.image(torch.randn(2, 1, 8, 8))
    cache = KeyValueCache()
    found = [model.write(tokens[:, i:j], memory, kv_cache=cache) for i, j in PIECES]
    close(torch.cat(found, dim=1)[1, keep[1]], model.write(tokens[1:][keep[1:]][None], memory[1:])[0])


def test_gradients_and_transforms_see_through_padding() -> None:
    model, (tokens, keep) = lm(positions="alibi", window=3), padded("between")
    parameters = dict(model.named_parameters())

    def loss(chosen: dict[str, Tensor], tokens: Tensor, keep: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(model, chosen, (tokens,), {"keep": keep})
        return output.masked_fill(~keep[..., None], 0).square().sum()

    text = tokens[1:][keep[1:]][None]
    found = torch.func.grad(loss)(parameters, tokens[1:], keep[1:])
    wanted = torch.func.grad(loss)(parameters, text, text != 0)
    for name in parameters:
        torch.testing.assert_close(found[name], wanted[name], atol=1e-4, rtol=1e-4)


def test_a_sliding_cache_that_padding_has_emptied_is_refused() -> None:
    model = lm(positions="rotary", window=4)
    tokens, keep = words(2, 9), torch.tensor([[1] * 9, [1, 1, 1, 1, 0, 0, 1, 1, 1]]).bool()
    cache = KeyValueCache(window=4)
    model(tokens[:, :6], keep=keep[:, :6], kv_cache=cache)
    with pytest.raises(ConfigError, match=r"without padding among the last 4 tokens of a sliding cache.* in row 1"):
        model(tokens[:, 6:], keep=keep, kv_cache=cache)
    assert cache.length == 6


@pytest.mark.parametrize(("window", "sliding"), [(8, 4), (None, 4)])
def test_a_sliding_cache_shorter_than_the_window_is_refused(window: int | None, sliding: int) -> None:
    with pytest.raises(ConfigError, match=r"`kv_cache(\.window)?` must be"):
        lm(window=window)(words(1, 3), kv_cache=KeyValueCache(window=sliding))


def test_a_sliding_cache_longer_than_the_window_is_as_good() -> None:
    model, tokens, cache = lm(window=4, positions="alibi"), words(1, 12), KeyValueCache(window=7)
    close(torch.cat([model(part, kv_cache=cache) for part in tokens.split(2, 1)], dim=1), model(tokens))


REFUSED: dict[str, Callable[[Any, KeyValueCache], object]] = {
    "another batch": lambda model, cache: model(words(3, 1), kv_cache=cache),
    "another vocabulary": lambda model, cache: model(words(2, 1) + 50, kv_cache=cache),
    "another width of keep": lambda model, cache: model(words(2, 1), keep=words(2, 2) > 0, kv_cache=cache),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("options", [{}, {"max_len": 9}, {"window": 9}])
@pytest.mark.parametrize("layout", ["before", "none"])
def test_a_refused_call_leaves_the_cache_as_it_was(layout: str, options: dict[str, int], refused: str) -> None:
    tokens = words(2, 9) if layout == "none" else padded(layout)[0]
    model, cache = lm(window=9), KeyValueCache(**options)
    model(tokens[:, :5], kv_cache=cache)
    with pytest.raises((ShapeError, ConfigError)):
        REFUSED[refused](model, cache)
    assert cache.length == 5
    close(model(tokens[:, 5:], kv_cache=cache), model(tokens)[:, 5:])


def test_a_writer_without_its_source_is_refused_before_the_cache_is_touched() -> None:
    model, cache, target = seq2seq(), KeyValueCache(), words(2, 3)
    memory = model.read(words(2, 5))
    with pytest.raises(ConfigError, match=r"Seq2Seq.write\(\): `memory` must be given, where no cache holds it"):
        model.write(target, None, kv_cache=cache)
    with pytest.raises(ShapeError, match=r"Seq2Seq.write\(\): `memory` must be of shape \[2, source_len, 32\]"):
        model.write(target, memory[:1], kv_cache=cache)
    assert cache.length == 0
    close(model.write(target, memory, kv_cache=cache), model.write(target, memory))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (torch.ones(2, 5).long(), r"Seq2Seq.write\(\): `source_keep` must be bool"),
        (torch.ones(2, 4).bool(), r"Seq2Seq.write\(\): `source_keep` must be of shape \(2, 5\), but is of"),
    ],
)
def test_the_padding_of_a_source_is_named_as_it_was_given(keep: Tensor, text: str) -> None:
    model, cache = seq2seq(), KeyValueCache()
    memory = model.read(words(2, 5))
    with pytest.raises((ValueError, TypeError), match=text):
        model.write(words(2, 3), memory, source_keep=keep)
    model.write(words(2, 3), memory, kv_cache=cache)
    with pytest.raises((ValueError, TypeError), match=text):
        model.write(words(2, 1), None, source_keep=keep, kv_cache=cache)


def test_a_static_cache_outlives_inference_mode() -> None:
    model, tokens, cache = lm(positions="rotary"), words(1, 8), KeyValueCache(max_len=8)
    with torch.inference_mode():
        model(tokens[:, :4], kv_cache=cache)
    with torch.no_grad():
        close(model(tokens[:, 4:], kv_cache=cache), model(tokens)[:, 4:])


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative"])
def test_places_of_an_attention_are_those_of_the_whole(positions: str) -> None:
    """Some tokens of a text, attended to where they stood in it."""
    attention: nn.Module = lm(positions=positions).decoder.layers[0].self
    x, chosen = torch.randn(1, 9, 32), torch.tensor([1, 4, 5, 8])
    others = torch.ones(9, dtype=torch.bool)
    others[chosen] = False
    allowed = torch.ones(9, 9, dtype=torch.bool).tril() & ~others
    wanted = attention(x, mask=allowed[None])[:, chosen]
    close(attention(x[:, chosen], mask=Causal(), places=Places(chosen[None])), wanted)


@pytest.mark.usefixtures("unchecked")
def test_places_that_are_no_rows_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"Places\(\): `keys` must be of shape \[batch, kv_len\], but is of shape \(3"):
        Places(torch.arange(3))
    attention = MultiHeadAttention(8, 2, positions=Rotary(4))
    with pytest.raises(ShapeError, match=r"`places` must be of 1 row\(s\) of 5 new tokens, but is of shape \(1, 3\)"):
        attention(torch.randn(1, 5, 8), places=Places(torch.arange(3)[None]))


def test_only_padding_between_real_tokens_writes_biases_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs quadratic memory."""
    written: list[int] = []
    plain = Places.bias
    monkeypatch.setattr(Places, "bias", lambda *args: written.append(1) or plain(*args))
    model = lm(positions="alibi", window=4)
    for layout in ("before", "behind"):
        model(padded(layout)[0])
    assert not written
    model(padded("between")[0])
    assert written


def test_decoders_share_what_is_computed_from_places(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = Rotary.turns
    monkeypatch.setattr(Rotary, "turns", lambda *args: calls.append(1) or plain(*args))
    model: DecoderLM = lm(positions="rotary")
    model(padded("before")[0])
    assert len(calls) == 1
    assert len(model.decoder.layers) == 2
