"""``transformers.Trainer`` with batches of like length, exact sums, checkpoints that are whole, and an end by time.

What is taken from transformers: devices, autocast, processes side by side, the optimizer, the loop. What is ours: which
examples are together, what is divided by what, when to validate and to stop, what a checkpoint is made of.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from regard.errors import ConfigError, Error, FormatError, message
from regard.hf.loading import quiet
from regard.text import LengthBuckets
from regard.train.average import WeightAverage
from regard.train.checkpoints import Checkpoints, check
from regard.train.course import Course
from regard.train.data import ROWS, Batches, TrainData
from regard.train.objective import Objective
from regard.train.precision import computes_in_bf16
from regard.train.schedule import rate_share
from regard.train.settings import TrainSettings
from regard.train.watcher import Moment, Watcher

_ENDLESS = 10**9  # updates, where only the time ends a training
_LOG_STEPS = 10
_COURSE = "course.json"
_AVERAGE = "average.safetensors"
_FREE_TO_CHANGE = ("steps", "epochs", "minutes", "patience", "checkpoints")


class TrainingStoppedError(Error, RuntimeError):
    """A training cannot go on; says why, and what the last good checkpoint is."""


class RegardTrainer(Trainer):
    """A training.

    Args:
        model: Takes what ``data.collate`` makes, without the objective's targets, and returns logits.
        data: The examples to learn from.
        valid: Examples to validate on.
        objective: The loss, and the figure that decides which round is best.
        settings: Every number.
        folder: Where checkpoints go.
        watcher: Who is told.

    Raises:
        BackendUnavailableError: accelerate is missing.
    """

    model: Any  # transformers calls it optional: it is there from the first line to the last

    def __init__(
        self,
        model: nn.Module,
        *,
        data: TrainData,
        valid: TrainData,
        objective: Objective,
        settings: TrainSettings,
        folder: Path,
        watcher: Watcher,
    ) -> None:
        self.settings = settings
        self._objective = objective
        self.watcher = watcher
        self.data = data
        self.valid = valid
        self.checkpoints = Checkpoints(folder, keep=settings.checkpoints)
        self.average = WeightAverage()
        self._targets = 0
        super().__init__(model=model, args=_arguments(settings, folder))
        self.remove_callback(PrinterCallback)
        self.add_callback(_Steering(self))
        self._batches = Batches(data, self._buckets(data))
        updates = -(-len(self._batches) // settings.accumulation)
        self.course = Course(settings, updates, higher_is_better=objective.higher_is_better)
        self.args.max_steps = self.course.last_step or _ENDLESS

    def run(self, *, resume: bool = False) -> Course:
        """Train to the end, and leave the model with the best weights there are.

        Args:
            resume: Go on from the newest whole checkpoint, as if there had been no stop.

        Returns:
            What happened.

        Raises:
            ConfigError: the checkpoint is of other data, another model or other settings; names them.
            TrainingStoppedError: a loss or gradients that are no numbers, or a checkpoint that cannot be written.
        """
        newest = self.checkpoints.newest_whole(tell=self.watcher.note) if resume else None
        self._alone(self.checkpoints.clear_partial)
        if newest is not None:
            self._restore(newest)
            self.watcher.note(f"resumed after step {self.course.step} from {newest}")
        elif resume:
            self.watcher.note("there is no checkpoint to resume from: training begins at the beginning")
        last, warmup = self.course.last_step, self.settings.warmup
        if last is not None and warmup > last:
            self.watcher.note(f"the rate rises over {warmup} updates, but training ends after {last}: it stays low")
        self._since, self._before = time.monotonic(), self.course.seconds
        self._moment_tokens, self._moment_seconds = self.course.tokens, self.course.seconds
        with quiet():
            if not self.course.is_over:
                self.train(resume_from_checkpoint=None if newest is None else str(newest))
            elif newest is not None:
                self._load_from_checkpoint(str(newest))
            self._choose_weights()
        return self.course

    def seconds(self) -> float:
        """Time spent, as the first process measures it."""
        spent = self._before + time.monotonic() - self._since
        if self.args.world_size == 1:
            return spent
        shared = torch.tensor(spent, dtype=torch.float64, device=self.args.device)
        torch.distributed.broadcast(shared, src=0)
        return float(shared)

    def get_train_dataloader(self) -> Batches:
        """Batches of like length; each process gets its own."""
        return self._batches

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        """The rate by updates, or by time where time ends the training."""
        if self.lr_scheduler is None:
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer,  # type: ignore[arg-type]  # made before this is called
                lambda step: rate_share(self.settings, step, self.course.fraction),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted: an estimate at every step would cost more than it tells."""
        return 0

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Tensor:
        """Targets of all batches whose gradients are added, on all processes."""
        count = sum((self._objective.count(batch) for batch in batch_samples), torch.tensor(0)).to(device)
        if self.args.world_size > 1:
            torch.distributed.all_reduce(count)
        self._targets = int(count)
        return count

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Add the gradients of a batch.

        Raises:
            TrainingStoppedError: the loss is no finite number; names the examples.
        """
        if not int(num_items_in_batch):
            # Without gradients the optimizer leaves the weights as they are.
            return torch.zeros((), device=self.args.device)
        model.train()
        inputs = self._prepare_inputs(inputs)
        rows = inputs.pop(ROWS)
        loss: Tensor = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        if not bool(torch.isfinite(loss)):
            raise self._stopped(f"the loss is {float(loss)} in the batch of {self.data.named(rows.tolist())}")
        self.accelerator.backward(loss)
        return loss.detach()

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The share of this batch in the mean loss of all targets."""
        targets = {name: inputs.pop(name) for name in self._objective.targets}
        outputs = model(**inputs)
        # Processes average their gradients: times their number it is the sum.
        loss = self._objective.loss(outputs, targets) / num_items_in_batch * self.args.world_size
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Validate, take down the round, and stop where nothing became better for too long.

        Raises:
            TrainingStoppedError: a figure is no finite number: these weights are not worth a checkpoint.
        """
        figures = self.measure()
        if wrong := [f"{name} is {value}" for name, value in figures.items() if not math.isfinite(value)]:
            raise self._stopped(f"the validation {wrong[0]} after step {self.course.step}")
        best = self.course.note_round(figures[self._objective.figure], **figures)
        if self.is_world_process_zero():
            self.watcher.round(self.course.history[-1], best=best)
        self.control.should_evaluate = False
        self.control.should_training_stop = self.control.should_training_stop or self.course.is_over
        return figures

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Means over all targets of the validation examples, not over batches."""
        sums: dict[str, float] = {}
        count = 0
        self.model.eval()
        for batch in self._shared(self.valid):
            inputs = self._prepare_inputs(batch)
            del inputs[ROWS]
            targets = {name: inputs.pop(name) for name in self._objective.targets}
            count += int(self._objective.count(targets))
            for name, value in self._objective.measure(self.model(**inputs), targets).items():
                sums[name] = sums.get(name, 0.0) + float(value.double())
        self.model.train()
        parts: list[Any] = [(sums, count)]
        if self.args.world_size > 1:  # a process may have had no batch, and know no names
            parts = [None] * self.args.world_size
            torch.distributed.all_gather_object(parts, (sums, count))
        whole = max(1, sum(targets for _, targets in parts))
        names = dict.fromkeys(name for figures, _ in parts for name in figures)
        return {name: sum(figures.get(name, 0.0) for figures, _ in parts) / whole for name in names}

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip, unless the gradients are no numbers: they would make all weights that."""
        norm = super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]
        if not math.isfinite(float(norm)):
            raise self._stopped(f"the gradients of step {self.course.step + 1} are not finite, though the loss was")
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Tell the watcher how it goes."""
        if "loss" not in logs or not self.is_world_process_zero():
            return
        course = self.course
        spent, tokens = course.seconds - self._moment_seconds, course.tokens - self._moment_tokens
        self._moment_seconds, self._moment_tokens = course.seconds, course.tokens
        self.watcher.moment(
            Moment(
                step=course.step,
                epoch=course.step / course.steps_per_epoch,
                loss=logs["loss"],
                learning_rate=logs["learning_rate"],
                tokens_per_second=tokens / spent if spent > 0 else 0.0,
                seconds=course.seconds,
                seconds_left=course.seconds_left(),
            )
        )

    def _buckets(self, data: TrainData) -> LengthBuckets:
        return LengthBuckets(
            data.lengths,
            batch_tokens=self.settings.batch_tokens,
            batch_rows=self.settings.batch_rows,
            seed=self.settings.seed,
            rank=self.args.process_index,
            world_size=self.args.world_size,
        )

    def _shared(self, data: TrainData) -> Any:
        """Every example once, over all processes."""
        buckets = LengthBuckets(
            data.lengths, batch_tokens=self.settings.batch_tokens, batch_rows=self.settings.batch_rows
        )
        for number, rows in enumerate(buckets):
            if number % self.args.world_size == self.args.process_index:
                yield data.batch_of([{**data.row(row, 0), ROWS: row} for row in rows])

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write all that a resumption needs, whole or not at all."""
        try:
            if self.args.world_size > 1:
                self._write_together()
            else:
                with self.checkpoints.writing(self.course.step) as folder:
                    self._write_state(folder)
                    self._save_rng_state(str(folder))
            if self.args.should_save:
                self.checkpoints.prune(best=self.course.best_step)
        except (OSError, RuntimeError, SafetensorError) as error:  # the last two are what the writers make of the first
            raise self._stopped(f"the checkpoint of step {self.course.step} cannot be written ({error})") from error

    def _write_state(self, folder: Path) -> None:
        self._save(str(folder))
        self._save_optimizer_and_scheduler(str(folder))
        self.state.save_to_json(str(folder / "trainer_state.json"))
        self.average.save(folder / _AVERAGE)
        kept = {"course": self.course.as_dict(), "identity": self._identity}
        (folder / _COURSE).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def _write_together(self) -> None:
        """The first process writes; the others add the state of their random numbers. Where one fails, all do."""
        with self.checkpoints.writing(self.course.step) if self.args.should_save else nullcontext() as folder:
            aside = [str(folder)]
            self._all_or_none(None if folder is None else partial(self._write_state, folder))
            torch.distributed.broadcast_object_list(aside, src=0)
            self._all_or_none(partial(self._save_rng_state, aside[0]))
        torch.distributed.barrier()

    def _all_or_none(self, write: Callable[[], Any] | None) -> None:
        """Do something in every process that has something to do, and fail in all of them where it fails in one."""
        said: list[Any] = [None] * self.args.world_size
        mine = None
        try:
            if write is not None:
                write()
        except (OSError, RuntimeError, SafetensorError) as error:
            mine = str(error)
        torch.distributed.all_gather_object(said, mine)
        if failed := [text for text in said if text is not None]:
            raise OSError(failed[0])

    def _alone(self, work: Callable[[], Any]) -> None:
        """Let the first process do something, and the others wait for it."""
        if self.args.process_index == 0:
            work()
        if self.args.world_size > 1:
            torch.distributed.barrier()

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What must be the same for a resumption to be one."""
        settings = {name: value for name, value in asdict(self.settings).items() if name not in _FREE_TO_CHANGE}
        shapes = {name: list(weight.shape) for name, weight in self.model.named_parameters()}
        return {
            "data": self.data.fingerprint(),
            "validation data": self.valid.fingerprint(),
            "model": shapes,
            "settings": settings,
        }

    def _restore(self, folder: Path) -> None:
        kept = json.loads((folder / _COURSE).read_text(encoding="utf-8"))
        then, now = kept["identity"], json.loads(json.dumps(self._identity))
        problems = [
            f"the {part} is not that of the checkpoint"
            for part in ("data", "validation data", "model")
            if then.get(part, now[part]) != now[part]
        ]
        for name, value in now["settings"].items():
            if then["settings"].get(name) != value:
                problems.append(f"{name} was {then['settings'].get(name)!r}, and is {value!r} now")
        if problems:
            problem = f"{folder} must be of this training, but {'; '.join(problems)}."
            raise ConfigError(message("resume", problem, hint="train without resume, or as it was begun"))
        self.course.restore(kept["course"])
        self.average.load(folder / _AVERAGE, count=self.course.averaged)

    def _stopped(self, why: str) -> TrainingStoppedError:
        steps = self.checkpoints.steps()
        last = (
            f"the last good checkpoint is {self.checkpoints.path(steps[-1])}" if steps else "there is no checkpoint yet"
        )
        return TrainingStoppedError(message("train", f"{why}; {last}."))

    def _choose_weights(self) -> None:
        """Leave the model with the best of: its last weights, their average, the best round's."""
        course, figure, best = self.course, self._objective.figure, self.course.best_figure
        if self.average.count > 1:
            with self.average.in_place_of(self.model):
                averaged = self.measure()[figure]
            if best is None or (averaged >= best if self._objective.higher_is_better else averaged <= best):
                self.average.into(self.model)
                of = f"the average of {self.average.count} states of the weights"
                self.watcher.note(f"kept: {of} (validation {figure} {averaged:.4g})")
                course.best_figure, course.best_step = averaged, course.step
                return
        if course.best_step is not None and course.best_step != course.step:
            place = self.checkpoints.path(course.best_step)
            try:
                check(place)
            except FormatError as error:
                self.watcher.note(f"kept: the last weights, as those of the best round are lost ({error})")
                return
            self._load_from_checkpoint(str(place))
        if best is not None:
            self.watcher.note(f"kept: the weights of step {course.best_step} (validation {figure} {best:.4g})")


class _Steering(TrainerCallback):
    """When to validate, to keep a checkpoint and to stop."""

    def __init__(self, trainer: RegardTrainer) -> None:
        self._trainer = trainer

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Take down the update, and decide what follows it."""
        trainer, course = self._trainer, self._trainer.course
        course.tick(step=state.global_step, seconds=trainer.seconds(), tokens=trainer._targets)
        if course.wants_average():
            course.averaged += 1
            trainer.average.add(trainer.model)
        over = course.is_over
        if over or course.step % course.round_steps == 0:
            control.should_log = control.should_evaluate = control.should_save = True
        control.should_training_stop = control.should_training_stop or over
        return control


def _arguments(settings: TrainSettings, folder: Path) -> TrainingArguments:
    """The part of the settings that transformers carries out; what is ours is switched off."""
    gpu = torch.cuda.is_available()
    return TrainingArguments(
        output_dir=str(folder),
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adam_beta2=0.98,
        max_grad_norm=settings.clip,
        bf16=computes_in_bf16(settings.precision),
        seed=settings.seed,
        logging_steps=_LOG_STEPS,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        use_cpu=not gpu,
        ddp_backend=None if gpu or "LOCAL_RANK" not in os.environ else "gloo",
        ddp_find_unused_parameters=False,
    )
