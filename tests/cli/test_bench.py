import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.bench import sides
from regard.cli import app

ROOT = Path(__file__).parents[2]
TINY = "small/fp32/plain/1x12x16x64"
QUARTILES = {"quarter", "median", "three_quarters"}


@pytest.fixture
def wrong_peer(monkeypatch):
    def wrong(inputs):
        right = sides._sdpa(inputs)
        return lambda: {"output": right()["output"] * 1.01}

    monkeypatch.setitem(sides._PEERS, "sdpa", wrong)


def test_one_row_from_end_to_end(place):
    assert place.run("bench", "--quick", "--only", TINY, "--threads", "1", "--out", "figures.json") == 0
    title, header, row, *_ = place.out.splitlines()
    assert torch.__version__ in title
    assert header.split()[:3] == ["row", "served", "by"]
    assert row.startswith(TINY)
    assert re.search(r"sdpa +[\d.]+ [mµ]?s", row)
    assert "×" in row
    assert place.out.endswith("figures: figures.json\n")
    assert not re.search(r"[\x1b\u2500-\u257f]", place.out)


def test_the_json_has_these_fields(place):
    assert place.run("bench", "--quick", "--only", TINY, "-o", "figures.json") == 0
    data = json.loads((place.folder / "figures.json").read_text(encoding="utf-8"))
    assert set(data) == {"schema", "setting", "rows"}
    assert data["schema"] == 1
    assert set(data["setting"]) == {
        *("date", "machine", "system", "processor", "cores", "isa", "cpu_features", "regard", "python", "torch"),
        *("numpy", "commit", "device", "threads", "backend", "quick", "only", "seed"),
    }
    (row,) = data["rows"]
    assert set(row) == {
        *("name", "work", "case", "shape", "dtype", "peers", "targets", "heat_map", "threads", "quick", "status"),
        *("reason", "backend", "because", "rounds", "seconds", "bytes", "verdicts", "other_cpu"),
    }
    assert (row["name"], row["status"], row["threads"], row["rounds"]) == (TINY, "measured", 1, 5)
    assert set(row["seconds"]) == QUARTILES
    (peer,) = row["peers"]
    assert set(peer) == {"name", "status", "reason", "seconds", "speedup", "bytes"}
    assert set(peer["speedup"]) == set(peer["seconds"]) == QUARTILES
    assert row["targets"] == [{"peer": "sdpa", "measure": "overhead_us", "limit": 40.0, "avx2": None}]


def test_a_disagreement_is_the_answer_no_and_has_no_ratio(place, wrong_peer):
    assert place.run("bench", "--quick", "--only", TINY, "--out", "figures.json") == 1
    (line,) = [line for line in place.out.splitlines() if line.startswith(TINY)]
    assert "disagrees: output is" in line
    assert "×" not in line
    (row,) = json.loads((place.folder / "figures.json").read_text(encoding="utf-8"))["rows"]
    (peer,) = row["peers"]
    assert (peer["status"], peer["speedup"], peer["seconds"]) == ("disagrees", None, None)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--only", "nope"],
            "--only must be part of a row's name, such as forward/fp32/plain/1x12x512x64, but is 'nope'.",
        ),
        (["--quick", "--only", "window"], "--only must name a row that --quick measures, but is 'window'."),
        (["--threads", "0"], "--threads must be between 1 and 1024, but is 0."),
        (["--threads", "two"], "Invalid value for --threads"),
        (["--backend", "fast"], "--backend must be one of auto, "),
        (["--device", "gpu"], "--device must be cpu, cuda or cuda:NUMBER, but is 'gpu'."),
        (["--device", "cuda:99"], "--device must be one that is here, but is 'cuda:99', and there are "),
        (["--out", "."], "--out must name a file, but . is a folder."),
        (["--out", "no/where.json"], "--out must lie in a folder that exists, but there is no no."),
        (["--threads", "0", "--only", "nope"], "2 problems: - --only must be"),
        (["window"], "is one word too many"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(place, arguments, line):
    assert place.run("bench", *arguments) == 2
    assert place.out == ""
    assert line in place.err
    assert place.err.count("\n") == 1
    assert place.files == []


def test_help_names_every_option(capsys):
    assert app.main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    options = {"--quick", "--only", "--threads", "--backend", "--device", "--out"}
    assert options == set(re.findall(r"--[a-z]+", shown)) - {"--help", "--version", "--debug"}


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is a device: the script would measure it")
@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_without_a_device_the_script_says_so():
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "device.sh")], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no CUDA device at hand: nothing was checked and nothing was measured\n"
