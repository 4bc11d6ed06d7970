"""Whether our models cost no more than the same model written plainly with torch's own layers.

A step is a forward and a backward pass over one batch. Each plain model is given our weights; no time is taken unless
logits and gradients of the embedding agree. Both take turns in one process. The plain models are what a person writes:
nn.LSTM on packed sequences, an nn.LSTMCell in a loop, nn.Conv1d, nn.Transformer. Transformers are measured without
dropout, and with it, as they are trained; it is switched on once both sides have been compared without.

    python benchmarks/models.py [--threads N] [--rounds 9] [--only lstm]

Another family is another entry of ``CASES``.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import plain_transformers
import torch
from setting import setting, write
from torch import Tensor, nn
from torch.nn.functional import glu, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.bench import BUSY, OtherProcesses, Spread, interleave
from regard.models import (
    ConvolutionalLM,
    ConvolutionalLMConfig,
    RecurrentClassifier,
    RecurrentClassifierConfig,
    RecurrentEncoderDecoder,
    RecurrentEncoderDecoderConfig,
    RecurrentLM,
    RecurrentLMConfig,
    TextCNN,
    TextCNNConfig,
)

SEED, VOCABULARY = 0, 4000


@dataclass(frozen=True)
class Case:
    """Two models that compute the same, and what both are given."""

    ours: nn.Module
    plain: nn.Module
    inputs: tuple[Tensor, ...]
    dropout_p: float = 0.0


class PlainEncoderDecoder(nn.Module):
    """Packed nn.LSTM, then cells in a loop with attention and input feeding, or nn.LSTM without."""

    def __init__(self, ours: RecurrentEncoderDecoder) -> None:
        super().__init__()
        config, decoder = ours.config, ours.decoder
        self.attention, self.kind = config.attention, config.kind
        self.source, self.target = copied(ours.source_embedding), copied(ours.target_embedding)
        whole, cell = (nn.LSTM, nn.LSTMCell) if config.kind == "lstm" else (nn.GRU, nn.GRUCell)
        half, width, hidden = config.hidden_dim // 2, config.embed_dim, config.hidden_dim
        self.encoder = whole(width, half, batch_first=True, bidirectional=True)
        self.encoder.load_state_dict(ours.encoder.layers[0].state_dict())
        if self.attention == "none":
            self.decoder = whole(width, hidden, batch_first=True)
            self.decoder.load_state_dict(decoder.layers[0].state_dict())
            self.joined = copied(ours.joined)
        else:
            self.cell = cell(width + width, hidden)
            self.cell.load_state_dict(decoder.cells[0].state_dict())
            self.query = copied(decoder.attention.query) if self.attention == "additive" else nn.Identity()
            self.score = copied(decoder.attention.score) if self.attention == "additive" else nn.Identity()
            self.key, self.joined = copied(decoder.attention.key), copied(decoder.joined)
        self.output = copied(ours.output)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits."""
        keep = source != 0
        packed = pack_padded_sequence(self.source(source), keep.sum(1), batch_first=True, enforce_sorted=False)
        packed, final = self.encoder(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True)
        both = [torch.cat((part[0], part[1]), dim=-1) for part in (final if self.kind == "lstm" else (final,))]
        embedded = self.target(target)
        if self.attention == "none":
            start = tuple(part[None] for part in both)
            read, _ = self.decoder(embedded, start if self.kind == "lstm" else start[0])
            return self.output(self.joined(read).tanh())
        keys, state = self.key(states), tuple(both) if self.kind == "lstm" else both[0]
        vector, vectors = embedded.new_zeros(embedded[:, 0].shape), []
        for step in range(target.shape[1]):
            state = self.cell(torch.cat((embedded[:, step], vector), dim=-1), state)
            hidden = state[0] if self.kind == "lstm" else state
            if self.attention == "additive":
                scores = self.score((self.query(hidden)[:, None] + keys).tanh())[..., 0]
            else:
                scores = torch.bmm(keys, hidden[..., None])[..., 0]
            weights = scores.masked_fill(~keep, float("-inf")).softmax(dim=-1)
            context = torch.bmm(weights[:, None], states)[:, 0]
            vector = self.joined(torch.cat((context, hidden), dim=-1)).tanh()
            vectors.append(vector)
        return self.output(torch.stack(vectors, dim=1))


class PlainLM(nn.Module):
    """Embedding, nn.LSTM or nn.GRU, linear layers."""

    def __init__(self, ours: RecurrentLM) -> None:
        super().__init__()
        config = ours.config
        self.embedding, self.narrow, self.output = copied(ours.embedding), copied(ours.narrow), copied(ours.output)
        layer = nn.LSTM if config.kind == "lstm" else nn.GRU
        self.layers = layer(config.embed_dim, config.hidden_dim, batch_first=True)
        self.layers.load_state_dict(ours.layers.layers[0].state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        return self.output(self.narrow(self.layers(self.embedding(tokens))[0]))


class PlainClassifier(nn.Module):
    """Packed bidirectional nn.LSTM and the maximum of its states."""

    def __init__(self, ours: RecurrentClassifier) -> None:
        super().__init__()
        config = ours.config
        self.embedding, self.output = copied(ours.embedding), copied(ours.output)
        self.encoder = nn.LSTM(config.embed_dim, config.hidden_dim, batch_first=True, bidirectional=True)
        self.encoder.load_state_dict(ours.encoder.layers[0].state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, padding_value=float("-inf"))
        return self.output(states.amax(dim=1))


class PlainTextCNN(nn.Module):
    """Three nn.Conv1d and the maximum over the text."""

    def __init__(self, ours: TextCNN) -> None:
        super().__init__()
        self.embedding, self.output = copied(ours.embedding), copied(ours.output)
        self.convolutions = copied(ours.convolutions)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        keep = tokens != 0
        inputs = (self.embedding(tokens) * keep[..., None]).transpose(1, 2)
        found = []
        for convolution in self.convolutions:
            phrases = convolution(pad(inputs, (0, convolution.kernel_size[0] - 1))).relu()
            found.append((phrases * keep[:, None]).amax(dim=2))
        return self.output(torch.cat(found, dim=1))


class PlainConvolutionalLM(nn.Module):
    """Padded nn.Conv1d in residual blocks."""

    def __init__(self, ours: ConvolutionalLM) -> None:
        super().__init__()
        self.gated = ours.config.gated
        self.embedding, self.norm, self.output = copied(ours.embedding), copied(ours.norm), copied(ours.output)
        self.norms = nn.ModuleList(copied(layer.norm) for layer in ours.layers)
        self.convolutions = nn.ModuleList(copied(layer.convolution.convolution) for layer in ours.layers)
        self.outputs = nn.ModuleList(copied(layer.output) for layer in ours.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        hidden = self.embedding(tokens)
        for norm, convolution, output in zip(self.norms, self.convolutions, self.outputs, strict=True):
            reach = (convolution.kernel_size[0] - 1) * convolution.dilation[0]
            new = convolution(pad(norm(hidden).transpose(1, 2), (reach, 0))).transpose(1, 2)
            hidden = hidden + output(glu(new) if self.gated else new.relu())
        return self.output(self.norm(hidden))


def copied(module: nn.Module) -> nn.Module:
    """The same layer with the same weights, of its own."""
    return copy.deepcopy(module)


def texts(batch: int, length: int, *, padded: bool) -> Tensor:
    """Random ids, the first row full and the others at least half."""
    tokens = torch.randint(3, VOCABULARY, (batch, length))
    lengths = torch.randint(length // 2, length + 1, (batch, 1))
    lengths[0] = length
    return tokens * (torch.arange(length) < lengths) if padded else tokens


def translation(attention: Any, kind: Any = "lstm") -> Case:
    config = RecurrentEncoderDecoderConfig(
        VOCABULARY, VOCABULARY, kind=kind, attention=attention, embed_dim=256, hidden_dim=512
    )
    ours = RecurrentEncoderDecoder(config)
    return Case(ours, PlainEncoderDecoder(ours), (texts(64, 12, padded=True), texts(64, 12, padded=False)))


def recurrent_lm(kind: Any) -> Case:
    ours = RecurrentLM(RecurrentLMConfig(VOCABULARY, kind=kind, embed_dim=256, hidden_dim=256))
    return Case(ours, PlainLM(ours), (texts(16, 64, padded=False),))


def classifier() -> Case:
    ours = RecurrentClassifier(RecurrentClassifierConfig(VOCABULARY, 2))
    return Case(ours, PlainClassifier(ours), (texts(50, 32, padded=True),))


def text_cnn() -> Case:
    ours = TextCNN(TextCNNConfig(VOCABULARY, 2, dropout_p=0.0))
    return Case(ours, PlainTextCNN(ours), (texts(50, 32, padded=True),))


def convolutional_lm(*, gated: bool) -> Case:
    ours = ConvolutionalLM(ConvolutionalLMConfig(VOCABULARY, embed_dim=192, num_layers=5, gated=gated))
    return Case(ours, PlainConvolutionalLM(ours), (texts(16, 128, padded=False),))


def transformer(make: Callable[[int], tuple[nn.Module, nn.Module]], *inputs: Tensor, dropout_p: float = 0.0) -> Case:
    return Case(*make(VOCABULARY), inputs, dropout_p)


def images(batch: int) -> Tensor:
    return torch.randn(batch, 1, 28, 28)


TRANSFORMERS: dict[str, Callable[[float], Case]] = {
    "transformer_encoder_decoder": lambda p: transformer(
        plain_transformers.translation, texts(128, 12, padded=True), texts(128, 12, padded=False), dropout_p=p
    ),
    "transformer_lm": lambda p: transformer(
        plain_transformers.language_model, texts(16, 128, padded=False), dropout_p=p
    ),
    "transformer_classifier": lambda p: transformer(
        plain_transformers.classifier, texts(50, 32, padded=True), dropout_p=p
    ),
    "vision_transformer": lambda p: transformer(plain_transformers.vision, images(64), dropout_p=p),
    "transformer_captions": lambda p: transformer(
        plain_transformers.captions, images(32), texts(32, 16, padded=False), dropout_p=p
    ),
}
CASES: dict[str, Callable[[], Case]] = {
    **{name: partial(make, 0.0) for name, make in TRANSFORMERS.items()},
    **{f"{name}_dropout": partial(make, 0.1) for name, make in TRANSFORMERS.items()},
    "lstm_encoder_decoder": lambda: translation("none"),
    "lstm_encoder_decoder_additive": lambda: translation("additive"),
    "lstm_encoder_decoder_dot": lambda: translation("dot"),
    "gru_encoder_decoder_additive": lambda: translation("additive", "gru"),
    "lstm_lm": lambda: recurrent_lm("lstm"),
    "gru_lm": lambda: recurrent_lm("gru"),
    "bilstm_classifier": classifier,
    "text_cnn": text_cnn,
    "convolutional_lm": lambda: convolutional_lm(gated=False),
    "convolutional_lm_gated": lambda: convolutional_lm(gated=True),
}


def step(model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Forward and backward; the logits, and the gradient of the first parameter (an embedding)."""
    model.zero_grad()
    logits = model(*inputs)
    logits.square().mean().backward()
    return logits.detach(), next(model.parameters()).grad


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Check that both agree, then time them in turn."""
    sides = {"regard": lambda: step(case.ours, case.inputs), "plain": lambda: step(case.plain, case.inputs)}
    ours, plain = sides["regard"](), sides["plain"]()
    apart = float(torch.stack([(a - b).abs().max() / b.abs().max() for a, b in zip(ours, plain, strict=True)]).max())
    if not apart <= 1e-4:  # NaN is wrong
        return {"status": "disagrees", "apart": apart}
    plain_transformers.with_dropout(case.ours, case.plain, p=case.dropout_p)
    others = OtherProcesses()
    times = interleave(sides, rounds=rounds)
    busy = others.share()
    seconds = {name: Spread.of(found) for name, found in times.items()}
    ratios = [a / b for a, b in zip(times["regard"], times["plain"], strict=True)]
    return {
        "status": "measured",
        "apart": apart,
        "parameters": sum(parameter.numel() for parameter in case.ours.parameters()),
        "seconds": {name: asdict(spread) for name, spread in seconds.items()},
        "time_over_plain": asdict(Spread.of(ratios)),
        "other_cpu": busy,
        "doubtful": busy is not None and busy > BUSY,
    }


def main() -> None:
    """Measure every model and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="models whose name holds this; the result is shown, not kept")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {}
    for name, make in CASES.items():
        if options.only in name:
            torch.manual_seed(SEED)
            found[name] = measure(make(), options.rounds)
    where = setting(seed=SEED, threads=options.threads, rounds=options.rounds)
    write("models", {**where, "models": found}, keep=not options.only)
    if any(one["status"] != "measured" for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
