"""Beam search for our own models: what transformers' own finds, in less time.

transformers reads a prompt once for every beam, goes on with all beams until the last text of a batch is done, moves
what is kept of the source with them, and orders the whole vocabulary's log-probabilities. Here a prompt is read once,
a text that is done is let go, the source moves only then, and most of the vocabulary is ruled out by the best logit of
its block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, EosTokenCriteria, MaxLengthCriteria

from regard.hf.state_cache import StateCache

_NEVER = -1.0e9  # transformers' score of what cannot be
_BLOCK = 64  # logits that share a maximum
_ROWS = 16  # whose exponentials stay in the CPU's cache
_MORE = ("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate")
_KNOWN = {"attention_mask", "decoder_attention_mask", "encoder_outputs", "cache", "use_cache", "logits_to_keep"}


def is_plain(
    *,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    synced_gpus: bool,
    inputs: Mapping[str, Any],
    vocab_size: int,
) -> bool:
    """Whether a search asks for nothing but the best texts; transformers' own serves where it asks for more.

    Args:
        logits_processor: What changes scores before the best are chosen.
        stopping_criteria: What ends a text.
        generation_config: Options of ``generate``.
        synced_gpus: Whether several processes go on until the last is done.
        inputs: What the model is called with at every step.
        vocab_size: Of the model: where there are fewer words than candidates, beams are alike.
    """
    config = generation_config
    more = synced_gpus or config.do_sample or config.low_memory or config.prefill_chunk_size is not None
    more = more or any(getattr(config, name) for name in _MORE)
    known = all(name in _KNOWN or value is None for name, value in inputs.items())
    ends = all(type(one) in (MaxLengthCriteria, EosTokenCriteria) for one in stopping_criteria)
    enough = vocab_size >= _candidates(config)
    return not more and not logits_processor and known and ends and enough and _can_shrink(inputs.get("cache"))


def _candidates(config: Any) -> int:
    """How many continuations are looked for: whatever ends among them, as many as there are beams go on."""
    ends = config._eos_token_tensor
    return int(config.num_beams * max(2, 1 + (0 if ends is None else len(ends))))


def _can_shrink(cache: Any) -> bool:
    """Whether a cache may go on with fewer rows: no room was taken for them beforehand."""
    if isinstance(cache, EncoderDecoderCache):
        return _can_shrink(cache.self_attention_cache) and _can_shrink(cache.cross_attention_cache)
    return isinstance(cache, StateCache) or type(cache) is DynamicCache


def search(model: Any, prompts: Int[Tensor, "rows length"], config: Any, inputs: Mapping[str, Any]) -> Tensor:
    """Find the best texts.

    Args:
        model: One of ours, in transformers.
        prompts: What every beam begins with: batch · num_beams rows.
        config: Options of ``generate``.
        inputs: What the model is called with at every step; the cache in it is filled.

    Returns:
        Sequences [batch · num_return_sequences, length], best first, as transformers' ``_beam_search`` returns them.

    Numerics:
        Scores are transformers' to rounding; so are the texts, unless two are as good.

    Cost:
        The prompt is read once; a step reads ``num_beams`` rows for each text that is not done.
    """
    beams, eos = config.num_beams, config._eos_token_tensor
    found = _Found(prompts, config)
    texts = torch.arange(len(prompts) // beams, device=prompts.device)
    sums = torch.zeros(len(texts), 1, device=prompts.device)
    running = prompts[::beams][:, None]
    given = _go_on(inputs, rows=texts * beams, source_rows=texts * beams)
    outputs = model._prefill(running[:, 0], config, given)
    while True:
        given = model._update_model_kwargs_for_generation(
            outputs, given, is_encoder_decoder=model.config.is_encoder_decoder
        )
        width = running.shape[1]  # rows of each text in the step: one at first, then ``num_beams``
        best = best_continuations(outputs.logits[:, -1].float(), sums, _candidates(config))
        written = torch.cat([_gather(running, best.beams), best.tokens[..., None]], dim=2)
        length = written.shape[2]
        ends = torch.full_like(best.tokens, length >= config.max_length, dtype=torch.bool)
        if eos is not None:
            ends |= torch.isin(best.tokens, eos)
        found.take(texts, written, best.scores, ends)
        if length >= config.max_length:
            return found.best()
        sums, chosen = (best.scores + ends * _NEVER).topk(beams, dim=1)
        going = found.can_improve(texts, sums[:, 0], length).nonzero()[:, 0]
        if not len(going):
            return found.best()
        texts, sums, chosen = texts[going], sums[going], chosen[going]
        running, parents = _gather(written[going], chosen), best.beams[going].gather(1, chosen)
        source_rows = (going * width).repeat_interleave(beams)
        unmoved = width == beams and len(source_rows) == len(outputs.logits)
        rows = (going[:, None] * width + parents).flatten()
        given = _go_on(given, rows=rows, source_rows=None if unmoved else source_rows)
        asked = model.prepare_inputs_for_generation(running.flatten(0, 1), next_sequence_length=1, **given)
        outputs = model(**asked, return_dict=True)


def _go_on(inputs: Mapping[str, Any], *, rows: Tensor, source_rows: Tensor | None) -> dict[str, Any]:
    """What a model is called with, for these of its rows.

    Args:
        inputs: What it was called with before; its cache changes.
        rows: What each row goes on from.
        source_rows: The same for what all beams of a text share; None if it stays as it is.
    """
    found = dict(inputs)
    cache: Any = found["cache"]
    own: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    own.reorder_cache(rows)
    if source_rows is None:
        return found
    if own is not cache:
        cache.cross_attention_cache.reorder_cache(source_rows)
    for name in ("attention_mask", "decoder_attention_mask"):
        if found.get(name) is not None:
            found[name] = found[name].index_select(0, source_rows)
    if (read := found.get("encoder_outputs")) is not None:
        parts = {name: part.index_select(0, source_rows) for name, part in read.items()}
        found["encoder_outputs"] = type(read)(**parts)
    return found


class Continuations(NamedTuple):
    """The best next tokens of every text, best first.

    Args:
        scores: Sums of log-probabilities.
        beams: Which beam each goes on from.
        tokens: Their ids.
    """

    scores: Float[Tensor, "texts candidates"]
    beams: Int[Tensor, "texts candidates"]
    tokens: Int[Tensor, "texts candidates"]


def best_continuations(
    logits: Float[Tensor, "rows vocab_size"], sums: Float[Tensor, "texts num_beams"], candidates: int
) -> Continuations:
    """The best of all tokens after all beams of a text.

    Args:
        logits: Of the next token, beams of a text side by side.
        sums: Log-probability of what each beam has written.
        candidates: How many to find, at most as many as there are.

    Cost:
        Two passes over the logits. The best can only be in the blocks with the best maxima: of every text
        candidates · 64 logits are put in order.
    """
    texts, beams = sums.shape
    vocab_size = logits.shape[1]
    candidates = min(candidates, beams * vocab_size)
    blocks = -(-vocab_size // _BLOCK)
    if vocab_size % _BLOCK:
        logits = torch.nn.functional.pad(logits, (0, blocks * _BLOCK - vocab_size), value=float("-inf"))
    split = logits.view(texts, beams * blocks, _BLOCK)
    normalisers = torch.cat([part.logsumexp(dim=1) for part in logits.chunk(-(-len(logits) // _ROWS))])
    offsets = (sums - normalisers.view(texts, beams)).repeat_interleave(blocks, dim=1)
    some = (split.amax(dim=2) + offsets).topk(min(candidates, beams * blocks), dim=1, sorted=False).indices
    scores = _gather(split, some) + offsets.gather(1, some)[..., None]
    best, places = scores.flatten(1).topk(candidates, dim=1)
    block = some.gather(1, places // _BLOCK)
    return Continuations(best, block // blocks, block % blocks * _BLOCK + places % _BLOCK)


class _Found:
    """The best texts of every batch item that have ended."""

    def __init__(self, prompts: Tensor, config: Any) -> None:
        self.config, self.begun = config, prompts.shape[1]
        eos, pad = config._eos_token_tensor, config._pad_token_tensor
        filler = -1 if eos is None else pad or eos[0]  # transformers fills with the end where padding is id 0
        shape = len(prompts) // config.num_beams, config.num_beams
        self.texts = prompts.new_full((*shape, config.max_length), int(filler))
        self.texts[:, :, : self.begun] = prompts.view(*shape, self.begun)
        self.lengths = prompts.new_full(shape, self.begun)
        self.scores = torch.full(shape, _NEVER, device=prompts.device)
        self.ended = torch.zeros_like(self.scores, dtype=torch.bool)

    def take(self, items: Tensor, written: Tensor, sums: Tensor, ends: Tensor) -> None:
        """Take in what ends at this step and is among the best ``num_beams`` candidates."""
        beams, length = self.config.num_beams, written.shape[2]
        ends = ends[:, :beams]
        some = ends.any(dim=1).nonzero()[:, 0]
        if not len(some):
            return
        items, written, ends = items[some], written[some, :beams], ends[some]
        scores = sums[some, :beams] / (length - self.begun) ** self.config.length_penalty + ~ends * _NEVER
        self.scores[items], kept = torch.cat([self.scores[items], scores], dim=1).topk(beams, dim=1)
        self.ended[items] = torch.cat([self.ended[items], ends], dim=1).gather(1, kept)
        self.lengths[items] = torch.cat([self.lengths[items], torch.full_like(kept, length)], dim=1).gather(1, kept)
        before = self.texts[items]
        whole = before.clone()
        whole[:, :, :length] = written
        self.texts[items] = _gather(torch.cat([before, whole], dim=1), kept)

    def can_improve(self, items: Tensor, best: Tensor, length: int) -> Tensor:
        """Whether a text that goes on may yet be better than the worst that was found; transformers' rule."""
        config = self.config
        full = self.ended[items].all(dim=1)
        if config.early_stopping is True:
            return ~full
        longest = config.max_length if config.early_stopping == "never" and config.length_penalty > 0 else length
        hoped: Tensor = best / (longest - self.begun) ** config.length_penalty
        return ~full | (hoped > self.scores[items].amin(dim=1))

    def best(self) -> Tensor:
        """What is returned."""
        returned = self.config.num_return_sequences
        longest = int(self.lengths[:, :returned].amax())
        texts: Tensor = self.texts[:, :returned, :longest]
        return texts.flatten(0, 1)


def _gather(values: Tensor, chosen: Tensor) -> Tensor:
    """[texts, n, width] and [texts, m] → [texts, m, width]."""
    return values.gather(1, chosen[..., None].expand(-1, -1, values.shape[2]))
