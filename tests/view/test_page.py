"""The page: payload schema 1, exact where short, honest where long, safe whatever the tokens are."""

from __future__ import annotations

import html.parser
from dataclasses import replace

import numpy as np
import pytest

from regard.errors import ConfigError, FormatError
from regard.records import Coverage, MaskProgram, Model, Op, Recording, Sequence, Table, Token
from regard.records.quantise import RELATIVE_ERROR, pool, restore
from regard.view import _page, page, summary, write_page

from .conftest import TEMPLATE, blob, call_of, call_of_rows, payload_in, recording_of, softmax_rows, words


def test_a_short_page_holds_every_weight():
    rows = softmax_rows(1, 2, 4, 4)
    sequence = words("[CLS]", "the", "bank", "[SEP]", special=(0, 3))
    recording = recording_of(
        call_of_rows(rows),
        sequences=((sequence,),),
        notes=("a remark",),
        coverage=(Coverage("layer.0", "seen", ""),),
        created="2026-11-29",
    )
    recording = replace(recording, model=Model("made", "ab", "MadeModel"))
    payload = payload_in(page(recording))
    assert list(payload) == [
        "schema", "regard", "title", "model", "created", "notes", "coverage", "items", "tables", "calls", "blobs",
    ]  # fmt: skip
    assert (payload["schema"], payload["regard"], payload["created"]) == (1, "0.1.0", "2026-11-29")
    assert payload["title"] == "made: the bank"
    assert payload["model"] == {"name": "made", "sha256": "ab", "architecture": "MadeModel"}
    assert payload["notes"] == ["a remark"]
    assert payload["coverage"] == [{"name": "layer.0", "status": "seen", "reason": ""}]
    tokens = payload["items"][0]["sequences"]["input"]["tokens"]
    assert tokens[2] == {"t": "bank", "s": 4, "e": 8, "special": False, "g": 2, "gi": 0, "gn": 1}
    assert tokens[0] == {"t": "[CLS]", "s": -1, "e": -1, "special": True, "g": 0, "gi": 0, "gn": 1}
    (call,) = payload["calls"]
    assert {key: call[key] for key in ("name", "layer", "kind", "heads", "q", "k", "queries", "keys", "exact")} == {
        "name": "layer.0", "layer": 0, "kind": "self", "heads": 2, "q": 4, "k": 4, "queries": "input",
        "keys": "input", "exact": True,
    }  # fmt: skip
    assert (call["q_positions"], call["k_start"], call["flags"]) == ([[0, 1, 2, 3]], 0, [])
    assert (call["map"], call["topk"], call["sink"]) == (None, None, None)
    assert blob(payload, call["weights"]).tobytes() == rows.tobytes()
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(blob(payload, call["entropy"]), -(wide * np.log(wide)).sum(-1), rtol=1e-6)
    np.testing.assert_array_equal(blob(payload, call["first"]), rows[..., 0])
    np.testing.assert_allclose(blob(payload, call["key_mass"]), wide.sum(-2), rtol=1e-6)


def test_a_long_page_holds_a_map_and_the_exact_top():
    rows = softmax_rows(1, 2, 300, 300, causal=True)
    payload = payload_in(page(recording_of(call_of_rows(rows))))
    (call,) = payload["calls"]
    assert not call["exact"]
    assert call["weights"] is None
    levels = blob(payload, call["map"]["blob"])
    assert levels.shape == (1, 2, 256, 256)
    shown = np.where(levels > 0, 2.0 ** (call["map"]["floor_log2"] + (levels - 1.0) * call["map"]["step"]), 0)
    np.testing.assert_allclose(shown, restore(levels), rtol=1e-6)
    exact = pool(rows, rows=256, cols=256)
    np.testing.assert_allclose(shown, exact, rtol=RELATIVE_ERROR + 1e-6, atol=2**-24)
    assert ((shown == 0) == (exact == 0)).all()
    indices, weights = blob(payload, call["topk"]["indices"]), blob(payload, call["topk"]["weights"])
    rest = blob(payload, call["topk"]["rest"])
    assert call["topk"]["k"] == 16
    for i in (0, 5, 299):
        order = sorted(range(300), key=lambda j, i=i: (-rows[0, 1, i, j], j))[:16]
        expected = [j if rows[0, 1, i, j] > 0 else -1 for j in order]
        assert indices[0, 1, i].tolist() == expected
        assert weights[0, 1, i].tolist() == [rows[0, 1, i, j] for j in order]
    np.testing.assert_allclose(weights.sum(-1) + rest, 1, atol=1e-5)
    assert any("≈" in note for note in payload["notes"])
    assert any("exact" in note for note in payload["notes"])
    assert payload["items"][0]["sequences"]["input"]["tokens"][299]["t"] == "299"


def test_exactly_128_is_short_and_129_is_long():
    for length, exact in ((128, True), (129, False)):
        payload = payload_in(page(recording_of(call_of_rows(softmax_rows(1, 1, length, length)))))
        assert payload["calls"][0]["exact"] is exact


def probed(q: int, k: int, *, length: int | None = None, bins: int = 8, heads: int = 2, top: int = 4, **changes):
    """A call with a recorded map and top-k instead of rows, and the rows they are of."""
    rows = softmax_rows(1, heads, q, k, causal=True)
    order = np.argsort(-rows, axis=-1, kind="stable")[..., :top]
    weights = np.take_along_axis(rows, order, -1)
    values = {
        "heat_map": pool(rows, rows=bins, cols=bins).astype(np.float32),
        "top_k.indices": np.where(weights > 0, order, -1),
        "top_k.weights": weights,
        "top_k.rest": (1 - weights.sum(-1)).astype(np.float32),
        "entropy": np.ones((1, heads, q), dtype=np.float32),
        "key_mass": rows.sum(-2),
    }
    probes = {
        "heat_map": {"type": "HeatMap", "rows": bins, "cols": bins, "length": length},
        "top_k": {"type": "TopK", "k": top},
    }
    return rows, call_of(values, q=q, k=k, heads=heads, probes=probes, **changes)


def test_recorded_maps_and_top_keys_are_carried():
    rows, call = probed(200, 200)
    payload = payload_in(page(recording_of(call)))
    (written,) = payload["calls"]
    assert (written["map"]["rows"], written["map"]["cols"], written["topk"]["k"]) == (8, 8, 4)
    np.testing.assert_allclose(
        restore(blob(payload, written["map"]["blob"])), pool(rows, rows=8, cols=8), rtol=0.035, atol=2**-24
    )
    np.testing.assert_array_equal(blob(payload, written["topk"]["indices"]), call.values["top_k.indices"])
    assert written["first"] is None


def test_a_map_of_a_longer_text_is_cut_to_what_was_reached():
    length = 64
    rows = softmax_rows(1, 1, 31, 31, causal=True)
    whole = np.zeros((1, 1, length, length))
    whole[..., :31, :31] = rows
    values = {"heat_map": pool(whole, rows=16, cols=16)}
    call = call_of(values, q=31, k=31, probes={"heat_map": {"type": "HeatMap", "rows": 16, "length": length}})
    payload = payload_in(page(recording_of(call)))
    assert payload["calls"][0]["map"]["rows"] == 8
    np.testing.assert_allclose(
        restore(blob(payload, "c0.map"))[0, 0], values["heat_map"][0, 0, :8, :8], rtol=0.035, atol=2**-24
    )
    assert any("one bin" in note for note in payload["notes"])


def test_maps_larger_than_the_page_allows_are_made_smaller():
    for bins, expected in ((512, 256), (300, 150), (257, 256)):
        rows, call = probed(140, 140, bins=bins, heads=1)
        written = payload_in(page(recording_of(call)))["calls"][0]["map"]
        assert (written["rows"], written["cols"]) == (expected, expected)
    rows, call = probed(140, 140, bins=512, heads=1)
    payload = payload_in(page(recording_of(call)))
    np.testing.assert_allclose(
        restore(blob(payload, "c0.map")), pool(rows, rows=256, cols=256), rtol=RELATIVE_ERROR + 1e-5, atol=2**-24
    )


def test_probes_under_other_names_are_found():
    _, call = probed(200, 200)
    values = {name.replace("heat_map", "picture"): value for name, value in call.values.items()}
    probes = {name.replace("heat_map", "picture"): options for name, options in call.probes.items()}
    payload = payload_in(page(recording_of(replace(call, values=values, probes=probes))))
    assert payload["calls"][0]["map"] is not None


def test_mass_on_more_than_the_first_key_is_not_passed_off_as_the_first():
    values = {"first_keys": np.full((1, 1, 3), 0.5, dtype=np.float32)}
    for n in (1, 4):
        call = call_of(values, q=3, k=3, probes={"first_keys": {"type": "FirstKeys", "n": n}})
        payload = payload_in(page(recording_of(call)))
        assert (payload["calls"][0]["first"], payload["calls"][0]["first_n"]) == ("c0.first", n)
        assert (blob(payload, "c0.first") == 0.5).all()
        assert (summary(recording_of(call)).layers[0].first is None) == (n > 1)
    rows = softmax_rows(1, 1, 3, 3)
    call = call_of({**values, "rows": rows}, q=3, k=3, probes={"first_keys": {"type": "FirstKeys", "n": 4}})
    payload = payload_in(page(recording_of(call)))  # exact rows tell the first key alone
    assert payload["calls"][0]["first_n"] == 1
    np.testing.assert_array_equal(blob(payload, "c0.first"), rows[..., 0])
    nothing = payload_in(page(recording_of(call_of({"entropy": values["first_keys"]}, q=3, k=3))))["calls"][0]
    assert (nothing["first"], nothing["first_n"]) == (None, None)


def test_a_few_rows_are_not_taken_for_all():
    values = {"rows": softmax_rows(1, 1, 2, 5), "rows.indices": np.array([3, 1])}
    payload = payload_in(page(recording_of(call_of(values, q=5, k=5))))
    assert payload["calls"][0]["weights"] is None
    assert any("only their curves" in note for note in payload["notes"])


def test_rows_given_in_another_order_are_put_in_order():
    rows = softmax_rows(1, 1, 3, 3)
    values = {"rows": rows[:, :, [2, 0, 1]], "rows.indices": np.array([2, 0, 1])}
    payload = payload_in(page(recording_of(call_of(values, q=3, k=3))))
    np.testing.assert_array_equal(blob(payload, "c0.weights"), rows)


NASTY = [
    "</script><img src=x onerror=alert(1)>",
    '"onmouseover=',
    "<b>",
    "<!--",
    "<script>",
    "&lt;",
    "a\u2028b\u2029",
    "\0",
]


class Nodes(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.seen += [name for name, _ in attrs]

    def handle_comment(self, data):
        self.seen.append("comment")


def test_c23_c24_tokens_are_never_markup():
    rows = softmax_rows(1, 1, len(NASTY), len(NASTY))
    sequence = words(*NASTY)
    recording = recording_of(
        call_of_rows(rows, name="<i>"),
        sequences=((sequence,),),
        notes=("<u>",),
        coverage=(Coverage("<s>", "seen", "<q>"),),
    )
    text = page(recording, title="</script><h1>")
    nodes = Nodes()
    nodes.feed(text)
    plain = Nodes()
    plain.feed(TEMPLATE)
    assert nodes.seen == plain.seen
    payload = payload_in(text)
    assert [token["t"] for token in payload["items"][0]["sequences"]["input"]["tokens"]] == NASTY
    assert payload["items"][0]["sequences"]["input"]["text"] == sequence.text
    inside = text.split('id="regard-data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert inside.isascii()


def test_lone_surrogates_survive():
    sequence = words("a\ud800", "\udc80b")
    payload = payload_in(page(recording_of(call_of_rows(softmax_rows(1, 1, 2, 2)), sequences=((sequence,),))))
    written = payload["items"][0]["sequences"]["input"]
    assert written["text"] == "a\ud800 \udc80b "
    assert [(token["s"], token["e"]) for token in written["tokens"]] == [(0, 2), (3, 5)]


def test_c25_nan_is_marked_and_the_page_stays_json():
    rows = softmax_rows(1, 4, 6, 6)
    rows[0, 3, 5, 2] = np.nan
    payload = payload_in(page(recording_of(call_of_rows(rows))))
    assert payload["calls"][0]["flags"] == ["NaN in head 3, row 5"]
    shown = blob(payload, "c0.weights")
    assert np.argwhere(np.isnan(shown)).tolist() == [[0, 3, 5, 2]]


def test_nan_in_a_batch_in_maps_and_everywhere():
    rows = softmax_rows(2, 1, 3, 3)
    rows[1, 0, 2] = np.nan
    rows[0, 0, 1, 1] = np.inf
    flags = payload_in(page(recording_of(call_of_rows(rows))))["calls"][0]["flags"]
    assert flags == ["NaN in item 1, head 0, row 2", "infinity in item 0, head 0, row 1"]
    _, call = probed(200, 200)
    call.values["heat_map"][0, 1, 7, 3] = np.nan
    call.values["key_mass"][0, 0, 9] = np.nan
    payload = payload_in(page(recording_of(call)))
    assert payload["calls"][0]["flags"] == ["NaN in head 1, map row 7", "NaN in head 0, the mass of key 9"]
    assert any("no room for NaN" in note for note in payload["notes"])
    flags = payload_in(page(recording_of(call_of_rows(np.full((1, 2, 50, 50), np.nan)))))["calls"][0]["flags"]
    assert len(flags) == 21
    assert flags[-1] == "… and 80 more"


def test_c02_the_last_generated_token_has_no_row():
    rows = softmax_rows(1, 1, 6, 6, causal=True)
    sequence = words(*"abcdefg")
    payload = payload_in(page(recording_of(call_of_rows(rows), sequences=((sequence,),))))
    tokens = payload["items"][0]["sequences"]["input"]["tokens"]
    assert [token.get("no_row", False) for token in tokens] == [False] * 6 + [True]
    assert payload["notes"] == ["input: no row for token 6: it was generated last and is not yet a query."]


def test_c03_cross_attention_rows_are_the_decoder_inputs():
    source, target = words(*"abcdef", name="source"), words("<s>", "x", "y", "z", name="target", special=(0,))
    cross = call_of_rows(softmax_rows(1, 1, 3, 6), kind="cross", sequence_q="target", sequence_k="source", name="cross")
    own = call_of_rows(softmax_rows(1, 1, 3, 3, causal=True), sequence_q="target", sequence_k="target")
    encoder = call_of_rows(softmax_rows(1, 1, 6, 6), sequence_q="source", sequence_k="source")
    payload = payload_in(page(recording_of(encoder, own, cross, sequences=((source, target),))))
    written = payload["calls"][2]
    assert (written["q"], written["k"], written["queries"], written["keys"]) == (3, 6, "target", "source")
    tokens = payload["items"][0]["sequences"]["target"]["tokens"]
    assert [tokens[position]["t"] for position in written["q_positions"][0]] == ["<s>", "x", "y"]
    assert [token.get("no_row", False) for token in tokens] == [False, False, False, True]


def padded_batch(keep: list[list[int]], *, stored: bool = True) -> Recording:
    kept = np.array(keep, dtype=bool)
    rows = softmax_rows(2, 1, 4, 4) * kept[:, None, None]
    rows /= rows.sum(-1, keepdims=True)
    items = []
    for row in keep:
        texts = [f"w{i}" if bit else "[PAD]" for i, bit in enumerate(row)]
        items.append((words(*texts, special=tuple(i for i, bit in enumerate(row) if not bit)),))
    mask = MaskProgram((Op.PADDING, 0), (kept,)) if stored else None
    return recording_of(call_of_rows(rows, mask=mask, mask_stored=stored), sequences=tuple(items))


@pytest.mark.parametrize("stored", [True, False])
def test_c17_padding_at_the_end_is_left_out(stored):
    payload = payload_in(page(padded_batch([[1, 1, 1, 1], [1, 1, 0, 0]], stored=stored)))
    assert [len(item["sequences"]["input"]["tokens"]) for item in payload["items"]] == [4, 2]
    assert "Item 1, input: 2 padding tokens hidden." in payload["notes"]
    assert blob(payload, "c0.weights").shape == (2, 1, 4, 4)


def test_c17_padding_at_the_start_is_marked():
    payload = payload_in(page(padded_batch([[0, 0, 1, 1], [1, 1, 1, 1]])))
    tokens = payload["items"][0]["sequences"]["input"]["tokens"]
    assert [token.get("pad", False) for token in tokens] == [True, True, False, False]
    assert not any("no_row" in token for token in tokens)
    assert payload["notes"] == ["Item 0, input: the first 2 tokens are padding and hidden; positions count them."]


def test_special_tokens_that_are_seen_are_not_padding():
    recording = recording_of(
        call_of_rows(softmax_rows(1, 1, 3, 3)), sequences=((words("[CLS]", "a", "[SEP]", special=(0, 2)),),)
    )
    assert not any("pad" in token for token in payload_in(page(recording))["items"][0]["sequences"]["input"]["tokens"])


def test_missing_tokens_are_told():
    recording = recording_of(call_of_rows(softmax_rows(1, 1, 4, 4)), sequences=((words("a", "b"),),))
    assert (
        "input: the model saw 4 positions, but 2 tokens are recorded: the others are not shown."
        in payload_in(page(recording))["notes"]
    )


def test_c18_pieces_of_one_character_on_the_page():
    text = "中👨‍👩‍👧"
    tokens = tuple(Token("?", i, i + 1) for i in range(len(text.encode())))
    recording = recording_of(call_of_rows(softmax_rows(1, 1, 21, 21)), sequences=((Sequence("input", text, tokens),),))
    written = payload_in(page(recording))["items"][0]["sequences"]["input"]["tokens"]
    assert [(token["g"], token["gi"], token["gn"]) for token in written[:4]] == [
        (0, 0, 3),
        (0, 1, 3),
        (0, 2, 3),
        (1, 0, 18),
    ]
    assert {(token["s"], token["e"]) for token in written[:3]} == {(0, 1)}
    assert (min(token["s"] for token in written[3:]), max(token["e"] for token in written)) == (1, 9)


def test_c22_a_page_too_large_leaves_out_the_least_needed_first():
    calls = [probed(400, 400, bins=256, heads=4, top=16, name=f"layer.{i}", layer=i)[1] for i in range(4)]
    recording = recording_of(*calls)
    full = page(recording, max_mb=100.0)
    sizes, previous = [], len(full)
    for share in (0.9, 0.6, 0.3, 0.1):
        limit = share * len(full)
        text = page(recording, max_mb=limit / 1e6)
        assert len(text.encode()) <= limit
        assert len(text) <= previous < 1.2 * len(full)
        previous = len(text)
        payload = payload_in(text)
        assert any("Left out" in note for note in payload["notes"])
        sizes.append((payload["calls"][0]["topk"] or {}).get("k", 0))
    assert sizes == sorted(sizes, reverse=True)
    top = payload_in(page(recording, max_mb=0.6 * len(full) / 1e6))["calls"][0]["topk"]
    if top is not None:
        payload = payload_in(page(recording, max_mb=0.6 * len(full) / 1e6))
        total = blob(payload, top["weights"]).sum(-1) + blob(payload, top["rest"])
        np.testing.assert_allclose(total, 1, atol=1e-5)
    with pytest.raises(ConfigError, match=r"`max_mb` must be at least [0-9.]+ for this recording, but is 0\.0"):
        page(recording, max_mb=0.01)
    with pytest.raises(ConfigError, match="more than 0"):
        page(recording, max_mb=0.0)


def test_short_pages_too_large_lose_exact_weights_and_say_so():
    recording = recording_of(*(call_of_rows(softmax_rows(1, 8, 100, 100, seed=i)) for i in range(3)))
    full = page(recording)
    payload = payload_in(page(recording, max_mb=0.6 * len(full) / 1e6))
    assert not payload["calls"][0]["exact"]
    assert any("exact weights" in note for note in payload["notes"])


def test_tables_carry_the_largest_of_each_row_and_all_of_what_has_an_order():
    values = np.array([[0.1, 0.2, 0.0, 0.12345678, 0.1, 0.05, 0.01, 0.02], [0.0] * 8])
    columns = tuple("abcdefgh")
    known = {"name": "t", "note": "n", "rows": ("x", "y"), "columns": columns, "values": values}
    one = Table(**{**known, "rows": ("w",), "values": values[:1]}, ordered=True, chosen=(3,))
    beyond = Table(**known, chosen=(6, 2))
    written = payload_in(page(recording_of(tables=(Table(**known), one, Table(**known, grid=(2, 4)), beyond))))[
        "tables"
    ]
    assert [table["cells"][0] for table in written] == [
        [[1, 0.2], [3, 0.1235], [0, 0.1], [4, 0.1], [5, 0.05], [7, 0.02]],
        [[0, 0.1], [1, 0.2], [2, 0.0], [3, 0.1235], [4, 0.1], [5, 0.05], [6, 0.01], [7, 0.02]],
        [[0, 0.1], [1, 0.2], [2, 0.0], [3, 0.1235], [4, 0.1], [5, 0.05], [6, 0.01], [7, 0.02]],
        [[1, 0.2], [3, 0.1235], [0, 0.1], [4, 0.1], [5, 0.05], [7, 0.02], [6, 0.01]],  # what was chosen is there
    ]
    assert written[0]["cells"][1] == []
    assert [table["ordered"] for table in written] == [False, True, False, False]
    assert (written[0]["rows"], written[0]["columns"]) == (["x", "y"], list(columns))
    assert [(table["chosen"], table["grid"]) for table in written] == [
        ([], None),
        ([3], None),
        ([], [2, 4]),
        ([6, 2], None),
    ]


def test_a_recording_without_calls_is_a_page():
    payload = payload_in(page(recording_of(sequences=((words("a"),),))))
    assert (payload["calls"], payload["blobs"]) == ([], {})


def test_nothing_to_see(tmp_path):
    for shape in ((1, 1, 0, 5), (1, 1, 3, 0)):
        recording = recording_of(call_of_rows(np.zeros(shape, dtype=np.float32)))
        assert payload_in(page(recording))["calls"][0]["q"] == shape[2]


def test_template_missing_or_damaged(template):
    recording = recording_of()
    template.write_text("<html></html>")
    with pytest.raises(FormatError, match="damaged"):
        page(recording)
    template.write_text(_page.SLOT * 2)
    with pytest.raises(FormatError, match="holds it 2 times"):
        page(recording)
    template.write_bytes(b"\xff")
    with pytest.raises(FormatError, match="cannot be read"):
        page(recording)
    template.unlink()
    with pytest.raises(FormatError, match=r"cannot be read.*viewer\.html"):
        page(recording)


def test_write_page(tmp_path, template):
    recording = recording_of(call_of_rows(softmax_rows(1, 1, 2, 2)), sequences=((words("中", "b"),),))
    path = tmp_path / "page.html"
    assert write_page(recording, path, title="T") == path
    assert path.read_text(encoding="utf-8") == page(recording, title="T")
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    template.unlink()
    with pytest.raises(FormatError):
        write_page(recording, path)
    assert path.exists()
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(ConfigError, match="a folder"):
        write_page(recording, tmp_path)
    with pytest.raises(ConfigError, match=r"write_page\(\): `path` must lie in a folder that exists"):
        write_page(recording, tmp_path / "new" / "page.html")
    assert not (tmp_path / "new").exists()


def test_a_loaded_recording_gives_the_same_page(tmp_path):
    recording = recording_of(call_of_rows(softmax_rows(1, 2, 5, 5)), sequences=((words(*"abcde"),),))
    assert page(Recording.load(recording.save(tmp_path / "r"))) == page(recording)


def test_redacted_recordings_can_be_shown(tmp_path):
    recording = recording_of(call_of_rows(softmax_rows(1, 2, 3, 3)), sequences=((words(*"abc"),),))
    payload = payload_in(page(Recording.load(recording.save(tmp_path / "r", redact_text=True))))
    assert [(token["t"], token["s"]) for token in payload["items"][0]["sequences"]["input"]["tokens"]] == [("", -1)] * 3
    assert payload["title"] == "made"


def test_the_real_viewer_takes_the_data(monkeypatch):
    real = _page.Path(_page.__file__).parent / "static" / "viewer.html"
    if not real.exists():
        pytest.skip("the viewer is not built in this working copy")
    monkeypatch.setattr(_page, "TEMPLATE", real)
    payload = payload_in(page(recording_of(call_of_rows(softmax_rows(1, 1, 2, 2)))))
    assert payload["calls"][0]["exact"]
