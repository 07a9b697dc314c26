"""How a step's loss is made: supervised, preference, reward model, reinforcement learning, each as TRL computes it.
Another loss is one file here and a row in `table`."""

from calc.training.methods.dpo import runs_reference
from calc.training.methods.method import Scoring, TrainingMethod
from calc.training.methods.ppo import VALUE
from calc.training.methods.table import METHODS, check_teacher, named, resolved, said_of, scored_units, usual_reference

__all__ = [
    "METHODS",
    "VALUE",
    "Scoring",
    "TrainingMethod",
    "check_teacher",
    "named",
    "resolved",
    "runs_reference",
    "said_of",
    "scored_units",
    "usual_reference",
]
