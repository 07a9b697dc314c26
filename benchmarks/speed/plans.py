"""python -m benchmarks.speed.plans: how long a ranked plan over all GPUs, eight formats and their legal layouts takes
on one core, training plans for 64 and 1,024 GPUs, and the map of all presets on one GPU; processor time, the best of
five after a first run, which fills caches that a session fills once.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence

from calc import Architecture, Precision
from calc.formats import WeightFormat
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.time.fitting import fitting, in_formats
from calc.time.plan import Needs, Search
from calc.time.training_plan import TrainingNeeds, training_plan_report
from presets import gpus, models

PLANNED: tuple[WeightFormat, ...] = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4", "Q4_K_M", "nf4")
MAPPED: tuple[WeightFormat, ...] = ("bf16", "fp8", "fp8-channel", "int8", "int4", "nvfp4", "mxfp4", "nf4")
GGUF: tuple[WeightFormat, ...] = ("bf16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
MODELS = ("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b")
TRAINED = {
    "meta-llama/Llama-3.1-8B": TrainingNeeds(gpus=64),
    "meta-llama/Llama-3.1-70B": TrainingNeeds(gpus=64),
    "Qwen/Qwen3-30B-A3B": TrainingNeeds(gpus=64),
    "deepseek-ai/DeepSeek-V3": TrainingNeeds(gpus=1024, global_batch=1024),
}
TRAINED_ON = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "mi300x")
NEEDS = {"32 users": Needs(users=32), "with targets": Needs(users=32, tpot_ms=50, ttft_ms=2000)}


def timed(what: str, run: Callable[[], object], times: int = 5) -> None:
    def once() -> float:
        begun = time.process_time()
        run()
        return 1000 * (time.process_time() - begun)

    first, *rest = (once() for _ in range(times + 1))
    print(f"{what:60} first {first:6.0f} ms, then {min(rest):6.0f} ms", flush=True)


def planned(model: str, needs: Needs) -> object:
    config = models()[model].config
    precisions = [Precision.of(config, form) for form in PLANNED]
    search = Search(Architecture.from_config(config), ENGINES["vllm"](), needs, list(gpus().values()), precisions)
    return search.plans()


def trained(model: str, needs: TrainingNeeds) -> object:
    kinds = [gpus()[name] for name in TRAINED_ON]
    return training_plan_report(models()[model].config, needs, gpus=kinds)


def mapped(every: Mapping[str, Architecture], gpu: str, engine: Engine, stored: Sequence[WeightFormat]) -> object:
    precisions = [Precision(weights=form) for form in stored]
    return fitting((name, in_formats(one, engine, precisions), gpus()[gpu]) for name, one in every.items())


def main() -> None:
    models()
    gc.freeze()  # as the dashboard does
    for model in MODELS:
        for name, needs in NEEDS.items():
            timed(f"plan of {model}, {name}", lambda model=model, needs=needs: planned(model, needs))
    for model, wanted in TRAINED.items():
        what = f"training plan of {model}, {wanted.gpus:,} GPUs of {len(TRAINED_ON)} kinds"
        timed(what, lambda model=model, wanted=wanted: trained(model, wanted))
    every = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
    gc.freeze()
    for engine, gpu, stored in (
        ("vllm", "h100-sxm", MAPPED),
        ("sglang", "rtx-4090", MAPPED),
        ("vllm", "h100-sxm", GGUF),
        ("llamacpp", "rtx-4090", GGUF),
    ):
        timed(
            f"map of {len(every)} presets x {len(stored)} formats to {stored[-1]} on {gpu}, {engine}",
            lambda engine=engine, gpu=gpu, stored=stored: mapped(every, gpu, ENGINES[engine](), stored),
        )


if __name__ == "__main__":
    main()
