"""The training loop and its parts: engine, update, checkpoint, schedule, run log. Knows nothing of a task.

A task hands a `Learner` to `train`; everything else here is what `train` consists of, or what a task passes to it.
"""

from quasirnn.errors import CheckpointError, WriteError
from quasirnn.training.engine import BadLoss, train
from quasirnn.training.plan import Carried, Learner, Outcome, Plan, Tick
from quasirnn.training.processes import RankFailed, RunLock, World
from quasirnn.training.run_log import Observer, Progress, read_metrics

__all__ = [
    "BadLoss",
    "Carried",
    "CheckpointError",
    "Learner",
    "Observer",
    "Outcome",
    "Plan",
    "Progress",
    "RankFailed",
    "RunLock",
    "Tick",
    "World",
    "WriteError",
    "read_metrics",
    "train",
]
