"""Our models that write, in transformers: language models, and those with a source or an image in view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput

from regard.errors import ConfigError, message, must_be
from regard.hf.beam_decoding import is_plain, search
from regard.hf.beams import is_followed
from regard.hf.config import RegardCaptionConfig, RegardDecoderConfig, RegardSeq2SeqConfig
from regard.hf.keywords import called_by_transformers, keep_of
from regard.hf.kv_cache import transformers_cache
from regard.hf.losses import decoder_inputs, labelled_loss
from regard.hf.wrapper import Wrapper
from regard.models import CaptionModel, DecoderLM, Seq2Seq
from regard.nn.embedding import check_tokens


class RegardGenerationMixin(GenerationMixin):
    """``generate`` of a model that is handed the new tokens, what it has read before, and the mask as it is."""

    config: Any

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """What the next step is called with: our masks need no four dimensions, and every other option goes on."""
        new = input_ids if next_sequence_length is None else input_ids[:, -next_sequence_length:]
        name = "decoder_input_ids" if self.config.is_encoder_decoder else "input_ids"
        options = {option: value for option, value in kwargs.items() if option != "is_first_iteration"}
        return {**options, name: new, "attention_mask": attention_mask, "cache": cache}

    def _beam_search(
        self,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """Ours where only the best texts are wanted; transformers' own else, and where a watch follows its beams."""
        asked = {
            "logits_processor": logits_processor,
            "stopping_criteria": stopping_criteria,
            "generation_config": generation_config,
            "synced_gpus": synced_gpus,
        }
        if not is_followed() and is_plain(**asked, inputs=model_kwargs, vocab_size=self.config.vocab_size):
            return search(self, input_ids, generation_config, model_kwargs)
        theirs: Any = GenerationMixin
        return theirs._beam_search(self, input_ids, **asked, **model_kwargs)


class RegardForCausalLM(Wrapper, RegardGenerationMixin):
    """``regard.models.DecoderLM`` in transformers."""

    config_class = RegardDecoderConfig
    inner = DecoderLM

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Int[Tensor, "kept"] = 0,
        num_items_in_batch: Any = None,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token, and with ``labels`` (the tokens themselves; −100 is left out) the loss.

        Args:
            input_ids: Tokens; with a cache those it has not seen.
            attention_mask: 1 for a real token, over all tokens so far; by default all are (as in all of transformers).
            cache: What the model has seen; it is filled.
            labels: What the loss compares; they are shifted here.
            use_cache: Whether to make a cache where none is given.
            logits_to_keep: How many of the last tokens' logits to return, or which; 0 for all. The loss is of all.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default tokens here.

        Raises:
            ConfigError, ShapeError, DTypeError: an argument does not fit, or is none that can be honoured.
        """
        name = type(self).__name__
        check_tokens(name, "input_ids", input_ids, self.config.vocab_size)
        if cache is None and use_cache:
            cache = DynamicCache(config=self.config)
        kv_cache = transformers_cache(name, cache, self.config)
        keep = _all_real(input_ids, cache) if attention_mask is None else attention_mask != 0
        logits = self.model(input_ids, keep=keep, kv_cache=kv_cache)
        loss = labelled_loss(name, logits, labels, num_items_in_batch, shift=True)
        return CausalLMOutputWithPast(loss=loss, logits=kept_logits(name, logits, logits_to_keep), cache=cache)


class _Writer(Wrapper, RegardGenerationMixin):
    """A wrapper of a model that reads a source once and writes with it in view."""

    def source_keep(self, source: Any, attention_mask: Tensor | None) -> Tensor | None:
        """Which of the source is real; None if all of it is."""
        return keep_of(attention_mask)

    def read(self, source: Any, source_keep: Tensor | None) -> Tensor:
        """Encode the source."""
        raise NotImplementedError

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the target's next tokens."""
        raise NotImplementedError

    def get_encoder(self, modality: str | None = None) -> Any:
        """What ``generate`` calls to read the source."""
        return SourceReader(self)

    def prepare_decoder_input_ids_from_labels(self, labels: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """What is read while ``labels`` are learned; collators ask for it where the loss is not computed here."""
        return decoder_inputs(self, labels)

    def _forward(
        self,
        source: Tensor | None,
        attention_mask: Tensor | None,
        *,
        decoder_input_ids: Tensor | None,
        decoder_attention_mask: Tensor | None,
        encoder_outputs: Any | None,
        cache: Cache | None,
        labels: Tensor | None,
        use_cache: bool | None,
        num_items_in_batch: Any,
    ) -> Seq2SeqLMOutput:
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if cache is None and use_cache:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        if decoder_input_ids is None or (source is None and encoder_outputs is None):
            problem = "a source (or encoder_outputs) and decoder_input_ids (or labels) must be given."
            raise ConfigError(message(type(self).__name__, problem))
        name = type(self).__name__
        check_tokens(name, "decoder_input_ids", decoder_input_ids, self.config.vocab_size)
        kv_cache = transformers_cache(name, cache, self.config)
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(source, attention_mask, return_dict=True)
        memory: Any = encoder_outputs[0]
        keep = getattr(encoder_outputs, "source_keep", None) if attention_mask is None else attention_mask != 0
        logits = self.write(
            decoder_input_ids,
            memory,
            keep,
            keep=_all_real(decoder_input_ids, cache) if decoder_attention_mask is None else decoder_attention_mask != 0,
            kv_cache=kv_cache,
        )
        loss = labelled_loss(name, logits, labels, num_items_in_batch)
        kept: Any = cache
        return Seq2SeqLMOutput(loss=loss, logits=logits, cache=kept, encoder_last_hidden_state=memory)


@dataclass
class ReadSource(BaseModelOutput):
    """A source as it was read, and which of it is real: ``generate`` hands on no mask that nobody gave.

    Args:
        source_keep: True for a real token; None if all are.
    """

    source_keep: Tensor | None = None


class SourceReader:
    """What ``generate`` takes for an encoder."""

    def __init__(self, writer: _Writer) -> None:
        self._writer, self.config, self.shows_attention = writer, writer.config, writer.shows_attention

    @called_by_transformers
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
    ) -> ReadSource:
        """Encode a source, ids or pixels."""
        source = input_ids if pixel_values is None else pixel_values  # beside an image, ids begin what is written
        keep = self._writer.source_keep(source, attention_mask)
        return ReadSource(last_hidden_state=self._writer.read(source, keep), source_keep=keep)

    __call__ = forward


class RegardForConditionalGeneration(_Writer):
    """``regard.models.Seq2Seq`` in transformers."""

    config_class = RegardSeq2SeqConfig
    inner = Seq2Seq

    def source_keep(self, source: Any, attention_mask: Tensor | None) -> Tensor | None:
        """What the mask says; without one, all that is not ``pad_id``."""
        if attention_mask is None and self.config.pad_id is not None:
            real: Tensor = source != self.config.pad_id
            return real
        return keep_of(attention_mask)

    def read(self, source: Any, source_keep: Tensor | None) -> Tensor:
        """Encode the source."""
        memory: Tensor = self.model.read(source, keep=source_keep)
        return memory

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the target's next tokens."""
        logits: Tensor = self.model.write(target, memory, source_keep=source_keep, **options)
        return logits

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
            attention_mask: 1 for a real source token; by default all that are not padding.
            decoder_input_ids: The target so far; made from ``labels`` where only those are given.
            decoder_attention_mask: 1 for a real target token, over all so far.
            encoder_outputs: The source as it was read, in place of ``input_ids``.
            cache: What the decoder has seen; it is filled.
            labels: What is to be written.
            use_cache: Whether to make a cache where none is given.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default tokens here.
        """
        return self._forward(
            input_ids,
            attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            labels=labels,
            use_cache=use_cache,
            num_items_in_batch=num_items_in_batch,
        )


class RegardForImageCaptioning(_Writer):
    """``regard.models.CaptionModel`` in transformers."""

    config_class = RegardCaptionConfig
    inner = CaptionModel
    main_input_name = "pixel_values"
    input_modalities = ["image"]  # noqa: RUF012

    def read(self, source: Any, source_keep: Tensor | None) -> Tensor:
        """Encode the image."""
        memory: Tensor = self.model.image(source)
        return memory

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the caption's next tokens."""
        logits: Tensor = self.model.write(target, memory, **options)
        return logits

    @called_by_transformers
    def forward(
        self,
        pixel_values: Float[Tensor, "batch channels height width"] | None = None,
        decoder_input_ids: Int[Tensor, "batch length"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        attention_mask: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> Seq2SeqLMOutput:
        """Logits of the caption's next tokens, and with ``labels`` the loss.

        Args:
            pixel_values: The images.
            decoder_input_ids: The caption so far; made from ``labels`` where only those are given.
            decoder_attention_mask: 1 for a real token of the caption, over all so far.
            encoder_outputs: The image as it was read, in place of ``pixel_values``.
            cache: What the decoder has seen; it is filled.
            labels: What is to be written; −100 is left out.
            use_cache: Whether to make a cache where none is given.
            attention_mask: Not used: every patch is real. ``generate`` makes one.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default tokens here.
        """
        return self._forward(
            pixel_values,
            None,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            labels=labels,
            use_cache=use_cache,
            num_items_in_batch=num_items_in_batch,
        )


def _all_real(tokens: Tensor, cache: Cache | None) -> Tensor:
    """A mask for a text without padding, or with padding behind it, where no real token sees it."""
    past = 0 if cache is None else int(cache.get_seq_length())
    return tokens.new_ones(tokens.shape[0], past + tokens.shape[1], dtype=torch.bool)


def kept_logits(caller: str, logits: Tensor, logits_to_keep: int | Tensor) -> Tensor:
    """The last logits, or those at the places that are named."""
    if isinstance(logits_to_keep, int) and logits_to_keep < 0:
        problem = must_be("logits_to_keep", "at least 0 (0 keeps all), or a tensor of places", logits_to_keep)
        raise ConfigError(message(caller, problem))
    return logits[:, -logits_to_keep:] if isinstance(logits_to_keep, int) else logits[:, logits_to_keep]
