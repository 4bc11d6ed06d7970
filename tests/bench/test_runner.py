import dataclasses
import json
import subprocess

import pytest
import torch

from regard.bench import Plan, Report, Spread, Target, measure_rows, runner, setting, sides, table
from regard.bench.report import PeerResult, RowResult
from regard.bench.rows import shape
from tests.bench.rows import tiny

PLAN = Plan(threads=1, rounds=3, seconds=0.0)


def measured(*rows, plan=PLAN):
    return list(measure_rows(rows, plan))


def shown(*results):
    where = {**setting(), "device": "cpu", "threads": 1}
    return table.lines(Report(where, tuple(results)))


def wrong_peer(inputs):
    right = sides._sdpa(inputs)
    return lambda: {"output": right()["output"] * 1.01}


def test_a_row_has_times_and_ratios():
    (result,) = measured(tiny(peers=("sdpa", "eager")))
    assert (result.status, result.rounds, result.threads) == ("measured", 3, 1)
    assert result.backend in ("native", "torch")
    for peer in result.peers:
        assert peer.status == "measured"
        assert peer.speedup.median == peer.seconds.median / result.seconds.median
        assert 0 < peer.speedup.quarter <= peer.speedup.three_quarters


def test_a_wrong_peer_gets_no_ratio(monkeypatch):
    monkeypatch.setitem(sides._PEERS, "sdpa", wrong_peer)
    (result,) = measured(tiny(peers=("sdpa", "eager"), targets=(Target("sdpa", "speedup", 0.0, avx2=0.0),)))
    wrong, right = result.peers
    assert (wrong.status, wrong.seconds, wrong.speedup) == ("disagrees", None, None)
    assert right.status == "measured"
    assert (result.wrong, result.verdicts) == (True, ())
    line = shown(result)[2]
    assert "disagrees: output is" in line
    assert "×" not in line


def test_nothing_is_timed_when_regard_is_wrong(monkeypatch):
    right = runner.regard_side
    monkeypatch.setattr(
        runner, "regard_side", lambda inputs, **options: lambda: {"output": right(inputs)()["output"] + 1}
    )
    monkeypatch.setattr(runner, "interleave", lambda *_, **__: pytest.fail("it was timed"))
    (result,) = measured(tiny(peers=("sdpa", "eager")))
    assert (result.status, result.seconds, result.wrong) == ("disagrees", None, True)
    assert {peer.status for peer in result.peers} == {"skipped"}
    assert not any("×" in line for line in shown(result)[2:-1])


def test_a_named_backend_serves():
    (result,) = measured(tiny(case="bias", peers=("sdpa_bias",)), plan=dataclasses.replace(PLAN, backend="reference"))
    assert (result.status, result.backend) == ("measured", "reference")


def test_a_refusal_is_shown(monkeypatch):
    from regard.errors import UnsupportedError, message

    def refuse(*_, **__):
        raise UnsupportedError(message("explain_backend", "backend 'torch' cannot take this call: no.", hint="h"))

    monkeypatch.setattr(runner, "explain", refuse)
    (result,) = measured(tiny(), plan=dataclasses.replace(PLAN, backend="torch"))
    assert (result.status, result.reason) == ("refused", "backend 'torch' cannot take this call: no.")
    assert not result.wrong


def test_a_peer_that_cannot_run_is_skipped(monkeypatch):
    monkeypatch.setattr(sides, "_free_bytes", lambda device: 0)
    (result,) = measured(tiny(peers=("sdpa", "eager")))
    assert [peer.status for peer in result.peers] == ["measured", "skipped"]
    (quick,) = measured(tiny(peers=("sdpa", "flex")), plan=PLAN.quick())
    assert quick.peers[1].reason == "left out of a quick run"


def test_a_quick_run_leaves_out_peers_without_a_target():
    row = tiny("observed", peers=("sdpa", "eager_probes"))
    (result,) = measured(row, plan=PLAN.quick())
    assert [peer.status for peer in result.peers] == ["measured", "skipped"]
    (result,) = measured(dataclasses.replace(row, targets=(Target("eager_probes", "speedup", 3.0),)), plan=PLAN.quick())
    assert [peer.status for peer in result.peers] == ["measured", "measured"]


def test_a_row_that_would_take_too_long_is_checked_but_not_timed(monkeypatch):
    monkeypatch.setattr(runner, "interleave", lambda *_, **__: pytest.fail("it was timed"))
    (result,) = measured(tiny(), plan=dataclasses.replace(PLAN, last_end=0.0))
    assert (result.status, result.reason) == ("skipped", "would take longer than this run may")


def test_rows_after_the_time_are_skipped():
    first, second = measured(tiny(), tiny(), plan=dataclasses.replace(PLAN, last_begin=-1.0))
    assert first.status == second.status == "skipped"
    assert "skipped: the time of this run is used up" in shown(first)[2]


@pytest.mark.parametrize(("threads", "used"), [(None, 2), (1, 1)])
def test_threads_are_set_and_set_back(threads, used, monkeypatch):
    seen = []
    monkeypatch.setattr(
        runner,
        "_timed",
        lambda row, plan, count, until: seen.append(torch.get_num_threads()) or RowResult(row, "measured"),
    )
    before = torch.get_num_threads()
    measured(tiny(threads=threads), plan=Plan(threads=2))
    assert (seen, torch.get_num_threads()) == ([used], before)


def spread(median):
    return Spread(median, median, median)


@pytest.mark.parametrize(
    ("target", "value", "met", "text"),
    [
        (Target("sdpa", "speedup", 1.2), 1.5, True, "≥ 1.2×: 1.50× met"),
        (Target("sdpa", "speedup", 1.6), 1.5, False, "≥ 1.6×: 1.50× short"),
        (Target("sdpa", "time", 0.7), 1 / 1.5, True, "≤ 0.7× its time: 0.67× met"),
        (Target("sdpa", "time", 0.6), 1 / 1.5, False, "≤ 0.6× its time: 0.67× short"),
        (Target("sdpa", "overhead_us", 40.0), -1e6, True, "≤ 40 µs over: -1000000 met"),
        (Target("", "bytes", 1024.0), 2048.0, False, "≤ 1024 B: 2048 short"),
    ],
)
def test_figures_are_held_against_targets(target, value, met, text, monkeypatch):
    monkeypatch.setattr(runner, "isa", lambda: "avx512_bf16")
    peer = PeerResult("sdpa", "measured", None, spread(3.0), spread(1.5))
    result = RowResult(
        tiny(targets=(target,)),
        "measured",
        backend="native",
        threads=2,
        seconds=spread(2.0),
        bytes=2048.0,
        peers=(peer,),
    )
    (verdict,) = runner._verdicts(result)
    assert (verdict.value, verdict.met) == (pytest.approx(value), met)
    assert shown(dataclasses.replace(result, verdicts=(verdict,)))[2].endswith(text)
    assert list(runner._verdicts(dataclasses.replace(result, backend="torch"))) == []
    assert list(runner._verdicts(dataclasses.replace(result, threads=1))) == [], "the targets are for two threads"


def test_a_busy_machine_is_said():
    result = RowResult(tiny(), "measured", seconds=spread(1.0), other_cpu=0.16)
    line = f"other processes used 0.16 CPU during {tiny().name}: its times are doubtful"
    assert line in shown(result)
    assert line not in shown(dataclasses.replace(result, other_cpu=0.15))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2345, "1.23 s"),
        (0.8651, "865 ms"),
        (0.0123, "12.3 ms"),
        (0.001, "1.00 ms"),
        (9.99e-4, "999 µs"),
        (2e-8, "0.02 µs"),
    ],
)
def test_times_have_their_unit(seconds, text):
    number = text.split()[0]
    assert table._time(spread(seconds)) == f"{text} ({number}–{number})"


def test_the_table_on_a_terminal_has_the_same_cells():
    from io import StringIO

    from rich.console import Console

    (result,) = measured(tiny(peers=("sdpa", "eager")))
    report = Report({**setting(), "device": "cpu", "threads": 1}, (result,))
    screen = Console(file=StringIO(), force_terminal=True, width=300, color_system=None)
    table.print_report(report, screen)
    text = screen.file.getvalue()
    assert "━" in text
    assert all(cell in text for cells, _ in table._rows(report.results) for cell in cells)
    pipe = Console(file=StringIO(), force_terminal=False, soft_wrap=True)
    table.print_report(report, pipe)
    assert "━" not in pipe.file.getvalue()


def test_memory_is_measured_in_its_own_process():
    row = tiny("memory", size=shape(1, 2, 4096, 64), heat_map=64)
    held = torch.ones(200_000_000 // 4)  # what this process holds is not what the call takes
    (result,) = measured(row)
    assert held.numel()
    assert (result.status, result.reason) == ("measured", None)
    output = 64 * 4
    # More than the output, and less than dense weights with it.
    assert output <= result.bytes < output + 40_000
    assert result.peers[0].status == "measured"
    assert "B per token and head" in shown(result)[2]


def test_a_process_that_fails_is_a_reason(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\n  …\nMemoryError: none left\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    (result,) = measured(tiny("memory"))
    assert (result.status, result.reason) == ("skipped", "its own process failed: MemoryError: none left")


def test_wrong_results_in_that_process_are_no_figure(monkeypatch):
    monkeypatch.setattr(runner, "extra_peak", lambda *_, **__: (1000, "output is wrong"))
    (result,) = measured(tiny("memory"))
    assert (result.status, result.reason, result.bytes, result.wrong) == ("disagrees", "output is wrong", None, True)


def test_the_report_is_json():
    results = measured(tiny(peers=("sdpa", "eager")))
    report = Report({**setting(), "device": "cpu", "threads": 1}, tuple(results))
    assert json.loads(json.dumps(report.to_json()))["rows"][0]["name"] == tiny().name
