"""The Transformers: reading in pieces, padding, order, leaks, what they refuse, and that they learn."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.models import (
    CaptionModel,
    DecoderLM,
    EncoderClassifier,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderForSpans,
    EncoderTagger,
    MaskedLM,
    Seq2Seq,
    TextEncoder,
    TransformerConfig,
    VisionClassifier,
    VisionConfig,
    hide_words,
)
from regard.models.config import PositionKind
from regard.nn import KeyValueCache

POSITIONS: tuple[PositionKind, ...] = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 2, "ff_dim": 48, "max_len": 24}
PIECES = ((0, 5), (5, 6), (6, 9), (9, 11))


def lm(**options: Any) -> DecoderLM:
    torch.manual_seed(0)
    return DecoderLM(TransformerConfig(**{**TINY, **options})).eval()


def seq2seq(**options: Any) -> Seq2Seq:
    torch.manual_seed(0)
    return Seq2Seq(EncoderDecoderConfig(**{**TINY, **options})).eval()


def encoder(make: Callable[[EncoderConfig], nn.Module] = TextEncoder, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return make(EncoderConfig(**{**TINY, **options})).eval()


def captions(**options: Any) -> CaptionModel:
    torch.manual_seed(0)
    return CaptionModel(VisionConfig(**{**TINY, "image_size": 8, "patch_size": 4, **options})).eval()


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(1))


CACHES: dict[str, dict[str, Any]] = {"growing": {}, "static": {"max_len": 11}, "sliding": {"window": 4}}


@pytest.mark.parametrize("heads", [None, 1, 2])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_j1_a_decoder_reads_in_pieces_what_it_reads_at_once(positions: str, kind: str, heads: int | None) -> None:
    model = lm(positions=positions, num_kv_heads=heads, window=4 if kind == "sliding" else None)
    tokens, keep = words(2, 11), torch.ones(2, 11, dtype=torch.bool)
    keep[1, :3] = False
    cache, found = KeyValueCache(**CACHES[kind]), []
    for i, j in PIECES:
        found.append(model(tokens[:, i:j], keep=keep[:, :j], kv_cache=cache))
    torch.testing.assert_close(torch.cat(found, dim=1)[keep], model(tokens, keep=keep)[keep], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_tokens_are_identical_with_and_without_a_cache(positions: str, kind: str) -> None:
    model = lm(positions=positions, window=4 if kind == "sliding" else None, pad_id=None)
    text, cache, new = words(2, 4), KeyValueCache(**CACHES[kind]), words(2, 4)
    written = text
    for _ in range(7):
        new = model(new, kv_cache=cache)[:, -1:].argmax(dim=-1)
        text = torch.cat([text, new], dim=1)
        written = torch.cat([written, model(written)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(text, written)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("model", ["seq2seq", "captions"])
def test_j2_a_writer_with_a_source_and_beams(model: str, positions: str) -> None:
    target, chosen = words(2, 11), torch.tensor([1, 1, 0])
    if model == "captions":
        writer: Any = captions(positions=positions)
        memory, seen = writer.image(torch.randn(2, 1, 8, 8)), {}
    else:
        writer = seq2seq(positions=positions, num_decoder_layers=1)
        source = words(2, 7)
        source[1, 5:] = 0
        memory, seen = writer.read(source), {"source_keep": source != 0}
    whole, cache = writer.write(target, memory, **seen), KeyValueCache()
    first = writer.write(target[:, :6], memory, kv_cache=cache, **seen)
    torch.testing.assert_close(first, whole[:, :6], atol=1e-5, rtol=0)
    cache.reorder(chosen)
    seen = {name: keep[chosen] for name, keep in seen.items()}
    for at in range(6, 11):
        step = writer.write(target[chosen, at : at + 1], None, kv_cache=cache, **seen)
        torch.testing.assert_close(step[:, 0], whole[chosen, at], atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
def test_order_is_nothing_without_positions_and_something_with_each_scheme(positions: str) -> None:
    model, tokens = encoder(positions=positions).double(), words(1, 7)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    same = torch.allclose(model(tokens[:, order]), model(tokens)[:, order], atol=1e-12, rtol=0)
    assert same == (positions == "none")


@pytest.mark.parametrize("positions", POSITIONS)
def test_i7_padding_in_front_shifts_nothing(positions: str) -> None:
    text = words(1, 6)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), text], dim=1)
    for model in (lm(positions=positions), encoder(positions=positions)):
        torch.testing.assert_close(model(padded)[:, 3:], model(text), atol=1e-5, rtol=0)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_j3_what_is_written_later_is_not_seen(positions: str, training: bool) -> None:
    one, two = words(2, 9), words(2, 9)
    two[:, 6:] = 39 - two[:, 6:] % 30
    source, image = words(2, 5), torch.randn(2, 1, 8, 8)
    options = {"positions": positions, "dropout_p": 0.0}
    translator, describer = seq2seq(**options).train(training), captions(**options).train(training)
    for model in (
        lm(**options).train(training),
        lambda target: translator(source, target),
        lambda target: describer(image, target),
    ):
        torch.testing.assert_close(model(one)[:, :6], model(two)[:, :6], atol=1e-6, rtol=0)
        assert not torch.allclose(model(one)[:, 6:], model(two)[:, 6:])


def test_j4_padding_is_never_seen_whatever_stands_there() -> None:
    target, source = words(2, 6), words(2, 8)
    keep, source_keep = torch.ones(2, 6, dtype=torch.bool), torch.ones(2, 8, dtype=torch.bool)
    keep[1, 4:], source_keep[1, 5:] = False, False
    model = seq2seq()
    wanted = model(source, target, source_keep=source_keep, keep=keep)[keep]
    other_target, other_source = target.masked_fill(~keep, 17), source.masked_fill(~source_keep, 23)
    found = model(other_source, other_target, source_keep=source_keep, keep=keep)[keep]
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    shorter = model(source[1:, :5], target[1:, :4])[0]
    torch.testing.assert_close(shorter, wanted[6:], atol=1e-5, rtol=0)
    assert torch.equal(model(source * source_keep, target * keep)[keep], wanted), "pad_id says the same as keep"


def test_keep_has_the_last_word_where_padding_ids_are_real() -> None:
    tokens = words(1, 5)
    tokens[0, 2] = 0
    for model in (lm(), encoder(), encoder(EncoderClassifier)):
        everything = model(tokens, keep=torch.ones(1, 5, dtype=torch.bool))
        assert not torch.allclose(everything[..., -1, :], model(tokens)[..., -1, :])


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_a_classifier_pools_real_tokens_and_an_empty_text_has_the_bias(pooling: str) -> None:
    model: Any = encoder(EncoderClassifier, pooling=pooling, num_classes=3)
    tokens = words(3, 6)
    tokens[1, 4:], tokens[2] = 0, 0
    found = model(tokens)
    torch.testing.assert_close(found[1], model(tokens[1:2, :4])[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[2], model.classes.bias)


def test_spans_never_begin_or_end_in_padding() -> None:
    model, tokens = encoder(EncoderForSpans, num_segments=2), words(2, 6)
    tokens[1, 4:] = 0
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    found = model(tokens, segments=segments)
    for ends in found:
        assert torch.equal(ends.isneginf(), tokens == 0)
    assert not torch.equal(found.start, model(tokens, segments=1 - segments).start)


def test_hidden_words_are_as_many_as_asked_for_and_no_special_token() -> None:
    config = EncoderConfig(**TINY, mask_id=3)
    tokens = torch.randint(0, 40, (200, 100))
    hidden = hide_words(tokens, config, share=0.2, generator=torch.Generator().manual_seed(0))
    chosen = hidden.labels != -100
    assert not (chosen & (tokens <= 3)).any()
    assert torch.equal(hidden.labels[chosen], tokens[chosen])
    assert torch.equal(hidden.tokens[~chosen], tokens[~chosen])
    assert abs(float(chosen[tokens > 3].float().mean()) - 0.2) < 0.01
    shown = hidden.tokens[chosen]
    assert abs(float((shown == 3).float().mean()) - 0.8 - 0.1 / 40) < 0.02
    assert abs(float((shown == tokens[chosen]).float().mean()) - 0.1 - 0.1 / 40) < 0.02
    again = hide_words(tokens, config, share=0.2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.tokens, hidden.tokens)


def test_a_watch_names_every_attention() -> None:
    model = seq2seq()
    with regard.watch(model, probes=[regard.Entropy()]) as seen:
        model(words(2, 6), words(2, 4))
    assert [layer.name for layer in seen.layers] == [
        "encoder.layers.0.self",
        "encoder.layers.1.self",
        "decoder.layers.0.self",
        "decoder.layers.0.cross",
        "decoder.layers.1.self",
        "decoder.layers.1.cross",
    ]
    assert {entry.status for entry in seen.coverage} == {"seen"}
    assert [layer.kind for layer in seen.layers] == ["self"] * 3 + ["cross", "self", "cross"]
    assert seen["decoder.layers.0.cross"].entropy.shape == (2, 4, 4)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "decoder": (lm, lambda: (words(2, 6),)),
    "encoder-decoder": (seq2seq, lambda: (words(2, 7), words(2, 5))),
    "classifier": (lambda: encoder(EncoderClassifier), lambda: (words(2, 6),)),
    "tagger": (lambda: encoder(EncoderTagger, num_classes=3), lambda: (words(2, 6),)),
    "masked": (lambda: encoder(MaskedLM), lambda: (words(2, 6),)),
    "vision": (lambda: VisionClassifier(VisionConfig(**TINY)).eval(), lambda: (torch.randn(2, 1, 28, 28),)),
    "captions": (captions, lambda: (torch.randn(2, 1, 8, 8), words(2, 5))),
}


@pytest.mark.parametrize("name", MODELS)
def test_copies_pickles_state_modes_and_seeds(name: str) -> None:
    make, inputs = MODELS[name][0], MODELS[name][1]()
    model = make()
    wanted = model(*inputs)
    torch.testing.assert_close(model.train(False)(*inputs), wanted, rtol=0, atol=0)
    fresh = make()
    for one, two in itertools.pairwise([p for n, p in fresh.named_parameters() if p.dim() == 2 and "table" not in n]):
        assert one.shape != two.shape or not torch.equal(one, two)
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    fresh.load_state_dict(model.state_dict())
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fresh):
        assert torch.equal(again(*inputs), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(*inputs).float()
    assert functional.cosine_similarity(low.flatten(), wanted.flatten(), dim=0) > 0.98
    for parameter, grad in zip(
        model.parameters(),
        torch.autograd.grad(model.train()(*inputs).float().square().mean(), list(model.parameters())),
        strict=True,
    ):
        assert grad.shape == parameter.shape
        assert grad.isfinite().all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lm()(words(2, 3) + 60), "`tokens` must be ids from 0 to 39, but is"),
        (lambda: lm()(words(2, 3).float()), r"`tokens` must be token ids \(int64 or int32\), but is torch.float32"),
        (lambda: lm()(words(2, 3), keep=torch.ones(2, 4, dtype=torch.bool)), r"`keep` must be of shape \(2, 3\)"),
        (
            lambda: lm()(words(2, 3), keep=torch.ones(2, 3)),
            r"`keep` must be bool \(True = a real token\), but is torch.float32",
        ),
        (lambda: lm(positions="learned")(words(1, 25)), r"from 0 to 23, but is from 0 to 24"),
        (lambda: captions().image(torch.randn(2, 3, 8, 8)), r"`images` must be of shape \[batch, 1, 8, 8\]"),
        (
            lambda: encoder()(words(2, 3), segments=torch.ones(2, 3).long()),
            "`segments` must be None, as config.num_segments is 0",
        ),
        (lambda: hide_words(words(2, 3), EncoderConfig(**TINY)), "`config.mask_id` must be the id of the mask token"),
        (lambda: TransformerConfig(vocab_size=9, embed_dim=10, num_heads=4), r"multiple of num_heads \(4\), but is 10"),
        (
            lambda: TransformerConfig(vocab_size=9, embed_dim=12, positions="rotary"),
            "even for rotary positions, but is 3",
        ),
        (lambda: TransformerConfig(vocab_size=9, pad_id=9), r"`pad_id` must be an id of the vocabulary \(0 to 8\)"),
        (lambda: TransformerConfig(vocab_size=9, num_kv_heads=3), "`num_heads` must be a multiple of num_kv_heads"),
        (lambda: EncoderConfig(vocab_size=9, window=3, pooling="last"), r"(?s)2 problems.*`pooling`.*`window`"),  # type: ignore[arg-type]
        (lambda: VisionConfig(image_size=10, patch_size=4), r"`image_size` must be a multiple of patch_size \(4\)"),
        (lambda: EncoderDecoderConfig(vocab_size=9, num_decoder_layers=0), "`num_decoder_layers` must be at least 1"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def learn(model: nn.Module, batch: Callable[[], tuple[tuple[Tensor, ...], Tensor]], steps: int) -> float:
    """Train, and return the accuracy on a fresh batch."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        inputs, labels = batch()
        loss = functional.cross_entropy(model(*inputs).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    inputs, labels = batch()
    with torch.no_grad():
        return float((model.eval()(*inputs).argmax(dim=-1) == labels).float().mean())


@pytest.mark.usefixtures("unchecked")
def test_an_encoder_decoder_learns_to_turn_a_text_round() -> None:
    torch.manual_seed(0)
    model = Seq2Seq(EncoderDecoderConfig(**{**TINY, "num_layers": 1, "dropout_p": 0.0}))

    def batch() -> tuple[tuple[Tensor, ...], Tensor]:
        source = torch.randint(3, 12, (64, 5))
        labels = source.flip(1)
        return (source, torch.cat([torch.ones(64, 1, dtype=torch.long), labels[:, :-1]], dim=1)), labels

    assert learn(model, batch, 250) > 0.95


@pytest.mark.usefixtures("unchecked")
def test_a_decoder_learns_to_repeat_and_a_classifier_to_compare() -> None:
    torch.manual_seed(0)

    def again() -> tuple[tuple[Tensor, ...], Tensor]:
        period = torch.randint(3, 12, (64, 3)).repeat(1, 4)
        return (period[:, :-1],), period[:, 1:]

    model = DecoderLM(TransformerConfig(**{**TINY, "positions": "rotary", "dropout_p": 0.0}))
    learn(model, again, 200)
    (tokens,), labels = again()
    assert float((model(tokens).argmax(dim=-1) == labels)[:, 4:].float().mean()) > 0.9

    def first_is_last() -> tuple[tuple[Tensor, ...], Tensor]:
        tokens = torch.randint(3, 12, (64, 6))
        same = torch.rand(64) < 0.5
        tokens[:, -1] = torch.where(same, tokens[:, 0], tokens[:, -1])
        return (tokens,), (tokens[:, 0] == tokens[:, -1]).long()

    classifier = EncoderClassifier(EncoderConfig(**{**TINY, "dropout_p": 0.0}))
    assert learn(classifier, first_is_last, 300) > 0.9
