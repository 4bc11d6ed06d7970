"""The handed cases of group C that need the whole way: a model, a watch, a recording on disk, the data of its page.

The parts of that way have tests of their own under the same ids in tests/hf, tests/records, tests/text, tests/view and
tests/e2e; README.md in this folder has the list.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.lens import watch
from regard.ops.probes import Entropy, HeatMap, KeyMass, Probe, Rows, TopK
from regard.records import Recording
from regard.records.quantise import restore
from regard.view import page, summary
from tests.parity.tiny_models import MODELS
from tests.view.conftest import blob, payload_in

LONG = 8192
FUSED: list[Probe] = [Entropy(), TopK(16), KeyMass(), HeatMap(256, 256)]


def watched(model: nn.Module, probes: list[Probe], **inputs: Any) -> Any:
    with torch.no_grad(), watch(model, probes) as seen:
        model(**inputs)
    return seen


def through_disk(seen: Any, folder: Path, **options: Any) -> Recording:
    return Recording.load(seen.save(folder / "run.regard", **options))


# C11: grids


@pytest.mark.parametrize("shape", [(16, 64), (32, 32)], ids=str)
def test_c11_no_grid_is_made_up_for_an_image(shape: tuple[int, int], tmp_path: Path) -> None:
    """2 x 8 and 4 x 4 patches are 17 tokens alike, so nothing but the image can tell; until it does nothing is said."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **sizes)).eval()
    seen = watched(model, [Rows()], pixel_values=torch.randn(1, 3, *shape), interpolate_pos_encoding=True)
    payload = payload_in(page(through_disk(seen, tmp_path)))
    (call,) = payload["calls"]
    assert (call["q"], call["k"]) == (17, 17)
    assert [token["t"] for token in payload["items"][0]["sequences"]["input"]["tokens"]] == [str(i) for i in range(17)]
    told = json.dumps({**payload, "blobs": None}).lower()
    assert not any(word in told for word in ("grid", "4 x 4", "4 × 4", "2 × 8", "patch"))


def test_c11_no_square_root_of_a_token_count_in_what_shows() -> None:
    """A square root would be how a grid is guessed; the one that scales scores is in regard.ops."""
    root = Path(__file__).parents[2]
    sources = [*root.glob("src/regard/view/*.py"), *root.glob("src/regard/records/*.py"), *root.glob("viewer/src/*.ts")]
    assert len(sources) > 40
    found = [str(path) for path in sources if "sqrt" in path.read_text()]
    assert found == []


# C17: batches with padding

PADDED = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
WORDS = [["the", "river", "bank", "."], ["a", "bank", "[PAD]", "[PAD]"]]


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "regard"])
@pytest.mark.parametrize("name", ["bert", "llama", "mistral"])
def test_c17_pads_are_hidden_and_each_item_has_its_own_weights(name: str, implementation: str, tmp_path: Path) -> None:
    model = MODELS[name].build(implementation)
    seen = watched(model, [Rows(), Entropy()], input_ids=PADDED, attention_mask=(PADDED > 0).long())
    recording = through_disk(seen, tmp_path, tokens=WORDS)
    payload = payload_in(page(recording))
    shown = [[token["t"] for token in item["sequences"]["input"]["tokens"]] for item in payload["items"]]
    assert shown == [["the", "river", "bank", "."], ["a", "bank"]]
    assert "Item 1, input: 2 padding tokens hidden." in payload["notes"]
    alone = watched(model, [Rows()], input_ids=PADDED[1:, :2])
    for call, layer in zip(payload["calls"], alone.layers, strict=True):
        weights = blob(payload, call["weights"])
        assert weights.shape == (2, 4, 4, 4)
        np.testing.assert_allclose(weights[1, :, :2, :2], layer.rows[0].numpy(), atol=1e-5)
        assert (weights[1, ..., 2:] == 0).all()
    told = summary(recording, item=1, pairs=20)
    assert told.pairs
    assert {pair.query for pair in told.pairs} | {pair.key for pair in told.pairs} <= {0, 1}


def test_c17_padding_on_the_left_is_marked() -> None:
    ids = PADDED.flip(1)
    model = MODELS["llama"].build("sdpa")
    seen = watched(model, [Rows()], input_ids=ids, attention_mask=(ids > 0).long())
    payload = payload_in(page(seen.recording(tokens=[row[::-1] for row in WORDS])))
    tokens = payload["items"][1]["sequences"]["input"]["tokens"]
    assert [token.get("pad", False) for token in tokens] == [True, True, False, False]
    assert "Item 1, input: the first 2 tokens are padding and hidden; positions count them." in payload["notes"]


def test_c17_words_that_a_padding_mask_keeps_are_not_padding() -> None:
    """Neither what only the causal mask hides nor a hole in the middle of a text."""
    model = MODELS["llama"].build("sdpa")
    keep = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1]])
    seen = watched(model, [Rows()], input_ids=PADDED + 1, attention_mask=keep)
    payload = payload_in(page(seen.recording(tokens=WORDS)))
    for item in payload["items"]:
        assert len(item["sequences"]["input"]["tokens"]) == 4
        assert not any("pad" in token for token in item["sequences"]["input"]["tokens"])


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([["a", "b", "c"]] * 2, r"`tokens` must be as many as the positions that were seen \(4\), but are 3"),
        ([["a", "b", "c", "d", "e", "f"]] * 2, r"`tokens` must be as many as the positions .* \(4\), but are 6"),
        (["a", "b", "c", "d"], r"`tokens` must be of as many items as the batch that was seen \(2\), but are of 1"),
    ],
    ids=["too few", "too many", "one item for two"],
)
def test_c17_the_number_of_tokens_is_checked(tokens: Any, said: str) -> None:
    model = MODELS["bert"].build("sdpa")
    seen = watched(model, [Rows()], input_ids=PADDED + 1)
    with pytest.raises(ConfigError, match=said):
        seen.recording(tokens=tokens)


# C22: long texts


class OneHead(nn.Module):
    """One head that attends near itself, over positions only."""

    def forward(self, x: Tensor) -> Tensor:
        heads = x[:, None]
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True, scale=40.0)[:, 0]


class LongModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = OneHead()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x)
        return output


def long_input() -> Tensor:
    angle = torch.arange(LONG)[:, None] / torch.tensor([7.0, 50.0, 400.0, 3000.0])
    return torch.cat([angle.sin(), angle.cos()], 1)[None] / 2


@cache
def long_page() -> tuple[Recording, str]:
    """8,192 tokens, as a person would have them watched and shown."""
    seen = watched(LongModel(), FUSED, x=long_input())
    recording = seen.recording(tokens=[f"w{i}" for i in range(LONG)])
    return recording, page(recording)


@pytest.mark.usefixtures("unchecked")
def test_c22_a_long_text_is_a_small_page_with_exact_largest_weights() -> None:
    recording, html = long_page()
    assert len(html) < 50e6
    payload = payload_in(html)
    (call,) = payload["calls"]
    assert (call["q"], call["exact"], call["weights"]) == (LONG, False, None)
    assert any("≈" in note for note in payload["notes"])
    indices, found = (blob(payload, call["topk"][part])[0, 0] for part in ("indices", "weights"))
    x, bins = long_input()[0].double().numpy(), restore(blob(payload, call["map"]["blob"]))[0, 0]
    for row in (0, 100, 4111, LONG - 1):
        scores = 40 * x[: row + 1] @ x[row]
        exact = np.exp(scores - scores.max())
        exact /= exact.sum()
        kept = indices[row] >= 0
        np.testing.assert_allclose(found[row][kept], exact[indices[row][kept]], rtol=2e-4)
        np.testing.assert_allclose(found[row][kept], np.sort(exact)[::-1][: kept.sum()], rtol=2e-4)
    np.testing.assert_allclose(bins.sum(1), 1, atol=0.04)
    tokens = payload["items"][0]["sequences"]["input"]["tokens"]
    assert (len(tokens), tokens[-1]["t"]) == (LONG, f"w{LONG - 1}")
    assert recording.calls[0].pooled == ("heat_map",)


# C25: NaN


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("probes", [[Rows()], FUSED], ids=["rows", "pooled"])
def test_c25_nan_of_a_model_is_valid_json_and_named(probes: list[Probe], serve: str, tmp_path: Path) -> None:
    """A broken embedding of the last token: in a causal model only its own row can be NaN.

    The model's own kernel lets NaN through its mask, so there the second layer's input is broken everywhere; regard's
    does not.
    """
    model = MODELS["llama"].build("sdpa")
    with torch.no_grad():
        model.get_input_embeddings().weight[8] = float("nan")
    with torch.no_grad(), watch(model, probes, serve=serve) as seen:
        model(input_ids=PADDED[:1])
    payload = payload_in(page(through_disk(seen, tmp_path, tokens=WORDS[0])))
    assert [(call["name"], call["layer"]) for call in payload["calls"]] == [
        ("model.layers.0.self_attn", 0),
        ("model.layers.1.self_attn", 1),
    ]
    for call in payload["calls"]:
        spread = serve == "model" and call["layer"] == 1
        expected = [(head, row) for head in range(4) for row in (range(4) if spread else [3])]
        rows = [flag for flag in call["flags"] if ", row " in flag]
        assert rows == [f"NaN in head {head}, row {row}" for head, row in expected]
        if call["exact"]:
            broken = np.isnan(blob(payload, call["weights"]))
            assert broken[..., 3, :].all()
            assert broken[..., :3, :].any() == spread


def test_c25_a_healthy_model_has_no_flags() -> None:
    seen = watched(MODELS["llama"].build("sdpa"), [Rows()], input_ids=PADDED, attention_mask=(PADDED > 0).long())
    payload = payload_in(page(seen.recording(tokens=WORDS)))
    assert [call["flags"] for call in payload["calls"]] == [[], []]
