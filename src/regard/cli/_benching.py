"""What ``regard bench`` does: check the options, measure, print, keep."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from regard.bench import ROWS, Plan, Report, Row, measure_rows, print_report, select, setting
from regard.cli._progress import Progress
from regard.errors import all_problems
from regard.ops import available_backends

_MOST_THREADS = 1024


def run(*, quick: bool, only: str | None, threads: int | None, backend: str, device: str, out: Path | None) -> int:
    """Measure; see ``regard bench --help`` for the arguments."""
    rows = select(ROWS, only=only, quick=quick)
    problems = [
        *_row_problems(rows, only=only, quick=quick),
        *_number_problems(threads),
        *_backend_problems(backend),
        *_device_problems(device),
        *_place_problems(out),
    ]
    if problems:
        raise all_problems("bench", problems)
    plan = Plan(backend=backend, device=device, threads=threads)
    plan = plan.quick() if quick else plan
    where = {
        **setting(),
        "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
        "threads": threads or torch.get_num_threads(),
        "backend": backend,
        "quick": quick,
        "only": only,
        "seed": plan.seed,
    }
    results = []
    with Progress("rows", total=len(rows)) as progress:
        for result in measure_rows(rows, plan):
            results.append(result)
            progress.step()
    report = Report(where, tuple(results))
    print_report(report)
    if out is not None:
        out.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
        print(f"figures: {out}")
    return 1 if report.wrong else 0


def _row_problems(rows: tuple[Row, ...], *, only: str | None, quick: bool) -> list[str]:
    if rows:
        return []
    if quick and select(ROWS, only=only):
        return [f"--only must name a row that --quick measures, but is {only!r}."]
    example = ROWS[0].name
    return [f"--only must be part of a row's name, such as {example}, but is {only!r}."]


def _number_problems(threads: int | None) -> list[str]:
    if threads is None or 1 <= threads <= _MOST_THREADS:
        return []
    return [f"--threads must be between 1 and {_MOST_THREADS}, but is {threads}."]


def _backend_problems(backend: str) -> list[str]:
    known = ("auto", *available_backends())
    return [] if backend in known else [f"--backend must be one of {', '.join(known)}, but is {backend!r}."]


def _device_problems(device: str) -> list[str]:
    if device == "cpu":
        return []
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()) or device.endswith(":"):
        return [f"--device must be cpu, cuda or cuda:NUMBER, but is {device!r}."]
    count = torch.cuda.device_count()
    if int(number or 0) >= count:
        return [f"--device must be one that is here, but is {device!r}, and there are {count} CUDA devices."]
    return []


def _place_problems(out: Path | None) -> list[str]:
    if out is None:
        return []
    if out.is_dir():
        return [f"--out must name a file, but {out} is a folder."]
    if not out.parent.is_dir():
        return [f"--out must lie in a folder that exists, but there is no {out.parent}."]
    there = out.exists()
    try:
        out.open("a").close()
    except OSError as error:
        return [
            f"--out must name a file that can be written, but {out} cannot: {(error.strerror or str(error)).lower()}."
        ]
    if not there:
        out.unlink()
    return []
