"""Serving engines, each in a folder of its own. A new one is a folder and a line here."""

from calc.serving.engines.engine import Engine
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.transformers.engine import Transformers
from calc.serving.engines.vllm.engine import VLLM

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (VLLM, Transformers, SGLang, LlamaCpp)}

__all__ = ["ENGINES", "Engine"]
