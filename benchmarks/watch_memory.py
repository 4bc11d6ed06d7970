"""How much memory and time watching a long input takes, and whether sampled rows are right.

A random one-layer Llama (8 heads, 2 kv heads, head_dim 32) reads 32,768 tokens under Entropy, TopK(16), KeyMass and
HeatMap(256, 256), in a fresh process for the watched and the unwatched run. Dense weights would take 34 GB. Rows of
the watched run are compared with float64 weights computed from the model's own projections.

    python benchmarks/watch_memory.py [--tokens 32768] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from setting import setting, write
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

import regard

HEADS, KV_HEADS, HEAD_DIM, SEED = 8, 2, 32, 0
SAMPLED = (0, 1, 777, 16_383, 32_767)


def build(tokens: int) -> tuple[LlamaModel, torch.Tensor]:
    """The model and its input, the same in every process."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=HEADS * HEAD_DIM,
        intermediate_size=512,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=tokens,
    )
    model = LlamaModel(config).eval()
    for parameter in model.layers[0].self_attn.parameters():
        parameter.data.mul_(8)  # random projections attend uniformly; these do not
    return model, torch.randint(512, (1, tokens))


def one_run(tokens: int, watched: bool) -> dict[str, Any]:
    """Run once in this process."""
    model, ids = build(tokens)
    probes = [regard.Entropy(), regard.TopK(16), regard.KeyMass(), regard.HeatMap(256, 256)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    with torch.no_grad():
        if watched:
            with regard.watch(model, probes) as seen:
                model(ids, use_cache=False)
            (layer,) = seen.layers
            layer.observation.values()
        else:
            model(ids, use_cache=False)
    figures["seconds"] = time.perf_counter() - start
    figures["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures["bytes_before"] = before * 1024
    if watched:
        figures["largest_error"] = largest_error(model, ids, layer)
    return figures


def largest_error(model: LlamaModel, ids: torch.Tensor, layer: Any) -> dict[str, float]:
    """The largest absolute difference between what the probes say of sampled rows and float64."""
    rows = torch.tensor([row for row in SAMPLED if row < ids.shape[1]])
    weights = exact_rows(model, ids, rows)
    entropy = torch.special.entr(weights).sum(-1)
    best = weights.topk(min(16, weights.shape[-1]), dim=-1)
    seen = layer.top_k
    indices = seen.indices[0][:, rows]
    at_theirs = weights.gather(-1, indices.clamp(min=0)).masked_fill(indices < 0, 0)
    return {
        "entropy": float((layer.entropy[0][:, rows] - entropy).abs().max()),
        "top_k.weights": float((seen.weights[0][:, rows] - best.values).abs().max()),
        "top_k.indices": float((at_theirs - seen.weights[0][:, rows]).abs().max()),
        "top_k.rest": float((seen.rest[0][:, rows] - (weights.sum(-1) - best.values.sum(-1))).abs().max()),
        "heat_map.row_sums": float((layer.heat_map[0].double().sum(-1) - 1).abs().max()),
        "key_mass.total": float((layer.key_mass[0].double().sum(-1) / ids.shape[1] - 1).abs().max()),
    }


def exact_rows(model: LlamaModel, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Weights of some rows in float64, [heads, rows, tokens], from the model's own projections."""
    model = model.double()
    block = model.layers[0]
    with torch.no_grad():
        hidden = model.embed_tokens(ids)
        cos, sin = model.rotary_emb(hidden, torch.arange(ids.shape[1])[None])
        normed = block.input_layernorm(hidden)
        query = block.self_attn.q_proj(normed).view(1, -1, HEADS, HEAD_DIM).transpose(1, 2)
        key = block.self_attn.k_proj(normed).view(1, -1, KV_HEADS, HEAD_DIM).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        key = key.repeat_interleave(HEADS // KV_HEADS, dim=1)
        scores = query[0][:, rows] @ key[0].transpose(1, 2) * HEAD_DIM**-0.5
        future = torch.arange(ids.shape[1])[None] > rows[:, None]
        return torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1)


def main() -> None:
    """Run watched and unwatched in turn, each in a process of its own, and keep the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=("watched", "unwatched"), help="run once here and print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_run(options.tokens, options.one == "watched")))
        return
    runs: dict[str, list[dict[str, Any]]] = {"watched": [], "unwatched": []}
    for _ in range(options.repeats):
        for kind, found in runs.items():
            command = [sys.executable, __file__, "--one", kind, "--tokens", str(options.tokens)]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    seconds = {kind: statistics.median(run["seconds"] for run in found) for kind, found in runs.items()}
    write(
        "watch_memory",
        {
            **setting(seed=SEED, threads=torch.get_num_threads(), tokens=options.tokens, repeats=options.repeats),
            "dense_weights_bytes": HEADS * options.tokens**2 * 4,
            "peak_bytes": {kind: max(run["peak_bytes"] for run in found) for kind, found in runs.items()},
            "bytes_before": {kind: max(run["bytes_before"] for run in found) for kind, found in runs.items()},
            "median_seconds": seconds,
            "watched_over_unwatched": seconds["watched"] / seconds["unwatched"],
            "largest_error": runs["watched"][0]["largest_error"],
        },
    )


if __name__ == "__main__":
    main()
