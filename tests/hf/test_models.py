"""Our Transformers in transformers: checkpoints, Auto classes, generate with every cache and beams, Trainer, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DynamicCache,
    EncoderDecoderCache,
    StaticCache,
)

import regard
from regard.hf import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardForCausalLM,
    RegardForConditionalGeneration,
    RegardForImageCaptioning,
    RegardForImageClassification,
    RegardForMaskedLM,
    RegardForQuestionAnswering,
    RegardForSequenceClassification,
    RegardForTokenClassification,
    RegardSeq2SeqConfig,
    RegardVisionConfig,
)
from regard.hf.models import shifted_right, token_loss

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 2, "ff_dim": 48}
PIXELS: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}
GENERATE: dict[str, Any] = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(2))


def sharpened(model: nn.Module) -> Any:
    """Larger weights: logits far enough apart that rounding chooses no other token."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.5)
    return model.eval()


def causal(**options: Any) -> Any:
    torch.manual_seed(0)
    return sharpened(RegardForCausalLM(RegardDecoderConfig(**{**TINY, **options})))


def seq2seq(**options: Any) -> Any:
    torch.manual_seed(0)
    return sharpened(RegardForConditionalGeneration(RegardSeq2SeqConfig(**{**TINY, **options})))


def captions() -> Any:
    torch.manual_seed(0)
    return sharpened(RegardForImageCaptioning(RegardCaptionConfig(**PIXELS)))


MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "causal": (causal, AutoModelForCausalLM, {"input_ids": words(2, 5)}),
    "relative": (lambda: causal(positions="relative"), AutoModelForCausalLM, {"input_ids": words(2, 5)}),
    "seq2seq": (seq2seq, AutoModelForSeq2SeqLM, {"input_ids": words(2, 5), "labels": words(2, 4)}),
    "two vocabularies": (
        lambda: seq2seq(source_vocab_size=50),
        AutoModelForSeq2SeqLM,
        {"input_ids": words(2, 5), "labels": words(2, 4)},
    ),
    "classifier": (
        lambda: RegardForSequenceClassification(RegardEncoderConfig(**TINY, num_labels=3)).eval(),
        AutoModelForSequenceClassification,
        {"input_ids": words(2, 5), "labels": torch.tensor([0, 2])},
    ),
    "spans": (
        lambda: RegardForQuestionAnswering(RegardEncoderConfig(**TINY, num_segments=2)).eval(),
        AutoModelForQuestionAnswering,
        {"input_ids": words(2, 5), "start_positions": torch.tensor([0, 2]), "end_positions": torch.tensor([1, 2])},
    ),
    "tokens": (
        lambda: RegardForTokenClassification(RegardEncoderConfig(**TINY, num_labels=3)).eval(),
        AutoModelForTokenClassification,
        {"input_ids": words(2, 5), "labels": torch.tensor([[0, 2, 1, 0, -100], [1, 1, 2, 0, 0]])},
    ),
    "masked": (
        lambda: RegardForMaskedLM(RegardEncoderConfig(**TINY, mask_id=3)).eval(),
        AutoModelForMaskedLM,
        {"input_ids": words(2, 5), "labels": words(2, 5)},
    ),
    "vision": (
        lambda: RegardForImageClassification(RegardVisionConfig(**PIXELS, num_classes=4)).eval(),
        AutoModelForImageClassification,
        {"pixel_values": torch.randn(2, 1, 8, 8), "labels": torch.tensor([3, 0])},
    ),
    "captions": (
        captions,
        AutoModelForImageTextToText,
        {"pixel_values": torch.randn(2, 1, 8, 8), "labels": words(2, 4)},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_comes_back_through_its_auto_class(name: str, tmp_path: Path) -> None:
    make, auto, inputs = MODELS[name]
    model = make()
    model.save_pretrained(tmp_path)
    again = auto.from_pretrained(tmp_path).eval()
    assert type(again) is type(model)
    assert again.config.settings == model.config.settings
    for key, found in again(**inputs).items():
        if isinstance(found, Tensor):
            assert torch.equal(found, model(**inputs)[key]), key


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_model_inside(name: str) -> None:
    make, _, inputs = MODELS[name]
    model = make()
    output = model(**inputs)
    given = inputs.get("input_ids", inputs.get("pixel_values"))
    if "labels" in inputs and model.config.is_encoder_decoder:
        target = shifted_right(inputs["labels"], start=1, pad_id=0)
        torch.testing.assert_close(output.logits, model.model(given, target))
    elif name == "spans":
        torch.testing.assert_close(output.start_logits, model.model(given).start)
    else:
        torch.testing.assert_close(output.logits, model.model(given))


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize(
    "options",
    [
        {"positions": "sinusoidal"},
        {"positions": "learned"},
        {"positions": "rotary", "num_kv_heads": 2},
        {"positions": "rotary", "window": 4},
        {"positions": "alibi", "window": 3},
        {"positions": "relative"},
        {"positions": "none"},
    ],
)
def test_generation_is_the_same_with_every_cache(options: dict[str, Any], cache: str, num_beams: int) -> None:
    model, tokens = causal(**options), words(2, 5)
    tokens[1, :2] = 0
    wanted = {**GENERATE, "attention_mask": (tokens != 0).long(), "num_beams": num_beams}
    plain = model.generate(tokens, use_cache=False, **wanted)
    assert plain.shape == (2, 14)
    assert torch.equal(model.generate(tokens, cache_implementation=cache, **wanted), plain)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_a_writer_with_a_source_generates_the_same_with_every_cache(cache: str, num_beams: int) -> None:
    source = words(2, 6)
    source[1, 4:] = 0
    for model, inputs in ((seq2seq(), {"input_ids": source}), (captions(), {"pixel_values": torch.randn(2, 1, 8, 8)})):
        wanted = {**GENERATE, **inputs, "num_beams": num_beams}
        plain = model.generate(use_cache=False, **wanted)
        assert torch.equal(model.generate(cache_implementation=cache, **wanted), plain)
    masked = seq2seq().generate(source, attention_mask=(source != 0).long(), **GENERATE)
    assert torch.equal(seq2seq().generate(source, **GENERATE), masked)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("kind", ["seq2seq", "captions"])
def test_a_window_over_the_text_cuts_nothing_of_the_source(kind: str, cache: str, num_beams: int) -> None:
    torch.manual_seed(0)
    source = words(2, 9)
    source[1, 6:] = 0
    if kind == "seq2seq":
        model, inputs = seq2seq(window=4, positions="rotary"), {"input_ids": source}
    else:
        model = sharpened(RegardForImageCaptioning(RegardCaptionConfig(**PIXELS, window=3)))
        inputs = {"pixel_values": torch.randn(2, 1, 8, 8)}
    wanted = {**GENERATE, **inputs, "num_beams": num_beams}
    plain = model.generate(use_cache=False, **wanted)
    assert torch.equal(model.generate(cache_implementation=cache, **wanted), plain)


@pytest.mark.parametrize("room", [None, 7, 12])
def test_a_cache_of_the_caller_keeps_the_whole_source(room: int | None) -> None:
    model, source, target = seq2seq(window=3), words(2, 7), words(2, 6)
    source[1, 5:] = 0
    whole = model(source, decoder_input_ids=target).logits
    config = model.config
    new = DynamicCache(config=config), DynamicCache(config=config)
    cache = EncoderDecoderCache(new[0], new[1] if room is None else StaticCache(config=config, max_cache_len=room))
    first = model(source, decoder_input_ids=target[:, :4], cache=cache)
    torch.testing.assert_close(first.logits, whole[:, :4], atol=1e-5, rtol=1e-4)
    for at in (4, 5):
        step = model(
            encoder_outputs=(first.encoder_last_hidden_state,),
            attention_mask=(source != 0).long(),
            decoder_input_ids=target[:, at : at + 1],
            cache=cache,
        )
        torch.testing.assert_close(step.logits, whole[:, at : at + 1], atol=1e-5, rtol=1e-4)
    assert [layer.keys.shape[2] for layer in cache.cross_attention_cache.layers] == [7, 7]


def test_j7_one_beam_is_greedy_and_nothing_is_written_after_the_end() -> None:
    model, tokens = causal(), words(3, 4)
    greedy = model.generate(tokens, **GENERATE)
    assert torch.equal(model.generate(tokens, num_beams=1, **GENERATE), greedy)
    end = int(greedy[0, 6])
    found = causal(eos_id=end).generate(tokens, max_new_tokens=9)  # as a person calls it: the model knows its end
    first = [row.index(end) if end in row else 8 for row in greedy[:, 4:].tolist()]
    assert found.shape[1] == 4 + max(first) + 1
    for row, whole, at in zip(found[:, 4:].tolist(), greedy[:, 4:].tolist(), first, strict=True):
        assert row == whole[: at + 1] + [0] * (max(first) - at)
    best = model.generate(
        tokens, num_beams=3, num_return_sequences=3, output_scores=True, return_dict_in_generate=True, **GENERATE
    )
    scores = best.sequences_scores.view(3, 3)
    assert torch.equal(scores, scores.sort(dim=1, descending=True).values)


def test_a_watch_follows_a_generation_by_readable_names() -> None:
    model, source = seq2seq(), words(1, 6)
    with regard.watch(model, probes=[regard.Rows(), regard.Entropy()]) as seen:
        written = model.generate(source, **GENERATE)
    assert written.shape == (1, 10)
    cross = seen["decoder.layers.0.cross"]
    assert cross.kind == "cross"
    assert cross.rows.shape == (1, 4, 9, 6)
    own = seen["decoder.layers.1.self"]
    assert own.rows.shape == (1, 4, 9, 9)
    assert (own.rows.triu(1) == 0).all()
    with regard.watch(model.model, probes=[regard.Rows()]) as once:
        model.model(source, written[:, :9])
    torch.testing.assert_close(cross.rows, once["decoder.layers.0.cross"].rows, atol=1e-5, rtol=0)
    torch.testing.assert_close(own.rows, once["decoder.layers.1.self"].rows, atol=1e-5, rtol=0)
    assert {entry.status for entry in seen.coverage} == {"seen"}


def test_a_watch_follows_beams() -> None:
    model, source = seq2seq(), words(1, 6)
    with regard.watch(model, probes=[regard.Rows()]) as seen:
        written = model.generate(source, num_beams=3, **GENERATE)
    with regard.watch(model.model, probes=[regard.Rows()]) as once:
        model.model(source, written[:, :9])
    for name in ("decoder.layers.0.self", "decoder.layers.1.cross"):
        torch.testing.assert_close(seen[name].rows, once[name].rows, atol=1e-5, rtol=0)


def test_losses_are_per_counted_token() -> None:
    logits, labels = torch.randn(2, 4, 9), torch.randint(0, 9, (2, 4))
    labels[1, 2:] = -100
    each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100)
    torch.testing.assert_close(token_loss(logits, labels), each.sum() / 6)
    torch.testing.assert_close(token_loss(logits, labels, 12), each.sum() / 12)
    assert token_loss(logits, torch.full_like(labels, -100)) == 0
    tokens = words(2, 6)
    model = causal()
    torch.testing.assert_close(
        model(tokens, labels=tokens).loss,
        functional.cross_entropy(model(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()),
    )


def test_j5_accumulated_steps_weigh_every_token_alike() -> None:
    model, tokens = causal(dropout_p=0.0), words(8, 7)
    lengths = torch.tensor([7, 2, 3, 6, 4, 2, 5, 7])
    keep = torch.arange(7) < lengths[:, None]
    labels = tokens.masked_fill(~keep, -100)
    counted = (labels[:, 1:] != -100).sum()
    parameters = list(model.parameters())
    whole = torch.autograd.grad(model(tokens, attention_mask=keep.long(), labels=labels).loss, parameters)
    parts = [
        torch.autograd.grad(
            model(
                tokens[i : i + 2],
                attention_mask=keep[i : i + 2].long(),
                labels=labels[i : i + 2],
                num_items_in_batch=counted,
            ).loss,
            parameters,
        )
        for i in range(0, 8, 2)
    ]
    for one, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(sum(pieces), one, atol=1e-6, rtol=1e-4)


def test_configs_speak_both_languages(tmp_path: Path) -> None:
    config = RegardDecoderConfig(vocab_size=50, hidden_size=64, num_attention_heads=8, eos_token_id=7, window=5)
    assert (config.embed_dim, config.num_heads, config.eos_id, config.sliding_window) == (64, 8, 7, 5)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).settings == config.settings
    named = RegardEncoderConfig(vocab_size=9, id2label={0: "bad", 1: "good", 2: "neither"})
    assert (named.num_classes, named.settings.num_classes) == (3, 3)
    assert RegardVisionConfig(num_labels=5).settings.num_classes == 5
    with pytest.raises(ValueError, match=r"multiple of num_heads \(5\), but is 64"):
        RegardForCausalLM(RegardDecoderConfig(vocab_size=9, embed_dim=64, num_heads=5))


@pytest.mark.parametrize("model", [seq2seq, captions])
def test_nothing_to_read_or_to_write_is_refused(model: Any) -> None:
    with pytest.raises(ValueError, match=r"source .* and decoder_input_ids \(or labels\) must be given"):
        model()(decoder_input_ids=words(1, 3))
    source = {"pixel_values": torch.randn(1, 1, 8, 8)} if model is captions else {"input_ids": words(1, 3)}
    with pytest.raises(ValueError, match="must be given"):
        model()(**source)


def started() -> dict[str, Any]:
    """A fresh wrapper of every kind, with everything that is drawn."""
    encoder = {**TINY, "num_segments": 2, "mask_id": 3}
    return {
        "decoder": lambda: RegardForCausalLM(RegardDecoderConfig(**TINY, positions="relative")),
        "seq2seq": lambda: RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, positions="learned")),
        "classifier": lambda: RegardForSequenceClassification(RegardEncoderConfig(**encoder)),
        "spans": lambda: RegardForQuestionAnswering(RegardEncoderConfig(**encoder, gated=True)),
        "tokens": lambda: RegardForTokenClassification(RegardEncoderConfig(**encoder)),
        "masked": lambda: RegardForMaskedLM(RegardEncoderConfig(**encoder)),
        "vision": lambda: RegardForImageClassification(RegardVisionConfig(**PIXELS)),
        "captions": lambda: RegardForImageCaptioning(RegardCaptionConfig(**PIXELS)),
    }


@pytest.mark.parametrize("name", started())
def test_a_wrapper_begins_as_the_model_inside_does(name: str) -> None:
    torch.manual_seed(5)
    wrapper = started()[name]()
    torch.manual_seed(5)
    plain = wrapper.inner(wrapper.config.settings)
    for (name, ours), (_, theirs) in zip(wrapper.model.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("name", started())
def test_what_a_checkpoint_lacks_is_drawn_as_where_it_is_made(name: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    wrapper = started()[name]()
    first = next(iter(wrapper.state_dict()))
    only = {first: torch.full_like(wrapper.state_dict()[first], 7.0)}
    wrapper.save_pretrained(tmp_path, state_dict=only)
    loaded, report = type(wrapper).from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(wrapper.state_dict()) - {first}
    for name, drawn in loaded.state_dict().items():
        made = wrapper.state_dict()[name]
        if name == first:
            assert bool((drawn == 7).all())
        elif made.numel() < 2 or not made.std():
            assert torch.equal(drawn, made), name
        else:
            few = 3.0 if made.numel() < 64 else 1.3  # of few numbers the size is all that can be compared
            assert 1 / few**2 < float(drawn.abs().max() / made.abs().max()) < few**2, name
            assert made.numel() < 64 or 1 / few < float(drawn.std() / made.std()) < few, name
            assert not torch.equal(drawn, made), name
