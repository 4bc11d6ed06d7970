"""The ledger of a generation: exact sums for every new token, past the window of a sliding cache."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import ConfigError, ShapeError
from regard.lens import ledger, ledger_probes, watch
from tests.parity.tiny_models import MODELS

PARTS = {"instructions": [(0, 2)], "documents": [(2, 4), (5, 6)], "question": [(6, 7)]}
PROMPT = 7


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3", "gpt_oss"])
def test_rows_are_whole_and_equal_those_of_one_pass(name, cache):
    model = MODELS[name].build("eager")
    ids = torch.arange(5, 5 + PROMPT)[None]
    with watch(model, ledger_probes(PARTS, prompt_len=PROMPT)) as seen:
        written = model.generate(ids, max_new_tokens=12, do_sample=False, cache_implementation=cache, eos_token_id=None)
    count = written.shape[1] - PROMPT
    book = ledger(seen, PARTS, prompt_len=PROMPT)
    assert book.parts == ("instructions", "documents", "question", "other", "output")
    assert book.tokens == tuple(str(PROMPT + step) for step in range(count))
    with torch.no_grad(), watch(model, [regard.Rows()]) as once:
        model(written[:, :-1])
    for layer, (mass, sink) in zip(once.layers, zip(book.mass, book.sink, strict=True), strict=True):
        rows = layer.rows[0, :, PROMPT - 1 :].double()
        groups = [[0, 1], [2, 3, 5], [6], [4], [*range(PROMPT, rows.shape[-1])]]
        expected = torch.stack([rows[..., group].sum(-1) for group in groups], -1)
        torch.testing.assert_close(mass, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(mass.sum(-1) + sink, torch.ones_like(sink), atol=1e-5, rtol=0)
    assert (book.sink > 0).any() == (name == "gpt_oss")
    torch.testing.assert_close(book.together(), book.by_layer().mean(0))


def test_a_step_is_shown_as_bars():
    model = MODELS["llama"].build("sdpa")
    with watch(model, ledger_probes(PARTS, prompt_len=PROMPT)) as seen:
        model.generate(torch.arange(5, 12)[None], max_new_tokens=3, do_sample=False, eos_token_id=None)
    book = ledger(seen, PARTS, prompt_len=PROMPT, tokens=["a", "bank", "."])
    lines = book.step(1).split("\n")
    assert lines[0] == "2. bank"
    assert [line.split()[0] for line in lines[1:]] == ["instructions", "documents", "question", "other", "output"]
    assert str(book).count("\n") == 3 * 6 - 1
    assert book.step(-1).startswith("3. .")


def test_a_beam_search_and_cross_attention():
    model = MODELS["bart"].build("eager")
    ids = torch.arange(5, 11)[None]
    parts = {"first": [(0, 3)]}
    with watch(model, [regard.Rows(), *ledger_probes(parts, prompt_len=6)]) as seen:
        model.generate(ids, max_new_tokens=4, num_beams=3, do_sample=False)
    book = ledger(seen, parts, prompt_len=6, kind="cross")
    assert book.parts == ("first", "other")
    cross = [layer for layer in seen.layers if layer.kind == "cross"]
    expected = torch.stack([layer.rows[0, :, :, :3].double().sum(-1) for layer in cross])
    torch.testing.assert_close(book.mass[..., 0], expected, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    model = MODELS["llama"].build("sdpa")
    with pytest.raises(ConfigError, match="'question' and 'documents' overlap at position 3"):
        ledger_probes({"question": [(0, 4)], "documents": [(3, 5)]}, prompt_len=7)
    with pytest.raises(ConfigError, match=r"`documents` must be ranges within 0 to 7, but is \(2, 9\)"):
        ledger_probes({"documents": [(2, 9)]}, prompt_len=7)
    with pytest.raises(ConfigError, match="a part may not be called 'output'"):
        ledger_probes({"output": [(2, 3)]}, prompt_len=7)
    with watch(model, [regard.Entropy()]) as other:
        model.generate(torch.arange(5, 12)[None], max_new_tokens=3, do_sample=False, eos_token_id=None)
    with pytest.raises(ConfigError, match="`seen` must be watched with ledger_probes, but is not"):
        ledger(other, PARTS, prompt_len=7)
    with watch(model, ledger_probes(PARTS, prompt_len=7)) as seen:
        model.generate(torch.arange(5, 12)[None], max_new_tokens=3, do_sample=False, eos_token_id=None)
    with pytest.raises(ShapeError, match="`tokens` must be the 3 that were written, but is 2"):
        ledger(seen, PARTS, prompt_len=7, tokens=["a", "b"])
    with pytest.raises(ConfigError, match="no cross-attention was seen"):
        ledger(seen, PARTS, prompt_len=7, kind="cross")
    with pytest.raises(ConfigError, match="`item` must be from 0 to 0, but is 1"):
        ledger(seen, PARTS, prompt_len=7, item=1)
