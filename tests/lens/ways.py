"""Small models that attend in each way a watch can see, with the weight that projects what their heads put out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.nn import MultiHeadAttention


class OwnCall(nn.Module):
    """Queries, keys and values, attention in one of several ways, and a projection; causal."""

    def __init__(self, how, heads=4, dim=16):
        super().__init__()
        self.num_heads, self.how = heads, how
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.how == "sdpa":
            context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT / q.shape[-1] ** 0.5
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
            context = functional.softmax(scores, -1) @ v
        return x + self.out(context.transpose(1, 2).flatten(2))


class SelfAttention(OwnCall):
    """Its name says what it is, so that its own softmax is read."""


class Torch(nn.Module):
    """``nn.MultiheadAttention``, causal."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Ours(nn.Module):
    """``regard.nn.MultiHeadAttention``, causal."""

    def __init__(self):
        super().__init__()
        self.attention = MultiHeadAttention(16, 4)

    def forward(self, x):
        from regard import Causal

        return x + self.attention(x, mask=Causal())


@dataclass(frozen=True)
class Way:
    """A model of two layers.

    Args:
        build: Makes a layer.
        projection: Its output projection.
    """

    build: Callable[[], nn.Module]
    projection: Callable[[nn.Module], nn.Linear]

    def model(self) -> nn.Sequential:
        """Two layers in ``eval`` mode."""
        torch.manual_seed(0)
        return nn.Sequential(self.build(), self.build()).eval()


WAYS = {
    "sdpa": Way(lambda: SelfAttention("sdpa"), lambda layer: layer.out),
    "softmax": Way(lambda: SelfAttention("softmax"), lambda layer: layer.out),
    "torch": Way(Torch, lambda layer: layer.attention.out_proj),
    "regard": Way(Ours, lambda layer: layer.attention.output),
}


def text(length: int = 6, batch: int = 2) -> Tensor:
    """Inputs of these models."""
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(1))
