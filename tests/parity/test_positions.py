"""Rotary scalings and relative biases against those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.nn import DynamicScaling, LinearScaling, Llama3Scaling, RelativeBias, Rotary, YarnScaling

pytest.importorskip("transformers")
from transformers import LlamaConfig, T5Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

SCALINGS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "linear": (LinearScaling(4.0), {"factor": 4.0}, 64),
    "dynamic": (DynamicScaling(2.0, 64), {"factor": 2.0}, 200),
    "dynamic, short": (DynamicScaling(2.0, 64), {"factor": 2.0}, 40),
    "yarn": (YarnScaling(4.0, 64), {"factor": 4.0, "original_max_position_embeddings": 64}, 200),
    "yarn, long": (YarnScaling(8.0, 4096), {"factor": 8.0, "original_max_position_embeddings": 4096}, 9000),
    "llama3": (
        Llama3Scaling(8.0, 64),
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        200,
    ),
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("dim", [16, 64])
def test_turned_queries_are_those_of_transformers(name: str, dim: int) -> None:
    scaling, options, length = SCALINGS[name]
    kind = name.partition(",")[0]
    config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, max_position_embeddings=64)
    config.rope_parameters = {"rope_type": kind, "rope_theta": 10_000.0, **options}
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    positions = torch.arange(length)
    angles = positions[:, None].double() * frequencies.double()
    both = torch.cat((angles, angles), dim=-1)
    x = torch.randn(1, 2, length, dim, dtype=torch.float64)
    theirs, _ = apply_rotary_pos_emb(x, x, (both.cos() * factor)[None], (both.sin() * factor)[None])
    ours = Rotary(dim, scaling=scaling)(x, positions)
    torch.testing.assert_close(ours, theirs, atol=2e-4 * length / 64, rtol=1e-4)  # their frequencies are float32


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("q_len", "kv_len"), [(9, 9), (300, 300), (1, 40)])
def test_relative_biases_are_those_of_t5(decoder: bool, q_len: int, kv_len: int) -> None:
    config = T5Config(d_model=16, num_heads=4, relative_attention_num_buckets=32, relative_attention_max_distance=128)
    config.is_decoder = decoder
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativeBias(4, bidirectional=not decoder)
    ours.table.load_state_dict(theirs.relative_attention_bias.state_dict())
    q, k = torch.arange(kv_len - q_len, kv_len), torch.arange(kv_len)
    buckets = T5Attention._relative_position_bucket(k[None] - q[:, None], bidirectional=not decoder)
    wanted = theirs.relative_attention_bias(buckets).permute(2, 0, 1)[None]
    assert torch.equal(ours(q, k), wanted)
