"""Looking into a model that is already there: watch its attention, change it, explain it, say how far to trust that."""

from regard.lens._layers import Layer as Layer
from regard.lens.ablation import head_importance as head_importance
from regard.lens.ablation import retrieval_scores as retrieval_scores
from regard.lens.attentions import from_attentions as from_attentions
from regard.lens.changes import BlockSpans as BlockSpans
from regard.lens.changes import Change as Change
from regard.lens.changes import ForceWeights as ForceWeights
from regard.lens.changes import SilenceHeads as SilenceHeads
from regard.lens.explaining import explain as explain
from regard.lens.faithfulness import Faithfulness as Faithfulness
from regard.lens.faithfulness import faithfulness as faithfulness
from regard.lens.flow import flow as flow
from regard.lens.gradients import GradientAttention as GradientAttention
from regard.lens.gradients import gradient_attention as gradient_attention
from regard.lens.gradients import relevance as relevance
from regard.lens.ledger import Ledger as Ledger
from regard.lens.ledger import ledger as ledger
from regard.lens.ledger import ledger_probes as ledger_probes
from regard.lens.norms import ValueNorms as ValueNorms
from regard.lens.norms import value_norms as value_norms
from regard.lens.reasons import Reasons as Reasons
from regard.lens.reasons import reasons as reasons
from regard.lens.roles import HeadRole as HeadRole
from regard.lens.roles import HeadScores as HeadScores
from regard.lens.roles import head_roles as head_roles
from regard.lens.rollout import rollout as rollout
from regard.lens.seen import Seen as Seen
from regard.lens.watch import watch as watch

__all__ = [
    "BlockSpans",
    "Change",
    "Faithfulness",
    "ForceWeights",
    "GradientAttention",
    "HeadRole",
    "HeadScores",
    "Layer",
    "Ledger",
    "Reasons",
    "Seen",
    "SilenceHeads",
    "ValueNorms",
    "explain",
    "faithfulness",
    "flow",
    "from_attentions",
    "gradient_attention",
    "head_importance",
    "head_roles",
    "ledger",
    "ledger_probes",
    "reasons",
    "relevance",
    "retrieval_scores",
    "rollout",
    "value_norms",
    "watch",
]
