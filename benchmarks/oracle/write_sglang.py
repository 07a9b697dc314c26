"""python -m benchmarks.oracle.write_sglang SGLANG [guesses]: defaults and pools of SGLang 0.5.23 by its own code.

SGLANG is the folder into which its wheel was unpacked. Nothing of it is copied: `ServerArgs` is made of a command line
and a config.json of tests/data/oracle.json, and `KVCacheConfigurator` divides the memory that is free after weights of
`LOADED` of a GPU. There is no GPU: torch is told of one (`device`), and packages that hold kernels alone are empty
(`KERNELS`). Each GPU has a process of its own, since modules ask for it when they are imported, and each plan one too,
since the settings are global. Runs in SGLang's environment (torch, transformers and its pure Python requirements, and
ours); writes tests/data/sglang_plans.json, or of starts that guess tokens sglang_guesses.json.
"""

import gc
import importlib
import json
import logging
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from calc.hardware.gpu import GPU
from calc.units import GIB
from presets import gpus

DATA = Path(__file__).parents[2] / "tests" / "data"
KERNELS = frozenset("cuda cutlass deep_gemm flashinfer pynvml sentencepiece sgl_kernel triton tvm_ffi".split())
GPUS = (
    *("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "l40s", "rtx-4090", "rtx-5090"),
    "v100-sxm2-32gb",
)
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"tp_size": 2},
    {"tp_size": 8},
    {"tp_size": 8, "attn_dp_size": 8},
    {"tp_size": 4, "attn_dp_size": 2, "max_running_requests": 100},
    {"pp_size": 2},
    {"mem_fraction_static": 0.8},
    {"chunked_prefill_size": 2048},
    {"chunked_prefill_size": 16384, "kv_cache_dtype": "fp8_e4m3"},
    {"max_running_requests": 40},
    {"max_running_requests": 40, "disable_radix_cache": True},
    {"kv_cache_dtype": "fp8_e4m3"},
    {"page_size": 16},
    {"page_size": 64, "tp_size": 2},
    {"context_length": 4096},
    {"swa_full_tokens_ratio": 0.5},
    {"mamba_full_memory_ratio": 0.4},
    {"max_mamba_cache_size": 60},
    {"mamba_radix_cache_strategy": "extra_buffer_lazy"},
    {"mamba_radix_cache_strategy": "no_buffer"},
    {"cuda_graph_max_bs_decode": 100},
    {"disable_cuda_graph": True},
    {"max_running_requests": 450},
    {"mamba_radix_cache_strategy": "extra_buffer", "page_size": 16},
)
EVERY = 3
"""Of the pairs of a model and settings one in so many is planned."""
LOADED = 0.4
"""Of the free memory, weights."""
CONTEXT = 0.5
"""GiB that are gone before weights are loaded."""
MODELS = (
    *(
        "meta-llama/Llama-2-7b-hf",
        "meta-llama/Meta-Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-70B",
        "openai-community/gpt2",
    ),
    *("Qwen/Qwen2.5-3B", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-VL-8B-Instruct"),
    *(
        "Qwen/Qwen3.5-9B",
        "Qwen/Qwen3.5-35B-A3B",
        "Qwen/Qwen3.6-27B",
        "microsoft/phi-4",
        "microsoft/Phi-3.5-MoE-instruct",
    ),
    *("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mistral-7B-v0.1", "mistralai/Mistral-Small-24B-Instruct-2501"),
    *("google/gemma-2-9b", "google/gemma-3-1b-it", "google/gemma-3-27b-it", "google/gemma-4-26B-A4B"),
    *("google/gemma-4-31B-it", "openai/gpt-oss-20b", "openai/gpt-oss-120b", "XiaomiMiMo/MiMo-V2-Flash"),
    *("meta-llama/Llama-4-Scout-17B-16E-Instruct", "allenai/Olmo-3-1025-7B", "CohereLabs/c4ai-command-r7b-12-2024"),
    *("deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2.5", "zai-org/GLM-4.5"),
    *("zai-org/GLM-4.7-Flash", "zai-org/GLM-5.1", "zai-org/GLM-5.3"),
    *("MiniMaxAI/MiniMax-M2.7", "MiniMaxAI/MiniMax-M3", "moonshotai/Kimi-Linear-48B-A3B-Instruct"),
    *("ibm-granite/granite-4.0-h-micro", "tiiuae/Falcon-H1-0.5B-Base", "nvidia/Nemotron-H-8B-Base-8K"),
    *("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "LiquidAI/LFM2-1.2B", "tencent/Hy3"),
    *("state-spaces/mamba-2.8b-hf", "baidu/ERNIE-4.5-21B-A3B-PT"),
)

NEXTN = {"speculative_algorithm": "NEXTN"}
CHAIN = {"speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 2}
TREE = {"speculative_num_steps": 4, "speculative_eagle_topk": 8, "speculative_num_draft_tokens": 16}
HEAD = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "a head"}
DRAFT = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "Qwen/Qwen3-0.6B"}
NGRAM = {"speculative_algorithm": "NGRAM"}
FIXED = {"disable_radix_cache": True, "max_running_requests": 40}
GUESSING: tuple[tuple[tuple[str, ...], tuple[Mapping[str, Any], ...]], ...] = (
    (
        ("deepseek-ai/DeepSeek-V3", "zai-org/GLM-4.5", "zai-org/GLM-4.7-Flash", "zai-org/GLM-5.1", "tencent/Hy3"),
        (NEXTN, NEXTN | CHAIN | {"tp_size": 8}, NEXTN | {"kv_cache_dtype": "fp8_e4m3"}),
    ),
    (
        ("Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-35B-A3B"),
        (
            NEXTN,
            NEXTN | CHAIN,
            NEXTN | FIXED,
            NEXTN | {"max_mamba_cache_size": 60},
            NEXTN | {"max_running_requests": 8},
        ),
    ),
    (("baidu/ERNIE-4.5-21B-A3B-PT",), (NEXTN,)),
    (("meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b"), (HEAD, HEAD | TREE, HEAD | FIXED)),
    (("Qwen/Qwen3-235B-A22B", "Qwen/Qwen3.5-9B"), (DRAFT, DRAFT | CHAIN)),
    (("Qwen/Qwen3-0.6B", "openai/gpt-oss-20b", "ibm-granite/granite-4.0-h-micro"), (NGRAM, NGRAM | FIXED)),
)
"""Models, and what guesses for them."""
HEAD_CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128_256,
    "draft_vocab_size": 32_000,
    "max_position_embeddings": 131_072,
}
"""A head of EAGLE-3, as those for Llama-3.1-8B are."""
UNASKED = {("openai-community/gpt2", "tp_size"), ("state-spaces/mamba-2.8b-hf", "attn_dp_size")}
"""Settings that SGLang plans for and that mean nothing to a model: 12 heads, of which no 8 ranks have their share, and
copies of the attention where there is none."""
UNSHARED = {("zai-org/GLM-4.7-Flash", 8)}
"""The same of 20 heads."""


class Kernel:
    """What stands for anything in a package of `KERNELS`: it decorates, is called, and is a base of classes."""

    def __getattr__(self, name: str) -> "Kernel":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "Kernel":
        return self

    def __mro_entries__(self, bases: object) -> tuple[()]:
        return ()

    def __getitem__(self, _: object) -> "Kernel":
        return self

    def __or__(self, _: object) -> "Kernel":
        return self

    __ror__ = __or__


class KernelModule(ModuleType):
    __path__: Sequence[str] = ()
    __version__ = "99"

    def __getattr__(self, name: str) -> Kernel:
        return getattr(Kernel(), name)


class KernelFinder(MetaPathFinder, Loader):
    """Asked last: a package that is there is taken as it is."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in KERNELS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return KernelModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def device(gpu: GPU) -> None:
    """Tells torch and SGLang of a GPU that is not there."""
    import torch

    major, minor = (int(digit) for digit in str(gpu.capability).split("."))
    about = {"total_memory": gpu.memory_bytes, "name": gpu.name, "major": major, "minor": minor}
    about |= {"multi_processor_count": 1, "is_integrated": False}
    answers = {
        "is_available": True,
        "device_count": 8,
        "current_device": 0,
        "get_device_capability": (major, minor),
        "get_device_name": gpu.name,
        "get_device_properties": SimpleNamespace(**about),
        "mem_get_info": (gpu.memory_bytes, gpu.memory_bytes),
        "empty_cache": None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    torch.version.cuda = "13.0"
    importlib.import_module("sglang.srt.utils.common").get_nvgpu_memory_capacity = lambda: float(gpu.memory_mib)


def forked(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(function(*arguments)))
    process.start()
    theirs.close()
    answer = ours.recv()
    process.join()
    return answer


def oracle() -> dict[str, dict[str, Any]]:
    """Configs of the presets by model."""
    return {row["id"]: row["config"] for row in json.loads((DATA / "oracle.json").read_text(encoding="utf-8"))}


def server_args(config: Mapping[str, Any], folder: str, settings: Mapping[str, Any], gpu: GPU) -> Any:
    """SGLang's settings, resolved and published, of a command line."""
    from sglang.srt.runtime_context import get_parallel, publish
    from sglang.srt.server_args import prepare_server_args

    Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
    if (name := settings.get("speculative_draft_model_path")) is not None:
        draft = HEAD_CONFIG if name == HEAD["speculative_draft_model_path"] else oracle()[name]
        path = Path(folder, "draft")
        path.mkdir()
        (path / "config.json").write_text(json.dumps(draft), encoding="utf-8")
        settings = {**settings, "speculative_draft_model_path": str(path)}
    words = ["--model-path", folder, "--dtype", "bfloat16" if "bf16" in gpu.tflops else "half", "--trust-remote-code"]
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    args = prepare_server_args(words)
    args.resolve_once()
    publish(args, role="scheduler")
    stages = SimpleNamespace(world_size=settings.get("pp_size", 1), rank_in_group=0, cpu_group=None)
    get_parallel().override_permanently(world_group=stages, pp_group=stages)
    return args


def window(model: Any) -> int | None:
    """The window that a model's class states, without one of its weights."""
    from sglang.srt.model_executor.model_runner_components.load_model_utils import resolve_sliding_window_size
    from sglang.srt.models.registry import ModelRegistry

    kind, _ = ModelRegistry.resolve_model_cls(model.hf_config.architectures)
    stated = getattr(kind, "get_attention_sliding_window_size", None)
    loaded = SimpleNamespace(config=model.hf_config)
    if stated is not None:
        loaded.get_attention_sliding_window_size = lambda: stated(loaded)
    return resolve_sliding_window_size(loaded, model)


def configurator(args: Any, start: int, stop: int) -> Any:
    """SGLang's configurator of the pools of a stage with these layers."""
    from sglang.srt.arg_groups.overrides import model_config_of
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        resolve_spec_aux_hidden_state_config,
    )
    from sglang.srt.runtime_context import get_model, get_parallel, get_schedule, get_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    model, stage = model_config_of(args), SimpleNamespace(start_layer=start, end_layer=stop)
    guessing = SpeculativeAlgorithm.from_string(get_spec().speculative_algorithm)
    stated, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=None,
        model_dtype=model.dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend=None,
    )
    return KVCacheConfigurator(
        device="cuda",
        gpu_id=0,
        attn_dp_size=get_parallel().attn_dp_size,
        pp_size=get_parallel().pp_size,
        pp_group=get_parallel().pp_group,
        model=stage,
        model_config=model,
        server_args=args,
        kv_cache_dtype=dtype,
        kv_cache_dtype_str=stated or get_model().kv_cache_dtype,
        model_dtype=model.dtype,
        page_size=get_schedule().page_size,
        sliding_window_size=window(model) if model.is_hybrid_swa else None,
        spec_algorithm=guessing,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=resolve_spec_aux_hidden_state_config(
            server_args=args, model_config=model, spec_algorithm=guessing, is_draft_worker=False
        ),
        is_hybrid_swa=model.is_hybrid_swa,
        is_hybrid_swa_compress=model.is_hybrid_swa_compress,
        use_mla_backend=model.attention_arch == AttentionArch.MLA,
        layer_info=resolve_layer_indices(model=stage, model_config=model, is_draft_worker=False),
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
    )


def pools(args: Any, gpu: GPU) -> dict[str, Any]:
    """Bytes for the pools, states included, and what `KVCacheConfigurator` makes of them on the fullest stage."""
    from sglang.srt.arg_groups.overrides import model_config_of
    from sglang.srt.distributed.utils import get_pp_indices
    from sglang.srt.mem_cache import kv_cache_configurator
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.runtime_context import get_parallel, get_schedule

    model, pp = model_config_of(args), get_parallel().pp_size
    layers = resolve_layer_indices(model=None, model_config=model, is_draft_worker=False).end_layer
    stages = [configurator(args, *get_pp_indices(layers, rank, pp)) for rank in range(pp)]
    free = gpu.memory_bytes / GIB - CONTEXT
    kind = kv_cache_configurator.KVCacheConfigurator
    kv_cache_configurator.get_available_gpu_memory = lambda *_, **__: free * (1 - LOADED)
    kind._apply_token_constraints = lambda _, capacity: capacity  # the smallest of all stages is taken below
    handle, for_pools = kind._handle_max_mamba_cache, []

    def handle_states(stage: Any, memory: float) -> float:
        for_pools.append(memory * GIB)
        return float(handle(stage, memory))

    kind._handle_max_mamba_cache = handle_states
    stated = get_schedule().max_mamba_cache_size
    configs = []
    for stage in stages:
        get_schedule()._set("max_mamba_cache_size", stated)  # each process of a stage begins with it
        configs.append(stage._resolve_memory_pool_config(free))
    config, first = min(configs, key=lambda config: config.max_total_num_tokens), stages[0]
    plan = {
        "kv": "fp8" if "float8" in str(first.kv_cache_dtype) else "bf16",
        "bytes": int(for_pools[0] if for_pools else first._profile_available_bytes(free)),
        "context": model.context_len,
        "tokens": config.max_total_num_tokens,
    }
    if model.is_hybrid_swa:
        plan["window_tokens"] = config.swa_max_total_num_tokens
    if first.mambaish_config is not None:
        plan["states"] = get_schedule().max_mamba_cache_size
        plan["state_bytes"] = first.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        plan["states_of_request"] = first._calculate_mamba_ratio()
    return plan


def planned(config: Mapping[str, Any], settings: Mapping[str, Any], gpu: GPU) -> dict[str, Any]:
    """The defaults and pools of a start, or why SGLang does not start so."""
    from sglang.srt.arg_groups.overrides import resolving_view

    with tempfile.TemporaryDirectory() as folder:
        try:
            args = server_args(config, folder, settings, gpu)
            resolved = resolving_view(args)
            decode, prefill = resolved.cuda_graph_config.decode, resolved.cuda_graph_config.prefill
            defaults = {
                "share": resolved.mem_fraction_static,
                "chunk": resolved.chunked_prefill_size,
                "page": resolved.page_size,
                "decode": [] if decode.backend == "disabled" else decode.bs,
                "prefill": [] if prefill.backend == "disabled" else prefill.bs,
            }
            return defaults | pools(args, gpu)
        except Exception as refusal:
            if not isinstance(refusal, ValueError):
                traceback.print_exc()
            return {"refused": f"{type(refusal).__name__}: {refusal}".replace(folder, "MODEL")}


def plans_on(gpu: GPU, questions: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> list[dict[str, Any]]:
    """A row for each question, by SGLang as it is imported on this GPU."""
    sys.path.insert(0, source)
    sys.meta_path.append(KernelFinder())
    device(gpu)
    logging.disable(logging.CRITICAL)
    importlib.import_module("sglang.srt.mem_cache.kv_cache_configurator")
    importlib.import_module("sglang.srt.models.registry")
    gc.freeze()  # SGLang collects before it looks at the memory
    configs = oracle()
    return [
        {"model": model, "gpu": gpu.id, "settings": settings} | forked(planned, configs[model], settings, gpu)
        for model, settings in questions
    ]


def questions_on(gpu: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every model with the defaults, and with settings in turn, so that all GPUs see all settings."""
    for at, model in enumerate(MODELS):
        yield model, {}
        for number, settings in enumerate(SETTINGS):
            asked = (at + 5 * number) % (EVERY * len(GPUS)) == GPUS.index(gpu)
            if asked and not any((model, name) in UNASKED for name in settings):
                yield model, settings


def guesses_on(gpu: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every model with what guesses for it, on GPUs in turn."""
    asked = [(model, settings) for models, kinds in GUESSING for model in models for settings in kinds]
    for at, question in enumerate(asked):
        model, settings = question
        if at % len(GPUS) == GPUS.index(gpu) and (model, settings.get("tp_size")) not in UNSHARED:
            yield question


def written(rows: Sequence[Mapping[str, Any]]) -> str:
    """Plans a line; lists of captured batches and prompts stand once, by how many they are and the largest."""
    graphs = {
        phase: {f"{len(row[phase])} to {row[phase][-1]}": row[phase] for row in rows if row[phase]}
        for phase in ("decode", "prefill")
    }
    short = [row | {phase: f"{len(row[phase])} to {row[phase][-1]}" for phase in graphs if row[phase]} for row in rows]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in short)
    return f'{{"graphs": {json.dumps(graphs)},\n"rows": [\n{lines}\n]}}\n'


def main(source: str, kind: str = "plans") -> None:
    questions = {"plans": questions_on, "guesses": guesses_on}[kind]
    rows = [row for name in GPUS for row in forked(plans_on, gpus()[name], list(questions(name)), source)]
    plans = [row for row in rows if "refused" not in row]
    (DATA / f"sglang_{kind}.json").write_text(written(plans), encoding="utf-8")
    for row in rows:
        if "refused" in row:
            print(row["model"], row["gpu"], row["settings"], row["refused"])
    print(f"{len(plans)} plans, and {len(rows) - len(plans)} that SGLang refuses")


if __name__ == "__main__":
    main(*sys.argv[1:])
