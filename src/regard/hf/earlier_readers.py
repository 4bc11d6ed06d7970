"""The classifiers that the Transformer replaced, in transformers: an LSTM or GRU from both ends, and convolutions."""

from __future__ import annotations

from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput

from regard.hf.earlier_config import RegardConvolutionalEncoderConfig, RegardRecurrentEncoderConfig
from regard.hf.earlier_wrapper import EarlierWrapper
from regard.hf.keywords import called_by_transformers, keep_of
from regard.hf.losses import class_loss
from regard.models import RecurrentClassifier, TextCNN


class _Classifier(EarlierWrapper):
    """Logits of classes, and their loss."""

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> SequenceClassifierOutput:
        """Logits of the classes, and with ``labels`` the loss.

        Args:
            input_ids: The text, or two with an end between: no segments are told apart.
            attention_mask: 1 for a real token; by default all that are not ``pad_id``.
            labels: As for ``RegardForSequenceClassification``.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default labels here.

        Raises:
            ConfigError, ShapeError, DTypeError: an argument does not fit, or is none that can be honoured.
        """
        logits = self.model(input_ids, keep=keep_of(attention_mask))
        loss = None if labels is None else class_loss(self, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class RegardRecurrentForSequenceClassification(_Classifier):
    """``regard.models.RecurrentClassifier`` in transformers."""

    config_class = RegardRecurrentEncoderConfig
    inner = RecurrentClassifier

    @property
    def has_attention(self) -> bool:
        """Whether the states are pooled by attention."""
        return bool(self.config.pooling == "attention")


class RegardConvolutionalForSequenceClassification(_Classifier):
    """``regard.models.TextCNN`` in transformers."""

    config_class = RegardConvolutionalEncoderConfig
    inner = TextCNN
