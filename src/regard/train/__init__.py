"""Training: examples become a model, and can be stopped and gone on with at any moment."""

from regard.train.settings import TrainSettings as TrainSettings
from regard.train.watcher import Moment as Moment
from regard.train.watcher import Watcher as Watcher

__all__ = ["Moment", "TrainSettings", "Watcher"]
