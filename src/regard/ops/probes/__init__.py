"""Probes: questions about attention weights that are answered in linear memory, one concept per file."""

from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._row import RowProbe
from regard.ops.probes.check import check_probe
from regard.ops.probes.crop import Crop
from regard.ops.probes.heat_map import HeatMap
from regard.ops.probes.key_mass import KeyMass
from regard.ops.probes.masses import FirstKeys, OffsetMass
from regard.ops.probes.match_mass import MatchMass
from regard.ops.probes.row_statistics import Distance, Entropy, LogSumExp, SinkShare
from regard.ops.probes.rows import Rows
from regard.ops.probes.span_mass import SpanMass
from regard.ops.probes.top_k import TopK, TopKValue

__all__ = [
    "Crop",
    "Distance",
    "Entropy",
    "FirstKeys",
    "HeatMap",
    "KeyMass",
    "Kind",
    "LogSumExp",
    "MatchMass",
    "OffsetMass",
    "Probe",
    "RowProbe",
    "Rows",
    "SinkShare",
    "SpanMass",
    "State",
    "TopK",
    "TopKValue",
    "check_probe",
]
