"""How fast JoeyNMT trains the translator of ``training_speed.py``: same architecture and tokens, by its own command."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from regard.tasks.translate import Translate
from regard.text import read_pairs

UPDATES, LOGGED, LEFT_OUT = 200, 20, 2
SIZES = Translate.presets["small"].model


def joeynmt_speed(python: str, tokenizer: Any, data: Path, *, threads: int) -> float:
    """Target tokens a second, padding left out: the median of what it logs, the first logs left out.

    Args:
        python: A Python that has joeynmt installed.
        tokenizer: Whose tokens are its words.
        data: The folder with ``train.jsonl`` and ``valid.jsonl``.
        threads: For torch.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for part in ("train", "valid"):
            pairs = read_pairs(data / f"{part}.jsonl")
            for side, texts in (("src", [pair.source for pair in pairs]), ("trg", [pair.target for pair in pairs])):
                lines = [" ".join(tokenizer.tokenize(text)) for text in texts]
                (place / f"{part}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = place / "config.yaml"
        config.write_text(json.dumps(_config(place)))  # JSON is YAML
        called = [python, "-m", "joeynmt", "train", str(config), "--skip-test"]
        ran = subprocess.run(
            called, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, check=False
        )
    said = ran.stdout + ran.stderr
    logged = [float(one) for one in re.findall(r"Tokens per Sec: *([0-9.]+)", said)]
    if ran.returncode or len(logged) <= LEFT_OUT:
        raise SystemExit(f"joeynmt must log its speed, but said:\n{said[-3000:]}")
    return statistics.median(logged[LEFT_OUT:])


def _config(place: Path) -> dict[str, Any]:
    embedded = {"embedding_dim": SIZES["embed_dim"], "scale": True, "dropout": SIZES["dropout_p"]}
    stack = {
        "type": "transformer",
        "num_layers": SIZES["num_layers"],
        "num_heads": SIZES["num_heads"],
        "embeddings": embedded,
        "hidden_size": SIZES["embed_dim"],
        "ff_size": SIZES["ff_dim"],
        "dropout": SIZES["dropout_p"],
        "layer_norm": "pre",
        "activation": "gelu",
    }
    side = {"level": "word", "lowercase": False, "max_length": 512, "voc_min_freq": 1, "voc_limit": 8000}
    return {
        "name": "speed",
        "joeynmt_version": "2.3.0",
        "model_dir": str(place / "model"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(place / "train"),
            "dev": str(place / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "trg", **side},
        },
        "testing": {"beam_size": 1, "batch_size": 1500, "batch_type": "token", "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "scheduling": "warmupinversesquareroot",
            "learning_rate": 0.001,
            "learning_rate_warmup": 500,
            "clip_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "batch_size": 1500,
            "batch_type": "token",
            "updates": UPDATES,
            "epochs": 100,
            "logging_freq": LOGGED,
            "validation_freq": 10 * UPDATES,
            "overwrite": True,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": False,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }
