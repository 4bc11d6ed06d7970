"""Row F11: our layers, filled with the parameters of BERT and of GPT-2, compute what those compute."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, MultiHeadAttention
from regard.ops import Causal, Padding

pytest.importorskip("transformers")
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

TOKENS = torch.randint(3, 50, (2, 7), generator=torch.Generator().manual_seed(0))
KEEP = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])


def copy(ours: Any, theirs: Any) -> None:
    ours.load_state_dict(theirs.state_dict())


def turned(ours: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    """GPT-2 keeps its matrices the other way round."""
    ours.load_state_dict({"weight": weight.T, "bias": bias})


def test_f11_bert() -> None:
    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    theirs = BertModel(config, add_pooling_layer=False).eval()
    layers = []
    for layer in theirs.encoder.layer:
        one = EncoderLayer(
            MultiHeadAttention(32, 4), FeedForward(32, 48), norm_first=False, norm_eps=config.layer_norm_eps
        )
        for part in ("query", "key", "value"):
            copy(getattr(one.self, part), getattr(layer.attention.self, part))
        copy(one.self.output, layer.attention.output.dense)
        copy(one.self_norm, layer.attention.output.LayerNorm)
        copy(one.feed_forward.wide, layer.intermediate.dense)
        copy(one.feed_forward.narrow, layer.output.dense)
        copy(one.feed_forward_norm, layer.output.LayerNorm)
        layers.append(one)
    wanted = theirs(TOKENS, attention_mask=KEEP.long()).last_hidden_state
    found = Encoder(layers).eval()(theirs.embeddings(TOKENS), Padding(KEEP))
    torch.testing.assert_close(found[KEEP], wanted[KEEP], atol=1e-5, rtol=0)


def test_f11_gpt2() -> None:
    theirs = GPT2Model(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4)).eval()
    activation = functools.partial(nn.functional.gelu, approximate="tanh")
    layers = []
    for block in theirs.h:
        one = DecoderLayer(MultiHeadAttention(32, 4), FeedForward(32, 128, activation=activation))
        packed = zip(block.attn.c_attn.weight.chunk(3, dim=1), block.attn.c_attn.bias.chunk(3), strict=True)
        for part, (weight, bias) in zip(("query", "key", "value"), packed, strict=True):
            turned(getattr(one.self, part), weight, bias)
        turned(one.self.output, block.attn.c_proj.weight, block.attn.c_proj.bias)
        turned(one.feed_forward.wide, block.mlp.c_fc.weight, block.mlp.c_fc.bias)
        turned(one.feed_forward.narrow, block.mlp.c_proj.weight, block.mlp.c_proj.bias)
        copy(one.self_norm, block.ln_1)
        copy(one.feed_forward_norm, block.ln_2)
        layers.append(one)
    decoder = Decoder(layers, norm=theirs.ln_f).eval()
    x = theirs.wte(TOKENS) + theirs.wpe(torch.arange(7))
    torch.testing.assert_close(decoder(x, mask=Causal()), theirs(TOKENS).last_hidden_state, atol=1e-5, rtol=0)
