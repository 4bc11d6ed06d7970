"""BLEU and chrF, as sacreBLEU computes them: a figure counts only with the signature that says how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.errors import ConfigError, message, missing_extra, must_be
from regard.train.metrics._segments import References, with_references
from regard.train.metrics.resampling import Statistic
from regard.train.metrics.result import NOT_REPORTED, Scored
from regard.train.metrics.words import mostly_han


@dataclass(frozen=True)
class Bleu(Scored):
    """Corpus BLEU.

    Args:
        segments: BLEU of every sentence, 0 to 100, for finding the bad ones: with the orders a sentence has
            (sacreBLEU's effective order). Their mean is not the score.
        score: 0 to 100.
        precisions: Of 1-grams to 4-grams, 0 to 100.
        brevity_penalty: 1 unless the hypotheses are shorter than the references.
        hypothesis_length: In tokens.
        reference_length: In tokens, of the references nearest in length.
        signature: sacreBLEU's, to be quoted with the score.
        statistic: For ``bootstrap`` and ``paired_bootstrap``.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    signature: str
    statistic: Statistic = field(repr=False, compare=False, metadata=NOT_REPORTED)

    def __str__(self) -> str:
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        lengths = f"{self.hypothesis_length} tokens for {self.reference_length}"
        penalty = f"brevity penalty {self.brevity_penalty:.3f}"
        return f"BLEU {self.score:.2f} ({precisions}, {penalty}, {lengths}) {self.signature}"


@dataclass(frozen=True)
class Chrf(Scored):
    """Corpus chrF.

    Args:
        segments: chrF of every sentence, 0 to 100. Their mean is not the score.
        score: 0 to 100.
        name: ``chrF2``, or ``chrF2++`` with word pairs.
        signature: sacreBLEU's, to be quoted with the score.
        statistic: For ``bootstrap`` and ``paired_bootstrap``.
    """

    score: float
    name: str
    signature: str
    statistic: Statistic = field(repr=False, compare=False, metadata=NOT_REPORTED)

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f} {self.signature}"


def bleu(
    hypotheses: Sequence[str], references: References, *, tokenizer: str = "auto", lowercase: bool = False
) -> Bleu:
    """BLEU of a corpus: how many of the written 1- to 4-grams stand in the references, with a penalty for brevity.

    Texts are given as people read them, not tokenized. A corpus without a single 4-gram scores 0, whatever it says:
    that is BLEU's definition, and ``chrf`` is the metric for such short texts.

    Args:
        hypotheses: What the system wrote; may be empty texts.
        references: For every hypothesis one right text or several, not necessarily as many each.
        tokenizer: One of sacreBLEU's (``13a``, ``zh``, ``char``, ``intl``, ``none``, …). ``"auto"`` is ``zh`` when the
            references are mostly Chinese characters, else ``13a``; the signature says which (``tok:``).
        lowercase: Ignore case; in the signature, too.

    Raises:
        ShapeError: Not as many references as hypotheses.
        ConfigError: Nothing to compare, a segment without a reference, or an unknown tokenizer.
        BackendUnavailableError: sacreBLEU is not installed.

    Source:
        Papineni et al. 2002; Post 2018 (sacreBLEU).
    """
    listed = with_references("bleu", hypotheses, references)
    library = _sacrebleu("bleu")
    known = sorted(library.BLEU.TOKENIZERS)
    if tokenizer == "auto":
        tokenizer = "zh" if mostly_han(text for texts in listed for text in texts) else "13a"
    elif tokenizer not in known:
        problem = must_be("tokenizer", f'"auto" or one of {", ".join(known)}', repr(tokenizer))
        raise ConfigError(message("bleu", problem))
    metric = library.BLEU(tokenize=tokenizer, lowercase=lowercase)
    alone = library.BLEU(tokenize=tokenizer, lowercase=lowercase, effective_order=True)
    rows = _rows(metric, hypotheses, listed)
    whole = _of(metric, rows.sum(axis=0))
    return Bleu(
        segments=tuple(_of(alone, row).score for row in rows),
        score=whole.score,
        precisions=tuple(whole.precisions),
        brevity_penalty=whole.bp,
        hypothesis_length=whole.sys_len,
        reference_length=whole.ref_len,
        signature=str(metric.get_signature()),
        statistic=Statistic(rows, lambda total: float(_of(metric, total).score)),
    )


def chrf(hypotheses: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Chrf:
    """The chrF of a corpus: F-score of character 1- to 6-grams, with recall counted twice; needs no tokenizer.

    Args:
        hypotheses: What the system wrote; may be empty texts.
        references: For every hypothesis one right text or several; of several the best counts.
        word_order: 2 for chrF++, which counts words and pairs of words, too.
        lowercase: Ignore case; in the signature, too.

    Raises:
        ShapeError: Not as many references as hypotheses.
        ConfigError: Nothing to compare, a segment without a reference, or a negative order.
        BackendUnavailableError: sacreBLEU is not installed.

    Source:
        Popović 2015, 2017; Post 2018 (sacreBLEU).
    """
    listed = with_references("chrf", hypotheses, references)
    if word_order < 0:
        raise ConfigError(message("chrf", must_be("word_order", "at least 0", word_order)))
    metric = _sacrebleu("chrf").CHRF(word_order=word_order, lowercase=lowercase)
    rows = _rows(metric, hypotheses, listed)
    whole = _of(metric, rows.sum(axis=0))
    return Chrf(
        segments=tuple(_of(metric, row).score for row in rows),
        score=whole.score,
        name=whole.name,
        signature=str(metric.get_signature()),
        statistic=Statistic(rows, lambda total: float(_of(metric, total).score)),
    )


def _sacrebleu(caller: str) -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise missing_extra("sacrebleu", "train", f"{caller}()") from error
    return sacrebleu


def _rows(metric: Any, hypotheses: Sequence[str], references: Sequence[tuple[str, ...]]) -> Any:
    """Matches and lengths of every segment. sacreBLEU's base class keeps them for its own significance tests.

    Its public functions would cut every text into n-grams anew for each of a thousand draws.
    """
    most = max(map(len, references))
    streams = [[texts[number] if number < len(texts) else None for texts in references] for number in range(most)]
    return np.array(metric._extract_corpus_statistics(list(hypotheses), streams), dtype=np.int64)


def _of(metric: Any, row: Any) -> Any:
    """The score that sacreBLEU computes from one row, or from a sum of rows."""
    return metric._compute_score_from_stats(row.tolist())
