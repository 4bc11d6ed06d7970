"""The recurrent encoder–decoder in transformers: it translates with a state, and with attention if it has any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache
from transformers.modeling_outputs import Seq2SeqLMOutput

from regard.errors import ConfigError, message, must_be
from regard.hf.earlier_config import RegardRecurrentSeq2SeqConfig
from regard.hf.earlier_wrapper import StateWriter
from regard.hf.keywords import called_by_transformers, keep_of
from regard.hf.losses import decoder_inputs, labelled_loss
from regard.hf.state_cache import StateCache, check_cache
from regard.hf.writers import ReadSource
from regard.models import RecurrentEncoderDecoder
from regard.models.recurrent import State, select_rows
from regard.nn.embedding import check_tokens
from regard.nn.recurrent_decoder import AttentionDecoder, DecoderState, Memory
from regard.ops.transforms import is_free_to_look_at


@dataclass
class ReadRecurrently(ReadSource):
    """A source as it was read: all that a decoder begins with, batch first, as ``generate`` repeats it for beams.

    Args:
        last_hidden_state: What the decoder may look back at; without attention the state it begins with.
        source_keep: True for a real token.
        state: Where the decoder begins: [batch, parts, layers, hidden_dim].
        projected: The keys of the attention; None without.
    """

    state: Tensor | None = None
    projected: Tensor | None = None


class RecurrentReader:
    """What ``generate`` takes for an encoder."""

    def __init__(self, writer: RegardRecurrentForConditionalGeneration) -> None:
        self._writer, self.config, self.shows_attention = writer, writer.config, writer.shows_attention

    @called_by_transformers
    def forward(
        self, input_ids: Int[Tensor, "batch source_len"], attention_mask: Tensor | None = None
    ) -> ReadRecurrently:
        """Read a source."""
        keep = input_ids != self.config.pad_id if attention_mask is None else attention_mask != 0
        state, memory = self._writer.model.read(input_ids, source_keep=keep)
        parts = state.recurrent if isinstance(state, DecoderState) else state
        begun = torch.stack([part.transpose(0, 1) for part in parts], dim=1)
        if memory is None:
            return ReadRecurrently(last_hidden_state=begun[:, 0, -1:], source_keep=keep, state=begun)
        return ReadRecurrently(
            last_hidden_state=memory.states, source_keep=keep, state=begun, projected=memory.projected
        )

    __call__ = forward


class RegardRecurrentForConditionalGeneration(StateWriter):
    """``regard.models.RecurrentEncoderDecoder`` in transformers."""

    config_class = RegardRecurrentSeq2SeqConfig
    inner = RecurrentEncoderDecoder
    _tied_weights_keys = {"model.output.weight": "model.target_embedding.weight"}  # noqa: RUF012

    @property
    def has_attention(self) -> bool:
        """Whether the decoder looks back at the source."""
        return bool(self.config.attention != "none")

    @property
    def shows_attention(self) -> str:
        """Where attention is seen, if there is any: a watch sees none of a decoder's steps."""
        call = "`model.alignments(input_ids, decoder_input_ids)`"
        return f"{call} returns attention" if self.has_attention else super().shows_attention

    def new_cache(self) -> StateCache:
        """An empty state."""
        return StateCache(select_rows)

    def get_encoder(self, modality: str | None = None) -> Any:
        """What ``generate`` calls to read the source."""
        return RecurrentReader(self)

    def prepare_decoder_input_ids_from_labels(self, labels: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """What is read while ``labels`` are learned; collators ask for it where the loss is not computed here."""
        return decoder_inputs(self, labels)

    def alignments(
        self,
        input_ids: Int[Tensor, "batch source_len"],
        decoder_input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch length source_len"]:
        """Where the decoder looked for the token after each of these, as weights that sum to one.

        Raises:
            UnsupportedError: the model has no attention.
            ConfigError, ShapeError, DTypeError: as ``forward``.
        """
        keep = keep_of(attention_mask)
        _, found = self.model(input_ids, decoder_input_ids, source_keep=keep, need_weights=True)
        weights: Tensor = found[:, 0]
        return weights

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch source_len"] | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Int[Tensor, "batch length"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Any = None,
    ) -> Seq2SeqLMOutput:
        """Logits of the target's next tokens, and with ``labels`` (the target; −100 is left out) the loss.

        Args:
            input_ids: The source.
            attention_mask: 1 for a real source token; by default all that are not padding. ``encoder_outputs`` know it.
            decoder_input_ids: The target so far, with a cache what it has not read; made from ``labels`` where only
                those are given.
            decoder_attention_mask: 1 for a real target token; padding must be at the end, where it changes nothing.
            encoder_outputs: The source as ``get_encoder()`` read it, in place of ``input_ids``.
            cache: The state after what was written, from ``new_cache``; it goes on.
            labels: What is to be written.
            use_cache: Whether to keep the state where no cache is given.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default tokens here.

        Raises:
            ConfigError, ShapeError, DTypeError: an argument does not fit, or is none that can be honoured.
        """
        name = type(self).__name__
        check_cache(name, cache)
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if decoder_input_ids is None or (input_ids is None and encoder_outputs is None):
            raise ConfigError(
                message(name, "a source (or encoder_outputs) and decoder_input_ids (or labels) must be given.")
            )
        check_tokens(name, "decoder_input_ids", decoder_input_ids, self.config.vocab_size)
        _check_padding(name, decoder_attention_mask)
        kept: Any = self.new_cache() if cache is None and use_cache else cache
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask, return_dict=True)
        state, memory = self._begin(encoder_outputs)
        if kept is not None and kept.state is not None:
            state = kept.state
        logits, _, state = self.model.write(decoder_input_ids, state, memory)
        if kept is not None:
            kept.put(state, tokens=decoder_input_ids.shape[1])
        loss = labelled_loss(name, logits, labels, num_items_in_batch)
        return Seq2SeqLMOutput(loss=loss, logits=logits, cache=kept, encoder_last_hidden_state=encoder_outputs[0])

    def _begin(self, read: Any) -> tuple[State, Memory | None]:
        """Where the decoder begins, and what it may look back at."""
        if not isinstance(read, ReadRecurrently) or read.state is None:
            expected = "what `get_encoder()` returned (its state is needed)"
            problem = must_be("encoder_outputs", expected, f"a {type(read).__name__}")
            raise ConfigError(message(type(self).__name__, problem))
        parts = tuple(part.transpose(0, 1).contiguous() for part in read.state.unbind(dim=1))
        decoder = self.model.decoder
        if not isinstance(decoder, AttentionDecoder):
            return parts, None
        states, projected, keep = read.last_hidden_state, read.projected, read.source_keep
        assert states is not None
        assert projected is not None
        return decoder.start(len(states), parts), Memory(states, projected, None if keep is None else keep[:, None])


def _check_padding(caller: str, mask: Tensor | None) -> None:
    """A state reads all it is given: padding must be where nothing follows it. Looked at only where that is free."""
    if mask is not None and is_free_to_look_at(mask) and bool(((mask != 0).int().diff(dim=1) > 0).any()):
        problem = must_be("decoder_attention_mask", "0 at the end only", "0 before a real token")
        raise ConfigError(message(caller, problem))
