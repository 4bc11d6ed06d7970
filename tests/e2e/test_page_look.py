"""Pages that the command `look` writes of the packaged models, opened in the browser."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from regard.cli.app import main
from regard.hf import loading

BANK = "The bank is by the river bank"
CHINESE = "虽然昨天天气很糟糕，还下了大雨，但是今天我们还是决定去公园野餐"


def looked(text: str, path: Path, *options: str) -> str:
    assert main(["look", text, "-o", str(path), *options]) == 0
    return path.read_text(encoding="utf-8")


def choose_head(opened, layer: int, head: int) -> None:
    opened.page.get_by_role("gridcell", name=f"Layer {layer}, head {head}", exact=False).first.click()
    opened.page.wait_for_timeout(200)


def test_the_bank_sentence_shows_the_weights_of_eager(open_html, tmp_path):
    opened = open_html(looked(BANK, tmp_path / "bank.html"))
    assert opened.page.get_by_role("gridcell").count() == 6 * 12
    folder = loading._minilm_folder()
    with loading.quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModel.from_pretrained(folder, attn_implementation="eager")
    tokenizer.backend_tokenizer.no_padding()
    with torch.no_grad():
        exact = model(**tokenizer(BANK, return_tensors="pt"), output_attentions=True).attentions
    for layer, head in ((0, 4), (3, 0), (5, 11)):
        choose_head(opened, layer, head)
        assert opened.state()["name"] == f"encoder.layer.{layer}.attention.self"
        assert opened.state()["exact"] is True
        shown = opened.page.evaluate("[...Array(9).keys()].map(i => [...Array(9).keys()].map(j => regard.cell(i, j)))")
        assert all(cell["exact"] for row in shown for cell in row)
        # Equal, not close: a float32 is one and the same number in JavaScript and here.
        assert [[cell["value"] for cell in row] for row in shown] == exact[layer][0, head].tolist()
    choose_head(opened, 0, 4)  # two words "bank", each its own row
    assert opened.page.evaluate("regard.cell(2, 6).value") != opened.page.evaluate("regard.cell(7, 6).value")


def test_a_chinese_sentence_shows_its_characters(open_html, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    opened = open_html(looked(CHINESE, tmp_path / "zh.html"))
    shown = opened.page.inner_text("section.reading").replace("\n", "").replace(" ", "")
    assert CHINESE in shown
    assert "65 % of the tokens are unknown to all-MiniLM-L6-v2" in opened.page.inner_text("body")


def test_emoji_and_arabic_are_whole_characters(open_html, tmp_path):
    text = "👨‍👩‍👧‍👦 السلام عليكم"
    opened = open_html(looked(text, tmp_path / "emoji.html", "--model", "minilm"))
    shown = opened.page.inner_text("section.reading")
    assert "👨‍👩‍👧‍👦" in shown
    assert opened.page.evaluate("regard.state().exact") is True
