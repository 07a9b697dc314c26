"""What an engine's start-up log says of its memory, to lay beside what we compute."""

from calc.logs.difference import Difference
from calc.logs.differences import differences, largest
from calc.logs.log import Log, OutOfMemory, Settings
from calc.logs.reading import read_log
from calc.logs.weighing import weigh_as

__all__ = ["Difference", "Log", "OutOfMemory", "Settings", "differences", "largest", "read_log", "weigh_as"]
