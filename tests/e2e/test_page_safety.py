"""Nothing in the data can become markup, run, leave the page or be lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "src/regard/view/static/viewer.html"


def test_the_built_page_names_no_place_outside_itself():
    text = PAGE.read_text(encoding="utf-8")
    places = set(re.findall(r"https?://[^\s'\"]+", text))
    assert places <= {"http://www.w3.org/2000/svg"}, "an XML namespace is the only address allowed"
    assert "default-src 'none'" in text
    assert "unsafe" not in text


def test_hostile_text_stays_text(open_page, recordings):
    opened = open_page(recordings.hostile())
    page = opened.page
    assert page.locator("img, iframe, object, embed, link[href^=http]").count() == 0
    assert page.locator("script").count() == 2, "the data block and the page's own script"
    assert page.evaluate("[...document.querySelectorAll('*')].some(e => e.hasAttribute('onerror'))") is False
    assert page.locator("#app b:not(.live b):not(.fact b)").count() == 0
    names = [page.locator(f'.tok[data-p="{n}"]').inner_text() for n in range(len(recordings.HOSTILE))]
    for at in (0, 1, 2, 3, 4, 5, 11):
        assert names[at] == recordings.HOSTILE[at]
    assert names[6] == "⟨D83D⟩"
    assert names[8] == "⟨0000⟩"
    assert names[9] == "⟨202E⟩abc"
    assert len(names[10]) == 120
    assert names[10].endswith("…")
    assert page.inner_text(".remarks li:first-child") == recordings.HOSTILE[3]
    assert recordings.HOSTILE[3] in page.inner_text("h1")


def test_hostile_text_survives_hover_selection_and_export(open_page, recordings):
    opened = open_page(recordings.hostile())
    page = opened.page
    for position in (0, 3, 8, 10):
        page.click(f'.tok[data-p="{position}"]', modifiers=["Control"])
    opened.point_at(3, 3)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    with page.expect_download() as saved:
        page.click("text=CSV")
    text = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "</script><img src=x onerror=alert(1)>" in text
    assert '"""onmouseover=alert(1) \'"' in text


def test_scripts_of_the_world(open_page, recordings):
    page = open_page(recordings.scripts()).page
    groups = page.locator(".group-of-pieces .whole").all_inner_texts()
    assert groups == ["银", "行", "👨‍👩‍👧‍👦", "e\u0301"]
    assert page.locator(".piece").first.inner_text() == "1/3"
    assert page.locator(".tok.blank").all_inner_texts() == ["␣", "␣", "␣", "␣", "↵"]
    assert page.get_attribute('[data-p="23"]', "title").startswith("Ċ")
    page.click(".whole >> nth=0")
    assert page.evaluate("regard.state().selection") == {"input": [0, 1, 2]}


def test_right_to_left_text_runs_right_to_left(open_html, recordings):
    made = recordings.Recording()
    made.items = [{"sequences": {"input": recordings.words("السلام عليكم كلكم", ["السلام", "عليكم", "كلكم"])}}]
    made.add_exact("layer.0", recordings.patterns(3, 3, 1, 0)[None], layer=0)
    page = open_html(recordings.html_of(made.payload())).page
    left = [page.locator(f'[data-p="{n}"]').bounding_box()["x"] for n in range(3)]
    assert left[0] > left[1] > left[2]
    page.focus(".text")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("regard.state().hover.positions") == [1]


def test_says_why_there_is_nothing_to_show(open_html, recordings):
    page = open_html(PAGE.read_text(encoding="utf-8"), ready=False).page
    assert "This is the empty viewer" in page.inner_text("#problem")
    made = recordings.bank(1, 1)
    made.schema = 2
    page = open_html(recordings.html_of(made.payload()), ready=False).page
    assert "reads payload schema 1, but the page carries schema 2" in page.inner_text("#problem")


def test_without_calls_the_coverage_says_why(open_html, recordings):
    made = recordings.bank(1, 1)
    made.calls.clear()
    made.coverage = [{"name": "layer.0", "status": "not seen", "reason": "its own softmax"}]
    page = open_html(recordings.html_of(made.payload()), ready=False).page
    assert "No attention call was seen" in page.inner_text("#problem")
    assert page.text_content(".coverage td >> nth=1") == "its own softmax"


def test_says_what_is_damaged(open_html, recordings):
    payload = recordings.bank(1, 1).payload()
    payload["blobs"]["b2"]["data"] = payload["blobs"]["b2"]["data"][:40]
    page = open_html(recordings.html_of(payload)).page
    page.wait_for_selector("#problem")
    assert 'Blob "b2" is damaged' in page.inner_text("#problem")


def test_statistics_without_weights(open_html, recordings):
    payload = recordings.bank(1, 1).payload()
    payload["calls"][0] |= {"exact": False, "weights": None}
    page = open_html(recordings.html_of(payload)).page
    assert "No weights of this call were stored" in page.inner_text(".empty")


@pytest.mark.parametrize("field", ["map", "topk"])
def test_half_of_a_pooled_call(open_html, recordings, field):
    payload = recordings.long(300, layers=1, heads=1).payload()
    payload["calls"][0][field] = None
    opened = open_html(recordings.html_of(payload))
    cell = opened.page.evaluate("regard.cell(250, 3)")
    assert (cell["bin"] is None) == (field == "map")
    opened.point_at(250, 3)


@pytest.mark.parametrize("width", [1440, 360])
def test_the_pieces_of_a_character_stay_on_one_line_each(open_html, recordings, width):
    family = "👨🏽‍👩🏽‍👧🏽‍👦🏽"
    tokens = [{"t": f"<0x{n:02X}>", "s": 0, "e": len(family.encode("utf-16-le")) // 2, "special": False,
               "g": 0, "gi": n, "gn": 25} for n in range(25)]  # fmt: skip
    made = recordings.Recording()
    made.items = [{"sequences": {"input": {"text": family, "tokens": tokens}}}]
    made.add_exact("layer.0", recordings.patterns(25, 25, 1, 0)[None], layer=0)
    page = open_html(recordings.html_of(made.payload()), width=width).page
    chips = page.evaluate("""[...document.querySelectorAll('.piece')].map(chip => {
        const range = document.createRange(), box = chip.getBoundingClientRect();
        range.selectNodeContents(chip);
        return [chip.textContent, range.getClientRects().length, box.left, box.right];
    })""")
    assert [chip[0] for chip in chips] == [f"{n}/25" for n in range(1, 26)]
    frame = page.evaluate("(({left, right}) => [left, right])(document.querySelector('.text').getBoundingClientRect())")
    for text, lines, left, right in chips:
        assert lines == 1, text
        assert frame[0] <= left < right <= frame[1], text
