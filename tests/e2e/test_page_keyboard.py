"""The page without a mouse: every control is reached by Tab and seen to be, arrows move, nothing holds the focus."""

from __future__ import annotations

from typing import Any

import pytest

CONTROLS = """[...document.querySelectorAll('button, select, input, summary, a[href], [tabindex]')].filter(one =>
    // Of the grid of heads one is in the order; arrows move it.
    (one.tabIndex >= 0 || !one.closest('[role=grid]')) && !one.disabled && one.checkVisibility()
    && !one.closest('dialog'))"""
NAME = """(one => one.id || one.getAttribute('aria-label') || one.className + ' ' + one.textContent)"""
FOCUS = """(() => {
    const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
    return {
        at: CONTROLS.indexOf(one),
        name: NAME(one),
        ring: style.outlineStyle === 'solid' ? parseFloat(style.outlineWidth) : 0,
        color: style.outlineColor,
        within: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    };
})()""".replace("CONTROLS", CONTROLS).replace("NAME", NAME)
ACCENT = {"light": "rgb(184, 64, 10)", "dark": "rgb(255, 157, 92)"}


def walk(page: Any, key: str) -> list[dict[str, Any]]:
    """Press a key until the focus leaves the page; where it was."""
    steps: list[dict[str, Any]] = []
    for _ in range(200):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement === document.body || !document.hasFocus()"):
            return steps
        steps.append(page.evaluate(FOCUS))
    raise AssertionError(f"the focus never left the page: {steps[-1]}")


@pytest.mark.parametrize(
    ("made", "scheme", "width"),
    [("bank", "light", 1440), ("bank", "dark", 400), ("cross", "light", 1440), ("long", "dark", 1440)],
)
def test_every_control_is_reached_by_tab_and_its_focus_is_seen(open_page, recordings, made, scheme, width):
    few = {"tokens": 300, "layers": 1, "heads": 2} if made == "long" else {}
    page = open_page(getattr(recordings, made)(**few), color_scheme=scheme, width=width).page
    page.keyboard.press("3")
    page.keyboard.press("Enter")  # a selection, so that what can be done with it is there
    page.evaluate("document.activeElement.blur()")
    page.mouse.click(1, 1)
    there = page.evaluate(f"{CONTROLS}.map({NAME})")
    assert len(there) > 15
    forward = walk(page, "Tab")
    missed = set(range(len(there))) - {step["at"] for step in forward}
    assert [there[at] for at in sorted(missed)] == []
    for step in forward:
        if step["at"] >= 0:  # what only scrolls is shown by the browser's own ring
            assert step["ring"] >= 2, step
            assert step["color"] == ACCENT[scheme], step
        assert step["within"], step
    back = walk(page, "Shift+Tab")
    assert {step["at"] for step in back} == {step["at"] for step in forward}


def test_arrows_move_through_heads_and_layers(open_page, recordings):
    opened = open_page(recordings.bank())
    press = opened.page.keyboard.press
    press("1")
    for key, place in [("ArrowRight", (0, 1)), ("ArrowDown", (1, 1)), ("ArrowDown", (2, 1)), ("ArrowLeft", (2, 0)),
                       ("ArrowUp", (1, 0)), ("End", (1, 11)), ("ArrowRight", (2, 0)), ("Home", (2, 0))]:  # fmt: skip
        press(key)
        state = opened.state()
        assert (state["call"], state["head"]) == place, key
        assert opened.page.evaluate(FOCUS)["ring"] >= 2


def test_arrows_move_through_tokens_and_the_token_is_seen(open_page, recordings):
    opened = open_page(recordings.bank())
    page = opened.page
    page.keyboard.press("3")
    for key, position in [("ArrowRight", 1), ("ArrowRight", 2), ("End", 11), ("ArrowLeft", 10), ("Home", 0)]:
        page.keyboard.press(key)
        assert opened.state()["hover"]["positions"] == [position], key
        recordings.until(page, f"document.querySelector('[data-p=\"{position}\"]').classList.contains('hot')")
        assert page.locator(".tok.hot").count() == 1
        assert page.get_attribute(".text", "aria-activedescendant") == f"t-q-{position}"
    ring = page.evaluate("getComputedStyle(document.querySelector('.tok.hot')).boxShadow")
    assert ACCENT["light"] in ring


def test_arrows_move_through_cells(open_page, recordings):
    opened = open_page(recordings.bank())
    page = opened.page
    page.keyboard.press("2")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "Shift+ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert opened.state()["point"] == {"row": 10, "col": 1}
    assert "bank" not in page.inner_text(".readout")
    assert "here" in page.inner_text(".readout")


def test_what_opens_is_opened_and_closed_by_key(open_page, recordings):
    page = open_page(recordings.bank()).page
    button = page.get_by_role("button", name="Help and keys")
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog[open]").count() == 1
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Help and keys"
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 0
