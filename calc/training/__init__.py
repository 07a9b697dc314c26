"""Memory of a training step: what is trained and how (`workload`, `recipe`, `layout`); layers as their modules compute,
on a tape that says when each storage comes and goes (`tape`, `operations`, `modules`; a file for each kind of module:
`attention`, `mlp`, `experts`, `recurrent`, `ends`; `decoder` puts them together, `profile` reads the tape); weights
and what belongs to them (`states`); the moments of a step on one rank (`moments`, `course`, `stage`); losses of
preference and reinforcement learning (`objective`, `methods`); the step, its verdict, its report, and what would make
it smaller (`levers`)."""

from calc.training.colocated import PHASE_NAMES, TRAINER, RolloutPhase, RolloutPhaseName, RolloutReport
from calc.training.layout import TrainingLayout, accelerate, in_flight, torchrun
from calc.training.levers import Smaller, Together, TrainingLever, more_gpus, over_gpus
from calc.training.methods import METHODS, TrainingMethod, named, usual_reference
from calc.training.moments import Phase, TrainingComponent
from calc.training.objective import Colocation, LogProbs, MethodName, Objective, Rollout
from calc.training.objective_launch import objective_launches
from calc.training.recipe import RECIPES, TRAINERS, Recipe, RecipeName, Trainer
from calc.training.report import PEAKS, TrainingReport, laid_out_step, phase_steps, training_report, training_section
from calc.training.step import Training, TrainingMemory, usual_overhead
from calc.training.verdict import TrainingVerdict, word
from calc.training.workload import Method, Optimizer, TrainingWorkload
