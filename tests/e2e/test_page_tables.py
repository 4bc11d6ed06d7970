"""Tables above the panels: words and what they are made of, chosen sentences, small pictures of patches."""

from __future__ import annotations

import pytest


def sections(page):
    return page.locator("section.table").all()


def test_words_stand_beside_what_they_have_most_to_do_with(open_page, recordings):
    page = open_page(recordings.cross()).page
    words, _, _ = sections(page)
    assert words.locator("h2").inner_text().lower() == "words"
    assert words.locator(".caption").inner_text() == "How words was made."
    assert words.locator("th").all_inner_texts() == ["the bank", "河", "<s>"]
    rows = words.locator("tr").all()
    assert rows[0].locator("li bdi").all_inner_texts() == ["Fluss", "die"]
    assert rows[0].locator(".number").all_inner_texts() == ["0.7500", "0.1250"]
    widths = [bar.evaluate("e => e.style.getPropertyValue('--part')") for bar in rows[0].locator(".bar").all()]
    assert widths == ["0.75", "0.125"]
    assert [rows[0].locator("li").nth(n).evaluate("e => e.className") for n in (0, 1)] == ["chosen", ""]
    assert rows[2].locator("li").count() == 0


def test_sentences_keep_their_order_and_the_chosen_ones_are_marked(open_page, recordings):
    page = open_page(recordings.cross()).page
    _, parts, _ = sections(page)
    items = parts.locator("li").all()
    assert [item.locator("bdi").inner_text() for item in items] == [
        "The river is quiet.",
        "银行在河边。",
        "It was late.",
    ]
    assert [item.locator(".number").inner_text() for item in items] == ["0.2000", "0.8000", "0"]
    assert [item.locator(".mark").inner_text() for item in items] == ["", "✓", ""]
    assert [item.locator(".sr").count() for item in items] == [0, 1, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_patches_are_pictures_in_the_colours_of_the_theme(open_page, recordings, scheme):
    page = open_page(recordings.cross(), color_scheme=scheme).page
    _, _, pictures = sections(page)
    assert pictures.locator("figcaption").all_inner_texts() == ["red", "圆"]
    canvas = pictures.locator("canvas").first
    assert canvas.get_attribute("aria-label") == "red: most at 1,2, 0.1000"
    pixels = """e => { const d = e.getContext('2d').getImageData(0, 0, e.width, e.height).data;
        return [e.width, e.height, [...Array(6).keys()].map(i => d[4 * i] + d[4 * i + 1] + d[4 * i + 2])] }"""
    width, height, light = canvas.evaluate(pixels)
    assert (width, height) == (3, 2)
    assert light == sorted(light, reverse=scheme == "light")
    assert len(set(light)) == 6
    page.click("text=Light" if scheme == "dark" else "text=Dark")
    _, _, other = pictures.locator("canvas").first.evaluate(pixels)
    assert other == sorted(other, reverse=scheme == "dark")


def test_a_single_word_is_a_row_with_its_name(open_page, recordings):
    made = recordings.cross()
    made.tables = [recordings.table("words", ["Hello"], ["你", "好"], [[[1, 0.75], [0, 0.25]]])]
    (words,) = sections(open_page(made).page)
    assert words.locator("th").all_inner_texts() == ["Hello"]
    assert words.locator("li bdi").all_inner_texts() == ["好", "你"]


def test_a_page_without_tables_has_no_room_for_them(open_page, recordings):
    assert sections(open_page(recordings.bank()).page) == []


def test_tables_that_are_damaged_are_named(open_html, recordings):
    for change, expected in [
        ({"cells": []}, "words: there are 0 rows of cells for 3 rows."),
        ({"columns": ["a"]}, "words: there is no column 2."),
        ({"grid": [2, 2]}, "words: 3 columns are no grid of 2×2."),
    ]:
        made = recordings.cross()
        made.tables[0].update(change)
        opened = open_html(recordings.html_of(made.payload()), ready=False)
        assert opened.page.inner_text("#problem") == expected
