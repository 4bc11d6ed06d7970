import io
import time

import pytest

from regard.bench import BUSY, OtherProcesses, Spread, interleave, timing


def test_sides_take_turns():
    order = []
    sides = {name: (lambda name=name: (order.append(name), time.sleep(0.003))) for name in "abc"}
    times = interleave(sides, rounds=4)
    assert "".join(order) == "abc" * 5  # once to see how long a call is
    assert {name: len(found) for name, found in times.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(0.003 <= second < 0.1 for found in times.values() for second in found)


def test_short_calls_are_repeated_and_the_time_is_that_of_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += 1e-5

    (times,) = interleave({"a": call}, rounds=3).values()
    assert times == pytest.approx([1e-5] * 3)
    assert now[0] == pytest.approx(1e-5 + 3 * 2e-3)


def test_no_round_is_begun_after_the_time_but_three_are_taken(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += 2.0

    assert len(interleave({"a": call}, rounds=9, seconds=1.0)["a"]) == 3
    assert len(interleave({"a": call}, rounds=9, seconds=9.0)["a"]) == 5
    assert len(interleave({"a": call}, rounds=1)["a"]) == 3


def test_the_device_is_waited_for_inside_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def wait():
        now[0] += 1.0

    assert interleave({"a": lambda: None}, rounds=3, finish=wait)["a"] == [1.0] * 3


def test_quartiles():
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(2.0, 3.0, 4.0)


def test_what_others_use_is_counted_per_second(monkeypatch):
    used, now = [10.0], [100.0]
    monkeypatch.setattr(OtherProcesses, "_read", staticmethod(lambda: used[0]))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    others = OtherProcesses()
    used[0], now[0] = 11.0, 104.0
    assert others.share() == 0.25 > BUSY


def test_own_work_is_not_that_of_others(monkeypatch):
    # user nice system idle iowait irq softirq steal, in hundredths: the same before and after
    monkeypatch.setattr("builtins.open", lambda *_, **__: io.StringIO("cpu  600 100 200 5000 7000 50 30 20 0 0\n"))
    monkeypatch.setattr(timing, "_TICKS", 100)
    before, start = OtherProcesses._read(), time.process_time()
    assert before == pytest.approx(10 - start, abs=0.1)
    while time.process_time() - start < 0.3:
        pass
    assert OtherProcesses._read() - before == pytest.approx(-0.3, abs=0.1)


def test_a_system_without_counters_is_no_failure(monkeypatch):
    def missing(*words, **options):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert OtherProcesses().share() is None
