"""Words and their tokens, and tables of attention between words: equal to sums of the weights themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regard
from regard.hf import RegardForConditionalGeneration, RegardSeq2SeqConfig
from regard.records import Sequence, Token, between_groups
from regard.tasks.tables import WordTokens, word_table, words_of

TEXT = "the bank 银行"


def sequence(*spans: tuple[int, int], text: str = TEXT) -> Sequence:
    """Tokens that hold these bytes of a text, between a special one at each end."""
    end = Token("</s>", -1, -1, special=True)
    return Sequence("input", text, (end, *(Token("", *span) for span in spans), end))


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (sequence((0, 3), (3, 8), (9, 12), (12, 15)), [("the", 1, 2), ("bank", 2, 3), ("银", 3, 4), ("行", 4, 5)]),
        (sequence((0, 3), (4, 6), (6, 8), (8, 15)), [("the", 1, 2), ("bank", 2, 4), ("银行", 4, 5)]),
        (sequence((0, 3), (4, 8), (9, 12), (9, 12), (9, 12)), [("the", 1, 2), ("bank", 2, 3), ("银", 3, 6)]),
        (sequence((0, 1), (1, 6), (6, 8)), [("the bank", 1, 4)]),
        (sequence((0, 0), (0, 3)), [("the", 2, 3)]),
        (sequence(), []),
        (sequence((0, 3), text="   "), []),
        (sequence((0, 25), text="👨‍👩‍👧‍👦"), [("👨‍👩‍👧‍👦", 1, 2)]),
    ],
    ids=[
        "a token each",
        "pieces and two characters",
        "bytes",
        "tokens across words",
        "a marker",
        "none",
        "white",
        "emoji",
    ],
)
def test_words_are_groups_of_tokens(read, words):
    assert words_of(read) == [WordTokens(text, range(first, stop)) for text, first, stop in words]


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    shape = {"embed_dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 32, "vocab_size": 30, "dropout_p": 0.0}
    return RegardForConditionalGeneration(RegardSeq2SeqConfig(**shape)).eval().double()


def test_a_table_is_the_sum_over_keys_and_the_mean_over_the_rest(translator):
    read, written = torch.arange(5, 12)[None], torch.arange(5, 11)[None]

    def run():
        translator(input_ids=read, decoder_input_ids=written, use_cache=False)

    columns = [WordTokens("a", range(1, 3)), WordTokens("b", range(3, 4)), WordTokens("c", range(4, 7))]
    rows = [WordTokens("x", range(1, 2)), WordTokens("y", range(2, 5))]
    options = {"rows": rows, "columns": columns, "name": "made", "note": "so", "chosen": [2]}
    with torch.no_grad(), regard.watch(translator, [regard.Rows()]) as seen:
        run()
    for kind, shift in (("cross", -1), ("cross", 0), ("self", 0)):
        (table,) = word_table(translator, run, kind=kind, shift=shift, **options)
        groups = [[token + shift for token in word.tokens] for word in rows], [[*word.tokens] for word in columns]
        each = []
        for layer in (layer for layer in seen.layers if layer.kind == kind):
            weights = layer.rows[0].numpy()  # the decoder has six keys: what a column has beyond them weighs nothing
            padded = np.pad(weights, ((0, 0), (0, 0), (0, 7 - weights.shape[-1])))
            each.append(between_groups(padded, *groups).mean(axis=0))
        np.testing.assert_allclose(table.values, np.mean(each, axis=0), atol=1e-12)
    assert (table.name, table.note, table.chosen) == ("made", "so", (2,))
    assert (table.rows, table.columns) == (("x", "y"), ("a", "b", "c"))


def test_what_has_no_row_and_what_is_not_there_make_no_table(translator):
    def run():
        translator(input_ids=torch.arange(5, 9)[None], decoder_input_ids=torch.arange(5, 9)[None], use_cache=False)

    word, first = WordTokens("x", range(1, 2)), WordTokens("y", range(1))
    options = {"kind": "cross", "name": "made", "note": "so"}
    (table,) = word_table(translator, run, rows=[first, word], columns=[word], shift=-1, **options)
    assert table.rows == ("x",)  # nothing was read before the first token
    assert word_table(translator, run, rows=[], columns=[word], **options) == ()
    assert word_table(translator, run, rows=[word], columns=[], **options) == ()
    assert word_table(translator.model.encoder, lambda: None, rows=[word], columns=[word], **options) == ()
