"""Watch a transformers model while it generates. The model is tiny and random: it shows the mechanics, not language."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import regard
from regard.records import Recording

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config).eval()
prompt = torch.tensor([[3, 14, 15, 9, 26]])
options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}

unwatched = model.generate(prompt, **options)
with regard.watch(model, probes=[regard.Entropy(), regard.TopK(3), regard.KeyMass()]) as seen:
    watched = model.generate(prompt, **options)

assert torch.equal(watched, unwatched), "watching changes no token"
for layer in seen.layers:
    print(f"{layer.name}: queries at positions {layer.q_positions[0].tolist()}")
    print(f"  the last step of head 0 read keys {layer.top_k.indices[0, 0, -1].tolist()}")
    print(f"  mass each key got in head 0: {[round(mass, 2) for mass in layer.key_mass[0, 0].tolist()]}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "generation.regard"
    seen.save(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    print(f"saved and read back: {len(Recording.load(path).calls)} calls, {size} bytes")
