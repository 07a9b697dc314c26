"""Times of a pass, a server's step and a training step; plans and prices. Runs on the reader's own machine stand in
`local`, the time on paper in `paper`."""

from calc.time.arrays import Array, read_only
from calc.time.choosing import Choice, cheapest, least_price, smallest, trainable_gpus
from calc.time.cluster import USUAL, Cluster
from calc.time.disaggregated import ranked_plans
from calc.time.efficiency import EfficiencyRow, stated_share, without_effect, written_share
from calc.time.estimate import Estimate
from calc.time.fitting import MAPPED, Fitting, Formats, fitting, in_formats, layout_on, longest_context
from calc.time.objective import GpuDivision, ObjectiveSpeed
from calc.time.origin import Basis
from calc.time.plan import PLANNED, Needs, Plan, Search
from calc.time.plan_report import (
    PlanRange,
    PlanReport,
    Point,
    Sensitivity,
    assumptions,
    cannot_keep_up,
    frontier,
    launch,
    plan_operations,
    plan_range,
    report_of,
    rows_of_plan,
    sensitivity,
    separate_launch,
)
from calc.time.prices import price_of, prices, stated_price, usd_per_million
from calc.time.report import OperatingPoint, Reply, operating_points, reply, user_rate
from calc.time.step_report import ComparedStep, StepComparison, compared_steps, training_speed_of
from calc.time.training import StepOperation, TrainingSpeed, TrainingTime, step_operations, training_speed
from calc.time.training_plan import TrainingNeeds, TrainingPlan, TrainingPlanReport, training_plan_report
