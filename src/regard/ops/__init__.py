"""Attention as pure functions on tensors: attend, observe, weights, and the masks and probes they take."""

from regard.ops._backends.native_library import features as native_features
from regard.ops._backends.native_library import isa as native_isa
from regard.ops._backends.native_library import problems as native_problems
from regard.ops._dispatch import Explanation, available_backends
from regard.ops._strip import Geometry, Strip
from regard.ops.attention import attend, explain_backend, observe, weights
from regard.ops.biases import ALiBi
from regard.ops.lower_mask import dense_mask, lower_mask
from regard.ops.masks import Allowed, Blocked, Causal, Documents, Mask, Padding, Prefix, SlidingWindow, Where
from regard.ops.measure import Observation, measure, weight_strips
from regard.ops.probes import (
    Crop,
    Distance,
    Entropy,
    FirstKeys,
    HeatMap,
    KeyMass,
    LogSumExp,
    MatchMass,
    OffsetMass,
    Probe,
    Rows,
    SinkShare,
    SpanMass,
    State,
    TopK,
    TopKValue,
    check_probe,
)

__all__ = [
    "ALiBi",
    "Allowed",
    "Blocked",
    "Causal",
    "Crop",
    "Distance",
    "Documents",
    "Entropy",
    "Explanation",
    "FirstKeys",
    "Geometry",
    "HeatMap",
    "KeyMass",
    "LogSumExp",
    "Mask",
    "MatchMass",
    "Observation",
    "OffsetMass",
    "Padding",
    "Prefix",
    "Probe",
    "Rows",
    "SinkShare",
    "SlidingWindow",
    "SpanMass",
    "State",
    "Strip",
    "TopK",
    "TopKValue",
    "Where",
    "attend",
    "available_backends",
    "check_probe",
    "dense_mask",
    "explain_backend",
    "lower_mask",
    "measure",
    "native_features",
    "native_isa",
    "native_problems",
    "observe",
    "weight_strips",
    "weights",
]
