"""Does a translator's cross-attention say which words belong together, as well as counting on the same pairs does?

    python benchmarks/alignment.py --data DIR --translator FOLDER --pairs TRAIN.jsonl [--name alignment]

Chinese–English sentences with links of people (word_align_zhen). The translator reads the Chinese words written
together, as it learned them, and the English sentence as what it has to write. Beside it IBM model 1 with a null word,
trained on the pairs that the translator learned from (``--pairs``), in both directions, on the translator's own pieces
and on characters and words.

From pieces to words, the same for both: a piece belongs to every word that it has a character of; the weight between
two words is the sum over the source word's pieces of the mean over the target word's pieces. Special tokens belong to
no word; a word that comes from the null word rather than from any other has no link.

Which layer, head (or mean of heads), row (the one that writes a piece, before it is read, or the one that has read it)
and method is taken, and for model 1 which units, iterations and method, is chosen by the error rate on a held-out third
of the sentences. Figures are those of the other two thirds, which nothing is chosen on. Cross-attention is judged as
weights, and again with lengths of what is moved (``value_norms``; "head 8" of eight is all heads together), each also
with every source word's column divided by its sum ("shares"), which takes away what rests on one word for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from runs import arguments
from setting import setting, write

import regard
from regard.lens import value_norms
from regard.records import TextOffsets, between_groups
from regard.tasks import Trained, load
from regard.tasks.writing import start_id
from regard.text import tokenize
from regard.train.baselines import IbmModel1
from regard.train.metrics import (
    Statistic,
    alignment_error_rate,
    bootstrap,
    grow_diag,
    intersection,
    links_of,
    paired_bootstrap,
)
from regard.train.metrics.alignment import Links, Method

SEED, ITERATIONS = 1, (5, 10)
METHODS: tuple[Method, ...] = get_args(Method)
UNIT = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
Pieces = Callable[[str], list[tuple[str, int, int]]]


@dataclass(frozen=True)
class Pair:
    """Two sentences, their words, and the links of people."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @property
    def texts(self) -> tuple[str, str]:
        """As the translator reads them."""
        return "".join(self.source), " ".join(self.target)


def gold(path: Path) -> list[Pair]:
    """The sentences of people: words, words, sure links, possible ones."""
    pairs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        source, target, sure, possible = line.split("\t")
        links = [frozenset(tuple(map(int, link.split("-"))) for link in part.split()) for part in (sure, possible)]
        pairs.append(Pair(tuple(source.split()), tuple(target.split()), links[0], links[0] | links[1]))
    return pairs


def groups(words: Sequence[str], gap: int, pieces: list[tuple[str, int, int]]) -> list[list[int]]:
    """For each word the numbers of the pieces that have a character of it."""
    found, start = [], 0
    for word in words:
        end = start + len(word)
        found.append([at for at, (_, first, last) in enumerate(pieces) if first < end and last > start])
        start = end + gap
    return found


def units(text: str) -> list[tuple[str, int, int]]:
    """Chinese characters, other words in lower case, and signs, with where they stand."""
    return [(found[0].lower(), *found.span()) for found in UNIT.finditer(text)]


def subwords(tokenizer: Any, text: str) -> list[tuple[str, int, int]]:
    """The translator's pieces, special ones without a place."""
    offsets = TextOffsets(text)
    read = tokenize(tokenizer, text)
    return [
        (str(number), *(offsets.characters((token.start, token.end)) if not token.special else (-1, -1)))
        for number, token in zip(read.ids, read.sequence.tokens, strict=True)
    ]


def by_words(weights: np.ndarray, rows: list[list[int]], columns: list[list[int]]) -> np.ndarray:
    """[words, words] from [..., pieces, pieces]; words without a piece have no weight."""
    found = between_groups(weights, [row or [0] for row in rows], columns)
    found[..., [not row for row in rows], :] = 0
    return found


def looks(model: Any, given: dict[str, torch.Tensor], length: int) -> dict[str, list[np.ndarray]]:
    """Of every layer [heads, pieces written, pieces read]: weights, and lengths of what is moved."""
    if hasattr(model, "alignments"):  # a recurrent decoder, which has one head and returns its weights
        return {"weights": [model.alignments(**given).double().numpy()]}
    with regard.watch(model, [regard.Rows(range(length))], keep=True) as seen:
        model(**given, use_cache=False)
    cross = [layer for layer in seen.layers if layer.kind == "cross"]
    norms = [value_norms(seen, layer.name, range(length)) for layer in cross]
    return {
        "weights": [layer.rows[0].double().numpy() for layer in cross],
        "norms": [np.concatenate([norm.by_head[0].numpy(), norm.together.numpy()]) for norm in norms],
    }


@torch.no_grad()
def attention(trained: Trained, pair: Pair) -> dict[str, np.ndarray]:
    """Weights between words by layer, head and row; the same as lengths of what is moved; and both without sinks."""
    source, target = (subwords(trained.tokenizer, text) for text in pair.texts)
    ids = [start_id(trained.model), *(int(number) for number, *_ in target)]
    read = torch.tensor([[int(number) for number, *_ in source]])
    given = {"input_ids": read, "decoder_input_ids": torch.tensor([ids])}
    kinds = looks(trained.model, given, len(ids))
    rows, columns = groups(pair.target, 1, target), groups(pair.source, 0, source)
    found = {}
    for kind, layers in kinds.items():
        for row, shift in (("writes", 0), ("has read", 1)):
            words = [by_words(layer, [[at + shift for at in one] for one in rows], columns) for layer in layers]
            names = {
                f"layer {number}, head {head}": one
                for number, layer in enumerate(words)
                for head, one in enumerate(layer)
            }
            names |= {f"layer {number}, mean": layer.mean(axis=0) for number, layer in enumerate(words)}
            names["all layers, mean"] = np.mean(words, axis=(0, 1))
            found |= {f"{kind}, {name}, {row}": one for name, one in names.items()}
    evened = {f"{name}, shares": one / one.sum(axis=0).clip(min=1e-12) for name, one in found.items()}
    return found | evened


def by_attention(trained: Trained, pairs: list[Pair]) -> dict[str, list[Links]]:
    """The links of every way to take them from cross-attention."""
    found: dict[str, list[Links]] = {}
    for pair in pairs:
        for name, weights in attention(trained, pair).items():
            for method in METHODS:
                found.setdefault(f"{name}, {method}", []).append(links_of(weights, method=method))
    return found


def one_way(model: IbmModel1, sides: list[tuple[list[Any], list[list[int]]]]) -> frozenset[tuple[int, int]]:
    """Links (source word, target word) of model 1 from the first side to the second."""
    (source, columns), (target, rows) = sides
    shares = model.posteriors([piece for piece, *_ in source], [piece for piece, *_ in target])
    found = by_words(shares, rows, [[0], *([at + 1 for at in column] for column in columns)])
    found[found[:, 0] >= found[:, 1:].max(axis=1, initial=0)] = 0  # from the null word
    return links_of(found[:, 1:], method="target")


def by_counting(training: list[tuple[str, str]], pairs: list[Pair], ways: dict[str, Pieces]) -> dict[str, list[Links]]:
    """The links of model 1, by units, iterations, direction and method."""
    found: dict[str, list[Links]] = {}
    for units_name, pieces_of in ways.items():
        sides = [
            [[one for one, start, _ in pieces_of(text) if start >= 0] for text in side]
            for side in zip(*training, strict=True)
        ]
        for iterations in ITERATIONS:
            there = IbmModel1.fit(*sides, iterations=iterations)
            back = IbmModel1.fit(*reversed(sides), iterations=iterations)
            name = f"{units_name}, {iterations} iterations"
            for pair in pairs:
                read = [[one for one in pieces_of(text) if one[1] >= 0] for text in pair.texts]
                both = [
                    (read[0], groups(pair.source, 0, read[0])),
                    (read[1], groups(pair.target, 1, read[1])),
                ]
                forward = one_way(there, both)
                backward = frozenset((source, target) for target, source in one_way(back, both[::-1]))
                joined = {
                    "target": forward,
                    "source": backward,
                    "intersection": intersection(forward, backward),
                    "grow_diag": grow_diag(forward, backward),
                }
                for method, links in joined.items():
                    found.setdefault(f"{name}, {method}", []).append(links)
    return found


def error_rate(total: np.ndarray) -> float:
    """AER of sums of |A|, |S|, |A ∩ S|, |A ∩ P|."""
    return float(1 - (total[2] + total[3]) / (total[0] + total[1]))


def statistic(links: list[Links], pairs: list[Pair]) -> Statistic:
    """AER, with what it is made of."""
    rows = [
        (len(ours), len(pair.sure), len(ours & pair.sure), len(ours & pair.possible))
        for ours, pair in zip(links, pairs, strict=True)
    ]
    return Statistic(np.array(rows), error_rate)


def scored(links: list[Links], pairs: list[Pair]) -> dict[str, Any]:
    """The measures of one way."""
    score = alignment_error_rate(links, [pair.sure for pair in pairs], [pair.possible for pair in pairs])
    between = bootstrap(statistic(links, pairs), seed=SEED)
    return {**asdict(score), "interval": [between.low, between.high]}


def parts(count: int) -> tuple[list[int], list[int]]:
    """The numbers of the held-out sentences, and of those that figures are of."""
    order = np.random.default_rng(SEED).permutation(count).tolist()
    return sorted(order[: count // 3]), sorted(order[count // 3 :])


def chosen(found: dict[str, list[Links]], pairs: list[Pair]) -> Iterator[tuple[float, str]]:
    """Every way by its error rate on the held-out part, the best first."""
    held_out, _ = parts(len(pairs))
    yield from sorted(
        (statistic([links[at] for at in held_out], [pairs[at] for at in held_out]).value(), name)
        for name, links in found.items()
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--translator", type=Path, required=True, help="a folder that `regard train translate` made")
    parser.add_argument("--pairs", type=Path, required=True, help="the JSON lines that it learned from")
    parser.add_argument("--name", default="alignment", help="of the results")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pairs = gold(given.data / "word_align_zhen" / "dev.tsv")
    trained = load(given.translator, task="translate")
    rows = [json.loads(line) for line in given.pairs.read_text(encoding="utf-8").splitlines()]
    training = [(row["source"], row["target"]) for row in rows]
    ways: dict[str, Pieces] = {"pieces": partial(subwords, trained.tokenizer), "characters and words": units}
    looked = by_attention(trained, pairs)
    weights = {name: links for name, links in looked.items() if name.startswith("weights")}
    systems = {"attention": weights, "attention or norms": looked, "model 1": by_counting(training, pairs, ways)}
    held_out, test = parts(len(pairs))
    tested = [pairs[at] for at in test]
    figures: dict[str, Any] = {}
    best: dict[str, list[Links]] = {}
    for name, found in systems.items():
        ranked = [*chosen(found, pairs)]
        error, way = ranked[0]
        best[name] = [found[way][at] for at in test]
        figures[name] = {
            "ways_tried": len(found),
            "chosen": way,
            "held_out_error_rate": error,
            "test": scored(best[name], tested),
        }
    plain = f"pieces, {ITERATIONS[0]} iterations, target"
    figures["model 1, one direction, pieces"] = {"test": scored([systems["model 1"][plain][at] for at in test], tested)}
    both = [statistic(best[name], tested) for name in ("attention", "model 1")]
    difference = paired_bootstrap(*both, seed=SEED)
    write(
        given.name,
        {
            "setting": setting(seed=SEED, threads=given.threads, translator=trained.name, training_pairs=len(rows)),
            "sentences": {"held_out": len(held_out), "test": len(test)},
            **figures,
            "attention_minus_model_1": asdict(difference),
            "no_worse": both[0].value() <= both[1].value(),
        },
    )


if __name__ == "__main__":
    main()
