"""Watch a module that calls PyTorch's attention itself; its output stays the same, bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import regard


class Block(nn.Module):
    """Causal self-attention as people write it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.project = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to earlier tokens. x: [batch, tokens, embed_dim]."""
        query, key, value = self.project(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        context = scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(context.transpose(1, 2).flatten(2))


torch.manual_seed(0)
model = nn.Sequential(Block(32, 4), Block(32, 4)).eval()
x = torch.randn(2, 10, 32)

with torch.no_grad():
    unwatched = model(x)
    with regard.watch(model, probes=[regard.Entropy(), regard.Distance(), regard.FirstKeys(1)]) as seen:
        watched = model(x)

assert torch.equal(watched, unwatched)
for layer in seen.layers:
    print(
        f"{layer.name} ({layer.kind}): entropy {layer.entropy.mean():.2f} nats, "
        f"distance {layer.distance.mean():.2f} tokens, on the first token {layer.first_keys.mean():.0%}"
    )
for entry in seen.coverage:
    print(entry)
