"""What a person's own data becomes: models that translate, classify and write, trained, evaluated and looked at alike.

outcome = regard.tasks.train("classify", "reviews.tsv", "model", minutes=5)
regard.tasks.predict("model", ["The plot is thin."])
"""

from regard.tasks.exporting import Exported as Exported
from regard.tasks.exporting import export as export
from regard.tasks.registry import TASKS as TASKS
from regard.tasks.registry import task_named as task_named
from regard.tasks.report import Example as Example
from regard.tasks.report import Report as Report
from regard.tasks.task import Preset as Preset
from regard.tasks.task import Task as Task
from regard.tasks.trained import TaskInfo as TaskInfo
from regard.tasks.trained import Trained as Trained
from regard.tasks.trained import load as load
from regard.tasks.training import Outcome as Outcome
from regard.tasks.training import train as train
from regard.tasks.using import evaluate as evaluate
from regard.tasks.using import explain as explain
from regard.tasks.using import observe as observe
from regard.tasks.using import predict as predict

__all__ = [
    "TASKS",
    "Example",
    "Exported",
    "Outcome",
    "Preset",
    "Report",
    "Task",
    "TaskInfo",
    "Trained",
    "evaluate",
    "explain",
    "export",
    "load",
    "observe",
    "predict",
    "task_named",
    "train",
]
