"""What the page says: cells, sums, means and statistics equal the arrays they were made from."""

from __future__ import annotations

import numpy as np
import pytest


def readout(page) -> str:
    page.evaluate("() => new Promise(requestAnimationFrame)")
    return page.inner_text(".readout")


def test_opens_with_every_head_and_says_what_it_is(open_page, recordings):
    opened = open_page(recordings.bank())
    page = opened.page
    assert page.title() == "The bank is by the river bank · regard"
    assert page.locator(".heads button").count() == 72
    assert page.inner_text(".remarks") == "The weights are exact (float32)."
    assert "all 6 attention modules seen" in page.inner_text(".coverage summary")
    assert page.inner_text(".which") == "Layer 0, head 0"


def test_reads_the_exact_weight_under_the_pointer(open_page, recordings):
    made = recordings.bank()
    opened = open_page(made)
    for row, col in [(2, 1), (7, 7), (11, 0)]:
        opened.point_at(row, col)
        value = made.weights[0][0, 0, row, col]
        text = readout(opened.page)
        assert f"{recordings.BANK[row]}{row}" in text.replace("\n", "")
        shown = opened.page.inner_text(".readout .main b").replace("−", "-")
        assert float(shown) == pytest.approx(value, rel=1e-3)
        assert opened.page.evaluate(f"regard.cell({row}, {col}).value") == value
        assert opened.state()["point"] == {"row": row, "col": col}


def test_equal_words_are_two_rows(open_page, recordings):
    made = recordings.bank()
    opened = open_page(made)
    page = opened.page
    for position in (2, 7):
        page.hover(f'[data-p="{position}"]')
        recordings.until(page, f"document.querySelector('.details h3').textContent.includes('{position}')")
        first = page.locator(".lists li .number").first.inner_text()
        assert float(first) == pytest.approx(made.weights[0][0, 0, position].max(), rel=1e-3)


def test_sums_of_a_selection_equal_numpy(open_page, recordings):
    made = recordings.bank()
    opened = open_page(made)
    page = opened.page
    page.click('[data-p="2"]')
    page.click('[data-p="7"]', modifiers=["Control"])
    page.click('[data-p="6"]', modifiers=["Shift"])
    weights = made.weights[0][0, 0].astype(np.float64)
    chosen = [2, 6, 7]
    assert opened.state()["selection"] == {"input": chosen}
    sums = page.evaluate("regard.sums()")
    np.testing.assert_allclose(sums["from"], weights[chosen].mean(0), rtol=1e-6)
    np.testing.assert_allclose(sums["into"], weights[:, chosen].sum(1), rtol=1e-6)
    np.testing.assert_allclose(sums["between"], weights[np.ix_(chosen, chosen)].sum(1).mean(), rtol=1e-6)
    facts = page.locator(".facts .fact", has_text="selection → selection").locator("b").inner_text()
    assert float(facts) == pytest.approx(sums["between"], rel=1e-3)
    page.click('[data-p="6"]', modifiers=["Control"])
    assert opened.state()["selection"] == {"input": [2, 7]}
    page.keyboard.press("Escape")
    assert opened.state()["selection"] == {}


def test_colours_follow_the_weights_in_both_directions(open_page, recordings):
    made = recordings.bank()
    page = open_page(made).page
    page.click('[data-p="4"]')
    page.mouse.move(0, 0)

    def described() -> np.ndarray:
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        texts = [page.get_attribute(f'[data-p="{n}"]', "aria-description") for n in range(12)]
        return np.array([float(text.replace("−", "-")) for text in texts])

    np.testing.assert_allclose(described(), made.weights[0][0, 0, 4], rtol=1e-3)
    page.click("text=is attended by")
    np.testing.assert_allclose(described(), made.weights[0][0, 0, :, 4], rtol=1e-3)


def test_means_over_heads(open_page, recordings):
    made = recordings.bank()
    opened = open_page(made)
    opened.page.click("text=Mean of layer")
    recordings.until(opened.page, "regard.state().loaded && regard.state().averaged === 12")
    value = opened.page.evaluate("regard.cell(3, 2).value")
    assert value == pytest.approx(made.weights[0][0, :, 3, 2].mean(), rel=1e-6)
    opened.page.click("text=Mean of all")
    recordings.until(opened.page, "regard.state().loaded && regard.state().averaged === 72")
    value = opened.page.evaluate("regard.cell(3, 2).value")
    assert value == pytest.approx(np.mean([weights[0, :, 3, 2] for weights in made.weights]), rel=1e-6)
    assert opened.page.inner_text(".which") == "Mean over 72 heads of 6 layers"


def test_without_first_token_keeps_the_raw_number(open_page, recordings):
    made = recordings.bank()
    opened = open_page(made)
    opened.page.check("text=without first token")
    opened.point_at(1, 1)
    text = readout(opened.page)
    row = made.weights[0][0, 0, 1]
    shown = [float(b.replace("−", "-")) for b in opened.page.locator(".readout .fact b").all_inner_texts()]
    assert "without first token" in text
    assert shown[0] == pytest.approx(row[1], rel=1e-3)
    assert shown[-1] == pytest.approx(row[1] / (1 - row[0]), rel=1e-3)


def test_heads_sorted_by_entropy(open_page, recordings):
    made = recordings.bank()
    page = open_page(made).page
    page.select_option("#sort", "entropy")
    recordings.until(page, "document.querySelector('.heads .layer').textContent === ''")
    labels = [label.split(", head ") for label in page.locator(".heads button").evaluate_all(
        "buttons => buttons.map(button => button.getAttribute('aria-label'))")]  # fmt: skip
    order = [(int(layer.removeprefix("Layer ")), int(head)) for layer, head in labels]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = [
            np.where(w[0, head] > 0, -w[0, head] * np.log(w[0, head]), 0).sum(-1).mean()
            for w in made.weights
            for head in range(12)
        ]
    values = [means[layer * 12 + head] for layer, head in order]
    assert len(order) == 72
    assert np.all(np.diff(values) > -1e-6)


def test_cross_attention_and_cached_positions(open_page, recordings):
    made = recordings.cross()
    opened = open_page(made)
    page = opened.page
    page.click('[aria-label^="Layer 0 (cross"][aria-label$="head 1"]')
    recordings.until(page, "regard.state().name === 'decoder.0.cross'")
    state = opened.state()
    assert state["rows"] == [2, 3, 4, 5]
    assert state["cols"] == [0, 1, 2, 3, 4, 5]
    page.click("#t-q-4")
    page.click("#t-k-2", modifiers=["Control"])
    assert opened.state()["selection"] == {"target": [4], "source": [2]}
    sums = page.evaluate("regard.sums()")
    weights = made.weights[2][0, 1]
    np.testing.assert_allclose(sums["from"], weights[2], rtol=1e-6)
    np.testing.assert_allclose(sums["into"], weights[:, 2], rtol=1e-6)
    assert sums["between"] == pytest.approx(weights[2, 2], rel=1e-6)
    page.keyboard.press("Escape")
    page.hover("#t-q-6")
    recordings.until(page, "document.querySelector('.facts').textContent.includes('has not been a query')")


def test_lines_ask_both_ways(open_page, recordings):
    opened = open_page(recordings.bank())
    page = opened.page
    box = page.locator(".lines canvas").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 4 + 19 * 7.5)
    assert opened.state()["hover"] == {"side": "q", "positions": [7]}
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 4 + 19 * 2.5)
    assert opened.state()["hover"] == {"side": "k", "positions": [2]}
    recordings.until(page, "document.querySelector('.reading .caption').textContent.includes('attend to the chosen')")
    page.mouse.down()
    page.mouse.up()
    assert opened.state()["direction"] == "in"
    assert opened.state()["selection"] == {"input": [2]}


def test_lines_are_for_short_inputs(open_page, recordings):
    page = open_page(recordings.long(300, layers=1, heads=1)).page
    assert page.locator(".lines").is_hidden()


def test_several_inputs_with_padding(open_page, recordings):
    made = recordings.bank(1, 2)
    short = recordings.words("the river", ["[CLS]", "the", "river", "[SEP]"])
    made.items.append({"sequences": {"input": short}})
    made.calls.clear()
    weights = np.stack([recordings.patterns(12, 12, 2, 0), recordings.patterns(12, 12, 2, 5)])
    made.add_exact("layer.0", weights, layer=0)
    opened = open_page(made)
    opened.page.click('[data-p="9"]')
    opened.page.select_option("#item", "1")
    recordings.until(opened.page, "regard.state().rows.length === 4")
    state = opened.state()
    assert state["cols"] == [0, 1, 2, 3]
    assert state["selection"] == {}
    assert opened.page.evaluate("regard.cell(3, 2).value") == weights[1, 0, 3, 2]
    assert opened.page.locator(".tok").count() == 4


def test_nan_is_marked_and_listed(open_page, recordings):
    made = recordings.bank(1, 2)
    weights = made.weights[0].copy()
    weights[0, 1, 5, :] = np.nan
    made.calls.clear()
    made.add_exact("layer.0", weights, layer=0, flags=["NaN in head 1, row 5"])
    opened = open_page(made)
    page = opened.page
    assert "NaN in head 1, row 5" in page.inner_text(".remarks .flag")
    page.click('[aria-label="Layer 0, head 1"]')
    recordings.until(page, "regard.state().head === 1 && regard.state().loaded")
    opened.point_at(5, 3)
    assert "NaN" in readout(page)
    page.hover('[data-p="5"]')
    page.wait_for_selector('.tok.nan[data-p="3"]')
    box = page.locator("#matrix").bounding_box()
    spot = page.evaluate("regard.pointOf(5, 3)")
    page.mouse.move(0, 0)
    pixel = page.evaluate(
        """([x, y]) => { const c = document.querySelector('#matrix');
           const r = c.width / c.clientWidth;
           const d = c.getContext('2d').getImageData((x - 12) * r, (y - 12) * r, 24 * r, 24 * r).data;
           let pink = 0; for (let i = 0; i < d.length; i += 4) if (d[i] > 200 && d[i + 1] < 90) pink++;
           return pink / (d.length / 4); }""",
        [spot["x"] - box["x"], spot["y"] - box["y"]],
    )
    assert 0.2 < pixel < 0.95, "a NaN cell is hatched: neither plain nor absent"


def test_padding_before_the_text_is_not_shown_and_positions_count_it(open_page, recordings):
    made = recordings.bank(layers=1, heads=1)
    sequence = recordings.words("river bank", ["[PAD]", "[PAD]", "river", "bank"], special=("[PAD]",))
    for token in sequence["tokens"][:2]:
        token["pad"] = True
    padded = recordings.Recording(items=[{"sequences": {"input": sequence}}])
    padded.add_exact("layer.0", made.weights[0][:, :, :4, :4].copy(), layer=0)
    opened = open_page(padded)
    page = opened.page
    assert (opened.state()["rows"], opened.state()["cols"]) == ([2, 3], [2, 3])
    assert page.inner_text(".text").split() == ["river", "bank"]
    assert page.evaluate("regard.cell(0, 1).value") == padded.weights[0][0, 0, 2, 3]
    for key in ("3", "Home", "ArrowLeft"):
        page.keyboard.press(key)
    assert opened.state()["hover"]["positions"] == [2]


@pytest.mark.parametrize(("n", "words"), [(1, "on first key"), (4, "on first 4 keys")])
def test_the_mass_on_first_keys_says_how_many(open_page, recordings, n, words):
    made = recordings.bank(layers=1, heads=1)
    made.calls[0] |= {"first": made.store(np.full((1, 1, 12), 0.25, np.float32)), "first_n": n}
    page = open_page(made).page
    page.click('[data-p="7"]')
    recordings.until(page, f"document.querySelector('.facts').textContent.includes('{words}0.25')")
