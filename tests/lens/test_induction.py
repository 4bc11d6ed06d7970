"""Induction heads appear where theory says: in a decoder of two layers that learns to go on with what it repeats.

The length of what is repeated is drawn anew for every batch. With one length the decoder learns to look back at a fixed
distance, in its first layer, and no head matches anything.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from regard.lens import HeadScores, head_roles
from regard.models import DecoderLM, TransformerConfig

VOCABULARY, FIRST, BATCH = 32, 3, 32  # the first ids are special
SHORTEST, LONGEST, UNSEEN = 8, 24, 27
STEPS, RATE, WARM = 1000, 3e-3, 50
LEARNED = 0.2  # nats; a guess costs log(29) = 3.4


def repeated(batch: int, half: int) -> torch.Tensor:
    """Random tokens, and the same once more."""
    return torch.randint(FIRST, VOCABULARY, (batch, half)).repeat(1, 2)


def learn(model: DecoderLM) -> float:
    """Train on the second halves until they are known; the loss at the end."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    smooth = 4.0
    model.train()
    for step in range(STEPS):
        half = int(torch.randint(SHORTEST, LONGEST + 1, ()))
        tokens = repeated(BATCH, half)
        loss = functional.cross_entropy(model(tokens)[:, half:-1].flatten(0, 1), tokens[:, half + 1 :].flatten())
        optimiser.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARM)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        smooth = 0.9 * smooth + 0.1 * loss.item()
        if smooth < LEARNED:
            break
    model.eval()
    return smooth


def roles_on(model: DecoderLM, tokens: torch.Tensor) -> HeadScores:
    """Of every head, on one text."""
    return head_roles(model, lambda: model(tokens), tokens[0].tolist())


@pytest.mark.parametrize("seed", [1])  # 0 and 2 as well; one is enough here
def test_induction_heads_appear_in_a_small_decoder_trained_on_repeated_random_tokens(seed):
    torch.manual_seed(seed)
    settings = {"embed_dim": 64, "num_heads": 2, "num_layers": 2, "ff_dim": 128, "positions": "rotary"}
    model = DecoderLM(TransformerConfig(vocab_size=VOCABULARY, dropout_p=0.0, **settings)).eval()
    tokens = repeated(1, UNSEEN)
    before = roles_on(model, tokens)
    assert learn(model) < LEARNED
    after = roles_on(model, tokens)

    assert not [one for one in before.roles() if one.role == "induction"]
    for layer, by_role in before.scores.items():  # untrained heads are uniform, nearly
        assert (by_role["induction"] < 2 * before.chances[layer]["induction"]).all()
    first, second = after.scores
    found = [one for one in after.roles() if one.role == "induction"]
    assert found
    assert {one.module for one in found} == {second}  # it takes a head before it, which brings along the token before
    assert max(one.score / one.chance for one in found) > 8
    assert float(after.scores[first]["previous"].max()) > 4 * float(after.chances[first]["previous"][0])
