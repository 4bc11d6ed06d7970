"""Probes: questions about attention weights that are answered in linear memory."""

from regard.ops.probes._base import Probe as Probe
from regard.ops.probes._base import State as State
