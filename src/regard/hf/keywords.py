"""The keywords with which transformers calls a model: what every one of our models does with them.

What a model honours stands in its ``forward``. The rest is dealt with here, so that nothing is swallowed: a keyword
that is neither taken nor None is refused by its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import Tensor
from transformers.utils.generic import ModelOutput

from regard.errors import ConfigError, all_problems, message, must_be
from regard.ops.transforms import is_free_to_look_at

_ONLY_WATCHED = ("output_attentions", "output_hidden_states")
_FROM_THE_MASK = ("position_ids", "decoder_position_ids")
_NO_SEGMENTS = "0 everywhere (this model tells no segments apart)"


def called_by_transformers(forward: Callable[..., ModelOutput]) -> Callable[..., Any]:
    """Let a ``forward`` with named arguments only be called as transformers calls its models.

    ``return_dict=False`` (or in the config) returns a tuple; ``past_key_values`` is the old name of ``cache``;
    ``output_attentions``, ``output_hidden_states``, ``position_ids`` and all that the ``forward`` does not name must be
    None or False; ``token_type_ids`` may be 0 everywhere.

    Raises:
        ConfigError: naming every keyword that cannot be honoured, and what is taken.
    """
    shape = signature(forward)
    taken = tuple(shape.parameters)[1:]

    @functools.wraps(forward)
    def called(self: Any, *args: Any, return_dict: bool | None = None, **kwargs: Any) -> Any:
        problems = [_unwatched(self, name) for name in _ONLY_WATCHED if _asked(self.config, kwargs, name)]
        if "cache" in taken and (old := kwargs.pop("past_key_values", None)) is not None:
            if kwargs.get("cache") is not None:
                problems.append(must_be("past_key_values", "None where `cache` is given", f"a {type(old).__name__}"))
            kwargs["cache"] = old
        extra = {name: kwargs.pop(name) for name in list(kwargs) if name not in taken}
        problems += [_refusal(name, value, taken) for name, value in extra.items() if not _is_nothing(name, value)]
        if problems:
            raise all_problems(type(self).__name__, problems)
        output = forward(self, *args, **kwargs)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    # Whoever unwraps a model (accelerate, after training) must stop here: what is inside takes no such keywords.
    del called.__wrapped__
    called.__signature__ = shape  # type: ignore[attr-defined]
    return called


def _asked(config: Any, kwargs: dict[str, Any], name: str) -> bool:
    """Whether the call, or without a word of it the config, asks for what only a watch shows."""
    given = kwargs.pop(name, None)
    return bool(getattr(config, name, False) if given is None else given)


def _unwatched(model: Any, name: str) -> str:
    return must_be(name, f"False ({model.shows_attention})", True)


def _is_nothing(name: str, value: Any) -> bool:
    """Whether a keyword that is not taken asks for nothing."""
    if name == "token_type_ids" and isinstance(value, Tensor):
        return not (is_free_to_look_at(value) and bool(value.any()))
    return value is None


def _refusal(name: str, value: Any, taken: tuple[str, ...]) -> str:
    found = f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)
    if name in _FROM_THE_MASK:
        return must_be(name, "None (positions are counted over the real tokens of `attention_mask`)", found)
    if name == "token_type_ids":
        return must_be(name, _NO_SEGMENTS, "not")
    return must_be(name, f"one of {', '.join(taken)}", "none of them")


def keep_of(attention_mask: Tensor | None) -> Tensor | None:
    """The mask of transformers as our models take it: True for a real token; None where nothing is said."""
    return None if attention_mask is None else attention_mask != 0


def segments_of(model: Any, token_type_ids: Tensor | None) -> Tensor | None:
    """The segments of a text, for a model that tells any apart.

    Raises:
        ConfigError: it tells none apart, and not all are 0. Looked at only where that is free: eager mode, CPU.
    """
    if model.config.num_segments or token_type_ids is None:
        return token_type_ids
    if not _is_nothing("token_type_ids", token_type_ids):
        raise ConfigError(message(type(model).__name__, must_be("token_type_ids", _NO_SEGMENTS, "not")))
    return None
