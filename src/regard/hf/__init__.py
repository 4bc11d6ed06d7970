"""regard for Hugging Face transformers: an attention implementation, the eyes of ``regard.watch``, and our own models.

Importing this package makes ``model.set_attn_implementation("regard")`` work, and lets the Auto classes load our
models.
"""

from __future__ import annotations

from regard.errors import missing_extra

try:
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as _missing:
    raise missing_extra("transformers", "hf", "regard.hf") from _missing

from regard.hf.attention import regard_attention as regard_attention
from regard.hf.attention import register as _register
from regard.hf.checking import Finding as Finding
from regard.hf.checking import ModelCheck as ModelCheck
from regard.hf.checking import check_model as check_model
from regard.hf.config import RegardCaptionConfig as RegardCaptionConfig
from regard.hf.config import RegardDecoderConfig as RegardDecoderConfig
from regard.hf.config import RegardEncoderConfig as RegardEncoderConfig
from regard.hf.config import RegardSeq2SeqConfig as RegardSeq2SeqConfig
from regard.hf.config import RegardVisionConfig as RegardVisionConfig
from regard.hf.earlier_config import RegardConvolutionalDecoderConfig as RegardConvolutionalDecoderConfig
from regard.hf.earlier_config import RegardConvolutionalEncoderConfig as RegardConvolutionalEncoderConfig
from regard.hf.earlier_config import RegardRecurrentDecoderConfig as RegardRecurrentDecoderConfig
from regard.hf.earlier_config import RegardRecurrentEncoderConfig as RegardRecurrentEncoderConfig
from regard.hf.earlier_config import RegardRecurrentSeq2SeqConfig as RegardRecurrentSeq2SeqConfig
from regard.hf.loading import LoadedModel as LoadedModel
from regard.hf.loading import load as load
from regard.hf.models import RegardConvolutionalForCausalLM as RegardConvolutionalForCausalLM
from regard.hf.models import (
    RegardConvolutionalForSequenceClassification as RegardConvolutionalForSequenceClassification,
)
from regard.hf.models import RegardForCausalLM as RegardForCausalLM
from regard.hf.models import RegardForConditionalGeneration as RegardForConditionalGeneration
from regard.hf.models import RegardForImageCaptioning as RegardForImageCaptioning
from regard.hf.models import RegardForImageClassification as RegardForImageClassification
from regard.hf.models import RegardForMaskedLM as RegardForMaskedLM
from regard.hf.models import RegardForQuestionAnswering as RegardForQuestionAnswering
from regard.hf.models import RegardForSequenceClassification as RegardForSequenceClassification
from regard.hf.models import RegardForTokenClassification as RegardForTokenClassification
from regard.hf.models import RegardRecurrentForCausalLM as RegardRecurrentForCausalLM
from regard.hf.models import RegardRecurrentForConditionalGeneration as RegardRecurrentForConditionalGeneration
from regard.hf.models import RegardRecurrentForSequenceClassification as RegardRecurrentForSequenceClassification
from regard.hf.models import RegardTextEncoder as RegardTextEncoder
from regard.hf.models import register as _register_models
from regard.hf.watching import TransformersAdapter as _TransformersAdapter
from regard.lens.adapters import register_adapter as _register_adapter

__all__ = [
    "Finding",
    "LoadedModel",
    "ModelCheck",
    "RegardCaptionConfig",
    "RegardConvolutionalDecoderConfig",
    "RegardConvolutionalEncoderConfig",
    "RegardConvolutionalForCausalLM",
    "RegardConvolutionalForSequenceClassification",
    "RegardDecoderConfig",
    "RegardEncoderConfig",
    "RegardForCausalLM",
    "RegardForConditionalGeneration",
    "RegardForImageCaptioning",
    "RegardForImageClassification",
    "RegardForMaskedLM",
    "RegardForQuestionAnswering",
    "RegardForSequenceClassification",
    "RegardForTokenClassification",
    "RegardRecurrentDecoderConfig",
    "RegardRecurrentEncoderConfig",
    "RegardRecurrentForCausalLM",
    "RegardRecurrentForConditionalGeneration",
    "RegardRecurrentForSequenceClassification",
    "RegardRecurrentSeq2SeqConfig",
    "RegardSeq2SeqConfig",
    "RegardTextEncoder",
    "RegardVisionConfig",
    "check_model",
    "load",
    "regard_attention",
]

_register()
_register_models()
_register_adapter("transformers", _TransformersAdapter())
