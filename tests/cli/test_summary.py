"""The summary on terminals of several widths, and in a pipe."""

import io

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from torch import nn

from regard import records
from regard.cli._summary import print_summary
from regard.lens import watch
from regard.ops import Entropy, Rows


@pytest.fixture(scope="module")
def recording() -> records.Recording:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 8, batch_first=True), 2).eval()
    with torch.no_grad(), watch(model, [Rows(), Entropy()]) as seen:
        model(torch.randn(1, 4, 8))
    return seen.recording(tokens=["银行", "extraordinarily", "long", "words"], model_name="tiny")


def lines(recording: records.Recording, *, width: int, terminal: bool) -> list[str]:
    options = {"force_terminal": terminal, "color_system": None, "width": width, "soft_wrap": True}
    console = Console(file=io.StringIO(), legacy_windows=False, highlight=False, **options)
    print_summary(recording, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(("width", "pairs", "heads"), [(200, 2, 3), (80, 1, 2), (67, 1, 1), (60, 1, 0)])
def test_a_terminal_gets_what_fits(recording, width, pairs, heads):
    shown = lines(recording, width=width, terminal=True)
    assert max(map(cell_len, shown)) <= width
    for line in shown[2:4]:
        assert line.count("→") == pairs
        assert line.count("(") == heads


def test_a_pipe_gets_everything_on_one_line_each(recording):
    assert lines(recording, width=40, terminal=False) == lines(recording, width=1000, terminal=True)


def test_a_terminal_too_narrow_for_anything_still_gets_the_numbers(recording):
    shown = lines(recording, width=20, terminal=True)
    assert shown[2].startswith("0      ")
    assert shown[2].count("→") == 1
