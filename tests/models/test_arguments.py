"""Arguments that a model cannot take are named by it, in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError
from regard.models import (
    EncoderClassifier,
    EncoderConfig,
    EncoderForSpans,
    EncoderTagger,
    MaskedLM,
    TransformerConfig,
    VisionClassifier,
    VisionConfig,
    hide_words,
)
from regard.models.beam_search import beam_search
from regard.models.sampling import choose_tokens
from regard.nn import KeyValueCache
from tests.models.test_transformers import TINY, captions, encoder, lm, seq2seq, words
from tests.models.tiny import convolutional_lm, recurrent_lm, texts, translator

pytestmark = pytest.mark.usefixtures("unchecked")

IMAGES = torch.randn(2, 1, 8, 8)
READERS: dict[str, tuple[Callable[[Any], object], str]] = {
    "DecoderLM": (lambda tokens: lm()(tokens), "tokens"),
    "TextEncoder": (lambda tokens: encoder()(tokens), "tokens"),
    "EncoderClassifier": (lambda tokens: encoder(EncoderClassifier)(tokens), "tokens"),
    "EncoderForSpans": (lambda tokens: encoder(EncoderForSpans)(tokens), "tokens"),
    "EncoderTagger": (lambda tokens: encoder(EncoderTagger)(tokens), "tokens"),
    "MaskedLM": (lambda tokens: encoder(MaskedLM)(tokens), "tokens"),
    "Seq2Seq source": (lambda tokens: seq2seq()(tokens, words(2, 3)), "source"),
    "Seq2Seq target": (lambda tokens: seq2seq()(words(2, 3), tokens), "target"),
    "CaptionModel": (lambda tokens: captions()(IMAGES, tokens), "target"),
}


@pytest.mark.parametrize("name", READERS)
def test_tokens_are_a_batch_of_ids(name: str) -> None:
    call, argument = READERS[name]
    call(words(2, 3))
    caller = rf"{name.split()[0]}\(\): `{argument}` must be"
    for given in (None, "a text", [[3, 4]]):
        with pytest.raises(DTypeError, match=rf"{caller} a tensor of ids, but is {type(given).__name__}"):
            call(given)
    with pytest.raises(ShapeError, match=rf"(?s){caller} of shape .*single text is {argument}\[None\]"):
        call(words(3))
    with pytest.raises(DTypeError, match=rf"{caller} token ids"):
        call(words(2, 3).float())
    with pytest.raises(ConfigError, match=rf"{caller} ids from 0 to 39"):
        call(words(2, 3) + 40)


def test_ids_of_a_source_are_those_of_its_own_vocabulary() -> None:
    model = seq2seq(source_vocab_size=60)
    model(words(2, 3) + 20, words(2, 3))
    with pytest.raises(ConfigError, match=r"Seq2Seq\(\): `source` must be ids from 0 to 59"):
        model(words(2, 3) + 60, words(2, 3))


@pytest.mark.parametrize("given", [KeyValueCache().layer(0), "cache", {}])
def test_a_cache_is_one_of_a_model(given: Any) -> None:
    expected = "`kv_cache` must be a KeyValueCache, but is a"
    with pytest.raises(DTypeError, match=rf"DecoderLM\(\): {expected}"):
        lm()(words(2, 3), kv_cache=given)
    for memory in (None, torch.zeros(2, 3, 32)):
        with pytest.raises(DTypeError, match=rf"Seq2Seq.write\(\): {expected}"):
            seq2seq().write(words(2, 3), memory, kv_cache=given)


@pytest.mark.parametrize("given", [torch.zeros(2, 3, 32).double(), words(2, 3), "source"])
def test_memory_is_of_the_dtype_of_the_model(given: Any) -> None:
    for model, caller in ((seq2seq(), "Seq2Seq"), (captions(), "CaptionModel")):
        with pytest.raises(DTypeError, match=rf"{caller}.write\(\): `memory` must be"):
            model.write(words(2, 3), given)


@pytest.mark.parametrize("given", [None, IMAGES.double(), (IMAGES * 255).byte(), "image"])
def test_images_are_of_the_dtype_of_the_model(given: Any) -> None:
    model = VisionClassifier(VisionConfig(**TINY, image_size=8, patch_size=4))
    model(IMAGES)
    with pytest.raises(DTypeError, match=r"ImageEncoder\(\): `images` must be"):
        model(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(IMAGES.bfloat16())


@pytest.mark.parametrize("given", [words(2, 2) * 0, words(1, 3) * 0])
def test_segments_are_as_many_as_tokens(given: Tensor) -> None:
    model = encoder(num_segments=2)
    with pytest.raises(ShapeError, match=r"TextEncoder\(\): `segments` must be of shape \(2, 3\), but is of shape"):
        model(words(2, 3), segments=given)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda config: hide_words(None, config), "`tokens` must be a tensor of ids"),
        (lambda config: hide_words(words(2, 3).float(), config), "`tokens` must be token ids"),
        (lambda config: hide_words(words(2, 3) + 40, config), "`tokens` must be ids from 0 to 39"),
        (lambda config: hide_words(words(2, 3), config, share="half"), "`share` must be between 0 and 1"),
        (
            lambda config: hide_words(words(2, 3), config, may_hide=torch.ones(3).bool()),
            r"`may_hide` must be of shape \(2, 3\)",
        ),
        (lambda config: hide_words(words(2, 3), config, may_hide=words(2, 3)), "`may_hide` must be bool"),
        (lambda config: hide_words(words(2, 3), TransformerConfig(**TINY)), "`config` must be of class EncoderConfig"),
    ],
)
def test_words_that_cannot_be_hidden_are_named(call: Callable[[EncoderConfig], object], text: str) -> None:
    with pytest.raises((ConfigError, DTypeError, ShapeError), match=rf"hide_words\(\): {text}"):
        call(EncoderConfig(**TINY, mask_id=3))


def test_no_source_is_decoded_to_no_text() -> None:
    for attention in ("none", "additive", "dot"):
        model = translator("lstm", attention)
        assert model.decode(texts(0, 4, vocabulary=9), max_new_tokens=3, num_beams=2) == []


def test_options_of_decoding_are_numbers() -> None:
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`max_new_tokens` .*'3'.*`num_beams` .*2.0.*`length_p.*'1'"):
        translator("gru", "dot").decode(
            texts(1, 3, vocabulary=9),
            max_new_tokens="3",  # type: ignore[arg-type]
            num_beams=2.0,  # type: ignore[arg-type]
            length_penalty="1",  # type: ignore[arg-type]
        )


def test_options_of_drawing_are_numbers() -> None:
    wrong: dict[str, Any] = {"max_new_tokens": 2.5, "temperature": "1", "top_k": 2.0, "seed": "0"}
    for model in (recurrent_lm(), convolutional_lm()):
        with pytest.raises(ConfigError, match=r"(?s)4 problems.*2\.5.*'1'.*2\.0.*`seed` must be an integer.*'0'"):
            model.generate(texts(1, 3), **wrong)
    with pytest.raises(ConfigError, match="`seed` must be an integer of 64 bits"):
        recurrent_lm().generate(texts(1, 3), max_new_tokens=1, temperature=1.0, seed=2**64)


@pytest.mark.parametrize("temperature", [1e-40, 1e-300, 5e-324])
def test_the_lowest_temperatures_take_the_best(temperature: float) -> None:
    model, prompt = recurrent_lm(), texts(3, 4)
    wanted = model.generate(prompt, max_new_tokens=5)
    assert model.generate(prompt, max_new_tokens=5, temperature=temperature) == wanted
    scores = torch.tensor([[float("-inf"), 1.0, 3.0, 3.0]]).repeat(50, 1)
    drawn = choose_tokens(scores, temperature=temperature, top_k=None, generator=torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {2, 3}, "equals share the chance"


@pytest.mark.parametrize(
    ("shape", "eos_id", "text"),
    [
        ((2, 5), 5, r"`eos_id` must be an id of the vocabulary \(0 to 4\), but is 5"),
        ((2, 5), -1, "`eos_id` must be an id of the vocabulary"),
        ((1, 5), 2, r"`advance` must be a function to logits of shape \[2, vocab_size\], but is one to \(1, 5\)"),
        ((2, 3, 5), 2, r"`advance` must be a function to logits of shape \[2, vocab_size\]"),
    ],
)
def test_a_search_that_could_not_end_is_refused(shape: tuple[int, ...], eos_id: int, text: str) -> None:
    with pytest.raises((ConfigError, ShapeError), match=text):
        beam_search(
            lambda tokens, parents, state: (torch.zeros(shape), None, state),
            None,
            batch=1,
            bos_id=1,
            eos_id=eos_id,
            pad_id=0,
            max_new_tokens=3,
            num_beams=2,
        )


@pytest.mark.parametrize("state", ["state", (torch.zeros(2, 2, 8),), [None] * 3])
def test_a_state_is_what_a_step_returned(state: Any) -> None:
    with pytest.raises(ShapeError, match=r"ConvolutionalLM\(\): `state` must be what step\(\) returned, a tuple of 3"):
        convolutional_lm().step(texts(2, 3), state)
    with pytest.raises(ShapeError, match="`state` must be 2 tensor"):
        recurrent_lm().step(texts(2, 3), state)
