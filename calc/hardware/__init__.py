"""GPUs, the reader's own among them, parallel layouts, which engine runs where, and what no formula closes."""

from calc.hardware.computer import Computer
from calc.hardware.custom_gpu import OWN, custom_gpu, find_gpu
from calc.hardware.engine_rules import format_note, note, runs
from calc.hardware.generations import Dtype
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.hardware.mig import slices
from calc.hardware.overhead import Overhead, OverheadItem, Range
from calc.hardware.parallel import Layout
