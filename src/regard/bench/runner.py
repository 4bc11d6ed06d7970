"""Measures rows: checks that both sides are equal, times them in turn, holds the figures against the targets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.bench.agreement import judge
from regard.bench.inputs import Inputs, make_inputs
from regard.bench.memory import extra_peak
from regard.bench.report import PeerResult, RowResult, Verdict
from regard.bench.rows import Row
from regard.bench.setting import isa
from regard.bench.sides import SLOW_PEERS, Side, UnavailablePeerError, explain, peer_side, regard_side
from regard.bench.timing import FEWEST_RUNS, OtherProcesses, Spread, interleave
from regard.errors import UnsupportedError

QUICK_SECONDS = 40.0
"""What ``--quick`` may take in all, the start of the process included."""

_QUICK_LAST_BEGIN = 22.0  # leaves the first runs of the longest quick row and the check of its results
_QUICK_LAST_END = 34.0


@dataclass(frozen=True)
class Plan:
    """How rows are measured.

    Args:
        backend: For regard's side.
        device: Where the tensors lie.
        threads: Of torch; None leaves them as they are.
        seed: Of the tensors.
        rounds: Samples of each side.
        seconds: No further sample is begun after so long, once there are three.
        all_peers: Whether peers are run that take long to get ready, or that no target names (the first is always run).
        last_begin: No row is begun after so many seconds; None for no limit.
        last_end: No row is timed that would end later, judged by its first run.
    """

    backend: str = "auto"
    device: str = "cpu"
    threads: int | None = None
    seed: int = 0
    rounds: int = 9
    seconds: float = 12.0
    all_peers: bool = True
    last_begin: float | None = None
    last_end: float | None = None

    def quick(self) -> Plan:
        """The same in little time."""
        return replace(
            self, rounds=5, seconds=0.5, all_peers=False, last_begin=_QUICK_LAST_BEGIN, last_end=_QUICK_LAST_END
        )


def measure_rows(rows: Sequence[Row], plan: Plan) -> Iterator[RowResult]:
    """Measure rows one after another.

    Args:
        rows: What to measure.
        plan: How.

    Yields:
        The result of each row as soon as it is there.
    """
    began = time.monotonic()
    for row in rows:
        if plan.last_begin is not None and time.monotonic() - began > plan.last_begin:
            yield RowResult(row, "skipped", "the time of this run is used up")
            continue
        threads = row.threads or plan.threads or torch.get_num_threads()
        with _threads(threads), torch.set_grad_enabled(row.work == "train"):
            until = None if plan.last_end is None else began + plan.last_end
            result = _memory(row, plan, threads) if row.work == "memory" else _timed(row, plan, threads, until)
        yield replace(result, verdicts=tuple(_verdicts(result)))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _timed(row: Row, plan: Plan, threads: int, until: float | None) -> RowResult:
    inputs = make_inputs(row, seed=plan.seed, device=plan.device)
    try:
        chosen = explain(inputs, backend=plan.backend)
    except UnsupportedError as error:
        return RowResult(row, "refused", _first_line(error), threads, plan.backend)
    result = RowResult(row, "measured", None, threads, chosen.backend, chosen.because)
    sides, absent = _sides(inputs, plan)
    start = time.monotonic()
    found = {name: side() for name, side in sides.items()}
    once = time.monotonic() - start
    problems = judge(inputs, found)
    if "regard" in problems:
        left = [PeerResult(name, "skipped", "regard's own result is wrong") for name in row.peers]
        return replace(result, status="disagrees", reason=problems["regard"], peers=tuple(left))
    if until is not None and time.monotonic() + FEWEST_RUNS * once > until:
        return replace(result, status="skipped", reason="would take longer than this run may")
    del found
    others = OtherProcesses()
    agreed = {name: side for name, side in sides.items() if name not in problems}
    times = interleave(agreed, rounds=plan.rounds, seconds=plan.seconds, finish=_finish(plan.device))
    other_cpu = others.share()
    wrong = {name: PeerResult(name, "disagrees", problem) for name, problem in problems.items()}
    peers = [absent.get(name) or wrong.get(name) or _peer(name, times) for name in row.peers]
    seconds = Spread.of(times["regard"])
    return replace(result, rounds=len(times["regard"]), seconds=seconds, peers=tuple(peers), other_cpu=other_cpu)


def _sides(inputs: Inputs, plan: Plan) -> tuple[dict[str, Side], dict[str, PeerResult]]:
    """Regard and the peers that can run, in the order they are timed, and the peers that cannot."""
    sides: dict[str, Side] = {"regard": regard_side(inputs, backend=plan.backend)}
    absent: dict[str, PeerResult] = {}
    needed = {inputs.row.peers[0], *(target.peer for target in inputs.row.targets)}
    for name in inputs.row.peers:
        if not plan.all_peers and (name in SLOW_PEERS or name not in needed):
            absent[name] = PeerResult(name, "skipped", "left out of a quick run")
            continue
        try:
            sides[name] = peer_side(name, inputs)
        except UnavailablePeerError as error:
            absent[name] = PeerResult(name, "skipped", str(error))
    return sides, absent


def _peer(name: str, times: dict[str, list[float]]) -> PeerResult:
    ours, theirs = times["regard"], times[name]
    seconds = Spread.of(theirs)
    rounds = Spread.of([their / our for our, their in zip(ours, theirs, strict=True)])
    return PeerResult(name, "measured", None, seconds, replace(rounds, median=seconds.median / Spread.of(ours).median))


def _finish(device: str) -> Any:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


def _memory(row: Row, plan: Plan, threads: int) -> RowResult:
    where = {"backend": plan.backend, "threads": threads, "device": plan.device, "seed": plan.seed}
    tokens = row.shape.batch * row.shape.num_heads * row.shape.q_len

    def bytes_of(side: str) -> tuple[float, str | None]:
        taken, problem = extra_peak(row, side, **where)  # type: ignore[arg-type]
        return taken / tokens, problem

    try:
        chosen = explain(make_inputs(row, seed=plan.seed, device=plan.device), backend=plan.backend)
        taken, problem = bytes_of("regard")
    except UnsupportedError as error:
        return RowResult(row, "refused", _first_line(error), threads, plan.backend)
    except UnavailablePeerError as error:
        return RowResult(row, "skipped", str(error), threads, plan.backend)
    result = RowResult(row, "measured", None, threads, chosen.backend, chosen.because, bytes=taken)
    if problem is not None:
        return replace(result, status="disagrees", reason=problem, bytes=None)
    peers = []
    for name in row.peers:
        try:
            peers.append(PeerResult(name, "measured", bytes=bytes_of(name)[0]))
        except UnavailablePeerError as error:
            peers.append(PeerResult(name, "skipped", str(error)))
    return replace(result, peers=tuple(peers))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("explain_backend(): ")


_TARGETS_ARE_FOR = 2  # threads, where a row does not say


def _verdicts(result: RowResult) -> Iterator[Verdict]:
    """Hold the figures against what must hold: of regard's own kernels, on as many threads as the targets are for."""
    if result.threads != (result.row.threads or _TARGETS_ARE_FOR):
        return
    kernels = isa() if result.backend == "native" else None
    for target in result.row.targets:
        limit = target.limit_for(kernels, result.row.dtype)
        value = _value(result, target.peer, target.measure)
        if limit is not None and value is not None:
            yield Verdict(target, limit, value, target.met(value, limit))


def _value(result: RowResult, peer_name: str, measure: str) -> float | None:
    if measure == "bytes":
        return result.bytes
    peer = next(peer for peer in result.peers if peer.name == peer_name)
    if result.seconds is None or peer.seconds is None or peer.speedup is None:
        return None
    match measure:
        case "speedup":
            return peer.speedup.median
        case "time":
            return 1 / peer.speedup.median
        case _:
            return (result.seconds.median - peer.seconds.median) * 1e6
