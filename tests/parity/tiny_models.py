"""Tiny random transformers models, with weights scaled so that attention is far from uniform, and padded inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

LENGTH = 11
TEXT = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**TEXT, "num_key_value_heads": 2, "max_position_embeddings": 64}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


@dataclass(frozen=True)
class Tiny:
    """How to build one model with an attention implementation, and how to feed it."""

    build: Callable[[str], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    generates: bool = False
    fused: bool = True


def scaled(model: torch.nn.Module, factor: float = 6.0) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def _make(auto: Any, config: str, factor: float = 6.0, **options: Any) -> Callable[[str], torch.nn.Module]:
    def build(implementation: str) -> torch.nn.Module:
        torch.manual_seed(0)
        made = getattr(transformers, config)(**{**SPECIAL, **options})
        return scaled(auto.from_config(made, attn_implementation=implementation), factor)

    return build


def text(*, left: bool = False, length: int = LENGTH) -> dict[str, torch.Tensor]:
    """Two rows of tokens, the second with three pads."""
    ids = torch.randint(3, 61, (2, length), generator=torch.Generator().manual_seed(2))
    keep = torch.ones_like(ids)
    pads = slice(0, 3) if left else slice(length - 3, length)
    keep[1, pads] = 0
    ids[1, pads] = 0
    return {"input_ids": ids, "attention_mask": keep}


def left() -> dict[str, torch.Tensor]:
    """As ``text``, padded on the left."""
    return text(left=True)


def pair() -> dict[str, torch.Tensor]:
    """A source with padding and a target."""
    return {**text(), "decoder_input_ids": text(length=6)["input_ids"].clamp(min=3)}


def image() -> dict[str, torch.Tensor]:
    """Two images."""
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))}


def sound() -> dict[str, torch.Tensor]:
    """Mel features and a target."""
    return {
        "input_features": torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(4)),
        "decoder_input_ids": text(length=6)["input_ids"].clamp(min=3),
    }


_SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}


def _clip(implementation: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config={**TEXT, "max_position_embeddings": 32, **SPECIAL, "eos_token_id": 2},
        vision_config=_VISION,
        projection_dim=16,
    )
    return scaled(transformers.CLIPModel._from_config(config, attn_implementation=implementation))


def _clip_inputs() -> dict[str, torch.Tensor]:
    return {**text(), **image()}


def _llava(implementation: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_VISION, projection_dim=16),
        text_config=transformers.LlamaConfig(**{**GROUPED, **SPECIAL}),
        image_token_id=60,
        vision_feature_layer=-1,
    )
    model = transformers.LlavaForConditionalGeneration._from_config(config, attn_implementation=implementation)
    return scaled(model, 3.0)


def _llava_inputs() -> dict[str, torch.Tensor]:
    inputs = text(left=True, length=24)
    inputs["input_ids"] = inputs["input_ids"].clamp(max=59)
    inputs["input_ids"][:, 5:21] = 60
    return {**inputs, **image()}


_GEMMA = {**GROUPED, "head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}

MODELS: dict[str, Tiny] = {
    "bert": Tiny(_make(AutoModel, "BertConfig", **TEXT), text),
    "roberta": Tiny(_make(AutoModel, "RobertaConfig", **TEXT, max_position_embeddings=32), text),
    "modernbert": Tiny(
        _make(
            AutoModel,
            "ModernBertConfig",
            8.0,
            **TEXT,
            local_attention=4,
            global_attn_every_n_layers=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
        text,
    ),
    "llama": Tiny(_make(AutoModelForCausalLM, "LlamaConfig", **GROUPED), left, generates=True),
    "mistral": Tiny(_make(AutoModelForCausalLM, "MistralConfig", **GROUPED, sliding_window=4), left, generates=True),
    "gemma2": Tiny(
        _make(AutoModelForCausalLM, "Gemma2Config", **_GEMMA, attn_logit_softcapping=2.0, query_pre_attn_scalar=8),
        left,
        generates=True,
        fused=False,
    ),
    "gemma3": Tiny(
        _make(AutoModelForCausalLM, "Gemma3TextConfig", **_GEMMA, query_pre_attn_scalar=8), left, generates=True
    ),
    "gpt_oss": Tiny(
        _make(
            AutoModelForCausalLM,
            "GptOssConfig",
            **_GEMMA,
            num_local_experts=2,
            num_experts_per_tok=1,
        ),
        left,
        generates=True,
        fused=False,
    ),
    "llama4": Tiny(
        _make(
            AutoModelForCausalLM,
            "Llama4TextConfig",
            **GROUPED,
            head_dim=8,
            intermediate_size_mlp=48,
            attention_chunk_size=4,
            num_local_experts=2,
            num_experts_per_tok=1,
            no_rope_layers=[1, 0],
            layer_types=["chunked_attention", "full_attention"],
        ),
        left,
        generates=True,
    ),
    "gpt2": Tiny(
        _make(AutoModelForCausalLM, "GPT2Config", vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        left,
        generates=True,
    ),
    "t5": Tiny(
        _make(
            AutoModelForSeq2SeqLM,
            "T5Config",
            2.0,
            vocab_size=61,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
        pair,
        generates=True,
    ),
    "bart": Tiny(
        _make(
            AutoModelForSeq2SeqLM,
            "BartConfig",
            vocab_size=61,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=64,
            **_SEQ2SEQ,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
            forced_bos_token_id=None,
        ),
        pair,
        generates=True,
    ),
    "whisper": Tiny(
        _make(
            transformers.AutoModelForSpeechSeq2Seq,
            "WhisperConfig",
            12.0,
            vocab_size=61,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            **_SEQ2SEQ,
            num_mel_bins=8,
            max_source_positions=12,
            max_target_positions=64,
            decoder_start_token_id=2,
            suppress_tokens=[],
            begin_suppress_tokens=[],
        ),
        sound,
    ),
    "vit": Tiny(_make(AutoModel, "ViTConfig", **_VISION), image),
    "clip": Tiny(_clip, _clip_inputs),
    "llava": Tiny(_llava, _llava_inputs),
}
