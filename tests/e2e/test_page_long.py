"""Long inputs: pooled maps, exact largest weights, honest signs, and it stays quick."""

from __future__ import annotations

import time

import numpy as np
import pytest


@pytest.fixture(scope="module")
def pooled(recordings):
    return recordings.long(2048, layers=1, heads=1)


def test_cells_are_exact_or_say_that_they_are_not(open_page, recordings, pooled):
    weights = pooled.weights[0][0, 0]
    opened = open_page(pooled)
    page = opened.page
    row = 1200
    best = int(weights[row].argmax())
    assert page.evaluate(f"regard.cell({row}, {best})")["exact"] is True
    assert page.evaluate(f"regard.cell({row}, {best}).value") == weights[row, best]
    order = np.argsort(-weights[row])
    missing = int(order[40])
    cell = page.evaluate(f"regard.cell({row}, {missing})")
    assert cell["exact"] is False
    assert cell["bound"] >= weights[row, missing]
    bin_ = cell["bin"]
    true = weights[bin_["q0"] : bin_["q1"], bin_["k0"] : bin_["k1"]].sum(1).mean()
    assert bin_["mass"] == pytest.approx(true, rel=0.04)
    assert page.evaluate("regard.cell(10, 2000)") | {"bin": None} == {
        "value": 0, "exact": True, "bound": 0, "bin": None,
    }  # fmt: skip
    opened.point_at(row, missing)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert "≈" in page.inner_text(".readout")
    assert "≈ pooled into 256 × 256 bins" in page.inner_text(".matrix .caption")


def test_zooms_to_single_weights(open_page, recordings, pooled):
    opened = open_page(pooled)
    page = opened.page
    weights = pooled.weights[0][0, 0]
    row = 900
    best = int(weights[row].argmax())
    page.focus("#matrix")
    opened.point_at(row, best)
    for _ in range(12):
        page.keyboard.press("+")
    recordings.until(page, "regard.state().cellWidth > 12")
    point = opened.state()["point"]
    assert abs(point["row"] - row) <= 8
    for key, step in (("ArrowDown", row - point["row"]), ("ArrowRight", best - point["col"])):
        back = {"ArrowDown": "ArrowUp", "ArrowRight": "ArrowLeft"}[key]
        for _ in range(abs(step)):
            page.keyboard.press(key if step > 0 else back)
    assert opened.state()["point"] == {"row": row, "col": best}
    page.evaluate("() => new Promise(requestAnimationFrame)")
    text = page.inner_text(".readout .main b")
    assert "≈" not in text
    assert float(text) == pytest.approx(weights[row, best], rel=1e-3)
    page.keyboard.press("0")
    assert opened.state()["zoom"] == pytest.approx(1)


def test_wheel_zooms_where_the_pointer_is(open_page, recordings, pooled):
    opened = open_page(pooled)
    opened.point_at(500, 400)
    before = opened.state()["point"]
    for _ in range(5):
        opened.page.mouse.wheel(0, -200)
        opened.page.wait_for_timeout(30)
    assert opened.state()["zoom"] > 10
    opened.page.mouse.move(*(opened.page.evaluate(f"regard.pointOf({before['row']}, {before['col']})").values()))
    after = opened.state()["point"]
    assert abs(after["row"] - before["row"]) <= 1
    assert abs(after["col"] - before["col"]) <= 1


def test_text_is_built_only_where_it_is_seen(open_page, recordings, pooled):
    page = open_page(pooled).page
    assert 0 < page.locator(".tok").count() < 1500
    page.evaluate("document.querySelector('.text').scrollTop = 1e6")
    page.wait_for_selector('[data-p="2047"]')
    page.hover('[data-p="2040"]')
    recordings.until(page, "document.querySelector('.details h3').textContent.includes('2040')")


def test_thousands_of_tokens_open_fast_and_stay_smooth(open_html, recordings):
    made = recordings.long(256, layers=1, heads=1)
    tokens = 8192
    rng = np.random.default_rng(0)
    payload = made.payload()
    word = ["river", "bank", "light", "stone"]
    text = [word[n % 4] for n in range(tokens)]
    payload["items"] = [{"sequences": {"input": recordings.words(" ".join(text), text)}}]
    fresh = recordings.Recording(items=payload["items"])
    k = 16
    rows = np.arange(tokens)[:, None]
    indices = np.maximum(rows - rng.integers(0, 60, (tokens, k)).cumsum(1), -1).astype(np.int32)
    weights = np.sort(rng.dirichlet(np.ones(k + 1), tokens)[:, :k].astype(np.float32), axis=1)[:, ::-1].copy()
    call = payload["calls"][0] | {"q": tokens, "k": tokens, "heads": 4, "q_positions": [list(range(tokens))]}
    steps = rng.integers(0, 256, (1, 4, 256, 256)).astype(np.uint8)
    call |= {"entropy": None, "key_mass": None}
    call["map"] = call["map"] | {"blob": fresh.store(steps)}
    call["topk"] = {
        "indices": fresh.store(np.broadcast_to(indices, (1, 4, tokens, k)).copy()),
        "weights": fresh.store(np.broadcast_to(weights, (1, 4, tokens, k)).copy()),
        "rest": fresh.store(np.full((1, 4, tokens), 0.05, np.float32)), "k": k,
    }  # fmt: skip
    fresh.calls.append(call)
    start = time.perf_counter()
    opened = open_html(recordings.html_of(fresh.payload()))
    assert time.perf_counter() - start < 5
    frames = opened.page.evaluate(
        """async () => {
          const spots = [...document.querySelectorAll('.tok')].slice(0, 40);
          const times = [];
          for (const spot of spots) {
            const start = performance.now();
            spot.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - start);
          }
          return times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
        }"""
    )
    assert frames < 150, f"{frames:.0f} ms from pointer to picture"
