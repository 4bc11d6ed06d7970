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
    _check_options(caller, max_new_tokens, temperature, top_k)
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
    return torch.multinomial((scores / temperature).softmax(dim=-1), 1, generator=generator)[:, 0]


def _check_options(caller: str, max_new_tokens: int, temperature: float, top_k: int | None) -> None:
    problems = []
    if max_new_tokens < 0:
        problems.append(must_be("max_new_tokens", "at least 0", max_new_tokens))
    if not (temperature >= 0 and temperature != float("inf")):
        problems.append(must_be("temperature", "0 (the best token) or a finite number above", temperature))
    if top_k is not None and top_k < 1:
        problems.append(must_be("top_k", "at least 1, or None", top_k))
    if problems:
        raise all_problems(caller, problems)
