"""regard for Hugging Face transformers: an attention implementation, and the eyes of ``regard.watch``.

Importing this package makes ``model.set_attn_implementation("regard")`` work.
"""

from __future__ import annotations

from regard.errors import missing_extra

try:
    import transformers as _transformers  # noqa: F401
except ModuleNotFoundError as _missing:
    raise missing_extra("transformers", "hf", "regard.hf") from _missing

from regard.hf.attention import regard_attention as regard_attention
from regard.hf.attention import register as _register
from regard.hf.loading import LoadedModel as LoadedModel
from regard.hf.loading import load as load
from regard.hf.watching import TransformersAdapter as _TransformersAdapter
from regard.lens.adapters import register_adapter as _register_adapter

__all__ = ["LoadedModel", "load", "regard_attention"]

_register()
_register_adapter("transformers", _TransformersAdapter())
