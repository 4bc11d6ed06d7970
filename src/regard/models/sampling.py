"""Going on with a text token by token, for language models that decode from a state of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError, all_problems, message, must_be
from regard.models.padding import find_keep
from regard.nn.embedding import check_tokens
from regard.nn.options import is_number, is_whole


@torch.no_grad()
def continue_texts(
    model: Any,
    prompt: Tensor,
    keep: Tensor | None,
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
) -> list[list[int]]:
    """What a model with ``config`` and ``step`` writes after each prompt; see ``generate`` of the language models."""
    caller, ids = f"{type(model).__name__}.generate", model.config
    _check_options(caller, max_new_tokens, temperature, top_k, seed)
    check_tokens(caller, "prompt", prompt, ids.vocab_size)
    keep = find_keep(caller, "keep", prompt, keep, ids.pad_id)
    if not bool(keep.any(dim=1).all()):
        row = int((~keep.any(dim=1)).nonzero()[0])
        problem = must_be("prompt", "at least one token long in every row", f"empty in row {row}")
        raise ConfigError(message(caller, problem, hint="a text begins with bos_id"))
    training = model.training
    model.eval()
    try:
        generator = torch.Generator(prompt.device).manual_seed(seed)
        choose = partial(choose_tokens, temperature=temperature, top_k=top_k, generator=generator)
        return _write(model, prompt, keep, max_new_tokens, choose)
    finally:
        model.train(training)


def _write(
    model: Any, prompt: Tensor, keep: Tensor, max_new_tokens: int, choose: Callable[[Tensor], Tensor]
) -> list[list[int]]:
    ids = model.config
    # padding to the front: the last position is then the last token of every row
    order = torch.argsort(keep.int(), dim=1, stable=True)
    tokens, keep = prompt.gather(1, order), keep.gather(1, order)
    texts: list[list[int]] = [[] for _ in range(len(prompt))]
    alive = torch.ones(len(prompt), dtype=torch.bool, device=prompt.device)
    state = None
    for _ in range(max_new_tokens):
        logits, state = model.step(tokens, state, keep=keep)
        scores = logits[:, -1].float()
        scores[:, [ids.pad_id, ids.bos_id]] = float("-inf")
        tokens = choose(scores)[:, None]
        keep = torch.ones_like(tokens, dtype=torch.bool)
        alive &= tokens[:, 0] != ids.eos_id
        for text, token, goes_on in zip(texts, tokens[:, 0].tolist(), alive.tolist(), strict=True):
            if goes_on:
                text.append(token)
        if not bool(alive.any()):
            break
    return texts


def choose_tokens(scores: Tensor, *, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """One id for each row: the best for temperature 0, else drawn from softmax(scores / temperature) of the top k.

    Args:
        scores: [batch, vocab_size].
        temperature: Above 1 more even, below 1 more peaked.
        top_k: How many ids may be drawn; all by default.
        generator: Where chance comes from.
    """
    if temperature == 0:
        return scores.argmax(dim=-1)
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    # the best becomes 0 and stays it, however low the temperature; 1 / tiny is finite, and so is what it divides
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / max(temperature, torch.finfo(scores.dtype).tiny)
    return torch.multinomial(scores.softmax(dim=-1), 1, generator=generator)[:, 0]


def _check_options(caller: str, max_new_tokens: Any, temperature: Any, top_k: Any, seed: Any) -> None:
    problems = []
    if not is_whole(max_new_tokens) or max_new_tokens < 0:
        problems.append(must_be("max_new_tokens", "an integer of at least 0", repr(max_new_tokens)))
    if not is_number(temperature) or not 0 <= temperature < float("inf"):
        problems.append(must_be("temperature", "0 (the best token) or a finite number above", repr(temperature)))
    if top_k is not None and (not is_whole(top_k) or top_k < 1):
        problems.append(must_be("top_k", "an integer of at least 1, or None", repr(top_k)))
    if not is_whole(seed) or not -(2**63) <= seed < 2**64:
        problems.append(must_be("seed", "an integer of 64 bits", repr(seed)))
    if problems:
        raise all_problems(caller, problems)
