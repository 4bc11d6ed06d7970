"""Token ids as models are given them: checked, and with their padding found."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.ops.transforms import is_free_to_look_at


def check_tokens(caller: str, name: str, tokens: Tensor, vocab_size: int) -> None:
    """Refuse what is no [batch, length] of ids of the vocabulary; ids are looked at where that is free.

    Raises:
        ShapeError, DTypeError: if it is no integer tensor of two dimensions.
        ConfigError: if an id is not in the vocabulary; names it and where it stands.
    """
    if tokens.dim() != 2:
        hint = f"a single text is {name}[None]" if tokens.dim() == 1 else None
        problem = must_be(name, "of shape [batch, length]", f"of shape {tuple(tokens.shape)}")
        raise ShapeError(message(caller, problem, hint=hint))
    if tokens.dtype not in (torch.int64, torch.int32):
        raise DTypeError(message(caller, must_be(name, "token ids (int64 or int32)", tokens.dtype)))
    if not is_free_to_look_at(tokens):
        return
    wrong = (tokens < 0) | (tokens >= vocab_size)
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        found = f"{int(tokens[row, column])} at row {row}, position {column}"
        raise ConfigError(message(caller, must_be(name, f"ids from 0 to {vocab_size - 1}", found)))


def find_keep(caller: str, name: str, tokens: Tensor, keep: Tensor | None, pad_id: int) -> Tensor:
    """Which tokens are real: ``keep`` if it is given, else those that are not ``pad_id``.

    Raises:
        ShapeError, DTypeError: if ``keep`` is no bool tensor of the shape of the tokens.
    """
    if keep is None:
        return tokens != pad_id
    if keep.dtype != torch.bool:
        raise DTypeError(message(caller, must_be(name, "bool (True = a real token)", keep.dtype)))
    if keep.shape != tokens.shape:
        problem = must_be(name, f"of shape {tuple(tokens.shape)}", f"of shape {tuple(keep.shape)}")
        raise ShapeError(message(caller, problem))
    return keep
