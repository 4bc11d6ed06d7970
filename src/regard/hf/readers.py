"""Our models that read, in transformers: classes, spans and hidden words of a text, classes of an image."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    ImageClassifierOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from regard.errors import ConfigError, message, must_be
from regard.hf.config import RegardEncoderConfig, RegardVisionConfig
from regard.hf.keywords import called_by_transformers, keep_of, segments_of
from regard.hf.losses import class_loss, labelled_loss, span_loss
from regard.hf.wrapper import Wrapper
from regard.models import (
    EncoderClassifier,
    EncoderConfig,
    EncoderForSpans,
    EncoderTagger,
    MaskedLM,
    TextEncoder,
    VisionClassifier,
)


class _Text(nn.Module):
    """An encoder without a head, by the name it has beneath one."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.text = TextEncoder(config)


class RegardTextEncoder(Wrapper):
    """``regard.models.TextEncoder`` in transformers: what ``AutoModel`` makes of a checkpoint with any head."""

    config_class = RegardEncoderConfig
    inner = _Text
    accepts_loss_kwargs = False

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
    ) -> BaseModelOutput:
        """States of all tokens, as ``last_hidden_state``; arguments as for the heads."""
        segments = segments_of(self, token_type_ids)
        return BaseModelOutput(self.model.text(input_ids, keep=keep_of(attention_mask), segments=segments))


class RegardForSequenceClassification(Wrapper):
    """``regard.models.EncoderClassifier`` in transformers."""

    config_class = RegardEncoderConfig
    inner = EncoderClassifier

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> SequenceClassifierOutput:
        """Logits of the classes, and with ``labels`` the loss.

        Args:
            input_ids: The text.
            attention_mask: 1 for a real token; by default all that are not ``pad_id``.
            token_type_ids: The segments, for a config with ``num_segments``; without, they must be 0.
            labels: What each text is: its class; with one class (regression) a number; floats of several classes, or
                ``problem_type="multi_label_classification"`` in the config, for classes that do not exclude each other.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default labels here.

        Raises:
            ConfigError, ShapeError, DTypeError: an argument does not fit, or is none that can be honoured.
        """
        logits = self.model(input_ids, keep=keep_of(attention_mask), segments=segments_of(self, token_type_ids))
        loss = None if labels is None else class_loss(self, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class RegardForQuestionAnswering(Wrapper):
    """``regard.models.EncoderForSpans`` in transformers."""

    config_class = RegardEncoderConfig
    inner = EncoderForSpans

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        start_positions: Int[Tensor, "batch"] | None = None,
        end_positions: Int[Tensor, "batch"] | None = None,
        num_items_in_batch: Any = None,
    ) -> QuestionAnsweringModelOutput:
        """Logits of every token to begin and to end the answer, and with positions the mean of both losses.

        Args:
            input_ids: Question and text.
            attention_mask: 1 for a real token; by default all that are not ``pad_id``.
            token_type_ids: The segments, for a config with ``num_segments``; without, they must be 0.
            start_positions: Of the answer's first token, a real one; −100 is left out.
            end_positions: Of its last.
            num_items_in_batch: What each summed loss is divided by; by default the positions here.

        Raises:
            ConfigError: one of the positions is missing, or is none of a real token; or as in all of these models.
        """
        name = type(self).__name__
        if (start_positions is None) != (end_positions is None):
            missing = "start_positions" if start_positions is None else "end_positions"
            raise ConfigError(message(name, must_be(missing, "given where the other end of the answer is", None)))
        spans = self.model(input_ids, keep=keep_of(attention_mask), segments=segments_of(self, token_type_ids))
        loss = None
        if start_positions is not None and end_positions is not None:
            first = span_loss(name, "start_positions", spans.start, start_positions, num_items_in_batch)
            loss = (first + span_loss(name, "end_positions", spans.end, end_positions, num_items_in_batch)) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=spans.start, end_logits=spans.end)


class RegardForTokenClassification(Wrapper):
    """``regard.models.EncoderTagger`` in transformers."""

    config_class = RegardEncoderConfig
    inner = EncoderTagger

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Any = None,
    ) -> TokenClassifierOutput:
        """Logits of the classes of every token, and with ``labels`` (−100 is left out) the loss; arguments as above."""
        logits = self.model(input_ids, keep=keep_of(attention_mask), segments=segments_of(self, token_type_ids))
        loss = labelled_loss(type(self).__name__, logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


class RegardForMaskedLM(Wrapper):
    """``regard.models.MaskedLM`` in transformers."""

    config_class = RegardEncoderConfig
    inner = MaskedLM

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Any = None,
    ) -> MaskedLMOutput:
        """Logits of the word at every place, and with ``labels`` (−100 is left out) the loss; arguments as above."""
        logits = self.model(input_ids, keep=keep_of(attention_mask), segments=segments_of(self, token_type_ids))
        loss = labelled_loss(type(self).__name__, logits, labels, num_items_in_batch)
        return MaskedLMOutput(loss=loss, logits=logits)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in all of these models; a new word's bias, if there are any, begins at zero."""
        table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        bias = self.model.bias
        if bias is None:
            return table
        resized = bias.new_zeros(table.num_embeddings)
        kept = min(len(bias), len(resized))
        resized[:kept] = bias.detach()[:kept]
        self.model.bias = nn.Parameter(resized, requires_grad=bias.requires_grad)
        return table


class RegardForImageClassification(Wrapper):
    """``regard.models.VisionClassifier`` in transformers."""

    config_class = RegardVisionConfig
    inner = VisionClassifier
    main_input_name = "pixel_values"
    input_modalities = ["image"]  # noqa: RUF012

    @called_by_transformers
    def forward(
        self,
        pixel_values: Float[Tensor, "batch channels height width"],
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> ImageClassifierOutput:
        """Logits of the classes, and with ``labels`` the loss; ``labels`` as for a text."""
        logits = self.model(pixel_values)
        loss = None if labels is None else class_loss(self, logits, labels, num_items_in_batch)
        return ImageClassifierOutput(loss=loss, logits=logits)
