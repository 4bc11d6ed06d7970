"""Our models that read, in transformers: classes, spans and hidden words of a text, classes of an image."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers.modeling_outputs import (
    ImageClassifierOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)

from regard.hf.config import RegardEncoderConfig, RegardVisionConfig
from regard.hf.losses import token_loss
from regard.hf.wrapper import Wrapper
from regard.models import EncoderClassifier, EncoderForSpans, MaskedLM, VisionClassifier


class RegardForSequenceClassification(Wrapper):
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


class RegardForQuestionAnswering(Wrapper):
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


class RegardForMaskedLM(Wrapper):
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


class RegardForImageClassification(Wrapper):
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


def _keep(attention_mask: Tensor | None) -> Tensor | None:
    return None if attention_mask is None else attention_mask != 0
