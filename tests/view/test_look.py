"""regard.look: what was seen, or a recording, becomes a page."""

from __future__ import annotations

import json
import re

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.view import look


@pytest.fixture
def seen():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with regard.watch(model, [regard.Rows(), regard.Entropy()]) as watched, torch.no_grad():
        model(torch.randn(1, 3, 8))
    return watched


def tokens_on(path):
    found = re.search(r'id="regard-data">(.*?)</script>', path.read_text(), re.DOTALL)
    (item,) = json.loads(found.group(1))["items"]
    return [token["t"] for token in item["sequences"]["input"]["tokens"]]


def test_what_was_seen_becomes_a_page(seen, tmp_path):
    path = look(seen, tmp_path / "page.html", tokens=["这", "is", "</script>"])
    assert tokens_on(path) == ["这", "is", "</script>"]


def test_a_recording_becomes_the_same_page(seen, tmp_path):
    recording = seen.recording(tokens=["a", "b", "c"])
    assert tokens_on(look(recording, tmp_path / "page.html")) == ["a", "b", "c"]


def test_the_browser_opens_only_when_asked(seen, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = look(seen, tmp_path / "page.html")
    assert opened == []
    look(seen, tmp_path / "page.html", open=True)
    assert opened == [path.resolve().as_uri()]


@pytest.mark.usefixtures("unchecked")
def test_wrong_use_is_named(seen, tmp_path):
    with pytest.raises(ConfigError, match=r"look\(\): `seen` must be what regard.watch yielded.*but is a list"):
        look([], tmp_path / "page.html")
    with pytest.raises(ConfigError, match=r"a recording already holds its text.*tokens"):
        look(seen.recording(), tmp_path / "page.html", tokens=["a"])
    assert list(tmp_path.iterdir()) == []
