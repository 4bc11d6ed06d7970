"""Convolutional models: a text classifier, and a language model with a reach that doubles from layer to layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import ShapeError, message, must_be
from regard.models.configuration import check_config, need_config
from regard.models.padding import find_keep
from regard.models.sampling import continue_texts
from regard.nn.convolutional import CausalBlock, reset_convolution
from regard.nn.dropout import Dropout
from regard.nn.embedding import check_tokens
from regard.nn.initial import reset_linear
from regard.ops.transforms import is_free_to_look_at


@dataclass(frozen=True)
class TextCNNConfig:
    """What a ``TextCNN`` is built from.

    Args:
        vocab_size: How many ids there are.
        num_classes: How many classes there are.
        embed_dim: Width of embeddings.
        kernel_sizes: How many tokens the filters of each group see.
        num_filters: Filters in each group.
        dropout_p: Share dropped in training before the output.
        pad_id: Padding.

    Raises:
        ConfigError: with every problem.
    """

    vocab_size: int
    num_classes: int
    embed_dim: int = 128
    kernel_sizes: tuple[int, ...] = (3, 4, 5)
    num_filters: int = 100
    dropout_p: float = 0.5
    pad_id: int = 0

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "num_classes", "embed_dim", "num_filters")
        check_config(self, sizes=sizes, ids=("pad_id",), more=self.problems)

    def problems(self) -> list[str]:
        """What else cannot work, one sentence each."""
        wrong = not self.kernel_sizes or min(self.kernel_sizes) < 1
        return [must_be("kernel_sizes", "one or more sizes of at least 1", self.kernel_sizes)] if wrong else []


class TextCNN(nn.Module):
    """Looks for short phrases anywhere in a text and names its class.

        tokens ─▶ embedding ─┬▶ convolution of 3 ─▶ relu ─▶ max over text ─┐
                             ├▶ convolution of 4 ─▶ relu ─▶ max over text ─┼▶ output ─▶ logits of classes
                             └▶ convolution of 5 ─▶ relu ─▶ max over text ─┘

    A phrase may begin at any token; beyond the end of a text stand zeros, so a text shorter than a filter is read
    too, and padding changes nothing. A text without tokens gives zeros.

    Args:
        config: Its sizes and options.

    Source:
        Kim 2014, arXiv:1408.5882, section 2 (there phrases end at the end of the text).

    Example:
        >>> import torch
        >>> model = TextCNN(TextCNNConfig(12, 3, embed_dim=4, num_filters=5))
        >>> tuple(model(torch.tensor([[4, 5, 0], [6, 0, 0]])).shape)
        (2, 3)
    """

    def __init__(self, config: TextCNNConfig) -> None:
        super().__init__()
        need_config("TextCNN", config, TextCNNConfig)
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embed_dim, config.num_filters, size) for size in config.kernel_sizes
        )
        self.dropout = Dropout(config.dropout_p)
        self.output = nn.Linear(config.num_filters * len(config.kernel_sizes), config.num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: embeddings normal with variance 1 / embed_dim."""
        nn.init.normal_(self.embedding.weight, std=self.config.embed_dim**-0.5)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            reset_convolution(convolution)
        reset_linear(self.output)

    def forward(
        self, tokens: Int[Tensor, "batch length"], *, keep: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch num_classes"]:
        """Logits of the classes.

        Args:
            tokens: Padded at either end.
            keep: True for real tokens; by default those that are not ``pad_id``.

        Raises:
            ConfigError: an id is not in the vocabulary (looked at in eager mode on CPU).
            ShapeError, DTypeError: ``tokens`` or ``keep`` are not what they should be.
        """
        check_tokens("TextCNN", "tokens", tokens, self.config.vocab_size)
        keep = find_keep("TextCNN", "keep", tokens, keep, self.config.pad_id)
        if tokens.shape[1] == 0:  # a maximum needs a position
            tokens, keep = (functional.pad(part, (0, 1)) for part in (tokens, keep))
        inputs, begins = (self.embedding(tokens) * keep[..., None]).mT, keep[:, None]
        found = []
        for convolution, size in zip(self.convolutions, self.config.kernel_sizes, strict=True):
            phrases = convolution(functional.pad(inputs, (0, size - 1)))  # position t: the phrase that begins at t
            # relu of the maximum is the maximum of relu, and there zeros lose against every phrase
            found.append((phrases * begins).amax(dim=2).relu())
        logits: Tensor = self.output(self.dropout(torch.cat(found, dim=1)))
        return logits


@dataclass(frozen=True)
class ConvolutionalLMConfig:
    """What a ``ConvolutionalLM`` is built from.

    Args:
        vocab_size: How many ids there are.
        embed_dim: Width of embeddings and of all layers.
        num_layers: Layers; the dilation of layer l is 2^l.
        kernel_size: Positions each layer sees; all together (kernel_size − 1) · (2^num_layers − 1) + 1 tokens.
        gated: Gated linear units instead of rectified ones.
        tie_embeddings: Use the embedding for the logits too.
        dropout_p: Share dropped in training, from embeddings and in every layer.
        pad_id: Padding.
        bos_id: Begins a text.
        eos_id: Ends a text.

    Raises:
        ConfigError: with every problem.
    """

    vocab_size: int
    embed_dim: int = 256
    num_layers: int = 6
    kernel_size: int = 3
    gated: bool = False
    tie_embeddings: bool = False
    dropout_p: float = 0.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "embed_dim", "num_layers", "kernel_size")
        check_config(self, sizes=sizes, ids=("pad_id", "bos_id", "eos_id"))

    @property
    def receptive_field(self) -> int:
        """How many tokens a prediction depends on."""
        return (self.kernel_size - 1) * ((1 << self.num_layers) - 1) + 1


class ConvolutionalLM(nn.Module):
    """Predicts every next token from a window of tokens before it (a temporal convolutional network).

                                  ┌──────────────────────────────┐
        tokens ─▶ embedding ─┬──▶ │ norm ─▶ causal conv, 2^l apart│ ─▶ ⊕ ─▶ … × N ─▶ norm ─▶ output ─▶ logits
                             │    │      ─▶ relu or gate ─▶ W     │    ▲
                             │    └──────────────────────────────┘    │
                             └────────────────────────────────────────┘

    Decoding keeps the last inputs of every layer and computes one position a step.

    Args:
        config: Its sizes and options.

    Source:
        Bai, Kolter and Koltun 2018, arXiv:1803.01271; gates: Dauphin et al. 2017, arXiv:1612.08083.

    Example:
        >>> import torch
        >>> model = ConvolutionalLM(ConvolutionalLMConfig(12, embed_dim=4, num_layers=3))
        >>> tuple(model(torch.tensor([[1, 5, 7]])).shape), model.config.receptive_field
        ((1, 3, 12), 15)
    """

    def __init__(self, config: ConvolutionalLMConfig) -> None:
        super().__init__()
        need_config("ConvolutionalLM", config, ConvolutionalLMConfig)
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
        self.dropout = Dropout(config.dropout_p)
        self.layers = nn.ModuleList(
            CausalBlock(
                *(config.embed_dim, config.kernel_size),
                dilation=2**number,
                gated=config.gated,
                dropout_p=config.dropout_p,
            )
            for number in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.embed_dim)
        self.output = nn.Linear(config.embed_dim, config.vocab_size)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: embeddings and logits normal with variance 1 / embed_dim."""
        for weight in (self.output.weight, self.embedding.weight):
            nn.init.normal_(weight, std=self.config.embed_dim**-0.5)
        nn.init.zeros_(self.output.bias)
        self.norm.reset_parameters()
        for layer in self.layers:
            assert isinstance(layer, CausalBlock)
            layer.reset_parameters()

    def forward(
        self, tokens: Int[Tensor, "batch length"], *, keep: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Logits of every next token.

        Args:
            tokens: Padded at either end.
            keep: True for real tokens; by default those that are not ``pad_id``.

        Raises:
            ConfigError: an id is not in the vocabulary (looked at in eager mode on CPU).
            ShapeError, DTypeError: ``tokens`` or ``keep`` are not what they should be.
        """
        logits, _ = self.step(tokens, keep=keep)
        return logits

    def step(
        self,
        tokens: Int[Tensor, "batch length"],
        state: tuple[Tensor, ...] | None = None,
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
    ) -> tuple[Float[Tensor, "batch length vocab_size"], tuple[Tensor, ...]]:
        """Go on from a state: logits after each of these tokens, and the state after them.

        Args:
            tokens: One or more; to go on from them, padded in front only.
            state: From the call before (the last inputs of every layer); the beginning by default.
            keep: As for ``forward``.

        Raises:
            ConfigError, ShapeError, DTypeError: as ``forward``.
        """
        check_tokens("ConvolutionalLM", "tokens", tokens, self.config.vocab_size)
        keep = find_keep("ConvolutionalLM", "keep", tokens, keep, self.config.pad_id)
        if state is not None and (not isinstance(state, tuple) or len(state) != len(self.layers)):
            found = f"of {len(state)}" if isinstance(state, tuple) else f"a {type(state).__name__}"
            expected = f"what step() returned, a tuple of {len(self.layers)} tensors"
            raise ShapeError(message("ConvolutionalLM", must_be("state", expected, found)))
        padding = None if is_free_to_look_at(keep) and bool(keep.all()) else keep  # nothing to blank, nothing to pay
        hidden = self.dropout(self.embedding(tokens))
        before = [None] * len(self.layers) if state is None else state
        after = []
        for layer, past in zip(self.layers, before, strict=True):
            hidden, past = layer(hidden, past, keep=padding)
            after.append(past)
        return self.output(self.norm(hidden)), tuple(after)

    def generate(
        self,
        prompt: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> list[list[int]]:
        """Write on.

        Args:
            prompt: At least one token in each row (``bos_id`` to begin a text); padded at either end.
            keep: As for ``forward``.
            max_new_tokens: The most that is written.
            temperature: 0 takes the best token; else one is drawn from softmax(logits / temperature).
            top_k: Draw among the best k only.
            seed: Where chance starts: the same call draws the same. Rows share it, so a row alone draws otherwise than
                in a batch.

        Returns:
            The new ids of each row, up to its end, without special ones.

        Raises:
            ConfigError: an option is out of range, or a prompt is empty.
            ShapeError, DTypeError: as ``forward``.
        """
        return continue_texts(
            self, prompt, keep, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, seed=seed
        )
