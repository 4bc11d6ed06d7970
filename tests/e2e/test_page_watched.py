"""Pages made by the whole Python side, from a watched model, opened in the browser."""

from __future__ import annotations

import time

import pytest
from tests.cases.test_group_c import LONG, long_page


@pytest.mark.usefixtures("unchecked")
def test_c22_a_watched_text_of_8192_tokens_opens_fast(open_html):
    recording, html = long_page()
    start = time.perf_counter()
    opened = open_html(html)
    assert time.perf_counter() - start < 5
    indices = recording.calls[0].values["top_k.indices"][0, 0]
    weights = recording.calls[0].values["top_k.weights"][0, 0]
    for row in (50, 4111, LONG - 1):
        cell = opened.page.evaluate(f"regard.cell({row}, {int(indices[row, 0])})")
        assert cell["exact"] is True
        assert cell["value"] == pytest.approx(float(weights[row, 0]), rel=1e-6)
    assert opened.page.evaluate("regard.cell(10, 8000).value") == 0
    assert "≈ pooled into 256 × 256 bins" in opened.page.inner_text(".matrix .caption")
