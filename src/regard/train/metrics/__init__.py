"""What a trained model is measured by: functions of texts, labels and numbers. None needs torch."""

from regard.train.metrics.alignment import AlignmentScore as AlignmentScore
from regard.train.metrics.alignment import GoldAlignment as GoldAlignment
from regard.train.metrics.alignment import alignment_error_rate as alignment_error_rate
from regard.train.metrics.alignment import grow_diag as grow_diag
from regard.train.metrics.alignment import intersection as intersection
from regard.train.metrics.alignment import links_of as links_of
from regard.train.metrics.alignment import read_pharaoh as read_pharaoh
from regard.train.metrics.answers import Answers as Answers
from regard.train.metrics.answers import AnswerScores as AnswerScores
from regard.train.metrics.answers import exact_match_and_f1 as exact_match_and_f1
from regard.train.metrics.classes import Classification as Classification
from regard.train.metrics.classes import ClassScores as ClassScores
from regard.train.metrics.classes import classification as classification
from regard.train.metrics.language_model import Perplexity as Perplexity
from regard.train.metrics.language_model import perplexity as perplexity
from regard.train.metrics.pointing import PointingGame as PointingGame
from regard.train.metrics.pointing import pointing_game as pointing_game
from regard.train.metrics.resampling import Difference as Difference
from regard.train.metrics.resampling import Interval as Interval
from regard.train.metrics.resampling import McNemar as McNemar
from regard.train.metrics.resampling import Statistic as Statistic
from regard.train.metrics.resampling import bootstrap as bootstrap
from regard.train.metrics.resampling import mcnemar as mcnemar
from regard.train.metrics.resampling import paired_bootstrap as paired_bootstrap
from regard.train.metrics.result import Result as Result
from regard.train.metrics.result import Scored as Scored
from regard.train.metrics.summaries import Overlap as Overlap
from regard.train.metrics.summaries import Rouge as Rouge
from regard.train.metrics.summaries import rouge as rouge
from regard.train.metrics.translation import Bleu as Bleu
from regard.train.metrics.translation import Chrf as Chrf
from regard.train.metrics.translation import bleu as bleu
from regard.train.metrics.translation import chrf as chrf
from regard.train.metrics.words import words_of as words_of

__all__ = [
    "AlignmentScore",
    "AnswerScores",
    "Answers",
    "Bleu",
    "Chrf",
    "ClassScores",
    "Classification",
    "Difference",
    "GoldAlignment",
    "Interval",
    "McNemar",
    "Overlap",
    "Perplexity",
    "PointingGame",
    "Result",
    "Rouge",
    "Scored",
    "Statistic",
    "alignment_error_rate",
    "bleu",
    "bootstrap",
    "chrf",
    "classification",
    "exact_match_and_f1",
    "grow_diag",
    "intersection",
    "links_of",
    "mcnemar",
    "paired_bootstrap",
    "perplexity",
    "pointing_game",
    "read_pharaoh",
    "rouge",
    "words_of",
]
