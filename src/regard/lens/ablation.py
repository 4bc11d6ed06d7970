"""Ablation: which heads a number depends on, by taking them away one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from regard.errors import ConfigError, message, must_be
from regard.lens.changes import SilenceHeads
from regard.lens.watch import watch
from regard.ops import TopK


def head_importance(
    model: nn.Module, number: Callable[[], Any], *, modules: str | None = None
) -> dict[str, Float64[Tensor, "heads"]]:
    """What a number becomes less by when one head after another is silent.

    Args:
        model: The model, in ``eval`` mode: a number that changes by itself says nothing.
        number: Runs the model and returns one number, such as an accuracy or a log-probability.
        modules: Regular expression for the names of attention modules; None for all.

    Returns:
        For each attention module that runs, number() − number() with head h silent, for each head: above 0, the head
        helps.

    Raises:
        ConfigError: No attention was met; ``number`` did not return a number.
        UnsupportedError: A module attends in a way that changes cannot reach.

    Cost:
        One run for each head, and one more.

    Source:
        Michel et al. 2019, arXiv:1905.10650, section 3.
    """
    with torch.no_grad(), watch(model, modules=modules) as seen:
        whole = _number(number(), "head_importance")
    heads = {layer.name: layer.num_heads for layer in seen.layers}
    if not heads:
        raise ConfigError(message("head_importance", "no attention was met while the number was computed."))
    found = {name: torch.zeros(count, dtype=torch.float64) for name, count in heads.items()}
    for name, count in heads.items():
        for head in range(count):
            silent = SilenceHeads(heads=[head], modules=f"^{re.escape(name)}$")
            with torch.no_grad(), watch(model, changes=[silent]):
                found[name][head] = whole - _number(number(), "head_importance")
    return found


def retrieval_scores(
    model: nn.Module,
    run: Callable[[], Any],
    tokens: list[int],
    *,
    needle: tuple[int, int],
    copy: tuple[int, int],
    modules: str | None = None,
) -> dict[str, Float64[Tensor, "heads"]]:
    """How often a head looks hardest at the very token that is copied out of a passage.

        score = share of the copied tokens t whose query (the position before t) has its largest weight on a key in the
                needle that holds t

    Args:
        model: A language model.
        run: Runs it once on the text alone, the copied answer included (a batch of one).
        tokens: The ids of the text.
        needle: Range of positions of the passage.
        copy: Range of positions of the answer; its tokens that are in the needle count.
        modules: Regular expression for the names of attention modules; None for all.

    Returns:
        For each self-attention module a score for each head, 0 to 1; 0.1 is called a retrieval head in the source.

    Raises:
        ConfigError: A range that is not in the text, or an answer that copies nothing.

    Source:
        Wu et al. 2024, arXiv:2404.15574, section 2, on a given answer.
    """
    for name, (start, stop) in (("needle", needle), ("copy", copy)):
        if not 0 <= start < stop <= len(tokens):
            expected = f"a range of positions within 0 to {len(tokens)}"
            raise ConfigError(message("retrieval_scores", must_be(name, expected, f"({start}, {stop})")))
    passage = tokens[slice(*needle)]
    copied = [place for place in range(*copy) if place > 0 and tokens[place] in passage]
    if not copied:
        raise ConfigError(message("retrieval_scores", "`copy` must hold tokens of the needle, but holds none."))
    with torch.no_grad(), watch(model, [TopK(1)], modules=modules) as seen:
        run()
    ids = torch.tensor(tokens)
    found = {}
    for layer in seen.layers:
        if layer.kind != "self" or layer.batch != 1 or layer.q_positions.shape[1] != len(tokens):
            continue
        keys = layer.top_k.indices[0, :, :, 0].cpu()[:, [place - 1 for place in copied]]
        inside = (keys >= needle[0]) & (keys < needle[1])
        found[layer.name] = (inside & (ids[keys.clamp(min=0)] == ids[copied])).double().mean(-1)
    if not found:
        raise ConfigError(
            message("retrieval_scores", f"no self-attention layer read one text of {len(tokens)} tokens.")
        )
    return found


def _number(value: Any, caller: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(message(caller, f"`number` must return a number, but returned {value!r}.")) from None
