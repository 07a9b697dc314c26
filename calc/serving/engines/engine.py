"""Differences between serving engines, in five parts. Nothing outside this folder asks which engine it is."""

from calc.serving.engines.cache import CachePlanner
from calc.serving.engines.launch import Launcher
from calc.serving.engines.loading import Loader
from calc.serving.engines.rules import Rules
from calc.serving.engines.working_memory import WorkingMemory


class Engine(Rules, Loader, CachePlanner, WorkingMemory, Launcher):
    """One serving engine, started with its options. Its parts read the same flags, and some of them each other."""
