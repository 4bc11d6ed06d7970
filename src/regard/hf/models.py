"""Our models as transformers' own: checkpoints, ``generate`` with caches and beams, ``Trainer``, Auto classes.

    model = RegardForCausalLM(RegardDecoderConfig(vocab_size=5000))
    model.save_pretrained("folder"); AutoModelForCausalLM.from_pretrained("folder")        after ``import regard.hf``

Each class holds a model of ``regard.models`` as ``model`` and translates names; nothing is computed here but losses.
"""

from __future__ import annotations

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from regard.hf.config import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardSeq2SeqConfig,
    RegardVisionConfig,
)
from regard.hf.earlier_config import (
    RegardConvolutionalDecoderConfig,
    RegardConvolutionalEncoderConfig,
    RegardRecurrentDecoderConfig,
    RegardRecurrentEncoderConfig,
    RegardRecurrentSeq2SeqConfig,
)
from regard.hf.earlier_readers import (
    RegardConvolutionalForSequenceClassification as RegardConvolutionalForSequenceClassification,
)
from regard.hf.earlier_readers import (
    RegardRecurrentForSequenceClassification as RegardRecurrentForSequenceClassification,
)
from regard.hf.earlier_writers import RegardConvolutionalForCausalLM as RegardConvolutionalForCausalLM
from regard.hf.earlier_writers import RegardRecurrentForCausalLM as RegardRecurrentForCausalLM
from regard.hf.losses import shifted_right as shifted_right
from regard.hf.losses import token_loss as token_loss
from regard.hf.readers import RegardForImageClassification as RegardForImageClassification
from regard.hf.readers import RegardForMaskedLM as RegardForMaskedLM
from regard.hf.readers import RegardForQuestionAnswering as RegardForQuestionAnswering
from regard.hf.readers import RegardForSequenceClassification as RegardForSequenceClassification
from regard.hf.readers import RegardForTokenClassification as RegardForTokenClassification
from regard.hf.readers import RegardTextEncoder as RegardTextEncoder
from regard.hf.recurrent_writer import (
    RegardRecurrentForConditionalGeneration as RegardRecurrentForConditionalGeneration,
)
from regard.hf.writers import RegardForCausalLM as RegardForCausalLM
from regard.hf.writers import RegardForConditionalGeneration as RegardForConditionalGeneration
from regard.hf.writers import RegardForImageCaptioning as RegardForImageCaptioning

_EARLIER = tuple(
    (auto, model)
    for head, model in (
        (AutoModelForSeq2SeqLM, RegardRecurrentForConditionalGeneration),
        (AutoModelForCausalLM, RegardRecurrentForCausalLM),
        (AutoModelForCausalLM, RegardConvolutionalForCausalLM),
        (AutoModelForSequenceClassification, RegardRecurrentForSequenceClassification),
        (AutoModelForSequenceClassification, RegardConvolutionalForSequenceClassification),
    )
    for auto in (AutoModel, head)  # they have no form without a head
)


def register() -> None:
    """Make our models known to transformers' Auto classes."""
    for config in (
        RegardDecoderConfig,
        RegardSeq2SeqConfig,
        RegardEncoderConfig,
        RegardVisionConfig,
        RegardCaptionConfig,
        RegardRecurrentSeq2SeqConfig,
        RegardRecurrentDecoderConfig,
        RegardRecurrentEncoderConfig,
        RegardConvolutionalDecoderConfig,
        RegardConvolutionalEncoderConfig,
    ):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto, model in (
        (AutoModel, RegardTextEncoder),
        (AutoModel, RegardForCausalLM),  # the others have no form without a head: theirs is the table, or all there is
        (AutoModel, RegardForConditionalGeneration),
        (AutoModel, RegardForImageCaptioning),
        (AutoModel, RegardForImageClassification),
        (AutoModelForCausalLM, RegardForCausalLM),
        (AutoModelForSeq2SeqLM, RegardForConditionalGeneration),
        (AutoModelForSequenceClassification, RegardForSequenceClassification),
        (AutoModelForQuestionAnswering, RegardForQuestionAnswering),
        (AutoModelForTokenClassification, RegardForTokenClassification),
        (AutoModelForMaskedLM, RegardForMaskedLM),
        (AutoModelForImageClassification, RegardForImageClassification),
        (AutoModelForImageTextToText, RegardForImageCaptioning),
        *_EARLIER,
    ):
        auto.register(model.config_class, model, exist_ok=True)
