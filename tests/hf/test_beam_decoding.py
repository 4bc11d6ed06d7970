"""Our beam search beside transformers' own: the same texts for every option it serves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList

from regard.hf import (
    RegardDecoderConfig,
    RegardForCausalLM,
    RegardForConditionalGeneration,
    RegardRecurrentForConditionalGeneration,
    RegardRecurrentSeq2SeqConfig,
    RegardSeq2SeqConfig,
    writers,
)
from regard.hf.beam_decoding import best_continuations
from regard.lens import watch
from regard.ops.probes import KeyMass

ENDS = [2, 5, 6, 7]  # many, so that texts are done at different steps
SIZES = {"vocab_size": 40, "embed_dim": 16, "num_heads": 2, "num_layers": 2, "hidden_dim": 32}


def reads_and_writes(**more):
    torch.manual_seed(0)
    return sharp(RegardForConditionalGeneration(RegardSeq2SeqConfig(**SIZES, **more)))


def goes_on(**more):
    torch.manual_seed(0)
    return sharp(RegardForCausalLM(RegardDecoderConfig(**SIZES, **more)))


def recurrent():
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 40, "vocab_size": 40, "embed_dim": 16, "hidden_dim": 16}
    model = RegardRecurrentForConditionalGeneration(RegardRecurrentSeq2SeqConfig(**sizes))
    with torch.no_grad():
        model.model.output.weight.mul_(8)
    return model.eval()


@torch.no_grad()
def sharp(model):
    """Logits far from each other, and ends at different steps."""
    for name, weight in model.named_parameters():
        if "table" in name or "embedding" in name or name.endswith("output.weight"):
            weight.mul_(3)
    return model.eval()


MODELS = {
    "reads and writes": reads_and_writes,
    "goes on": goes_on,
    "goes on, rotary, window": lambda: goes_on(positions="rotary", window=4),
    "recurrent": recurrent,
}
OPTIONS = {
    "as usual": {"num_beams": 5},
    "two beams": {"num_beams": 2, "num_return_sequences": 2},
    "three returned": {"num_beams": 4, "num_return_sequences": 3},
    "short ones": {"num_beams": 4, "length_penalty": -1.0},
    "long ones": {"num_beams": 4, "length_penalty": 2.0},
    "no length": {"num_beams": 4, "length_penalty": 0.0},
    "stops early": {"num_beams": 4, "early_stopping": True},
    "stops never": {"num_beams": 4, "early_stopping": "never"},
    "never, short": {"num_beams": 4, "early_stopping": "never", "length_penalty": -0.5},
    "one end": {"num_beams": 3, "eos_token_id": 2},
    "no end": {"num_beams": 3, "eos_token_id": None},
    "padding 0": {"num_beams": 3, "pad_token_id": 0},
    "padding 3": {"num_beams": 3, "pad_token_id": 3},
    "more beams than words": {"num_beams": 25},
    "one token": {"num_beams": 3, "max_new_tokens": 1},
    "without a cache": {"num_beams": 3, "use_cache": False},
}


def inputs_of(model, *, padded):
    torch.manual_seed(1)
    ids = torch.randint(4, 40, (7, 6))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if padded:
        for row, count in enumerate((0, 2, 0, 4, 1, 0, 3)):
            where = slice(6 - count, 6) if model.config.is_encoder_decoder else slice(0, count)
            inputs["attention_mask"][row, where] = 0
            ids[row, where] = 0
    return inputs


def transformers_own(model, monkeypatch, **asked):
    with monkeypatch.context() as patched:
        patched.setattr(writers, "is_plain", lambda *_, **__: False)
        return model.generate(**asked)


@pytest.fixture
def served(monkeypatch):
    """How often our search served."""
    counted = []
    search = writers.search
    monkeypatch.setattr(writers, "search", lambda *given: counted.append(1) or search(*given))
    return counted


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_the_texts_are_those_of_transformers(build, options, padded, monkeypatch, served):
    model = build()
    usual = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": ENDS}
    asked = {**inputs_of(model, padded=padded), **usual, **options}
    expected = transformers_own(model, monkeypatch, **asked)
    assert not served
    found = model.generate(**asked)
    assert torch.equal(found, expected)
    assert bool(served) == (options.get("use_cache", True) and options["num_beams"] < 20)


def test_texts_do_end_at_different_steps():
    """Without which the tests above would compare nothing but full lengths."""
    for build in MODELS.values():
        model = build()
        options = {"num_beams": 3, "max_new_tokens": 12, "do_sample": False, "eos_token_id": ENDS, "pad_token_id": 3}
        texts = model.generate(**inputs_of(model, padded=False), **options)
        lengths = (texts != 3).sum(dim=1)
        assert len(lengths.unique()) > 1, build


def test_rows_of_texts_that_are_done_are_not_read(monkeypatch):
    model = reads_and_writes()
    rows = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda **given: rows.append(len(given["decoder_input_ids"])) or forward(**given)
    )
    options = {"num_beams": 3, "max_new_tokens": 12, "do_sample": False, "early_stopping": True}
    model.generate(**inputs_of(model, padded=True), eos_token_id=ENDS, **options)
    assert rows[:2] == [7, 21], "a prompt is read once for all beams"
    assert rows[-1] < 21
    assert rows[1:] == sorted(rows[1:], reverse=True)


class Nudge(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores + torch.linspace(0, 1, scores.shape[1])


@pytest.mark.parametrize(
    "more",
    [
        {"do_sample": True},
        {"return_dict_in_generate": True},
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2},
        {"logits_processor": LogitsProcessorList([Nudge()])},
        {"stopping_criteria": [lambda ids, scores, **_: torch.zeros(len(ids), dtype=torch.bool)]},
        {"cache_implementation": "static"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_who_asks_for_more_is_served_by_transformers(more, served):
    model = reads_and_writes()
    torch.manual_seed(0)
    model.generate(**inputs_of(model, padded=True), num_beams=3, max_new_tokens=6, **{"do_sample": False, **more})
    assert not served


def test_a_watched_search_is_transformers_own(served):
    model = reads_and_writes()
    asked = {**inputs_of(model, padded=True), "num_beams": 3, "max_new_tokens": 8, "do_sample": False}
    found = model.generate(**asked)
    assert len(served) == 1
    with watch(model, [KeyMass()]):
        watched = model.generate(**asked)
    assert len(served) == 1
    assert torch.equal(found, watched)
    model.generate(**asked)
    assert len(served) == 2


def test_transformers_search_is_where_we_look_for_it():
    """If it is renamed, ours would silently serve nobody."""
    assert hasattr(GenerationMixin, "_beam_search")
    assert "_beam_search" in vars(GenerationMixin)


@given(
    texts=st.integers(1, 3),
    beams=st.integers(1, 6),
    vocab_size=st.integers(1, 300),
    candidates=st.integers(1, 40),
    seed=st.integers(0, 1000),
    alike=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_best_continuations_are_those_of_the_whole(texts, beams, vocab_size, candidates, seed, alike):
    torch.manual_seed(seed)
    logits = torch.randn(texts * beams, vocab_size, dtype=torch.float64)
    logits = logits.round() if alike else logits
    sums = torch.randn(texts, beams, dtype=torch.float64)
    found = best_continuations(logits, sums, candidates)
    whole = (logits.log_softmax(1).view(texts, beams, vocab_size) + sums[..., None]).flatten(1)
    expected = whole.topk(min(candidates, beams * vocab_size), dim=1)
    torch.testing.assert_close(found.scores, expected.values)
    at = found.beams * vocab_size + found.tokens
    torch.testing.assert_close(whole.gather(1, at), found.scores)
    assert all(len(set(row.tolist())) == len(row) for row in at), "a continuation is chosen twice"
    if not alike:
        assert torch.equal(at, expected.indices)
