"""Cases of torch.compile on the models and layers of this package; run by test_compiled.py."""

from __future__ import annotations

import torch

from regard.nn import AdditiveAttention, CausalBlock, DotAttention, RecurrentEncoder
from regard.ops import Padding
from tests.compiling import case, compare, main
from tests.models.tiny import all_models

torch.set_num_threads(1)
torch.manual_seed(0)
KEEP = torch.tensor([[True] * 5, [True, True, False, False, False]])


@case
def models() -> None:
    """Each way of decoding, pooling and stepping once: whole models take seconds to compile."""
    found = all_models()
    for name in ("gru_none", "lstm_additive", "gru_dot", "lstm", "gated", "last", "max", "attention", "cnn"):
        model, inputs = found[name]
        compare(model, *(tokens[:, :3] for tokens in inputs))


@case
def layers_with_gradients() -> None:
    encoder = RecurrentEncoder("lstm", 3, 4, bidirectional=True)
    compare(lambda x: encoder(x, KEEP)[0], torch.randn(2, 5, 3), gradients=True)
    block = CausalBlock(4, 3, gated=True)
    compare(lambda x: block(x, keep=KEEP)[0], torch.randn(2, 5, 4), gradients=True)


@case
def attention_with_gradients() -> None:
    for layer in (AdditiveAttention(3, 4, 5), DotAttention(3, 4, score="general")):
        compare(
            lambda q, k, layer=layer: layer(q, k, mask=Padding(KEEP))[0],
            torch.randn(2, 2, 3),
            torch.randn(2, 5, 4),
            gradients=True,
        )


if __name__ == "__main__":
    main()
