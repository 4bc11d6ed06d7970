"""What watching transformers models must get right besides their numbers."""

from __future__ import annotations

import sys

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, AttentionMaskInterface

from regard.hf.lazy_mask import LazyMask
from regard.lens import watch
from regard.ops import Documents
from regard.ops.probes import Entropy, HeatMap, KeyMass, Rows, TopK
from tests.parity.test_models import eager_weights
from tests.parity.tiny_models import MODELS, TEXT, scaled, text


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa", "regard"])
def test_packed_documents_do_not_see_each_other(implementation, serve):
    """Case A22."""
    model = MODELS["llama"].build(implementation)
    outputs = []
    for first in ([5, 6, 7], [15, 16, 17]):
        ids = torch.tensor([[*first, 8, 9]])
        with torch.no_grad(), watch(model, [Rows()], serve=serve) as seen:
            outputs.append(model(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1]]), use_cache=False).logits[:, 3:])
        for layer in seen.layers:
            assert (layer.rows[:, :, 3:, :3] == 0).all()
            assert (layer.rows.triu(1) == 0).all()
            assert (layer.rows.sum(-1) - 1).abs().max() < 1e-6
    assert torch.equal(*outputs)
    program = seen.recording().calls[0].mask
    assert program is not None
    assert isinstance(seen.layers[0].calls[0].mask.right, Documents) or isinstance(
        seen.layers[0].calls[0].mask.left, Documents
    )


def test_packing_that_transformers_does_not_honour_is_shown_as_it_is():
    """Case A22, with a mask of ones: the model itself looks across the border, and the probes say so."""
    model = MODELS["llama"].build("eager")
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 8, 9]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1]]),
        "attention_mask": torch.ones(1, 5).long(),
    }
    expected = eager_weights(model, inputs)
    with torch.no_grad(), watch(model, [Rows()]) as seen:
        model(**inputs)
    for layer in seen.layers:
        torch.testing.assert_close(layer.rows, expected[layer.name], atol=1e-6, rtol=0)
        assert layer.rows[:, :, 3:, :3].sum() > 0.1


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma3"])
def test_left_pads_have_no_attention(name, serve):
    """Case A23: pad rows are empty, the others are those of the text without padding."""
    model = MODELS[name].build("sdpa")
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    keep = (ids > 0).long()
    with torch.no_grad(), watch(model, [Rows(), Entropy()], serve=serve) as padded:
        logits = model(ids, attention_mask=keep, position_ids=(keep.cumsum(1) - 1).clamp(min=0)).logits
    with torch.no_grad(), watch(model, [Rows()], serve=serve) as alone:
        expected = model(ids[:1, 2:]).logits
    torch.testing.assert_close(logits[:1, 2:], expected, atol=2e-5, rtol=1e-4)
    for left, right in zip(padded.layers, alone.layers, strict=True):
        assert (left.rows[0, :, :2] == 0).all()
        assert (left.rows[0, :, :, :2] == 0).all()
        assert (left.entropy[0, :, :2] == 0).all()
        torch.testing.assert_close(left.rows[:1, :, 2:, 2:], right.rows, atol=1e-5, rtol=0)


def _model(config, **options):
    torch.manual_seed(0)
    return scaled(transformers.AutoModel.from_config(config, **options))


def test_a_hybrid_model_labels_its_one_attention_layer():
    """Case C07."""
    config = transformers.Qwen3NextConfig(
        **{**TEXT, "num_hidden_layers": 4},
        num_key_value_heads=2,
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    model = _model(config)
    with torch.no_grad(), watch(model, [Entropy()]) as seen:
        model(**text(left=True))
    assert [(layer.name, layer.number) for layer in seen.layers] == [("layers.3.self_attn", 3)]
    assert [(entry.status, entry.reason.startswith("no softmax")) for entry in seen.coverage] == [
        *[("not seen", True)] * 3,
        ("seen", False),
    ]


OWN_SOFTMAX = {
    "bloom": lambda: transformers.BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4),
    "gpt_neo": lambda: transformers.GPTNeoConfig(
        vocab_size=61,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=64,
        intermediate_size=48,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "mpnet": lambda: transformers.MPNetConfig(**TEXT),
    "deberta_v2": lambda: transformers.DebertaV2Config(
        **TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=32
    ),
    "xlnet": lambda: transformers.XLNetConfig(vocab_size=61, d_model=32, n_layer=2, n_head=4, d_inner=48),
}


@pytest.mark.parametrize("name", OWN_SOFTMAX)
def test_models_with_their_own_softmax(name):
    model = _model(OWN_SOFTMAX[name]())
    inputs = text(left=name in ("bloom", "gpt_neo"))
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs)[0]
        attentions = model(**inputs, output_attentions=True).attentions
        with watch(model, [Rows()]) as seen:
            assert torch.equal(model(**inputs)[0], expected)
        with watch(model, [Rows()], serve="regard"):
            assert torch.equal(model(**inputs)[0], expected)
        with watch(model, [Rows()], eager_limit=10) as blind:
            model(**inputs)
    assert len(seen.layers) == 2
    for layer, weights in zip(seen.layers, attentions, strict=True):
        assert layer.via == "softmax"
        torch.testing.assert_close(layer.rows.transpose(1, 2)[real], weights.transpose(1, 2)[real], atol=1e-5, rtol=0)
    assert not blind.layers
    assert all("eager_limit=10" in entry.reason for entry in blind.coverage)


def test_a_model_that_calls_torch_itself():
    config = transformers.FalconConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    inputs = text(left=True)
    real = inputs["attention_mask"].bool()
    expected = eager_weights(_model(config, attn_implementation="eager"), inputs)
    model = _model(config, attn_implementation="sdpa")
    with torch.no_grad():
        output = model(**inputs)[0]
        with watch(model, [Rows()]) as seen:
            assert torch.equal(model(**inputs)[0], output)
        with watch(model, [Rows()], serve="regard"):
            torch.testing.assert_close(model(**inputs)[0][real], output[real], atol=1e-5, rtol=1e-4)
    for layer in seen.layers:
        assert layer.via == "functional"
        weights = expected[layer.name]
        torch.testing.assert_close(layer.rows.transpose(1, 2)[real], weights.transpose(1, 2)[real], atol=1e-5, rtol=0)


def test_a_shared_layer_has_one_turn_per_depth():
    config = transformers.AlbertConfig(**TEXT, embedding_size=16)
    model = _model(config, attn_implementation="eager")
    with torch.no_grad():
        attentions = model(**text(), output_attentions=True).attentions
        with watch(model, [Rows()]) as seen:
            model(**text())
    assert [layer.index for layer in seen.layers] == [0, 1]
    for layer, weights in zip(seen.layers, attentions, strict=True):
        torch.testing.assert_close(layer.rows, weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("serve", ["model", "regard"])
def test_images_of_different_sizes_are_layers_of_their_own(serve):
    """Qwen2-VL calls its image tower's attention once per image."""
    config = transformers.Qwen2VLConfig(
        text_config={
            **TEXT,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        vision_config={
            "depth": 1,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 4,
            "patch_size": 4,
            "spatial_merge_size": 1,
        },
        image_token_id=60,
        vision_start_token_id=58,
    )
    model = scaled(transformers.Qwen2VLForConditionalGeneration._from_config(config, attn_implementation="sdpa"), 3.0)
    ids = torch.full((2, 14), 5)
    ids[:, 2], ids[0, 3:7], ids[1, 3:9] = 58, 60, 60
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(10, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 2, 2], [1, 2, 3]]),
        "mm_token_type_ids": (ids == 60).int(),
    }
    with torch.no_grad():
        expected = model(**inputs).logits
        with watch(model, [Rows()], serve=serve) as seen:
            torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5 * (serve == "regard"), rtol=0)
    tower = [(layer.index, layer.rows.shape[2]) for layer in seen.layers if "visual" in layer.name]
    assert tower == [(0, 4), (1, 6)]
    assert sum(layer.batch == 2 for layer in seen.layers) == 2
    assert "visual" in seen.recording(tokens=[["x"] * 14] * 2).notes[0]


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_is_counted_once(serve, reentrant):
    model = MODELS["llama"].build("sdpa").train()
    ids = text()["input_ids"].clamp(min=3)
    model(ids, labels=ids).loss.backward()
    expected = model.model.layers[0].self_attn.q_proj.weight.grad.clone()
    model.zero_grad()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with watch(model, [Entropy()], serve=serve) as seen:
        model(ids, labels=ids).loss.backward()
    assert [layer.index for layer in seen.layers] == [0, 0]
    torch.testing.assert_close(model.model.layers[0].self_attn.q_proj.weight.grad, expected, atol=1e-4, rtol=1e-3)


def test_interfaces_are_as_they_were():
    before = AttentionInterface.__dict__["get_interface"], dict(AttentionMaskInterface._global_mapping)
    model = MODELS["llama"].build("sdpa")
    with watch(model, [Entropy()]), watch(model, [Entropy()], serve="regard"):
        assert AttentionInterface.__dict__["get_interface"] is not before[0]
    with pytest.raises(ZeroDivisionError), watch(model, [Entropy()]), watch(model, [Entropy()], serve="regard"):
        _ = 1 / 0
    assert (AttentionInterface.__dict__["get_interface"], dict(AttentionMaskInterface._global_mapping)) == before
    assert model.config._attn_implementation == "sdpa"


def test_another_model_of_the_same_kind_is_not_touched():
    one, two = MODELS["mistral"].build("eager"), MODELS["mistral"].build("eager")
    inputs = MODELS["mistral"].inputs()
    with torch.no_grad():
        expected = two(**inputs).logits
        with watch(one, [Entropy()], serve="regard") as seen:
            assert torch.equal(two(**inputs).logits, expected)
            assert not seen.layers


def test_modules_left_to_the_model_get_the_models_own_mask():
    model, inputs = MODELS["mistral"].build("eager"), MODELS["mistral"].inputs()
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs).logits
        with watch(model, [Entropy()], serve="regard", modules=r"layers\.1\.") as seen:
            torch.testing.assert_close(model(**inputs).logits[real], expected[real], atol=1e-5, rtol=1e-4)
        with watch(model, [Entropy()], serve="regard", modules="embed_tokens"):
            assert torch.equal(model(**inputs).logits, expected)
    assert [layer.name for layer in seen.layers] == ["model.layers.1.self_attn"]


def test_serve_regard_does_not_ask_torch_for_attention(monkeypatch):
    model, inputs = MODELS["mistral"].build("sdpa"), MODELS["mistral"].inputs()

    def refuse(*_args, **_kwargs):
        raise AssertionError("the model's own attention was called")

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", refuse)
    with torch.no_grad(), watch(model, [Entropy()], serve="regard"):
        model(**inputs)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation makes."""

    cells = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, LazyMask):
                self.cells = max(self.cells, tensor.untyped_storage().size() // tensor.element_size())
        return made


@pytest.mark.parametrize(("name", "serve"), [("llama", "model"), ("llama", "regard"), ("mistral", "regard")])
def test_memory_is_linear(name, serve, monkeypatch):
    """No tensor holds a weight matrix, or a mask of all queries and keys for every head."""
    length = 512
    monkeypatch.setattr(sys.modules["regard.ops.measure"], "STRIP_CELLS", 1 << 16)
    monkeypatch.setattr(sys.modules["regard.ops._backends.torch"], "LARGEST_DENSE_MASK", 1 << 10)
    monkeypatch.setattr(sys.modules["regard.ops._backends.tiled"], "TILE_CELLS", 1 << 16)
    config = MODELS[name].build("sdpa").config
    config.max_position_embeddings = length
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(3, 61, (1, length), generator=torch.Generator().manual_seed(0))
    probes = [Entropy(), TopK(4), KeyMass(), HeatMap(16, 16)]
    with torch.no_grad(), watch(model, probes, serve=serve) as seen, Largest() as largest:
        model(ids, use_cache=False)
    assert len(seen.layers) == 2
    assert largest.cells < length * length, "a whole mask or weight matrix was made"
