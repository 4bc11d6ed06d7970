"""Recurrent layers and decoders, against torch's own and hand-written loops."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError
from regard.nn import AttentionDecoder, RecurrentEncoder
from tests.cases.test_group_a import close

KINDS = ["lstm", "gru"]
LENGTHS = torch.tensor([5, 2, 0, 4])


def encoder(kind: str, **options: object) -> RecurrentEncoder:
    torch.manual_seed(0)
    return RecurrentEncoder(kind, 3, 4, 2, **options).double()


def torch_twin(ours: RecurrentEncoder) -> nn.Module:
    """torch's own module with the same weights."""
    layer = nn.LSTM if ours.kind == "lstm" else nn.GRU
    twin = layer(3, 4, len(ours.layers), batch_first=True, bidirectional=ours.num_directions == 2).double()
    weights = {
        name.replace("_l0", f"_l{number}"): value
        for number, part in enumerate(ours.layers)
        for name, value in part.state_dict().items()
    }
    twin.load_state_dict(weights)
    return twin


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_row_is_read_as_if_alone_by_torch(kind: str, bidirectional: bool) -> None:
    ours = encoder(kind, bidirectional=bidirectional)
    twin, inputs = torch_twin(ours), torch.randn(4, 6, 3, dtype=torch.float64)
    states, final = ours(inputs, lengths=LENGTHS)
    assert states.shape == (4, 6, ours.output_dim)
    for row, length in enumerate(LENGTHS.tolist()):
        assert not states[row, length:].any()
        if length == 0:
            assert not any(part[:, row].any() for part in final)
            continue
        expected, end = twin(inputs[row : row + 1, :length])
        close(states[row, :length], expected[0], 1e-12)
        for part, wanted in zip(final, end if kind == "lstm" else (end,), strict=True):
            close(part[:, row], wanted[:, 0], 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_anywhere_of_any_content_changes_nothing(kind: str, bidirectional: bool) -> None:
    ours = encoder(kind, bidirectional=bidirectional)
    inputs = torch.randn(2, 3, 3, dtype=torch.float64)
    expected, end = ours(inputs)
    keep = torch.tensor([[False, True, False, False, True, True], [True, True, True, False, False, False]])
    spread = torch.full((2, 6, 3), float("nan"), dtype=torch.float64)
    spread[keep] = inputs.flatten(0, 1)
    spread.requires_grad_()
    states, final = ours(spread, keep)
    close(states[keep], expected.flatten(0, 1), 1e-12)
    assert not states[~keep].any()
    for part, wanted in zip(final, end, strict=True):
        close(part, wanted, 1e-12)
    states.square().sum().backward()
    assert torch.isfinite(spread.grad).all()
    assert not spread.grad[~keep].any()
    assert spread.grad[keep].all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_formula_step_by_step_equals_the_kernels(kind: str, bidirectional: bool) -> None:
    """What torch.compile and torch.func run is what eager mode runs, gradients included."""
    ours = encoder(kind, bidirectional=bidirectional)
    keep = torch.tensor([[True, False, True, True], [False] * 4, [True, True, False, False]])
    inputs = torch.randn(3, 4, 3, dtype=torch.float64)
    state = tuple(torch.randn_like(part) for part in ours.start(3))
    found = []
    for run in (ours, ours._written_out):
        ours.zero_grad()
        states, final = run(inputs.masked_fill(~keep[..., None], 0), keep, state=state)
        (states.square().sum() + sum(part.square().sum() for part in final)).backward()
        found.append([states, *final, *(parameter.grad for parameter in ours.parameters())])
    for one, other in zip(*found, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_under_torch_func(kind: str) -> None:
    ours = encoder(kind)
    inputs = torch.randn(3, 4, 3, dtype=torch.float64)
    mapped = torch.func.vmap(lambda row: ours(row[None])[0][0])(inputs)
    close(mapped, ours(inputs)[0], 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_going_on_from_a_state_is_reading_at_once(kind: str) -> None:
    ours, inputs = encoder(kind), torch.randn(2, 6, 3, dtype=torch.float64)
    whole, end = ours(inputs)
    state, parts = None, []
    for step in range(6):
        states, state = ours(inputs[:, step : step + 1], state=state)
        parts.append(states)
    close(torch.cat(parts, 1), whole, 1e-12)
    for part, wanted in zip(state, end, strict=True):
        close(part, wanted, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_inputs_keeps_the_state_it_was_given(kind: str) -> None:
    ours = encoder(kind)
    state = tuple(torch.randn_like(part) for part in ours.start(2))
    _, final = ours(torch.randn(2, 3, 3, dtype=torch.float64), lengths=torch.tensor([3, 0]), state=state)
    for after, before in zip(final, state, strict=True):
        assert torch.equal(after[:, 1], before[:, 1])
        assert not torch.equal(after[:, 0], before[:, 0])


@pytest.mark.parametrize("size", [(0, 3), (2, 0)])
def test_nothing_to_read(size: tuple[int, int]) -> None:
    states, final = encoder("lstm", bidirectional=True)(torch.zeros(*size, 3, dtype=torch.float64))
    assert states.shape == (*size, 8)
    assert not final[0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_twice(kind: str) -> None:
    ours, inputs = encoder(kind), torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([3, 1])
    assert torch.autograd.gradcheck(lambda x: ours(x, lengths=lengths)[0], inputs)
    assert torch.autograd.gradgradcheck(lambda x: ours(x, lengths=lengths)[0], inputs)


def test_dropout_is_between_layers_in_training_only() -> None:
    ours, inputs = encoder("gru", dropout_p=0.5), torch.randn(2, 5, 3, dtype=torch.float64)
    assert not torch.equal(ours(inputs)[0], ours(inputs)[0])
    assert not torch.equal(*(ours(inputs, lengths=torch.tensor([5, 3]))[0] for _ in range(2)))
    ours.eval()
    assert torch.equal(ours(inputs)[0], ours(inputs)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_start_as_documented(kind: str) -> None:
    layer = RecurrentEncoder(kind, 3, 4).layers[0]
    gates = 4 if kind == "lstm" else 3
    for gate in layer.weight_hh_l0.chunk(gates):
        close(gate @ gate.T, torch.eye(4), 1e-5)
    forget = layer.bias_ih_l0.chunk(gates)[1]
    assert torch.equal(forget, torch.full((4,), 1.0 if kind == "lstm" else 0.0))
    assert not layer.bias_hh_l0.any()


@pytest.mark.usefixtures("unchecked")
def test_copies_compute_the_same() -> None:
    ours = encoder("lstm", bidirectional=True)
    inputs = torch.randn(2, 3, 3, dtype=torch.float64)
    expected, _ = ours(inputs)
    other = RecurrentEncoder("lstm", 3, 4, 2, bidirectional=True).double()
    assert not torch.equal(other(inputs)[0], expected)
    other.load_state_dict(ours.state_dict())
    for same in (other, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(same(inputs)[0], expected)


@pytest.mark.usefixtures("unchecked")
def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`hidden_dim`.*0.*`dropout_p`.*2.*`kind`.*'rnn'"):
        RecurrentEncoder("rnn", 1, 0, dropout_p=2)
    ours, inputs = RecurrentEncoder("gru", 3, 4), torch.zeros(2, 5, 3)
    with pytest.raises(
        ShapeError, match=r"`inputs` must be of shape \[batch, length, 3\], but is of shape \(2, 5, 4\)"
    ):
        ours(torch.zeros(2, 5, 4))
    with pytest.raises(ShapeError, match=r"`keep` must be of shape \(2, 5\), but is of shape \(2, 4\)"):
        ours(inputs, torch.ones(2, 4).bool())
    with pytest.raises(ConfigError, match=r"`lengths` must be from 0 to 5, but is \[6, 1\]"):
        ours(inputs, lengths=torch.tensor([6, 1]))
    with pytest.raises(ShapeError, match=r"`lengths` must be of shape \(2,\)"):
        ours(inputs, lengths=torch.tensor([1]))
    with pytest.raises(ConfigError, match="give one of them"):
        ours(inputs, torch.ones(2, 5).bool(), lengths=torch.tensor([1, 1]))
    with pytest.raises(ShapeError, match=r"`state` must be 1 tensor\(s\) of shape \(1, 2, 4\)"):
        ours(inputs, state=RecurrentEncoder("lstm", 3, 4).start(2))
    with pytest.raises(ConfigError, match=r'`attention` must be "additive" or "dot"'):
        AttentionDecoder("gru", 3, 4, 5, attention="none")


def by_hand(decoder: AttentionDecoder, inputs: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """The decoder with torch's cells, one row and one step at a time."""
    rows = []
    for row in range(len(inputs)):
        states = memory[row][keep[row]]
        hidden = [inputs.new_zeros(1, 4) for _ in decoder.cells]
        cell_states, fed, outputs = [h.clone() for h in hidden], inputs.new_zeros(1, decoder.output_dim), []
        for step in inputs[row]:
            below = torch.cat((step[None], fed), -1)
            for number, cell in enumerate(decoder.cells):
                if decoder.kind == "lstm":
                    hidden[number], cell_states[number] = cell(below, (hidden[number], cell_states[number]))
                else:
                    hidden[number] = cell(below, hidden[number])
                below = hidden[number]
            context, _ = decoder.attention(below[None], states[None])
            fed = decoder.joined(torch.cat((context[0], below), -1)).tanh()
            outputs.append(fed)
        rows.append(torch.cat(outputs))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_decoder_equals_cells_in_a_loop_and_itself_step_by_step(kind: str, attention: str) -> None:
    torch.manual_seed(0)
    decoder = AttentionDecoder(kind, 3, 4, 5, 2, output_dim=6, attention=attention).double()
    inputs, memory = torch.randn(2, 4, 3).double(), torch.randn(2, 5, 5).double()
    with torch.no_grad():
        for cell in decoder.cells:  # biases that are not zero
            nn.init.normal_(cell.bias_ih)
            nn.init.normal_(cell.bias_hh)
    keep = torch.tensor([[True] * 5, [True, True, False, False, False]])
    seen = decoder.remember(memory.masked_fill(~keep[..., None], float("nan")), keep)
    outputs, weights, end = decoder(inputs, decoder.start(2), seen)
    close(outputs, by_hand(decoder, inputs, memory, keep), 1e-12)
    close(weights.sum(-1), 1.0, 1e-12)
    assert not weights[1, :, 2:].any()
    state, parts = decoder.start(2), []
    for step in range(4):
        output, _, state = decoder(inputs[:, step : step + 1], state, seen)
        parts.append(output)
    close(torch.cat(parts, 1), outputs, 1e-12)
    close(state.recurrent[0], end.recurrent[0], 1e-12)


def test_decoder_without_inputs_or_with_wrong_ones() -> None:
    decoder = AttentionDecoder("gru", 3, 4, 5)
    memory = decoder.remember(torch.zeros(2, 5, 5))
    outputs, weights, _ = decoder(torch.zeros(2, 0, 3), decoder.start(2), memory)
    assert outputs.shape == (2, 0, 4)
    assert weights.shape == (2, 0, 5)
    with pytest.raises(ShapeError, match=r"`memory` must have the batch of `inputs` \(1\), but has 2"):
        decoder(torch.zeros(1, 1, 3), decoder.start(1), memory)
