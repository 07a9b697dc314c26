"""What an engine's start-up log says of its memory, to lay beside what we compute."""

from calc.logs.differences import Difference, differences, largest, weigh_as
from calc.logs.log import Log, OutOfMemory, Settings
from calc.logs.reading import read_log

__all__ = ["Difference", "Log", "OutOfMemory", "Settings", "differences", "largest", "read_log", "weigh_as"]
