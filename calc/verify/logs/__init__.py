"""Memory figures of an engine's start-up log, next to the computed ones."""

from calc.serving.engines.startup_log import LogSettings
from calc.verify.logs.differences import differences, largest
from calc.verify.logs.log import Difference, Log
from calc.verify.logs.log_weighing import calibrated, engine_for, gpus_of, weigh_as
from calc.verify.logs.out_of_memory import OutOfMemory
from calc.verify.logs.parse import read_log
from calc.verify.logs.shortage import Remedy, remedies, shortage
