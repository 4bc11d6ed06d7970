"""The losses that our models return where ``labels`` are given, counted as ``Trainer`` counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.ops.transforms import is_free_to_look_at

IGNORED = -100  # a label that no loss counts, as everywhere in torch and transformers


def class_loss(
    model: Any, logits: Float[Tensor, "batch num_labels"], labels: Tensor, num_items: Any = None
) -> Float[Tensor, ""]:
    """The loss of a classifier: cross-entropy in nats, of classes or of each class by itself, or the squared error.

    Args:
        model: Whose config may say the ``problem_type``. If it does not, one class is a regression, floats are classes
            that do not exclude each other, and integers are the classes themselves.
        logits: Of the classes.
        labels: Integers [batch], −100 is not counted; for a regression numbers of the shape of ``logits``, or [batch]
            for one class; for classes that do not exclude each other 0 or 1 (or a share), of the shape of ``logits``.
        num_items: What the sum is divided by; by default the labels counted here.

    Raises:
        ShapeError, DTypeError: the labels are not those of the problem.
        ConfigError: a class is none of them. Looked at only where that is free: eager mode, CPU.
    """
    name, single = type(model).__name__, "single_label_classification"
    problem = model.config.problem_type or ("regression" if logits.shape[1] == 1 else None)
    if problem is None:
        problem = "multi_label_classification" if labels.is_floating_point() else single
    if problem == single:
        check_labels(name, labels, logits.shape[:1])
        if labels.dtype not in (torch.int64, torch.int32):
            raise DTypeError(message(name, must_be("labels", "classes (int64 or int32)", labels.dtype)))
        _check_classes(name, labels, logits.shape[1])
        return token_loss(logits[:, None], labels[:, None], num_items)
    if problem == "regression" and logits.shape[1] == 1 and labels.dim() == 1:
        labels = labels[:, None]
    check_labels(name, labels, logits.shape)
    measure = functional.mse_loss if problem == "regression" else functional.binary_cross_entropy_with_logits
    total = measure(logits.float(), labels.float(), reduction="sum")
    loss: Tensor = total / (max(labels.numel(), 1) if num_items is None else num_items)
    return loss


def _check_classes(caller: str, labels: Tensor, num_labels: int) -> None:
    if is_free_to_look_at(labels):
        wrong = ((labels < 0) | (labels >= num_labels)) & (labels != IGNORED)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            found = f"{int(labels[row])} in row {row}"
            raise ConfigError(message(caller, must_be("labels", f"classes from 0 to {num_labels - 1}", found)))


def span_loss(
    caller: str, name: str, logits: Float[Tensor, "batch length"], positions: Tensor, num_items: Any = None
) -> Float[Tensor, ""]:
    """Cross-entropy of one end of the answers, in nats.

    Args:
        caller: The model, for messages.
        name: Of the positions, for messages.
        logits: Of every token; −inf at padding.
        positions: Of the token that is right, a real one; −100 is not counted.
        num_items: What the sum is divided by; by default the positions counted here.

    Raises:
        ShapeError: there is not one position for each text.
        ConfigError: a position is none of a real token. Looked at only where that is free: eager mode, CPU.
    """
    check_labels(caller, positions, logits.shape[:1], name=name)
    if is_free_to_look_at(positions):
        counted = positions != IGNORED
        inside = (positions >= 0) & (positions < logits.shape[1])
        at = positions.long()[:, None].clamp(0, max(logits.shape[1] - 1, 0))
        real = inside & (logits.gather(1, at)[:, 0] != -torch.inf) if logits.shape[1] else inside
        if bool((counted & ~real).any()):
            row = int((counted & ~real).nonzero()[0])
            problem = must_be(name, "positions of real tokens", f"{int(positions[row])} in row {row}")
            raise ConfigError(message(caller, problem, hint=f"{IGNORED} leaves a row out"))
    return token_loss(logits[:, None], positions[:, None], num_items)


def check_labels(caller: str, labels: Tensor, shape: Sequence[Any], *, name: str = "labels") -> None:
    """Refuse labels of another shape than the loss compares.

    Raises:
        ShapeError: names both.
    """
    if tuple(labels.shape) != tuple(shape):
        expected = f"of shape ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        raise ShapeError(message(caller, must_be(name, expected, f"of shape {tuple(labels.shape)}")))


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
        logits.flatten(0, 1).float(), labels.flatten().long(), ignore_index=IGNORED, reduction="sum"
    )
    if num_items is None:
        num_items = (labels != IGNORED).sum().clamp(min=1)
    loss: Tensor = total / num_items
    return loss


def labelled_loss(
    caller: str,
    logits: Float[Tensor, "batch length vocab_size"],
    labels: Int[Tensor, "batch length"] | None,
    num_items: Any = None,
    *,
    shift: bool = False,
) -> Float[Tensor, ""] | None:
    """What a model returns for its loss: ``token_loss``, or None where nobody said what should be.

    Args:
        caller: The model, for messages.
        logits: Of every token.
        labels: What each should be; −100 is not counted.
        num_items: As for ``token_loss``.
        shift: Whether the labels are the tokens that were read, each of which the one before should say.

    Raises:
        ShapeError: the labels are of another shape than the tokens.
    """
    if labels is None:
        return None
    check_labels(caller, labels, logits.shape[:2])
    return token_loss(logits[:, :-1], labels[:, 1:], num_items) if shift else token_loss(logits, labels, num_items)


def decoder_inputs(model: Any, labels: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
    """``shifted_right`` as a model's configuration has it.

    Raises:
        ShapeError: the labels are no [batch, length].
    """
    if labels.dim() != 2:
        check_labels(type(model).__name__, labels, ("batch", "length"))
    return shifted_right(labels, start=model.config.decoder_start_token_id, pad_id=model.config.pad_id)


def shifted_right(
    labels: Int[Tensor, "batch length"], *, start: int, pad_id: int | None
) -> Int[Tensor, "batch length"]:
    """What a decoder reads while it learns to write ``labels``: the start token, then all but the last of them."""
    shifted = torch.cat([labels.new_full((labels.shape[0], 1), start), labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, start if pad_id is None else pad_id)
