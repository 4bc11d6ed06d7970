"""Classifiers: their poolings by hand, short texts, and that they learn."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from regard.errors import UnsupportedError
from tests.models.tiny import CLASSIFIERS, classifier, text_cnn, texts


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_pooling_by_hand(pooling: str) -> None:
    model, tokens = classifier(pooling), texts(1, 5)
    padded = torch.nn.functional.pad(tokens, (0, 3))
    states, _ = model.encoder(model.embedding(tokens) * model.scale)
    states = states[0]
    match pooling:
        case "last":
            pooled = torch.cat((states[-1, :4], states[0, 4:]))
        case "mean":
            pooled = states.sum(0) / 5
        case "max":
            pooled = states.max(0).values
        case _:
            part = model.attention
            scores = (part.query(model.query) + part.key(states)).tanh() @ part.score.weight[0]
            pooled = scores.softmax(0) @ states
    torch.testing.assert_close(model(padded)[0], model.output(pooled))


def test_weights_of_attention_pooling() -> None:
    model, tokens = classifier("attention"), texts(2, 5)
    tokens[1, 2:] = 0
    logits, weights = model(tokens, need_weights=True)
    assert torch.equal(logits, model(tokens))
    assert weights.shape == (2, 1, 1, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 1))
    assert not weights[1, ..., 2:].any()
    with pytest.raises(UnsupportedError, match=r'config\.pooling is "max"'):
        classifier("max")(tokens, need_weights=True)


def test_text_cnn_by_hand_and_texts_shorter_than_a_filter() -> None:
    model = text_cnn(kernel_sizes=(2, 4))
    with torch.no_grad():
        for convolution in model.convolutions:
            torch.nn.init.normal_(convolution.bias)
    for length in (1, 3, 6):
        tokens = texts(1, length)
        embedded = torch.nn.functional.pad(model.embedding(tokens[0]), (0, 0, 0, 4))
        found = []
        for convolution, size in zip(model.convolutions, (2, 4), strict=True):
            phrases = [
                torch.einsum("fmk,km->f", convolution.weight, embedded[t : t + size]) + convolution.bias
                for t in range(length)
            ]
            found.append(torch.stack(phrases).clamp(min=0).amax(0))
        torch.testing.assert_close(model(tokens)[0], model.output(torch.cat(found)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
@pytest.mark.usefixtures("unchecked")
def test_learns_to_find_a_word(name: str) -> None:
    """The class is which of three words stands somewhere in the text."""
    model = CLASSIFIERS[name](**({"dropout_p": 0.0} if name == "cnn" else {"hidden_dim": 16})).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loss = torch.tensor(0.0)
    for _ in range(80):
        tokens = torch.randint(6, 11, (32, 6))
        labels = torch.randint(0, 3, (32,))
        tokens[torch.arange(32), torch.randint(0, 6, (32,))] = labels + 3
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
    assert loss < 0.4
