"""Memory of a training step. `workload` and `layout` say what is trained and how; `decoder` runs the parts of a model
forward and back on a tape, which says when each storage comes and goes (`tape`, `operations`, `modules`; a file for
each kind of module: `attention`, `feedforward`, `recurrent`, `losses`, with `methods` where a loss is not transformers'
own); `states` are the weights with what belongs to them; `course` is a micro-batch on its way through a
stage of the pipeline, with all that its rank holds, and `step` the whole, with its verdict. `report`, `levers`,
`colocated` and `launch` answer questions about it."""

from calc.training.colocated import PHASE_NAMES, TRAINER, Colocated, RolloutPhase, RolloutPhaseName, RolloutReport
from calc.training.course import Phase, TrainingComponent, dot
from calc.training.decoder import Shared, check_modelled, unmodelled
from calc.training.launch import accelerate, objective_launches, torchrun
from calc.training.layout import (
    ROUNDS,
    TrainingLayout,
    TrainingScenario,
    in_flight,
    interleaves,
    usual_base,
)
from calc.training.levers import CombinedLever, SmallerSteps, TrainingLever, more_gpus, over_gpus
from calc.training.methods import (
    METHODS,
    TrainingMethod,
    named,
    scored_units,
    usual_reference,
    without_effect,
    workload_set_by,
)
from calc.training.report import PEAKS, TrainingReport, laid_out_step, phase_steps, training_report, training_section
from calc.training.step import (
    MOST,
    PHASES,
    Training,
    TrainingMemory,
    TrainingVerdict,
    fewest_replicas,
    judge_training,
    usual_overhead,
    word,
)
from calc.training.tape import CountedBy
from calc.training.workload import (
    RECIPES,
    TRAINERS,
    WIDTH,
    Colocation,
    LogProbs,
    Method,
    MethodName,
    Objective,
    Optimizer,
    Products,
    Recipe,
    RecipeName,
    Recompute,
    Rollout,
    Trainer,
    TrainingWorkload,
)
