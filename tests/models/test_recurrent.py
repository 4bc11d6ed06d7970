"""The recurrent encoder–decoder: stepwise equal to the whole, its search against all texts there are, its learning."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn.functional import cross_entropy

from regard.errors import ConfigError, UnsupportedError
from regard.models import RecurrentEncoderDecoder
from tests.models.tiny import TRANSLATORS, texts, translator

each = pytest.mark.parametrize(("kind", "attention"), TRANSLATORS)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    target = texts(3, 6)
    target[:, 0] = 1
    return texts(3, 5, vocabulary=9), target


@each
def test_source_padding_and_later_targets_change_nothing(kind: str, attention: str) -> None:
    model, (source, target) = translator(kind, attention, decoder_layers=2), pair()
    expected = model(source, target)
    padded = torch.nn.functional.pad(source, (2, 3))
    torch.testing.assert_close(model(padded, target), expected)
    keep = padded != 0
    torch.testing.assert_close(model(torch.where(keep, padded, 5), target, source_keep=keep), expected)
    changed = target.clone()
    changed[:, 3:] = 0
    torch.testing.assert_close(model(source, changed)[:, :3], expected[:, :3])
    assert not torch.allclose(model(source, changed)[:, 3:], expected[:, 3:])
    other = (source - 3 + 1) % 6 + 3
    assert not torch.allclose(model(other, target), expected)


@each
def test_weights_do_not_change_logits_and_sum_to_one_over_what_is_real(kind: str, attention: str) -> None:
    model, (source, target) = translator(kind, attention), pair()
    source[1, 2:] = 0
    if attention == "none":
        with pytest.raises(UnsupportedError, match=r'config\.attention is "none"'):
            model(source, target, need_weights=True)
        return
    logits, weights = model(source, target, need_weights=True)
    assert torch.equal(logits, model(source, target))
    assert weights.shape == (3, 1, 6, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 6))
    assert not weights[1, :, :, 2:].any()


def greedy_by_whole_passes(model: RecurrentEncoderDecoder, source: torch.Tensor, steps: int) -> list[int]:
    tokens = [1]
    for _ in range(steps):
        scores = model(source[None], torch.tensor([tokens]))[0, -1].detach()
        scores[[0, 1]] = float("-inf")
        tokens.append(int(scores.argmax()))
        if tokens[-1] == 2:
            return tokens[1:-1]
    return tokens[1:]


def sharper(model: RecurrentEncoderDecoder) -> RecurrentEncoderDecoder:
    """All weights louder, so that texts differ and end at different places."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    return model


@each
def test_one_beam_is_greedy_by_whole_passes(kind: str, attention: str) -> None:
    model, source = sharper(translator(kind, attention)), texts(12, 5, vocabulary=9)
    source[1, 3:] = 0
    expected = [greedy_by_whole_passes(model, row, 8) for row in source]
    found = model.decode(source, max_new_tokens=8)
    assert [list(best.tokens) for (best,) in found] == expected
    assert len({tuple(text) for text in expected}) > 2


def score_of(model: RecurrentEncoderDecoder, source: torch.Tensor, text: tuple[int, ...], penalty: float) -> float:
    """Log-probability of a text (with its end, if it has one) by one whole pass, over length ** penalty."""
    logits = model(source[None], torch.tensor([[1, *text[:-1]]]))[0].detach().double()
    logits[:, [0, 1]] = float("-inf")
    chances = logits.log_softmax(-1)
    return float(sum(chances[place, token] for place, token in enumerate(text))) / len(text) ** penalty


@pytest.mark.parametrize("attention", ["none", "additive", "dot"])
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
@pytest.mark.usefixtures("unchecked")
def test_enough_beams_find_what_trying_every_text_finds(attention: str, penalty: float) -> None:
    model = sharper(translator("gru", attention, vocab_size=5))
    source, longest = texts(2, 4, vocabulary=9), 3
    every = [
        text
        for length in range(1, longest + 1)
        for text in product((2, 3, 4), repeat=length)
        if 2 not in text[:-1] and (text[-1] == 2 or length == longest)
    ]
    found = model.decode(source, max_new_tokens=longest, num_beams=len(every) + 5, length_penalty=penalty)
    for row, hypotheses in zip(source, found, strict=True):
        ranked = sorted(((score_of(model, row, text, penalty), text) for text in every), reverse=True)
        assert [h.tokens for h in hypotheses] == [tuple(t for t in text if t != 2) for _, text in ranked]
        torch.testing.assert_close([h.score for h in hypotheses], [score for score, _ in ranked], rtol=1e-4, atol=1e-4)


@each
def test_hypotheses_are_sorted_and_carry_their_own_attention(kind: str, attention: str) -> None:
    model, source = sharper(translator(kind, attention)), texts(4, 5, vocabulary=9)
    source[1, 3:] = 0
    for row, hypotheses in zip(source, model.decode(source, max_new_tokens=7, num_beams=4), strict=True):
        scores = [h.score for h in hypotheses]
        assert len(hypotheses) == 4
        assert scores == sorted(scores, reverse=True)
        assert len({h.tokens for h in hypotheses}) == 4
        for h in hypotheses:
            assert all(3 <= token < 11 for token in h.tokens)
            ended = (*h.tokens, 2) if len(h.tokens) < 7 else h.tokens
            assert h.score == pytest.approx(score_of(model, row, ended, 1.0), abs=1e-4)
            if attention == "none":
                assert h.weights is None
            elif h.tokens:
                _, weights = model(row[None], torch.tensor([[1, *h.tokens[:-1]]]), need_weights=True)
                torch.testing.assert_close(h.weights, weights[0, 0].detach(), rtol=1e-4, atol=1e-5)


def test_a_length_penalty_makes_texts_longer() -> None:
    model, source = sharper(translator("lstm", "additive")), texts(20, 5, vocabulary=9)

    def length(penalty: float) -> int:
        found = model.decode(source, max_new_tokens=9, num_beams=4, length_penalty=penalty)
        return sum(len(best[0].tokens) for best in found)

    assert length(0.0) < length(2.0)


@pytest.mark.usefixtures("unchecked")
def test_decoding_is_without_dropout_and_leaves_the_mode() -> None:
    model, source = translator("lstm", "dot", dropout_p=0.5).train(), texts(2, 5, vocabulary=9)
    first, second = (model.decode(source, max_new_tokens=5)[0][0] for _ in range(2))
    assert first.score == second.score
    assert model.training
    assert not first.weights.requires_grad
    assert model.decode(source, max_new_tokens=0)[0][0].tokens == ()
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`max_new_tokens`.*`num_beams`.*`length_penalty`"):
        model.decode(source, max_new_tokens=-1, num_beams=0, length_penalty=float("inf"))


def test_an_empty_source_disturbs_nobody() -> None:
    model, (source, target) = translator("lstm", "additive"), pair()
    expected = model(source, target)
    source[1] = 0
    logits, weights = model(source, target, need_weights=True)
    torch.testing.assert_close(logits[[0, 2]], expected[[0, 2]])
    assert not weights[1].any()
    assert torch.isfinite(logits).all()
    logits.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize(("attention", "bound"), [("none", 0.9), ("additive", 0.25), ("dot", 0.25)])
@pytest.mark.usefixtures("unchecked")
def test_learns_to_reverse(attention: str, bound: float) -> None:
    model = translator("gru", attention, embed_dim=16, hidden_dim=32, encoder_layers=1).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.tensor(0.0)
    for _ in range(150):
        source = torch.randint(3, 9, (32, 4))
        ends = torch.full((32, 1), 1), torch.full((32, 1), 2)
        target = torch.cat((ends[0], source.flip(1), ends[1]), dim=1)
        optimizer.zero_grad()
        loss = cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss < bound
    if attention != "none":
        source = torch.tensor([[3, 5, 8, 4]])
        assert model.decode(source, max_new_tokens=6, num_beams=3)[0][0].tokens == (4, 8, 5, 3)
