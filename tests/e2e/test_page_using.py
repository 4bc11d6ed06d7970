"""Using the page: keys, themes, small screens, files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest


def test_everything_by_keyboard(open_page, recordings):
    opened = open_page(recordings.bank())
    page = opened.page
    press = page.keyboard.press
    press("1")
    press("ArrowRight")
    press("ArrowDown")
    assert (opened.state()["call"], opened.state()["head"]) == (1, 1)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 1, head 1"
    press("]")
    press("}")
    assert (opened.state()["call"], opened.state()["head"]) == (2, 2)
    press("2")
    press("ArrowDown")
    press("ArrowDown")
    press("ArrowRight")
    press("ArrowRight")
    assert opened.state()["point"] == {"row": 1, "col": 2}
    press("Enter")
    assert opened.state()["selection"] == {"input": [1]}
    press("3")
    press("End")
    press("ArrowLeft")
    press("Enter")
    assert opened.state()["selection"] == {"input": [10]}
    press("Shift+ArrowLeft")
    assert opened.state()["selection"] == {"input": [9, 10]}
    active = page.get_attribute(".text", "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    for key, name, value in [("l", "scale", "log"), ("f", "withoutFirst", True), ("d", "direction", "in"),
                             ("m", "heads", "layer"), ("t", "theme", "light")]:  # fmt: skip
        press(key)
        assert opened.state()[name] == value
    press("Escape")
    assert opened.state()["selection"] == {}
    press("?")
    assert page.locator("dialog[open]").count() == 1
    press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_tab_reaches_every_panel_once(open_page, recordings):
    page = open_page(recordings.bank()).page
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("(e => e === document.body ? '' : e.id || e.className)(document.activeElement)"))
    assert seen.count("matrix") == 1
    assert seen.count("text") == 1
    assert len([one for one in seen if "chosen" in one]) == 1


@pytest.mark.parametrize("made", ["bank", "cross", "hostile"])
def test_no_width_breaks_the_page(open_page, recordings, made):
    page = open_page(getattr(recordings, made)(), width=1920, height=800).page
    for width in (1920, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        recordings.until(page, "document.querySelector('#matrix').clientWidth > 100")
        page.evaluate("() => new Promise(requestAnimationFrame)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate("""[...document.querySelectorAll('.panel, .heading, #matrix')].map(
            panel => (({left, right}) => [left, right])(panel.getBoundingClientRect()))""")
        assert all(left >= 0 and right <= width for left, right in boxes)


def test_touch_selects(open_page, recordings):
    opened = open_page(recordings.bank(), width=360, height=760, has_touch=True)
    opened.page.locator('[data-p="6"]').scroll_into_view_if_needed()
    for _ in range(2):  # a touch while the page still scrolls only stops it
        opened.page.evaluate("() => new Promise(requestAnimationFrame)")
    opened.page.tap('[data-p="6"]')
    recordings.until(opened.page, "Object.keys(regard.state().selection).length > 0")  # a tap becomes a click later
    assert opened.state()["selection"] == {"input": [6]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes_follow_the_system_and_the_choice(open_page, recordings, scheme):
    page = open_page(recordings.bank(), color_scheme=scheme).page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = "rgb(14, 16, 20)"
    assert (page.evaluate(ground) == dark) == (scheme == "dark")
    other = "light" if scheme == "dark" else "dark"
    page.emulate_media(color_scheme=other)
    recordings.until(page, f"document.documentElement.dataset.mode === '{other}'")
    page.click("text=Dark")
    assert page.evaluate(ground) == dark


def test_saves_the_weights(open_page, recordings):
    made = recordings.bank()
    page = open_page(made).page
    with page.expect_download() as saved:
        page.click("text=CSV")
    assert saved.value.suggested_filename == "attention-encoder.layer.0.attention.self-head-0.csv"
    rows = list(csv.DictReader(io.StringIO(Path(saved.value.path()).read_text(encoding="utf-8"))))
    assert len(rows) == 144
    values = np.array([float(row["weight"]) for row in rows]).reshape(12, 12)
    np.testing.assert_array_equal(values.astype(np.float32), made.weights[0][0, 0])
    assert [row["key"] for row in rows[:12]] == recordings.BANK


@pytest.mark.parametrize("made", ["bank", "long", "scripts"])
def test_saves_a_picture(open_page, recordings, made):
    few = {"tokens": 600, "layers": 1, "heads": 1} if made == "long" else {}
    page = open_page(getattr(recordings, made)(**few)).page
    with page.expect_download() as saved:
        page.keyboard.press("p")
    data = Path(saved.value.path()).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") > 800


def test_moving_parts_rest_when_asked(open_page, recordings):
    page = open_page(recordings.bank(), reduced_motion="reduce").page
    assert page.evaluate("getComputedStyle(document.querySelector('.tok')).transitionDuration") == "0s"
