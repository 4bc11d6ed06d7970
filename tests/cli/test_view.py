import json

import pytest


@pytest.fixture
def recording(place, writer):
    assert place.run("look", "abc", "--model", writer, "--save", "run.regard", "-o", "first.html") == 0
    return place.folder / "run.regard"


def test_a_recording_becomes_the_same_page(place, recording):
    assert place.run("view", "run.regard", "-o", "second.html") == 0
    assert place.out.startswith("page: second.html (")
    assert place.page("second.html") == place.page("first.html")


def test_the_browser_is_asked_to_open_it(place, recording, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert place.run("view", "run.regard", "--open") == 0
    assert opened == [(place.folder / "attention.html").as_uri()]


def test_without_a_browser_the_person_is_told(place, recording, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert place.run("view", "run.regard", "--open") == 0
    assert place.err == "regard: no browser was found; open the page by hand\n"


def test_a_newer_recording_is_refused_and_nothing_is_written(place, recording):
    manifest = recording / "manifest.json"
    data = json.loads(manifest.read_text(encoding="utf-8"))
    data["schema"]["major"] += 1
    manifest.write_text(json.dumps(data), encoding="utf-8")
    assert place.run("view", "run.regard") == 2
    assert "the recording has format 2.1; this version of regard reads up to 1.1" in place.err
    assert place.err.count("\n") == 1
    assert "attention.html" not in place.files


def test_no_name_of_a_recording_is_said(place):
    assert place.run("view", "") == 2
    assert place.err == "regard: the recording must be a path, but is empty.\n"


@pytest.mark.parametrize("name", ["none.regard", "first.html"])
def test_what_is_no_recording_is_refused(place, recording, name):
    assert place.run("view", name) == 2
    assert name in place.err
    assert place.err.count("\n") == 1
