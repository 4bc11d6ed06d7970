"""Looking into a model that is already there: watch its attention, account for what was not seen."""

from regard.lens._layers import Layer as Layer
from regard.lens.seen import Seen as Seen
from regard.lens.watch import watch as watch

__all__ = ["Layer", "Seen", "watch"]
