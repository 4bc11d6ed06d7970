"""The trainer: learns, stops, goes on as if it had not stopped, and divides by what it should."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from regard.errors import ConfigError
from regard.train.checkpoints import Checkpoints
from regard.train.trainer import TrainingStoppedError
from tests.train.tiny import Listener, examples, model, trainer, weights

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

ROOT = Path(__file__).parents[2]


def exact():
    """In float64 without dropout: Adam makes steps of gradients that are nothing but rounding, too."""
    return model(dropout_p=0.0, dtype=torch.float64)


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in right)


def test_the_loss_falls_and_is_that_of_no_guess(tmp_path):
    watcher = Listener()
    options = {"data": examples(300), "batch_tokens": 1200, "learning_rate": 1e-2}
    training = trainer(tmp_path, epochs=40, dropout_p=0.0, watcher=watcher, **options)
    course = training.run()
    losses = [figures["loss"] for figures, _ in watcher.rounds]
    assert losses[0] > 2.0
    assert course.best_figure < 0.7 * losses[0]
    assert course.best_figure == pytest.approx(min(losses))
    assert watcher.rounds[-1][0]["step"] == course.step == 40 * course.steps_per_epoch


def test_the_validation_figure_is_a_mean_over_targets_not_over_batches(tmp_path):
    training = trainer(tmp_path, steps=1)
    found = training.measure()["loss"]
    data, total, count = training.valid, 0.0, 0
    training.model.eval()
    for row in range(len(data)):
        batch = data.collate([data.rows[row]])
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = training.model(**batch).logits.double()
        total += float(torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum"))
        count += labels.numel()
    assert found == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("accumulation", [2, 3])
def test_accumulated_batches_train_as_one(tmp_path, accumulation):
    """The same examples in one batch, and one by one with their gradients added: sums divided by all targets."""
    few = examples(accumulation)
    whole = trainer(tmp_path / "whole", data=few, of=exact(), steps=4, batch_tokens=1000)
    pieces = trainer(tmp_path / "pieces", data=few, of=exact(), steps=4, batch_rows=1, accumulation=accumulation)
    assert len(whole.get_train_dataloader()) == 1
    assert len(pieces.get_train_dataloader()) == accumulation
    whole.run()
    pieces.run()
    for name, weight in whole.model.named_parameters():
        torch.testing.assert_close(pieces.model.get_parameter(name), weight, atol=1e-9, rtol=1e-7)


def test_d18_a_stop_and_a_resumption_leave_no_trace(tmp_path):
    straight = Listener()
    once = trainer(tmp_path / "once", steps=20, round_steps=5, watcher=straight, average=4)
    once.run()
    first, second = Listener(), Listener()
    stopped = trainer(tmp_path / "stopped", steps=20, round_steps=5, watcher=first, average=4)
    _stop_after(stopped, 12)
    other = model(seed=99)  # whatever it begins with, the checkpoint decides
    resumed = trainer(tmp_path / "stopped", steps=20, round_steps=5, watcher=second, average=4, of=other)
    resumed.run(resume=True)
    assert second.notes[0].startswith("resumed after step 10 from ")
    assert same(weights(resumed.model), weights(once.model))
    assert _without_time(resumed.course.history) == _without_time(once.course.history)
    after = [(moment.step, moment.loss) for moment in straight.moments if moment.step > 10]
    assert [(moment.step, moment.loss) for moment in second.moments] == after


class _StopError(Exception):
    pass


def _stop_after(training, step):
    """Stop as abruptly as an exception does, between two checkpoints."""
    tick = training.course.tick

    def ticking(**what):
        tick(**what)
        if training.course.step == step:
            raise _StopError

    training.course.tick = ticking
    with pytest.raises(_StopError):
        training.run()


def _without_time(history):
    return [{name: value for name, value in line.items() if name != "minutes"} for line in history]


SCRIPT = """
import sys
from pathlib import Path
from tests.train.tiny import Listener, trainer, weights
import torch
torch.set_num_threads(1)
class Slow(Listener):
    def moment(self, moment):
        import time; time.sleep(0.02)
training = trainer(Path(sys.argv[1]), steps=60, round_steps=4, watcher=Slow())
training.run(resume=True)
torch.save(weights(training.model), sys.argv[1] + ".pt")
"""


def _child(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    with Path(f"{folder}.txt").open("wb") as said:
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], env=environment, stderr=said)


def test_d18_killed_at_any_moment_it_goes_on_to_the_same_weights(tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    process = _child(straight)
    assert process.wait(timeout=120) == 0, Path(f"{straight}.txt").read_text()
    waits = (2, 5, 9)  # checkpoints seen before each kill
    for wait in waits:
        process = _child(killed)
        while process.poll() is None and (max(Checkpoints(killed).steps(), default=0) < 4 * wait):
            time.sleep(0.003)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
        assert not Path(f"{killed}.pt").exists()
    process = _child(killed)
    assert process.wait(timeout=120) == 0, Path(f"{killed}.txt").read_text()
    assert same(torch.load(f"{killed}.pt"), torch.load(f"{straight}.pt"))


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path):
    found = []
    for number, seed in enumerate((1, 1, 2)):
        training = trainer(tmp_path / str(number), steps=6, seed=seed)
        training.run()
        found.append(weights(training.model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_resume_refuses_what_is_another_training(tmp_path):
    trainer(tmp_path, steps=4, round_steps=2).run()
    with pytest.raises(ConfigError) as caught:
        trainer(tmp_path, steps=8, learning_rate=0.1, batch_tokens=90, data=examples(61), round_steps=2).run(
            resume=True
        )
    text = str(caught.value)
    assert "must be of this training, but the data is not that of the checkpoint" in text
    assert "batch_tokens was 120, and is 90 now" in text
    assert "learning_rate was 0.003, and is 0.1 now" in text
    longer = trainer(tmp_path, steps=6, round_steps=2)  # more of the same is a resumption
    assert longer.run(resume=True).step == 6


def test_resume_without_a_checkpoint_begins_and_says_so(tmp_path):
    watcher = Listener()
    assert trainer(tmp_path, steps=2, watcher=watcher).run(resume=True).step == 2
    assert watcher.notes[0] == "there is no checkpoint to resume from: training begins at the beginning"


def test_a_training_that_is_over_resumes_to_its_own_weights(tmp_path):
    first = trainer(tmp_path, steps=6, round_steps=3)
    first.run()
    again = trainer(tmp_path, steps=6, round_steps=3, of=model(seed=99))
    again.run(resume=True)
    assert same(weights(again.model), weights(first.model))


def test_a_damaged_checkpoint_is_named_and_an_earlier_one_taken(tmp_path):
    trainer(tmp_path, steps=6, round_steps=2).run()
    damaged = Checkpoints(tmp_path).path(6) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    watcher = Listener()
    trainer(tmp_path, steps=8, round_steps=2, watcher=watcher).run(resume=True)
    assert str(damaged) in watcher.notes[0]
    assert "has changed since it was written" in watcher.notes[0]
    assert watcher.notes[1].startswith("resumed after step 4 ")


def test_a_loss_that_is_no_number_stops_with_the_batch_named(tmp_path):
    training = trainer(tmp_path, steps=9, round_steps=2, batch_rows=2)
    forward = training.model.forward

    def poisoned(**inputs):
        outputs = forward(**inputs)
        if training.course.step == 4 and training.model.training:
            outputs.logits = outputs.logits * float("nan")
        return outputs

    training.model.forward = poisoned
    with pytest.raises(TrainingStoppedError) as caught:
        training.run()
    text = str(caught.value)
    assert "the loss is nan in the batch of made.tsv, line " in text
    assert f"the last good checkpoint is {Checkpoints(tmp_path).path(4)}" in text


def test_a_validation_that_is_no_number_stops_before_its_weights_are_kept(tmp_path):
    training = trainer(tmp_path, steps=9, round_steps=2)
    forward = training.model.forward

    def poisoned(**inputs):
        outputs = forward(**inputs)
        if training.course.step == 4 and not training.model.training:
            outputs.logits = outputs.logits * float("nan")
        return outputs

    training.model.forward = poisoned
    with pytest.raises(TrainingStoppedError, match="the validation loss is nan after step 4; the last good"):
        training.run()
    assert Checkpoints(tmp_path).steps() == [2]


def test_gradients_that_are_no_numbers_stop_before_the_weights_are_changed(tmp_path):
    training = trainer(tmp_path, steps=9, round_steps=2)
    table = next(training.model.parameters())
    table.register_hook(lambda gradient: gradient * float("nan") if training.course.step == 3 else gradient)
    with pytest.raises(TrainingStoppedError, match="the gradients of step 4 are not finite, though the loss was"):
        training.run()
    assert all(bool(torch.isfinite(weight).all()) for weight in training.model.parameters())


def states_of(training):
    """The weights after every update, filled while it trains."""
    states, tick = {}, training.course.tick

    def ticking(**what):
        tick(**what)
        states[training.course.step] = weights(training.model)

    training.course.tick = ticking
    return states


def assert_average(training, states):
    with training.average.in_place_of(training.model):
        found = weights(training.model)
    for name, weight in found.items():
        mean = torch.stack([state[name] for state in states]).mean(dim=0)
        torch.testing.assert_close(weight, mean, atol=1e-6, rtol=1e-5)


def test_a_training_that_is_made_longer_averages_its_own_last_quarter(tmp_path):
    trainer(tmp_path, steps=8, round_steps=4, average=3).run()
    longer = trainer(tmp_path, steps=24, round_steps=4, average=3)
    states = states_of(longer)
    longer.run(resume=True)
    assert longer.average.count == 3
    assert_average(longer, [states[step] for step in (20, 22, 24)])


def test_what_is_validated_on_stays_the_same(tmp_path):
    trainer(tmp_path, steps=4, round_steps=4).run()
    other = trainer(tmp_path, steps=8, round_steps=4)
    other.valid = examples(20, seed=10)
    with pytest.raises(ConfigError, match="the validation data is not that of the checkpoint"):
        other.run(resume=True)


def test_a_best_round_that_is_lost_leaves_the_last_weights(tmp_path):
    watcher = Listener()
    training = trainer(tmp_path, steps=8, round_steps=4, watcher=watcher)
    training._choose_weights = lambda: None
    training.run()
    del training._choose_weights
    training.course.best_step = 3
    last = weights(training.model)
    training._choose_weights()
    assert same(weights(training.model), last)
    assert watcher.notes[-1].startswith("kept: the last weights, as those of the best round are lost (")


def test_a_training_that_ends_before_its_rate_has_risen_says_so(tmp_path):
    watcher = Listener()
    trainer(tmp_path, steps=4, warmup=9, watcher=watcher).run()
    assert "the rate rises over 9 updates, but training ends after 4: it stays low" in watcher.notes


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    resource = pytest.importorskip("resource")
    training = trainer(tmp_path, steps=8, round_steps=2)
    write = training._write_state

    def filling(folder):
        if training.course.step == 6:
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
            try:
                write(folder)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                signal.signal(signal.SIGXFSZ, before)
        else:
            write(folder)

    training._write_state = filling
    with pytest.raises(TrainingStoppedError) as caught:
        training.run()
    assert "the checkpoint of step 6 cannot be written" in str(caught.value)
    assert f"the last good checkpoint is {Checkpoints(tmp_path).path(4)}" in str(caught.value)
    assert not list(tmp_path.glob(".checkpoint-*"))
    watcher = Listener()
    assert trainer(tmp_path, steps=8, round_steps=2, watcher=watcher).run(resume=True).step == 8
    assert watcher.notes[0].startswith("resumed after step 4 ")


def test_d16_a_batch_without_targets_changes_nothing(tmp_path):
    data = examples(6)
    data.rows[3]["labels"] = [-100] * 4
    training = trainer(tmp_path, data=data, steps=6, batch_rows=1, weight_decay=0.1)
    before: dict[int, dict] = {}
    step = training.training_step
    empty = []

    def stepping(network, inputs, count=None):
        if not int(count):
            empty.append(training.course.step)
        before[training.course.step] = weights(training.model)
        return step(network, inputs, count)

    training.training_step = stepping
    watcher = training.watcher
    training.run()
    assert len(empty) == 1
    after = before.get(empty[0] + 1) or weights(training.model)
    assert same(after, before[empty[0]])
    assert all(math.isfinite(moment.loss) for moment in watcher.moments)


def test_patience_ends_a_training_and_the_best_round_is_kept(tmp_path):
    watcher = Listener()
    training = trainer(tmp_path, epochs=500, patience=3, learning_rate=2e-2, watcher=watcher, data=examples(12))
    course = training.run()
    assert course.step < 500 * course.steps_per_epoch
    assert [best for _, best in watcher.rounds][-3:] == [False] * 3
    assert training.measure()["loss"] == pytest.approx(course.best_figure)
    assert watcher.notes[-1].startswith(f"kept: the weights of step {course.best_step} ")


def test_minutes_end_a_training(tmp_path):
    began = time.monotonic()
    course = trainer(tmp_path, minutes=0.03).run()
    assert course.seconds >= 1.8
    assert time.monotonic() - began < 20
    assert course.step > 1


def test_the_average_is_the_mean_of_the_weights_it_was_made_of(tmp_path):
    training = trainer(tmp_path, steps=16, round_steps=16, average=4)
    states = states_of(training)
    training.run()
    assert training.average.count == 4
    assert_average(training, [states[step] for step in (13, 14, 15, 16)])


def test_two_processes_train_as_one_with_two_batches(tmp_path):
    script = """
import sys
from pathlib import Path
import torch
from tests.train.tiny import examples, model, trainer, weights
torch.set_num_threads(1)
exact = model(dropout_p=0.0, dtype=torch.float64)
one = sys.argv[2] == "one"
training = trainer(Path(sys.argv[1]), steps=6, round_steps=3, of=exact, accumulation=2 if one else 1, batch_tokens=100)
assert len(training.get_train_dataloader()) == (8 if one else 4)  # an odd one would be repeated by the second process
course = training.run()
training.valid = examples(2, seed=9)  # one batch: the second process has none
few = training.measure()
if training.is_world_process_zero():
    torch.save({"weights": weights(training.model), "history": course.history, "few": few}, sys.argv[1] + ".pt")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    program = tmp_path / "both.py"
    program.write_text(script)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, command in (("one", [sys.executable]), ("two", launch)):
        done = subprocess.run(
            [*command, str(program), str(tmp_path / name), name], env=environment, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode()
    one, two = (torch.load(tmp_path / f"{name}.pt") for name in ("one", "two"))
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, atol=1e-9, rtol=1e-7)
    for left, right in zip(one["history"], two["history"], strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-9)
    assert one["few"] == pytest.approx(two["few"], rel=1e-9)
    kept = json.loads((Checkpoints(tmp_path / "two").path(6) / "checksums.json").read_text())
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(kept)
