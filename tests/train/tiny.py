"""A training small enough for tests: reverse short sequences of letters."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from regard.hf import RegardForConditionalGeneration, RegardSeq2SeqConfig
from regard.hf.losses import IGNORED
from regard.train.data import RowData, padded
from regard.train.objective import NextToken
from regard.train.settings import TrainSettings
from regard.train.trainer import RegardTrainer
from regard.train.watcher import Watcher

SETTINGS = {"batch_tokens": 120, "learning_rate": 3e-3, "warmup": 5, "precision": "fp32", "average": 0, "seed": 3}


class Listener(Watcher):
    """Keeps what it is told."""

    def __init__(self):
        self.moments, self.rounds, self.notes = [], [], []

    def moment(self, moment):
        self.moments.append(moment)

    def round(self, figures, *, best):
        self.rounds.append((figures, best))

    def note(self, text):
        self.notes.append(text)


def collate(rows):
    source = padded([row["source"] for row in rows], fill=0)
    labels = padded([row["labels"] for row in rows], fill=IGNORED)
    start = torch.full((len(rows), 1), 1)
    return {
        "input_ids": source,
        "attention_mask": (source != 0).long(),
        "decoder_input_ids": torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, 0)], dim=1),
        "labels": labels,
    }


def examples(count, seed=0):
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        source = [draw.randrange(4, 14) for _ in range(draw.randrange(2, 8))]
        rows.append({"source": source, "labels": [*reversed(source), 2]})
    return RowData(
        rows,
        [(len(row["source"]), len(row["labels"])) for row in rows],
        collate,
        [f"made.tsv, line {number + 1}" for number in range(count)],
    )


def model(dropout_p=0.1, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    config = RegardSeq2SeqConfig(vocab_size=14, embed_dim=16, num_heads=2, num_layers=1, ff_dim=32, dropout_p=dropout_p)
    return RegardForConditionalGeneration(config).to(dtype)


def trainer(folder: Path, *, dropout_p=0.1, data=None, watcher=None, of=None, **settings):
    return RegardTrainer(
        of or model(dropout_p),
        data=data or examples(60),
        valid=examples(20, seed=9),
        objective=NextToken(settings.pop("smoothing", 0.0)),
        settings=TrainSettings(**{**SETTINGS, **settings}),
        folder=folder,
        watcher=watcher or Listener(),
    )


def weights(of):
    return {name: weight.detach().clone() for name, weight in of.named_parameters()}
