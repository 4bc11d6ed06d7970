"""Attention as pure functions on tensors: attend, observe, weights, and the masks and probes they take."""

from regard.ops._dispatch import Explanation as Explanation
from regard.ops._dispatch import available_backends as available_backends
from regard.ops._strip import Geometry as Geometry
from regard.ops._strip import Strip as Strip
from regard.ops.attention import attend as attend
from regard.ops.attention import explain_backend as explain_backend
from regard.ops.attention import observe as observe
from regard.ops.attention import weights as weights
from regard.ops.masks import Allowed as Allowed
from regard.ops.masks import Blocked as Blocked
from regard.ops.masks import Causal as Causal
from regard.ops.masks import Documents as Documents
from regard.ops.masks import Mask as Mask
from regard.ops.masks import Padding as Padding
from regard.ops.masks import Prefix as Prefix
from regard.ops.masks import SlidingWindow as SlidingWindow
from regard.ops.masks import Where as Where
from regard.ops.measure import Observation as Observation
from regard.ops.measure import measure as measure
from regard.ops.probes import Probe as Probe
from regard.ops.probes import State as State
