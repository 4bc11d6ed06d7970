"""Recordings of weights that are there already."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from regard.errors import ConfigError, DTypeError, Error, ShapeError
from regard.lens import from_attentions
from regard.lens._tokens import spelled
from regard.records import Recording
from regard.view import page
from tests.parity.tiny_models import MODELS

OPTIONS = {"output_attentions": True, "return_dict_in_generate": True, "do_sample": False, "pad_token_id": 0}
MIXED = {**OPTIONS, "no_repeat_ngram_size": 1}  # beams change their slots


def letters(count: int) -> list[str]:
    return [chr(97 + number) for number in range(count)]


def softmax(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1).to(dtype)


def rows(recording: Recording, place: int = 0) -> torch.Tensor:
    return torch.from_numpy(recording.calls[place].values["rows"])


@pytest.fixture(scope="module")
def prompt() -> torch.Tensor:
    return torch.randint(3, 61, (1, 5), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_tuple_of_layers_is_kept_saved_and_shown(tmp_path, dtype):
    weights = tuple(softmax(2, 3, 4, 4, dtype=dtype) for _ in range(2))
    recording = from_attentions(weights, [letters(4), letters(4)], model_name="mine")
    assert [(call.name, call.layer, call.kind) for call in recording.calls] == [
        ("layers.0.attention", 0, "self"),
        ("layers.1.attention", 1, "self"),
    ]
    torch.testing.assert_close(rows(recording, 1), weights[1].to(rows(recording).dtype), rtol=0, atol=0)
    loaded = Recording.load(recording.save(tmp_path / "given.regard"))
    assert "layers.1.attention" in page(loaded)


def test_long_weights_become_maps_and_strongest_keys():
    recording = from_attentions([softmax(1, 1, 200, 200)], ["x"] * 200)
    call = recording.calls[0]
    assert call.pooled == ("heat_map",)
    assert call.values["top_k.weights"].shape == (1, 1, 200, 16)
    assert len(page(recording)) > 0


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3", "gpt2"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_a_generation_is_that_of_one_run(name, cache, prompt):
    model = MODELS[name].build("eager")
    out = model.generate(prompt, max_new_tokens=6, cache_implementation=cache, **OPTIONS)
    recording = from_attentions(out.attentions, letters(11))
    whole = model(out.sequences[:, :-1], output_attentions=True).attentions
    for place, expected in enumerate(whole):
        torch.testing.assert_close(rows(recording, place), expected, rtol=0, atol=1e-5)
    assert page(recording)


@pytest.mark.parametrize("returned", [1, 2])
def test_rows_of_a_beam_search_follow_the_returned_texts(returned, prompt):
    model = MODELS["gpt2"].build("eager")
    prompts = torch.cat([prompt, prompt.flip(1)])
    out = model.generate(prompts, max_new_tokens=5, num_beams=3, num_return_sequences=returned, **MIXED)
    assert len(out.beam_indices.unique()) > 2
    recording = from_attentions(out.attentions, [letters(10)] * 2 * returned, beam_indices=out.beam_indices)
    whole = model(out.sequences[:, :-1], output_attentions=True).attentions
    for place, expected in enumerate(whole):
        torch.testing.assert_close(rows(recording, place), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("beams", [1, 3])
def test_an_encoder_decoder_has_three_kinds(name, beams, prompt, tmp_path):
    model = MODELS[name].build("eager")
    out = model.generate(prompt, max_new_tokens=4, num_beams=beams, **OPTIONS)
    written = out.sequences.shape[1]
    recording = from_attentions(
        out.decoder_attentions,
        letters(written),
        cross_attentions=out.cross_attentions,
        encoder_attentions=out.encoder_attentions,
        source_tokens=letters(5),
        beam_indices=getattr(out, "beam_indices", None),
    )
    whole = model(prompt, decoder_input_ids=out.sequences[:, :-1], output_attentions=True)
    expected = [*whole.encoder_attentions, *whole.decoder_attentions, *whole.cross_attentions]
    assert len(recording.calls) == len(expected) == 6
    for place, weights in enumerate(expected):
        torch.testing.assert_close(rows(recording, place), weights, rtol=0, atol=1e-5)
    assert [recording.calls[place].name for place in (0, 2, 4)] == [
        "encoder.layers.0.self",
        "decoder.layers.0.self",
        "decoder.layers.0.cross",
    ]
    assert page(Recording.load(recording.save(tmp_path / "given.zip")))


def test_behind_the_end_of_a_beam_there_are_no_rows():
    steps = [(softmax(2, 1, 2, 2),), (softmax(2, 1, 1, 3),)]
    recording = from_attentions(steps, [letters(4)], beam_indices=torch.tensor([[1, -1]]))
    assert rows(recording)[0, 0].sum(-1).tolist() == pytest.approx([1, 1, 0])


def test_sinks_take_the_rest(prompt):
    model = MODELS["gpt_oss"].build("eager")
    weights = model(prompt, output_attentions=True).attentions
    recording = from_attentions(weights, letters(5), has_sinks=True)
    assert recording.calls[0].has_sinks
    with pytest.raises(ConfigError, match="has_sinks=True"):
        from_attentions(weights, letters(5))


def test_f19_a_folder_of_matrices_by_layer_and_head(tmp_path):
    for layer in range(2):
        for head in range(2):
            (tmp_path / f"layer{layer}_head{head}.json").write_text(json.dumps(softmax(5, 5).tolist()))
    files = {path.stem: json.loads(path.read_text()) for path in sorted(tmp_path.glob("layer*.json"))}
    recording = from_attentions(files, letters(5))
    assert [call.name for call in recording.calls] == [*files]
    files["layer1_head0"] = softmax(4, 4).tolist()
    with pytest.raises(
        ConfigError, match=r"`tokens` must be as many as the positions of `attentions\['layer1_head0'\]`"
    ):
        from_attentions(files, letters(5))
    files["layer1_head0"] = [[1.0, 0.0], [1.0]]
    with pytest.raises(ShapeError, match=r"`attentions\['layer1_head0'\]` must be numbers in rows of one length"):
        from_attentions(files, letters(5))


GOOD = softmax(1, 1, 3, 3)
BAD = GOOD.clone()
BAD[0, 0, 1, 2] = float("nan")
REFUSED = [
    (
        (None, letters(3)),
        {},
        "is None.\n  hint: fused attention (sdpa, flash) returns no weights: load the model with attn_impl",
    ),
    (((), letters(3)), {}, "but is empty.\n  hint: fused attention"),
    (((None, None), letters(3)), {}, "`attentions[0]` must be weights [batch, heads, queries, keys], but is None."),
    ((((None,), (None,)), letters(3)), {}, "`attentions[0][0]` must be weights"),
    ((GOOD, letters(3)), {}, "but is a Tensor.\n  hint: one layer alone goes in a list: [attentions]"),
    (([GOOD, BAD], letters(3)), {}, "`attentions[1]` must be finite, but has NaN or infinity (item 0, head 0, row 1)."),
    (([GOOD * 2], letters(3)), {}, "to one, or to zero where nothing was allowed, but one sums to 2"),
    (
        ([-GOOD], letters(3)),
        {},
        "must not be negative, but is (item 0, head 0, row 0).\n  hint: these look like scores",
    ),
    (([GOOD.long()], letters(3)), {}, "`attentions[0]` must be of a floating dtype, but is torch.int64."),
    (([GOOD[None]], letters(3)), {}, "but is (1, 1, 1, 3, 3)."),
    (([GOOD], letters(2)), {}, "`tokens` must be as many as the positions of `attentions[0]` (3), but are 2."),
    (([GOOD], [1, 2, 3]), {}, "`tokens` must be strings or a regard.records.Sequence"),
    (([GOOD], [[1, 2, 3]]), {}, "but is holding int.\n  hint: tokenizer.convert_ids_to_tokens(ids)"),
    (([GOOD], "abc"), {}, "but is 'abc'."),
    (([GOOD], [letters(3)] * 2), {}, "`tokens` must be of as many items as `attentions[0]` (1), but are of 2."),
    (
        ([softmax(1, 1, 3, 2)], letters(3)),
        {},
        "but has 2 and 3.\n  hint: weights between two texts are cross_attentions",
    ),
    ((None, letters(2)), {"cross_attentions": [GOOD]}, "`source_tokens` must be given"),
    (([GOOD], letters(3)), {"source_tokens": letters(3)}, "`source_tokens` is for cross_attentions or"),
    (
        (None, letters(3)),
        {"cross_attentions": [GOOD], "source_tokens": letters(4)},
        "`source_tokens` must be as many as the keys of `cross_attentions[0]` (3), but are 4.",
    ),
    (
        (None, letters(5)),
        {"cross_attentions": [GOOD], "source_tokens": letters(3)},
        "`tokens` must be as many as the positions of `cross_attentions[0]` (3, or 4 with",
    ),
    (
        (None, spelled("abc", "x")),
        {"cross_attentions": [GOOD], "source_tokens": spelled("abc", "x")},
        "but both are 'x'.",
    ),
    (
        ([GOOD], letters(3)),
        {"beam_indices": torch.zeros(1, 1, dtype=torch.long)},
        "`beam_indices` is for what generate() returned",
    ),
    (([(GOOD,)], letters(3)), {"beam_indices": torch.tensor([[4]])}, "`beam_indices` names slot 4, but"),
    (([(GOOD,)], [letters(3)] * 2), {}, "hint: of a beam search also pass beam_indices=outputs.beam_indices"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "options", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_recording_is_refused(arguments, options, said):
    with pytest.raises(Error, match=re.escape(said)) as raised:
        from_attentions(*arguments, **options)
    assert isinstance(raised.value, ConfigError | ShapeError | DTypeError)
    assert str(raised.value).startswith("from_attentions(): ")


def test_the_last_token_may_have_no_row():
    causal = torch.ones(1, 1, 3, 3).tril() / torch.arange(1, 4)[:, None]
    recording = from_attentions([causal], letters(4))
    assert len(recording.sequences[0][0].tokens) == 4
    np.testing.assert_array_equal(recording.calls[0].q_positions, [[0, 1, 2]])
