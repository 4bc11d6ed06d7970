"""Train a tiny encoder-decoder to write a text backwards, and see where its cross-attention looks while it writes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import regard
from regard.models import EncoderDecoderConfig, Seq2Seq
from regard.nn import KeyValueCache

LETTERS = "abcdefghij"
LENGTH = 7

torch.manual_seed(0)
config = EncoderDecoderConfig(
    vocab_size=3 + len(LETTERS), embed_dim=32, num_heads=2, num_layers=1, ff_dim=64, dropout_p=0.0
)
model = Seq2Seq(config)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 301):
    source = torch.randint(3, config.vocab_size, (64, LENGTH))
    labels = source.flip(1)
    target = torch.cat([torch.full((64, 1), config.bos_id), labels[:, :-1]], dim=1)
    loss = cross_entropy(model(source, target).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def write(source: Tensor) -> Tensor:
    """Read once, then write a token at a time; the cache keeps what was projected before."""
    memory, cache = model.read(source), KeyValueCache()
    token, written = torch.full((len(source), 1), config.bos_id), []
    for _ in range(source.shape[1]):
        token = model.write(token, memory, kv_cache=cache)[:, -1:].argmax(dim=-1)
        written.append(token)
    return torch.cat(written, dim=1)


model.eval()
word = "badcafe"
with regard.watch(model, probes=[regard.Rows()]) as seen:
    written = write(torch.tensor([[3 + LETTERS.index(letter) for letter in word]]))[0]
backwards = "".join(LETTERS[token - 3] for token in written)
print(f"{word} backwards is {backwards}")

looks = seen["decoder.layers.0.cross"].rows[0].mean(dim=0)  # [written, read], the mean of both heads
print("      " + "".join(f"{letter:>6}" for letter in word))
for letter, row in zip(backwards, looks, strict=True):
    print(f"{letter:>6}" + "".join(f"{weight:6.0%}" for weight in row))
assert backwards == word[::-1]
assert looks.argmax(dim=-1).tolist() == list(range(LENGTH))[::-1], "it looks at the letter it writes"
