"""Are explanations faithful: on a sentiment model and on a translator, beside controls that say nothing?

    python benchmarks/explanations.py --data DIR --classifier FOLDER --translator FOLDER [--pairs TEST.jsonl]

For each text of the test set the probability of the class that the model chose is explained by the text's tokens; for
each source the log-probability of one token of its translation (drawn) by the source's tokens. Explanations:

    last layer     attention of the last layer (of the translator: its cross-attention), mean of the heads
    value norms    lengths of what that layer moves
    rollout        of the encoder; for the translator, mean cross-attention times it
    gradients      ``gradient_attention``, summed over queries, heads and layers (of the translator: cross-attention)
    relevance      for the translator the positive part over all cross-attention, times (I + that of the encoder)
    flow           as rollout, by maximum flows, for texts of up to ``SHORT`` tokens

They are read at the states that the model pools: all of them, or the first. A token of a text is taken away by putting
the mask or the unknown token in its place, one of a source by hiding it. Controls: what ``faithfulness`` draws
(random, uniform, leave-one-out), the gradient of the embeddings times them, "weights permuted" (the last layer with the
weights of every head and query in another order, which must score as random: infidelity aside, which is that of
"uniform" the more rows are averaged) and every explanation with its own scores in another order. An
explanation beats that one where the 95 % bootstrap interval of the difference over examples is on the better side of 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from runs import arguments
from setting import setting, write
from torch import Tensor

import regard
from regard.lens import (
    Faithfulness,
    Seen,
    faithfulness,
    flow,
    gradient_attention,
    relevance,
    rollout,
    value_norms,
)
from regard.tasks import Trained, load
from regard.tasks.encoding import cut, encode
from regard.tasks.writing import write as translate
from regard.text import ReadOptions, read_labelled
from regard.train.metrics import bootstrap, paired_bootstrap

SEED, LEAST, SHORT = 1, 4, 12
HIGHER = {
    "comprehensiveness": True,
    "sufficiency": False,
    "deletion_auc": False,
    "infidelity": False,
    "leave_one_out": True,
}
PERMUTED, CONTROL = ", permuted", "weights permuted"


@dataclass(frozen=True)
class Explained:
    """One prediction.

    Args:
        scores: Of each explanation for each token that is a feature.
        value: The prediction with some of them left.
    """

    scores: Mapping[str, Tensor]
    value: Callable[[Tensor], Tensor]


def embedded(model: Any, kept: list[Tensor]) -> Any:
    """A hook that keeps what the table of embeddings puts out."""

    def keep(_: Any, __: Any, output: Tensor) -> None:
        output.retain_grad() if output.requires_grad and not output.is_leaf else None
        kept.append(output)

    return model.get_input_embeddings().register_forward_hook(keep)


def real_tokens(trained: Trained, ids: list[int]) -> Tensor:
    """The places of tokens that are of the text."""
    special = set(trained.tokenizer.all_special_ids) - {trained.tokenizer.unk_token_id}
    return torch.tensor([place for place, number in enumerate(ids) if number not in special])


def last_layer(seen: Seen, rows: list[int], kind: str, generator: torch.Generator) -> dict[str, Tensor]:
    """The weights of the last layer, what they move, and the weights in another order."""
    call = [call for call in seen.calls if call.kind == kind][-1]
    weights = call.rows(rows)[0].double()
    order = torch.rand(weights.shape, generator=generator).argsort(-1)
    return {
        "last layer": weights.mean((0, 1)),
        "value norms": value_norms(seen, call.name, rows).together[0].mean(0),
        CONTROL: weights.gather(-1, order).mean((0, 1)),
    }


def classified(trained: Trained, text: str, generator: torch.Generator) -> Explained | None:
    """The class of a text, explained."""
    model, row = trained.model, cut(encode(trained.tokenizer, [text])[0], trained.info.max_tokens)
    inputs = {name: torch.tensor([ids]) for name, ids in row.items()}
    features = real_tokens(trained, row["input_ids"])
    if len(features) < LEAST:
        return None
    kept: list[Tensor] = []
    hook = embedded(model, kept)
    with regard.watch(model, keep=True) as seen:
        probabilities = model(**inputs).logits[0].softmax(-1)
    hook.remove()
    chosen = int(probabilities.argmax())
    target, length = probabilities[chosen], inputs["input_ids"].shape[1]
    rows = [0] if getattr(model.config, "pooling", "first") == "first" else [*range(length)]
    (slope,) = torch.autograd.grad(target, kept[:1], retain_graph=True)
    by_layer = [layer.key_sums()[0].sum(0) for layer in gradient_attention(seen, target)]
    found = {
        **last_layer(seen, rows, "self", generator),
        "rollout": rollout(seen, rows)[0].mean(0),
        "gradients": torch.stack(by_layer).sum(0),
        "relevance": relevance(seen, target, rows)[0].sum(0),
        "gradient times input": (slope * kept[0])[0].sum(-1),
    }
    if len(features) <= SHORT:
        found["flow"] = torch.stack([flow(seen, row)[0] for row in rows]).mean(0)
    hidden = trained.tokenizer.mask_token_id
    hidden = trained.tokenizer.unk_token_id if hidden is None else hidden

    @torch.no_grad()
    def value(keep: Tensor) -> Tensor:
        many = {name: ids.expand(len(keep), -1).clone() for name, ids in inputs.items()}
        part = many["input_ids"][:, features]
        many["input_ids"][:, features] = torch.where(keep, part, hidden)
        return model(**many).logits.softmax(-1)[:, chosen]

    return Explained({name: scores.detach()[features] for name, scores in found.items()}, value)


def translated(trained: Trained, source: str, generator: torch.Generator) -> Explained | None:
    """One token of a translation, explained by its source."""
    model, row = trained.model, cut(encode(trained.tokenizer, [source])[0], trained.info.max_tokens)
    read, features = torch.tensor([row["input_ids"]]), real_tokens(trained, row["input_ids"])
    ids = translate(trained, [source], num_beams=1)[0].ids
    places = real_tokens(trained, [*ids])
    places = places[places > 0]
    if len(features) < LEAST or not len(places):
        return None
    place = int(places[int(torch.randint(len(places), (), generator=generator))])
    written, at = torch.tensor([ids[:place]]), place - 1
    kept: list[Tensor] = []
    hook = embedded(model, kept)
    with regard.watch(model, keep=True) as seen:
        target = (
            model(input_ids=read, decoder_input_ids=written, use_cache=False).logits[0, at].log_softmax(-1)[ids[place]]
        )
    hook.remove()
    (slope,) = torch.autograd.grad(target, kept[:1], retain_graph=True)
    found = {
        **last_layer(seen, [at], "cross", generator),
        **through_encoder(seen, target, at, read.shape[1], short=len(features) <= SHORT),
        "gradient times input": (slope * kept[0])[0].sum(-1),
    }

    @torch.no_grad()
    def value(keep: Tensor) -> Tensor:
        mask = torch.ones(len(keep), read.shape[1], dtype=torch.long)
        mask[:, features] = keep.long()
        many = read.expand(len(keep), -1), written.expand(len(keep), -1)
        said = model(input_ids=many[0], attention_mask=mask, decoder_input_ids=many[1], use_cache=False)
        return said.logits[:, at].log_softmax(-1)[:, ids[place]]

    return Explained({name: scores.detach()[features] for name, scores in found.items()}, value)


def through_encoder(seen: Seen, target: Tensor, at: int, length: int, *, short: bool) -> dict[str, Tensor]:
    """What the decoder takes from the encoder's states, followed to the tokens they came from."""
    sources, encoder = [*range(length)], r"encoder\."
    looked = [call.rows([at])[0, :, 0].double().mean(0) for call in seen.calls if call.kind == "cross"]
    mean = torch.stack(looked).mean(0)
    products = gradient_attention(seen, target, kind="cross")
    signed = torch.stack([layer.key_sums()[0].sum(0) for layer in products]).sum(0)
    positive = torch.zeros(length, dtype=torch.float64)
    for layer in products:
        for _, keys, product in layer.strips():
            positive[keys] += product[0].clamp(min=0).mean(0).sum(0)
    found = {
        "rollout": mean @ rollout(seen, sources, modules=encoder)[0],
        "gradients": signed,
        "relevance": positive + positive @ relevance(seen, target, sources, modules=encoder)[0],
    }
    if short:
        found["flow"] = sum(share * flow(seen, row, modules=encoder)[0] for row, share in enumerate(mean.tolist()))
    return found


def judged(explained: Explained, generator: torch.Generator, seed: int) -> dict[str, Faithfulness]:
    """Every explanation, with its own scores in another order beside it."""
    permuted = {
        f"{name}{PERMUTED}": scores[torch.randperm(len(scores), generator=generator)]
        for name, scores in explained.scores.items()
        if name != CONTROL
    }
    return faithfulness(explained.value, {**explained.scores, **permuted}, seed=seed)


def interval(numbers: list[float]) -> dict[str, Any]:
    """Mean and interval over the examples that have one."""
    known = [number for number in numbers if number == number]
    if not known:
        return {"mean": None, "examples": 0}
    found = bootstrap(known, seed=SEED)
    return {"mean": found.value, "low": found.low, "high": found.high, "examples": len(known)}


def against(found: list[dict[str, Faithfulness]], name: str, other: str) -> dict[str, Any]:
    """Name minus other, by measure, on the examples that have both; and on which measures it is better for sure."""
    differences, better = {}, []
    for measure, higher in HIGHER.items():
        pairs = [(getattr(one[name], measure), getattr(one[other], measure)) for one in found if name in one]
        pairs = [pair for pair in pairs if pair[0] == pair[0] and pair[1] == pair[1]]
        if not pairs:
            continue
        difference = paired_bootstrap([pair[0] for pair in pairs], [pair[1] for pair in pairs], seed=SEED)
        differences[measure] = [difference.value, difference.low, difference.high]
        if (difference.low > 0) if higher else (difference.high < 0):
            better.append(measure)
    return {"difference": differences, "better_on": better}


def summary(found: list[dict[str, Faithfulness]]) -> dict[str, Any]:
    """All measures of all explanations and controls, and the verdicts."""
    names = list(dict.fromkeys(name for one in found for name in one))
    figures: dict[str, Any] = {"examples": len(found), "measures": {}, "verdicts": {}}
    for name in names:
        having = [one[name] for one in found if name in one]
        figures["measures"][name] = {
            field.name: interval([getattr(one, field.name) for one in having]) for field in fields(Faithfulness)
        }
    for name in names:
        if f"{name}{PERMUTED}" in names:
            verdict = against(found, name, f"{name}{PERMUTED}")
            beats = {"comprehensiveness", "deletion_auc"} <= {*verdict["better_on"]}
            figures["verdicts"][name] = {"beats_its_permuted_self": beats, **verdict}
    drawn = against(found, CONTROL, "random")
    spread = [drawn["difference"][measure] for measure in HIGHER if measure != "infidelity"]  # it is that of "uniform"
    figures["weights_permuted_against_random"] = {
        "scores_as_random": all(low <= 0 <= high for _, low, high in spread),
        **drawn,
    }
    return figures


def all_of(
    trained: Trained, texts: list[str], explain: Callable[[Trained, str, torch.Generator], Explained | None], count: int
) -> dict[str, Any]:
    """Explain and judge the first texts that are long enough, in an order that is drawn."""
    generator = torch.Generator().manual_seed(SEED)
    found: list[dict[str, Faithfulness]] = []
    for place in torch.randperm(len(texts), generator=generator).tolist():
        if len(found) == count:
            break
        explained = explain(trained, texts[place], generator)
        if explained is not None:
            found.append(judged(explained, generator, seed=place))
    return summary(found)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--classifier", type=Path, help="a folder that `regard train classify` made, for sst2")
    parser.add_argument("--translator", type=Path, help="a folder that `regard train translate` made")
    parser.add_argument("--pairs", type=Path, help="JSON lines with sources it has not learned from")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--name", default="explanations", help="of the results")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found: dict[str, Any] = {"setting": setting(seed=SEED, threads=given.threads, examples=given.examples)}
    if given.classifier:
        options = ReadOptions(columns={"label": "1", "text": "2"}, header=False)
        texts = [row.text for row in read_labelled(given.data / "sst2" / "test.tsv", options=options)]
        found["sentiment"] = all_of(load(given.classifier, task="classify"), texts, classified, given.examples)
    if given.translator:
        if given.pairs is None:
            parser.error("--translator needs --pairs")
        lines = given.pairs.read_text(encoding="utf-8").splitlines()
        sources = [json.loads(line)["source"] for line in lines]
        found["translator"] = all_of(load(given.translator, task="translate"), sources, translated, given.examples)
    write(given.name, found)


if __name__ == "__main__":
    main()
