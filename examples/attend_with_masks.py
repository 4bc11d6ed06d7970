"""Exact attention under composed masks, and what its weights were.

Two documents are packed into one row, the last token is padding, and every token may read backwards only.
"""

from __future__ import annotations

import torch

import regard

torch.manual_seed(0)
documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, -1]])  # a negative id is padding
query = torch.randn(1, 4, 8, 16)  # [batch, heads, tokens, head_dim]
key, value = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)  # two query heads share each key head

mask = regard.Causal() & regard.Documents(documents)
output, seen = regard.observe(query, key, value, [regard.Entropy(), regard.TopK(2), regard.KeyMass()], mask=mask)

print("output", tuple(output.shape))
print("entropy of head 0:", [round(nats, 2) for nats in seen.entropy[0, 0].tolist()])
for token, (keys, weights) in enumerate(zip(seen.top_k.indices[0, 0], seen.top_k.weights[0, 0], strict=True)):
    read = ", ".join(
        f"{key} ({weight:.0%})" for key, weight in zip(keys.tolist(), weights.tolist(), strict=True) if key >= 0
    )
    print(f"token {token} reads {read or 'nothing'}")

# The same numbers from the whole matrix, which only short inputs can afford.
dense = regard.weights(query, key, mask=mask)
torch.testing.assert_close(seen.key_mass, dense.sum(dim=2))
assert dense[0, :, 3:, :3].eq(0).all(), "no token of the second document reads the first"
assert output[0, :, 7].eq(0).all(), "padding reads nothing: its output is zero"
print(regard.explain_backend(query, key, value, mask=mask))
