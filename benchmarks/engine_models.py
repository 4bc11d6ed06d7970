"""Whether whole models are as fast with regard's attention as with their own sdpa, and as exact.

MiniLM reads 32 sentences of 128 tokens (all full, and padded); a random two-layer Llama (8 heads, 2 kv heads,
head_dim 64) reads 4,096 tokens. Both attentions take turns in one process. No ratio is given unless regard's output is
within twice sdpa's own error against the model in float64, plus one rounding band (eps times the largest |output|).

    python benchmarks/engine_models.py [--threads N] [--rounds 9] [--tokens 4096] [--only llama]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from setting import setting, write
from transformers import LlamaConfig, LlamaModel, PreTrainedModel

import regard.hf  # noqa: F401 - registers the attention implementation "regard"
from regard.bench import BUSY, OtherProcesses, Spread, interleave
from regard.bench import setting as kernels_setting
from regard.hf.loading import load

SEED, SENTENCES, LENGTH = 0, 32, 128
Inputs = dict[str, torch.Tensor]


def cases(tokens: int) -> Iterator[tuple[str, PreTrainedModel, Inputs]]:
    """Models and what they read, the same in every run."""
    torch.manual_seed(SEED)
    minilm = load("minilm").model
    ids = torch.randint(1000, minilm.config.vocab_size, (SENTENCES, LENGTH))
    yield "minilm_32x128", minilm, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    lengths = torch.randint(LENGTH // 8, LENGTH + 1, (SENTENCES, 1))
    yield "minilm_32x128_padded", minilm, {"input_ids": ids, "attention_mask": (torch.arange(LENGTH) < lengths).long()}
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=tokens,
        use_cache=False,
    )
    yield f"llama_1x{tokens}", LlamaModel(config).eval(), {"input_ids": torch.randint(512, (1, tokens))}


def with_attention(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """A copy of a model that computes its attention in this way."""
    changed = copy.deepcopy(model)
    changed.set_attn_implementation(name)
    return changed


def excess(outputs: dict[str, torch.Tensor], exact: torch.Tensor, kept: torch.Tensor) -> float:
    """The error of regard's output as a share of what is allowed, where tokens are no padding."""
    errors = {name: float((output - exact)[kept].abs().max()) for name, output in outputs.items()}
    band = torch.finfo(torch.float32).eps * float(exact[kept].abs().max())
    return errors["regard"] / (2 * (errors["sdpa"] + band))


def measure(model: PreTrainedModel, inputs: Inputs, rounds: int) -> dict[str, Any]:
    """Check that both agree, then time them in turn."""
    models = {name: with_attention(model, name) for name in ("regard", "sdpa")}
    sides: dict[str, Callable[[], Any]] = {name: partial(one, **inputs) for name, one in models.items()}
    with torch.no_grad():
        exact = with_attention(model.double(), "sdpa")(**inputs).last_hidden_state
        model.float()
        outputs = {name: side().last_hidden_state.double() for name, side in sides.items()}
        kept = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
        share = excess(outputs, exact, kept)
        if not share <= 1:  # NaN is wrong
            return {"status": "disagrees", "error_over_allowed": share}
        others = OtherProcesses()
        times = interleave(sides, rounds=rounds)
        busy = others.share()
    seconds = {name: Spread.of(found) for name, found in times.items()}
    return {
        "status": "measured",
        "error_over_allowed": share,
        "seconds": {name: asdict(spread) for name, spread in seconds.items()},
        "speedup": seconds["sdpa"].median / seconds["regard"].median,
        "other_cpu": busy,
        "doubtful": busy is not None and busy > BUSY,
    }


def main() -> None:
    """Measure every model and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--only", default="", help="models whose name holds this; the result is shown, not kept")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {
        name: measure(model, inputs, options.rounds)
        for name, model, inputs in cases(options.tokens)
        if options.only in name
    }
    where = {"isa": kernels_setting()["isa"], "seed": SEED, "threads": options.threads, "rounds": options.rounds}
    write("engine_models", {**setting(**where), "models": found}, keep=not options.only)
    if any(one["status"] != "measured" for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
