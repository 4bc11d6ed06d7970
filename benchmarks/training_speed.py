"""How fast a translator is trained: our trainer beside a plain loop over nn.Transformer, and beside JoeyNMT.

    python benchmarks/training_speed.py --data DIR [--rounds 5] [--steps 40] [--joeynmt PYTHON]

The data and the architecture of ``translation.py``'s zh-en, the same batches and the same weights to begin with,
bfloat16 autocast on both sides; logits are compared first. Ours is the whole trainer, with its validation and its
checkpoint at the end of every round; the plain loop does nothing but steps. Target tokens a second, padding left out.
JoeyNMT, which has no bfloat16 on a CPU, is run by its own command with the same architecture and tokens; what it logs
is taken, start left out.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from joeynmt_speed import joeynmt_speed
from plain_transformers import PlainSeq2Seq, with_dropout
from runs import arguments
from setting import setting, write
from torch import Tensor, nn
from translation import SEED, chinese_english

from regard.bench.timing import Spread
from regard.tasks.task import info_of
from regard.tasks.trained import Trained
from regard.tasks.training import new_tokenizer
from regard.tasks.translate import Translate
from regard.text import ReadOptions, read_pairs
from regard.train.data import TrainData
from regard.train.objective import NextToken
from regard.train.settings import TrainSettings
from regard.train.trainer import RegardTrainer
from regard.train.watcher import Watcher

VALID = 64
Batch = dict[str, Tensor]


def prepared(data: Path, folder: Path, preset: str) -> tuple[Trained, TrainData, TrainData]:
    """A model that has learned nothing, and what it is to learn from."""
    task, pairs = Translate(), read_pairs(chinese_english(data, folder)["train"])
    sizes = task.presets[preset]
    tokenizer = new_tokenizer(task.texts(pairs), kind="bpe", size=sizes.vocab_size, pairs=False)
    torch.manual_seed(SEED)
    details = dict(task.choices)
    info = info_of(task, tokenizer, max_tokens=sizes.max_tokens, labels=(), options=ReadOptions(), details=details)
    trained = Trained(task.new_model(sizes, tokenizer, details), tokenizer, info, "new")
    return trained, task.data(trained, pairs)[0], task.data(trained, pairs.select(range(VALID)))[0]


def trainer_of(
    model: nn.Module, data: TrainData, valid: TrainData, steps: int, folder: Path, preset: str
) -> RegardTrainer:
    """The trainer with the settings of the preset."""
    settings = TrainSettings(**{**Translate.presets[preset].training, "epochs": None}, steps=steps, precision="bf16")
    objective = NextToken(settings.label_smoothing)
    return RegardTrainer(
        model, data=data, valid=valid, objective=objective, settings=settings, folder=folder, watcher=Watcher()
    )


def plain_loop(model: nn.Module, batches: list[Batch], settings: TrainSettings) -> None:
    """Steps as a person writes them."""
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay, fused=True
    )
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / settings.warmup))
    model.train()
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch["input_ids"], batch["decoder_input_ids"])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=settings.label_smoothing
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        rate.step()


def largest_difference(ours: nn.Module, plain: nn.Module, batch: Batch) -> float:
    """Of the logits of real targets, in float32 and without dropout."""
    real = batch["labels"] != -100
    with torch.no_grad():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "decoder_input_ids")}
        first = ours.eval()(**inputs).logits[real]
        return float((first - plain.eval()(batch["input_ids"], batch["decoder_input_ids"])[real]).abs().max())


def sides(
    trained: Trained, data: TrainData, valid: TrainData, steps: int, preset: str
) -> tuple[dict[str, Callable[[], Any]], int]:
    """What is timed, every call from the same weights; and how many targets each call sees."""
    with tempfile.TemporaryDirectory() as folder:
        batches = trainer_of(trained.model, data, valid, steps, Path(folder), preset).get_train_dataloader()
    chosen = [batch for batch, _ in zip(batches, range(steps), strict=False)]
    plain = PlainSeq2Seq(trained.model.model)
    if (found := largest_difference(trained.model, plain, chosen[0])) > 1e-3:
        raise SystemExit(f"the models must agree, but their logits are {found} apart")
    dropout_p = Translate.presets[preset].model["dropout_p"]
    with_dropout(plain, p=dropout_p)
    as_written = copy.deepcopy(plain)
    for module in as_written.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = dropout_p  # as nn.Transformer(dropout=…) has it

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            trainer_of(copy.deepcopy(trained.model), data, valid, steps, Path(folder), preset).run()

    with tempfile.TemporaryDirectory() as folder:
        settings = trainer_of(trained.model, data, valid, steps, Path(folder), preset).settings
    timed: dict[str, Callable[[], Any]] = {"regard": ours}
    for name, model in (("plain", as_written), ("plain_without_attention_dropout", plain)):
        timed[name] = lambda model=model: plain_loop(copy.deepcopy(model), chosen, settings)
    return timed, int(sum((batch["labels"] != -100).sum() for batch in chosen))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--joeynmt", help="a Python that has joeynmt installed")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    trained, data, valid = prepared(given.data, given.runs / "zh-en-data", given.preset)
    timed, targets = sides(trained, data, valid, given.steps, given.preset)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for number in range(given.rounds + 1):  # the first warms up
        for name, call in timed.items():
            began = time.perf_counter()
            call()
            if number:
                seconds[name].append(time.perf_counter() - began)
    found: dict[str, Any] = {
        name: {"targets_per_second": asdict(Spread.of([targets / one for one in spent]))}
        for name, spent in seconds.items()
    }
    for name in list(timed)[1:]:
        ratios = [other / ours for other, ours in zip(seconds[name], seconds["regard"], strict=True)]
        found[name]["times_as_fast"] = asdict(Spread.of(ratios))
    if given.joeynmt:
        speed = joeynmt_speed(given.joeynmt, trained.tokenizer, given.runs / "zh-en-data", threads=given.threads)
        ours = found["regard"]["targets_per_second"]["median"]
        found["joeynmt"] = {"targets_per_second": speed, "times_as_fast": ours / speed}
    where = setting(seed=SEED, threads=given.threads, rounds=given.rounds, steps=given.steps, targets=targets)
    write("training_speed", {"setting": where, **found})


if __name__ == "__main__":
    main()
