"""The loop's parts: engine, checkpoint, metrics, optimisation. Knows nothing of a task.

A task hands a `Learner` to `train`; everything else here is what `train` is made of, or what a task gives it.
"""

from quasirnn.training.checkpoint import CheckpointError
from quasirnn.training.engine import BadLoss, train
from quasirnn.training.files import WriteError
from quasirnn.training.learner import Carried, Learner, Tick
from quasirnn.training.metrics import read_metrics
from quasirnn.training.plan import Outcome, Plan
from quasirnn.training.progress import Observer, Progress
from quasirnn.training.world import RankFailed, World

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
    "Tick",
    "World",
    "WriteError",
    "read_metrics",
    "train",
]
