"""Handed cases of group B and rows of sections F, I and J: attention modules, layers and the loops around them."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.models import DecoderLM, TransformerConfig
from regard.nn import AdditiveAttention, Encoder, EncoderLayer, FeedForward, MultiHeadAttention
from regard.ops import Causal, Mask, Padding, SlidingWindow, attend, weights


def stack(d_model: int = 8, layers: int = 1) -> Encoder:
    torch.manual_seed(0)
    return Encoder(
        [
            EncoderLayer(MultiHeadAttention(d_model, 2), FeedForward(d_model, 16), norm_first=False)
            for _ in range(layers)
        ]
    )


def test_b02_the_scale_is_the_root_of_head_dim() -> None:
    layer, x = MultiHeadAttention(8, 2, bias=False), torch.randn(2, 5, 8)
    _, found = layer(x, need_weights=True)
    q, k = (linear(x).view(2, 5, 2, 4).transpose(1, 2) for linear in (layer.query, layer.key))
    torch.testing.assert_close(found, (q @ k.mT / math.sqrt(4)).softmax(-1), atol=1e-6, rtol=0)
    assert not torch.allclose(found, (q @ k.mT / math.sqrt(8)).softmax(-1), atol=1e-3)


def test_b04_weights_are_per_head_and_the_average_is_theirs() -> None:
    theirs, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)
    _, found = regard.nn.from_torch(theirs)(x, need_weights=True)
    assert found.shape == (2, 2, 3, 3)
    torch.testing.assert_close(found.mean(dim=1), theirs(x, x, x)[1], atol=1e-6, rtol=0)


def test_b05_the_batch_is_first_also_where_the_input_is_square() -> None:
    layer, x = MultiHeadAttention(4, 2), torch.randn(3, 3, 4)
    torch.testing.assert_close(layer(x), torch.cat([layer(x[i : i + 1]) for i in range(3)]), atol=1e-6, rtol=0)
    changed = x.clone()
    changed[1] += 1
    assert torch.equal(layer(changed)[[0, 2]], layer(x)[[0, 2]])


def test_b06_every_mode_gives_the_same_numbers() -> None:
    module, x, keep = stack(), torch.randn(2, 6, 8), torch.tensor([[True] * 2 + [False] * 4] * 2)
    mask = Causal() & SlidingWindow(2) & Padding(keep)
    wanted = module.train()(x, mask)
    assert wanted.isfinite().all()
    for training in (True, False):
        module.train(training)
        torch.testing.assert_close(module(x, mask), wanted, atol=1e-6, rtol=0)
        with torch.no_grad():
            torch.testing.assert_close(module(x, mask), wanted, atol=1e-6, rtol=0)
        with torch.inference_mode():
            torch.testing.assert_close(module(x, mask).clone(), wanted, atol=1e-6, rtol=0)


def test_b07_trailing_padding_keeps_the_length() -> None:
    module, x, keep = stack(layers=2), torch.randn(2, 6, 8), torch.tensor([[True] * 4 + [False] * 2] * 2)
    for training in (True, False):
        for context in (torch.enable_grad(), torch.no_grad()):
            with context:
                assert module.train(training)(x, Padding(keep)).shape == (2, 6, 8)


def test_b08_a_mask_per_row_and_head_works_in_both_modes_and_a_flat_one_names_its_shape() -> None:
    layer, x, mask = MultiHeadAttention(8, 2), torch.randn(2, 4, 8), torch.rand(4, 4, 4) < 0.7
    for training in (True, False):
        layer.train(training)
        found = layer(x, mask=mask.view(2, 2, 4, 4))
        per_head = [layer(x, mask=mask.view(2, 2, 4, 4)[b : b + 1].expand(2, 2, 4, 4))[b] for b in range(2)]
        torch.testing.assert_close(found, torch.stack(per_head), atol=1e-6, rtol=0)
        with pytest.raises(ValueError, match=r"`mask` must be broadcastable to .*but is of shape \(4, 4, 4\)"):
            layer(x, mask=mask)


def test_b09_causal_needs_no_tensor_and_weights_change_nothing() -> None:
    layer, x = MultiHeadAttention(4, 2), torch.randn(2, 5, 4)
    output, found = layer(x, mask=Causal(), need_weights=True)
    torch.testing.assert_close(layer(x, mask=Causal()), output, atol=1e-6, rtol=0)
    assert torch.equal(found, found.tril())
    torch.testing.assert_close(layer(x, mask=torch.ones(5, 5).tril()), output, atol=1e-6, rtol=0)


def test_b13_another_sequence_of_other_lengths_and_widths() -> None:
    layer = MultiHeadAttention(8, 2, kv_dim=(6, 5))
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 7, 6), torch.randn(2, 7, 5)
    output, found = layer(query, key, value, Padding(keep), need_weights=True)
    assert (output.shape, found.shape) == ((2, 3, 8), (2, 2, 3, 7))
    assert (found[1, ..., 4:] == 0).all()
    torch.testing.assert_close(layer(query[1:], key[1:, :4], value[1:, :4]), output[1:], atol=1e-6, rtol=0)
    last = layer(query, key, value, Causal(), need_weights=True)[1]
    assert torch.equal(last > 0, torch.ones(3, 7).tril(4).bool().expand(2, 2, 3, 7)), "queries are the last positions"


def test_b15_copies_after_a_forward_that_was_watched() -> None:
    module, x = stack().train(), torch.randn(2, 4, 8)
    with regard.watch(module, probes=[regard.Rows()]) as seen:
        wanted = module(x)
    assert not seen["layers.0.self"].rows.requires_grad
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(again(x), wanted)
    assert set(module.state_dict()) == set(stack().state_dict())


def test_b16_projections_start_with_the_variance_of_their_own_shape() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(256, 4)
    for linear in (layer.query, layer.key, layer.value, layer.output):
        assert float(linear.weight.detach().std()) == pytest.approx(0.0625, rel=0.03)
        assert float(linear.weight.detach().abs().max()) == pytest.approx(math.sqrt(6 / 512), rel=0.01)


def test_b17_a_seed_decides_the_start_and_the_training() -> None:
    def trained(before: int) -> list[Tensor]:
        torch.rand(before)
        torch.manual_seed(0)
        model = DecoderLM(
            TransformerConfig(vocab_size=12, embed_dim=8, num_heads=2, num_layers=1, ff_dim=8, dropout_p=0.3)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            tokens = torch.randint(3, 12, (4, 6))
            loss = functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return list(model.parameters())

    assert all(torch.equal(one, two) for one, two in zip(trained(0), trained(5), strict=True))


def test_f7_query_heads_read_the_key_heads_of_their_group() -> None:
    zeros, values = torch.zeros(1, 8, 1, 4), torch.ones(1, 2, 3, 1) * torch.tensor([1.0, 2.0])[:, None, None]
    keys = torch.zeros(1, 2, 3, 4)
    assert attend(zeros, keys, values).flatten().tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert weights(zeros, keys).shape == (1, 8, 1, 3)


def test_f9_additive_attention_of_one_dimension() -> None:
    attention = AdditiveAttention(1, 1, 1)
    for linear in (attention.query, attention.key, attention.score):
        nn.init.ones_(linear.weight)
    _, found = attention(torch.zeros(1, 1, 1), torch.tensor([[[0.0], [1.0]]]))
    torch.testing.assert_close(found[0, 0], torch.tensor([0.3183, 0.6817]), atol=1e-4, rtol=0)


def test_j6_a_run_that_was_saved_and_taken_up_again_is_the_run() -> None:
    def start() -> tuple[DecoderLM, torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        torch.manual_seed(0)
        model = DecoderLM(
            TransformerConfig(vocab_size=12, embed_dim=8, num_heads=2, num_layers=1, ff_dim=8, dropout_p=0.3)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    data = torch.randint(3, 12, (8, 4, 6), generator=torch.Generator().manual_seed(1))

    def steps(parts: tuple, first: int, last: int) -> list[float]:
        model, optimizer, scheduler = parts
        losses = []
        for tokens in data[first:last]:
            loss = functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        return losses

    whole = steps(start(), 0, 8)
    parts, file = start(), io.BytesIO()
    before = steps(parts, 0, 3)
    torch.save([*(part.state_dict() for part in parts), torch.get_rng_state()], file)
    file.seek(0)
    again = start()
    *states, rng = torch.load(file)
    for part, state in zip(again, states, strict=True):
        part.load_state_dict(state)
    torch.set_rng_state(rng)
    assert before + steps(again, 3, 8) == whole


@pytest.mark.parametrize("mask", [Causal(), Causal() & SlidingWindow(2)])
def test_d1_a_module_without_a_cache_is_aligned_as_one_with(mask: Mask) -> None:
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    cache = regard.nn.KeyValueCache()
    layer(x[:, :4], mask=mask, kv_cache=cache.layer(0))
    torch.testing.assert_close(layer(x[:, 4:], mask=mask, kv_cache=cache.layer(0)), layer(x, mask=mask)[:, 4:])
