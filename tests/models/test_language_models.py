"""Recurrent and convolutional language models: causal, stepwise equal to the whole, and what they write."""

from __future__ import annotations

import pytest
import torch

from regard.errors import ConfigError
from tests.models.tiny import LMS, texts

NAMES = sorted(LMS)


@pytest.mark.parametrize("name", NAMES)
def test_later_tokens_change_nothing_before(name: str) -> None:
    model, tokens = LMS[name](), texts(2, 8)
    expected = model(tokens)
    for place in range(1, 8):
        changed = tokens.clone()
        changed[:, place:] = (changed[:, place:] - 3 + 1) % 8 + 3
        found = model(changed)
        torch.testing.assert_close(found[:, :place], expected[:, :place])
        assert not torch.allclose(found[:, place], expected[:, place])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pieces", [[1] * 9, [4, 5], [8, 1]])
def test_step_by_step_is_the_whole(name: str, pieces: list[int]) -> None:
    model, tokens = LMS[name](), texts(3, 9)
    whole, state, parts = model(tokens), None, []
    for piece in tokens.split(pieces, dim=1):
        logits, state = model.step(piece, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)


def greedy_by_whole_passes(model, prompt: list[int], steps: int) -> list[int]:
    tokens, written = list(prompt), []
    for _ in range(steps):
        scores = model(torch.tensor([tokens]))[0, -1].detach().clone()
        scores[[model.config.pad_id, model.config.bos_id]] = float("-inf")
        token = int(scores.argmax())
        if token == model.config.eos_id:
            break
        tokens.append(token)
        written.append(token)
    return written


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_are_those_of_whole_passes_wherever_padding_is(name: str) -> None:
    model = LMS[name]()
    with torch.no_grad():  # other texts end, go on, and differ
        model.output.weight.mul_(4)
    rows = texts(6, 5).tolist()
    lengths = [5, 1, 3, 2, 5, 4]
    prompts = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    expected = [greedy_by_whole_passes(model, prompt, 12) for prompt in prompts]
    assert len({tuple(text) for text in expected}) > 1
    for front in (False, True):
        padded = torch.tensor([[0] * (5 - len(p)) + p if front else p + [0] * (5 - len(p)) for p in prompts])
        assert model.generate(padded, max_new_tokens=12) == expected


@pytest.mark.parametrize("name", NAMES)
def test_what_is_drawn_depends_on_the_seed_alone_and_holds_no_special_ids(name: str) -> None:
    model, prompt = LMS[name](), texts(8, 3)
    options = {"max_new_tokens": 20, "temperature": 1.5}
    one = model.generate(prompt, seed=1, **options)
    torch.manual_seed(9)
    assert model.generate(prompt, seed=1, **options) == one
    assert model.generate(prompt, seed=2, **options) != one
    assert all(3 <= token < 11 for text in one for token in text)
    assert any(len(text) < 20 for text in one)
    assert model.generate(prompt, top_k=1, **options) == model.generate(prompt, max_new_tokens=20)
    assert model.generate(prompt, max_new_tokens=0) == [[]] * 8


def test_drawing_leaves_the_model_and_torchs_own_chance_as_they_were() -> None:
    model, prompt = LMS["lstm"](dropout_p=0.5).train(), texts(2, 3)
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    first = model.generate(prompt, max_new_tokens=9)
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert model.generate(prompt, max_new_tokens=9) == first  # without dropout


@pytest.mark.usefixtures("unchecked")
def test_wrong_options_are_named() -> None:
    model, prompt = LMS["lstm"](), texts(2, 3)
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`max_new_tokens`.*-1.*`temperature`.*-2.*`top_k`.*0"):
        model.generate(prompt, max_new_tokens=-1, temperature=-2, top_k=0)
    prompt[1] = 0
    with pytest.raises(ConfigError, match=r"(?s)`prompt` must be at least one token long.*empty in row 1.*bos_id"):
        model.generate(prompt, max_new_tokens=1)


def test_top_k_draws_among_the_best_only() -> None:
    model, prompt = LMS["convolutional"](), texts(1, 4).expand(300, 4)
    scores = model(prompt[:1])[0, -1].detach()
    scores[[0, 1]] = float("-inf")
    drawn = {text[0] if text else 2 for text in model.generate(prompt, max_new_tokens=1, temperature=3.0, top_k=3)}
    assert drawn == set(scores.topk(3).indices.tolist())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("unchecked")
def test_learns_to_count(name: str) -> None:
    """Texts 3 4 5 … from anywhere: after a few steps only the first token is uncertain."""
    model = LMS[name]().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    tokens = (torch.arange(8)[:, None] + torch.arange(7)) % 8 + 3
    loss = torch.tensor(0.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss < 0.3
    assert model.generate(torch.tensor([[5, 6]]), max_new_tokens=3) == [[7, 8, 9]]
