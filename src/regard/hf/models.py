"""Our Transformers as transformers' own: checkpoints, ``generate`` with caches and beams, ``Trainer``, Auto classes.

    model = RegardForCausalLM(RegardDecoderConfig(vocab_size=5000))
    model.save_pretrained("folder"); AutoModelForCausalLM.from_pretrained("folder")        after ``import regard.hf``

Each class holds a model of ``regard.models`` as ``model`` and translates names; nothing is computed here but losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    Cache,
    DynamicCache,
    EncoderDecoderCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    ImageClassifierOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
)

from regard.errors import ConfigError, message
from regard.hf.config import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardSeq2SeqConfig,
    RegardVisionConfig,
)
from regard.hf.kv_cache import TransformersCache
from regard.models import (
    CaptionModel,
    DecoderLM,
    EncoderClassifier,
    EncoderForSpans,
    MaskedLM,
    Seq2Seq,
    VisionClassifier,
)

IGNORED = -100  # a label that no loss counts, as everywhere in transformers


class _Wrapper(PreTrainedModel):
    """What all wrappers share: the inner model, built from the settings of the config."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = False
    _supports_sdpa = True
    inner: type[nn.Module]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = self.inner(config.settings)
        self.post_init()

    def init_weights(self) -> None:
        """Weights are drawn where modules are made, so there is nothing left to draw."""
        self.tie_weights(recompute_mapping=False)

    def _init_weights(self, module: nn.Module) -> None:
        """Draw what a checkpoint lacks, as it is drawn where it is made; transformers guards what has been loaded."""
        owners = (owner for owner in self.modules() if any(part is module for part in _parts(owner)))
        reset = getattr(next(owners, module), "reset_parameters", None)
        if callable(reset):
            reset()


def _parts(owner: nn.Module) -> Iterator[nn.Module]:
    """The parts of torch that a module of ours draws in its own ``reset_parameters``."""
    if not hasattr(owner, "reset_parameters") or not _is_ours(owner):
        return
    for child in owner.children():
        for part in child if isinstance(child, nn.ModuleList) else (child,):
            if not _is_ours(part):
                yield part


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("regard.")


class RegardForCausalLM(_Wrapper, GenerationMixin):
    """``regard.models.DecoderLM`` in transformers."""

    config_class = RegardDecoderConfig
    inner = DecoderLM

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token, and with ``labels`` (the tokens themselves; −100 is left out) the loss.

        Args:
            input_ids: Tokens; with a cache those it has not seen.
            attention_mask: 1 for a real token, over all tokens so far; by default all are (as in all of transformers).
            cache: What the model has seen; it is filled.
            labels: What the loss compares; they are shifted here.
            use_cache: Whether to make a cache where none is given.
            **kwargs: ``num_items_in_batch`` of ``Trainer``, by which the loss is divided.
        """
        if cache is None and use_cache:
            cache = DynamicCache(config=self.config)
        keep = _all_real(input_ids, cache) if attention_mask is None else attention_mask != 0
        logits = self.model(input_ids, keep=keep, kv_cache=_ours(cache, self.config))
        loss = None if labels is None else token_loss(logits[:, :-1], labels[:, 1:], kwargs.get("num_items_in_batch"))
        return CausalLMOutputWithPast(loss=loss, logits=logits, cache=cache)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The new tokens, the cache, and the mask as it is: our masks need no four dimensions."""
        new = input_ids if next_sequence_length is None else input_ids[:, -next_sequence_length:]
        return {
            "input_ids": new,
            "attention_mask": attention_mask,
            "cache": cache,
            "use_cache": kwargs.get("use_cache"),
        }


class _Writer(_Wrapper, GenerationMixin):
    """A wrapper of a model that reads a source once and writes with it in view."""

    def read(self, source: Any, attention_mask: Tensor | None) -> Tensor:
        """Encode the source."""
        raise NotImplementedError

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the target's next tokens."""
        raise NotImplementedError

    def get_encoder(self, modality: str | None = None) -> Any:
        """What ``generate`` calls to read the source."""
        return _Reader(self)

    def _forward(
        self,
        source: Tensor | None,
        attention_mask: Tensor | None,
        *,
        decoder_input_ids: Tensor | None,
        decoder_attention_mask: Tensor | None,
        encoder_outputs: BaseModelOutput | None,
        cache: Cache | None,
        labels: Tensor | None,
        use_cache: bool | None,
        num_items_in_batch: Any,
    ) -> Seq2SeqLMOutput:
        if decoder_input_ids is None and labels is not None:
            decoder_input_ids = shifted_right(labels, start=self.config.bos_id, pad_id=self.config.pad_id)
        if cache is None and use_cache:
            own, cross = DynamicCache(config=self.config), DynamicCache(config=self.config)
            cache = EncoderDecoderCache(own, cross)
        if decoder_input_ids is None or (source is None and encoder_outputs is None):
            problem = "a source (or encoder_outputs) and decoder_input_ids (or labels) must be given."
            raise ConfigError(message(type(self).__name__, problem))
        memory: Any = encoder_outputs[0] if encoder_outputs is not None else self.read(source, attention_mask)
        logits = self.write(
            decoder_input_ids,
            memory,
            _keep(attention_mask),
            keep=_all_real(decoder_input_ids, cache) if decoder_attention_mask is None else decoder_attention_mask != 0,
            kv_cache=_ours(cache, self.config),
        )
        loss = None if labels is None else token_loss(logits, labels, num_items_in_batch)
        kept: Any = cache
        return Seq2SeqLMOutput(loss=loss, logits=logits, cache=kept, encoder_last_hidden_state=memory)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The new target tokens, the cache, and the source as it was read."""
        new = input_ids if next_sequence_length is None else input_ids[:, -next_sequence_length:]
        names = ("encoder_outputs", "decoder_attention_mask", "use_cache")
        passed = {name: kwargs.get(name) for name in names}
        return {"decoder_input_ids": new, "attention_mask": attention_mask, "cache": cache, **passed}


class _Reader:
    """What ``generate`` takes for an encoder."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Encode a source, ids or pixels."""
        source = kwargs["pixel_values"] if input_ids is None else input_ids
        return BaseModelOutput(last_hidden_state=self._writer.read(source, attention_mask))

    __call__ = forward


class RegardForConditionalGeneration(_Writer):
    """``regard.models.Seq2Seq`` in transformers."""

    config_class = RegardSeq2SeqConfig
    inner = Seq2Seq

    def read(self, source: Any, attention_mask: Tensor | None) -> Tensor:
        """Encode the source."""
        memory: Tensor = self.model.read(source, keep=_keep(attention_mask))
        return memory

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the target's next tokens."""
        logits: Tensor = self.model.write(target, memory, source_keep=source_keep, **options)
        return logits

    def forward(
        self,
        input_ids: Int[Tensor, "batch source_len"] | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Int[Tensor, "batch length"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
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
            **kwargs: ``num_items_in_batch`` of ``Trainer``, by which the loss is divided.
        """
        if attention_mask is None and input_ids is not None and self.config.pad_id is not None:
            attention_mask = input_ids != self.config.pad_id
        return self._forward(
            input_ids,
            attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            labels=labels,
            use_cache=use_cache,
            num_items_in_batch=kwargs.get("num_items_in_batch"),
        )


class RegardForImageCaptioning(_Writer):
    """``regard.models.CaptionModel`` in transformers."""

    config_class = RegardCaptionConfig
    inner = CaptionModel
    main_input_name = "pixel_values"
    input_modalities = ["image"]  # noqa: RUF012

    def read(self, source: Any, attention_mask: Tensor | None) -> Tensor:
        """Encode the image."""
        memory: Tensor = self.model.image(source)
        return memory

    def write(self, target: Tensor, memory: Tensor, source_keep: Tensor | None, **options: Any) -> Tensor:
        """Logits of the caption's next tokens."""
        logits: Tensor = self.model.write(target, memory, **options)
        return logits

    def forward(
        self,
        pixel_values: Float[Tensor, "batch channels height width"] | None = None,
        decoder_input_ids: Int[Tensor, "batch length"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
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
            attention_mask: Not used: every patch is real.
            **kwargs: ``num_items_in_batch`` of ``Trainer``, by which the loss is divided.
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
            num_items_in_batch=kwargs.get("num_items_in_batch"),
        )


class RegardForSequenceClassification(_Wrapper):
    """``regard.models.EncoderClassifier`` in transformers."""

    config_class = RegardEncoderConfig
    inner = EncoderClassifier

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Int[Tensor, "batch"] | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits of the classes, and with ``labels`` the loss; ``token_type_ids`` where there are segments."""
        segments = token_type_ids if self.config.num_segments else None
        logits = self.model(input_ids, keep=_keep(attention_mask), segments=segments)
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class RegardForQuestionAnswering(_Wrapper):
    """``regard.models.EncoderForSpans`` in transformers."""

    config_class = RegardEncoderConfig
    inner = EncoderForSpans

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        start_positions: Int[Tensor, "batch"] | None = None,
        end_positions: Int[Tensor, "batch"] | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Logits of every token to begin and to end the answer, and with positions the mean of both losses."""
        segments = token_type_ids if self.config.num_segments else None
        spans = self.model(input_ids, keep=_keep(attention_mask), segments=segments)
        loss = None
        if start_positions is not None and end_positions is not None:
            first = functional.cross_entropy(spans.start.float(), start_positions)
            loss = (first + functional.cross_entropy(spans.end.float(), end_positions)) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=spans.start, end_logits=spans.end)


class RegardForMaskedLM(_Wrapper):
    """``regard.models.MaskedLM`` in transformers."""

    config_class = RegardEncoderConfig
    inner = MaskedLM

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Logits of the word at every place, and with ``labels`` (−100 is left out) the loss."""
        segments = token_type_ids if self.config.num_segments else None
        logits = self.model(input_ids, keep=_keep(attention_mask), segments=segments)
        loss = None if labels is None else token_loss(logits, labels, kwargs.get("num_items_in_batch"))
        return MaskedLMOutput(loss=loss, logits=logits)


class RegardForImageClassification(_Wrapper):
    """``regard.models.VisionClassifier`` in transformers."""

    config_class = RegardVisionConfig
    inner = VisionClassifier
    main_input_name = "pixel_values"
    input_modalities = ["image"]  # noqa: RUF012

    def forward(
        self,
        pixel_values: Float[Tensor, "batch channels height width"],
        labels: Int[Tensor, "batch"] | None = None,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """Logits of the classes, and with ``labels`` the loss."""
        logits = self.model(pixel_values)
        loss = None if labels is None else functional.cross_entropy(logits.float(), labels)
        return ImageClassifierOutput(loss=loss, logits=logits)


def token_loss(
    logits: Float[Tensor, "batch length vocab_size"], labels: Int[Tensor, "batch length"], num_items: Any = None
) -> Float[Tensor, ""]:
    """Cross-entropy per counted token, in nats.

    Args:
        logits: Of every token.
        labels: What each should be; −100 is not counted.
        num_items: What the sum is divided by, so that accumulated steps weigh every token alike; by default the tokens
            counted here.
    """
    total = functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    if num_items is None:
        num_items = (labels != IGNORED).sum().clamp(min=1)
    loss: Tensor = total / num_items
    return loss


def shifted_right(
    labels: Int[Tensor, "batch length"], *, start: int, pad_id: int | None
) -> Int[Tensor, "batch length"]:
    """What a decoder reads while it learns to write ``labels``: the start token, then all but the last of them."""
    shifted = torch.cat([labels.new_full((labels.shape[0], 1), start), labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, start if pad_id is None else pad_id)


def _keep(attention_mask: Tensor | None) -> Tensor | None:
    return None if attention_mask is None else attention_mask != 0


def _all_real(tokens: Tensor, cache: Cache | None) -> Tensor:
    """A mask for a text without padding, or with padding behind it, where no real token sees it."""
    past = 0 if cache is None else int(cache.get_seq_length())
    return tokens.new_ones(tokens.shape[0], past + tokens.shape[1], dtype=torch.bool)


def _ours(cache: Cache | None, config: Any) -> TransformersCache | None:
    return None if cache is None else TransformersCache(cache, window=config.window)


def register() -> None:
    """Make our models known to transformers' Auto classes."""
    for config in (
        RegardDecoderConfig,
        RegardSeq2SeqConfig,
        RegardEncoderConfig,
        RegardVisionConfig,
        RegardCaptionConfig,
    ):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto, model in (
        (AutoModelForCausalLM, RegardForCausalLM),
        (AutoModelForSeq2SeqLM, RegardForConditionalGeneration),
        (AutoModelForSequenceClassification, RegardForSequenceClassification),
        (AutoModelForQuestionAnswering, RegardForQuestionAnswering),
        (AutoModelForMaskedLM, RegardForMaskedLM),
        (AutoModelForImageClassification, RegardForImageClassification),
        (AutoModelForImageTextToText, RegardForImageCaptioning),
    ):
        auto.register(model.config_class, model, exist_ok=True)
