"""Head roles: each is found on heads built by hand to have it, and not on heads that are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import regard
from regard.errors import ConfigError
from regard.lens import head_importance, head_roles, retrieval_scores

VOCABULARY, LENGTH, SHARP = 12, 24, 40.0
SEPARATOR = 0
TOKENS = [3, 7, 1, 9, 4, 0, 3, 7, 1, 9, 4, 0, 11, 5, 3, 7, 1, 9, 2, 0, 5, 11, 8, 6]


class ByHand(nn.Module):
    """A head for each role, whose queries and keys are linear maps of what stands at a position.

    What stands there: the token, the position and the token before, each as a row of an identity.
    """

    def __init__(self, roles, *, causal):
        super().__init__()
        self.roles, self.causal = roles, causal

    def forward(self, tokens):
        ids = torch.tensor(tokens)
        token = functional.one_hot(ids, VOCABULARY).float()
        before = functional.one_hot(torch.cat([ids[:1], ids[:-1]]), VOCABULARY).float()
        before[0] = 0
        place = torch.eye(LENGTH)
        maps = {
            "previous": (place, place.roll(1, 1)),  # the key at p looks like a query at p + 1
            "next": (place, place.roll(-1, 1)),
            "duplicate": (token, token - 2 * 0),
            "induction": (token, before),
            "first_token": (torch.ones(LENGTH, 1), place[:, :1]),
            "separator": (torch.ones(LENGTH, 1), token[:, [SEPARATOR]]),
            "offset": (place, place.roll(3, 1)),
            "none": (torch.zeros(LENGTH, 1), torch.zeros(LENGTH, 1)),
        }
        width = max(q.shape[1] for q, _ in maps.values())
        pad = [[functional.pad(part, (0, width - part.shape[1])) for part in maps[role]] for role in self.roles]
        query, key = (torch.stack([pair[side] for pair in pad])[None] for side in (0, 1))
        bias = torch.zeros(len(self.roles), LENGTH, LENGTH)
        if "duplicate" in self.roles:  # away from itself
            bias[self.roles.index("duplicate")] -= 2 * SHARP * torch.eye(LENGTH)
        mask = regard.Causal() if self.causal else None
        return regard.attend(query * SHARP, key, key, scale=1.0, mask=mask, bias=bias[None])


ALL = ("previous", "next", "duplicate", "induction", "first_token", "separator", "offset", "none")


@pytest.mark.parametrize("causal", [True, False])
def test_each_role_is_found_on_the_head_that_has_it_and_on_no_other(causal):
    roles = [role for role in ALL if not (causal and role == "next")]
    model = ByHand(roles, causal=causal)
    found = head_roles(model, lambda: model(TOKENS), TOKENS, separators=[SEPARATOR])
    by_head = {}
    for one in found.roles():
        by_head.setdefault(roles[one.head], []).append(one.role)
    strongest = {role: having[0] for role, having in by_head.items()}
    assert strongest == {role: role for role in roles if role != "none"}
    assert "none" not in by_head
    (offset,) = [one for one in found.roles() if one.role == "offset"]
    assert offset.detail == -3
    assert offset.meaning == "attends at one fixed distance of 2 to 5 tokens"
    assert "offset (-3)" in str(offset)


def test_scores_are_means_over_queries_that_can_have_the_role():
    model = ByHand(["none"], causal=True)
    found = head_roles(model, lambda: model(TOKENS), TOKENS, separators=[SEPARATOR])
    (name,) = found.scores
    scores, chances = found.scores[name], found.chances[name]
    visible = torch.arange(1, LENGTH + 1).double()
    torch.testing.assert_close(scores["previous"][0], (1 / visible[1:]).mean(), atol=1e-6, rtol=0)
    earlier = [TOKENS[:i].count(TOKENS[i]) / (i + 1) for i in range(LENGTH) if TOKENS[i] in TOKENS[:i]]
    torch.testing.assert_close(float(scores["duplicate"][0]), sum(earlier) / len(earlier), atol=1e-6, rtol=0)
    after = [sum(TOKENS[j - 1] == TOKENS[i] for j in range(1, i)) / (i + 1) for i in range(LENGTH)]
    after = [mass for mass in after if mass]
    torch.testing.assert_close(float(scores["induction"][0]), sum(after) / len(after), atol=1e-6, rtol=0)
    for role, score in scores.items():
        torch.testing.assert_close(score, chances[role], equal_nan=True, atol=1e-6, rtol=0)
    assert scores["next"].isnan().all()
    assert "next         cannot be told: no query of the text could have it" in str(found).split("\n")
    assert found.roles() == []


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    model = ByHand(["none"], causal=True)
    with pytest.raises(ConfigError, match="no self-attention layer read one text of 3 tokens from its beginning, but"):
        head_roles(model, lambda: model(TOKENS), [1, 2, 3])
    with pytest.raises(ConfigError, match="`tokens` must be ids, integers from 0, but is the bank"):
        head_roles(model, lambda: model(TOKENS), "the bank")
    with pytest.raises(ConfigError, match="`copy` must be a range of positions within 0 to 24, but is"):
        retrieval_scores(model, lambda: model(TOKENS), TOKENS, needle=(0, 3), copy=(20, 30))


def test_a_retrieval_head_looks_at_the_token_that_is_copied():
    """The induction head looks at what came after the same token, which is what comes next in a copy."""
    model = ByHand(["induction", "previous", "none"], causal=True)
    text = [6, 3, 7, 1, 9, 4, 8, 10, 11, 2, 3, 7, 1, 9, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    (scores,) = retrieval_scores(model, lambda: model(text), text, needle=(1, 6), copy=(10, 15)).values()
    assert scores[0] == 0.8  # 3 comes after 2, which is not in the needle
    assert scores[1:].tolist() == [0, 0]


def test_importance_is_what_is_missing_without_a_head():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(1, 5, 8)
    found = head_importance(model, lambda: model(x)[0, 0, 0])
    assert list(found) == ["layers.0.self_attn", "layers.1.self_attn"]
    with torch.no_grad():
        with regard.watch(model):
            whole = model(x)[0, 0, 0]
        weight = model.layers[1].self_attn.out_proj.weight
        weight[:, 4:] = 0
        with regard.watch(model):
            without = model(x)[0, 0, 0]
    torch.testing.assert_close(found["layers.1.self_attn"][1], (whole - without).double(), atol=1e-6, rtol=0)
