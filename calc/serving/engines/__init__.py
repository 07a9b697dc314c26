"""Serving engines, each in a folder of its own. A new one is a folder and a line here, or two where its logs are
read."""

from calc.serving.engines.engine import Engine
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.mlx.engine import MLX
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.startup_log import SGLangLog
from calc.serving.engines.startup_log import StartupLog
from calc.serving.engines.tensorrt_llm.engine import TensorRTLLM
from calc.serving.engines.transformers.engine import Transformers
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.startup_log import VLLMLog

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (VLLM, Transformers, SGLang, TensorRTLLM, LlamaCpp, MLX)
}
DEFAULT_ENGINE = VLLM.name
LOGS: dict[str, StartupLog] = {log.engine.name: log for log in (VLLMLog(), SGLangLog())}
"""Readers of start-up logs, by engine."""

__all__ = ["DEFAULT_ENGINE", "ENGINES", "LOGS", "Engine", "StartupLog"]
