"""Do explanations of 4,096 tokens through 12 layers stay under 2 GB?

A random decoder (regard's own, 12 layers of 8 heads, width 256) reads the tokens; each explanation runs in a process
of its own, on the prediction at the last token. The figure is the highest resident set of that process, with Python,
torch, the model and, where the explanation needs it, the graph of a backward in it; nothing is taken off. Dense
weights of all layers and heads would take 6.4 GB. ``flow`` is not among them: its graph has an edge for each pair of
tokens.

    python benchmarks/explanation_memory.py [--tokens 4096] [--layers 12] [--heads 8]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from setting import setting, write

import regard
from regard.lens import Seen, gradient_attention, reasons, relevance, rollout, value_norms
from regard.models import DecoderLM, TransformerConfig

SEED, WIDTH, VOCABULARY, LIMIT = 0, 256, 512, 2 * 10**9
Explanation = Callable[[Seen, torch.Tensor, list[str]], list[torch.Tensor]]

EXPLANATIONS: dict[str, tuple[bool, Explanation]] = {
    "rollout": (False, lambda seen, _, names: [rollout(seen)]),
    "value_norms": (False, lambda seen, _, names: [value_norms(seen, name).together for name in names]),
    "reasons": (False, lambda seen, _, names: [reasons(seen, name, query=-1, key=0).score for name in names]),
    "relevance": (True, lambda seen, target, _: [relevance(seen, target)]),
    "gradient_attention": (
        True,
        lambda seen, target, _: [layer.key_sums() for layer in gradient_attention(seen, target)],
    ),
}
"""For each explanation whether it needs gradients, and how it is computed, in every layer."""


def one_run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Explain once in this process."""
    torch.manual_seed(SEED)
    sizes = {"embed_dim": WIDTH, "num_heads": options.heads, "num_layers": options.layers, "ff_dim": 4 * WIDTH}
    model = DecoderLM(TransformerConfig(vocab_size=VOCABULARY, positions="rotary", pad_id=None, **sizes)).eval()
    ids = torch.randint(VOCABULARY, (1, options.tokens))
    needs_gradients, explain = EXPLANATIONS.get(name, (False, None))
    start = time.perf_counter()
    with torch.set_grad_enabled(needs_gradients), regard.watch(model, keep=explain is not None) as seen:
        target = model(ids).log_softmax(-1)[0, -1, 0]
    if explain is not None:
        names = list(dict.fromkeys(layer.name for layer in seen.layers))
        found = explain(seen, target, names)
        assert all(bool(tensor.isfinite().all()) for tensor in found)
        assert len(names) == options.layers
    seconds = time.perf_counter() - start
    return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "seconds": seconds}


def main() -> None:
    """Each explanation, and the model by itself, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 4096), ("layers", 12), ("heads", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--one", choices=("model", *EXPLANATIONS), help="run once here and print JSON")
    options = parser.parse_args()
    sizes = {"tokens": options.tokens, "layers": options.layers, "heads": options.heads}
    if options.one:
        print(json.dumps(one_run(options.one, options)))
        return
    given = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
    found = {}
    for name in ("model", *EXPLANATIONS):
        command = [sys.executable, __file__, "--one", name, *given]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    write(
        "explanation_memory",
        {
            "setting": setting(seed=SEED, threads=torch.get_num_threads(), embed_dim=WIDTH, **sizes),
            "dense_weights_bytes": 4 * options.layers * options.heads * options.tokens**2,
            "limit_bytes": LIMIT,
            **found,
            "all_under_limit": all(one["peak_bytes"] < LIMIT for one in found.values()),
        },
    )


if __name__ == "__main__":
    main()
