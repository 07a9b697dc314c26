"""Measured speeds -> what was run: a model, formats, a layout and a GPU of the catalogue, or why a row is of no use."""

import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from benchmarks.accuracy.records import Config, LeftOut, llama, resolve
from calc import Architecture, Layout, Precision
from calc.formats import CacheFormat, WeightFormat
from calc.formats.stored import StoredAs, stored
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from calc.time.operations import demand
from calc.time.roofline import machine, sharing
from calc.time.serving import Speed
from presets import models


def mpt(hidden: int, layers: int, positions: int, vocab: int = 50_368) -> Config:
    """LLM Foundry's models have GPT-2's layers: biases, LayerNorm, learned positions, a tied head."""
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": hidden // 128, "n_positions": positions}
    return {"model_type": "gpt2", "vocab_size": vocab, "activation_function": "gelu", **sizes}


CONFIGS: dict[str, Config] = {
    "internlm-20b": llama(5120, 13_824, 60, 40, 40, 103_168, 4096),
    "devstral-small-2-24b-instruct-2512": models()["mistralai/Mistral-Small-24B-Instruct-2501"].config,
    "mixtral-8x7b-instruct-v0.1": models()["mistralai/Mixtral-8x7B-v0.1"].config,
    "qwen3-coder-30b-a3b-instruct": models()["Qwen/Qwen3-30B-A3B"].config,
    "1315950592": mpt(2048, 24, 2048),
    "1328533504": mpt(2048, 24, 8192),
    "1378865152": mpt(2048, 24, 32_768),
    "2651837440": mpt(2560, 32, 2048),
    "2667566080": mpt(2560, 32, 8192),
    "2730480640": mpt(2560, 32, 32_768),
    "6658859008": mpt(4096, 32, 2048),
    "6684024832": mpt(4096, 32, 8192),
    "6784688128": mpt(4096, 32, 32_768),
    "64862437376": mpt(8192, 80, 2048),
}
"""What is no preset, by its name or the count of its parameters."""
FORMATS: dict[str, WeightFormat] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8-channel",
    "int8": "int8",
    "int4": "int4",
    "int4-g32": "int4",
    "nvfp4": "nvfp4",
    "mxfp4 (gguf)": "mxfp4",
    "mxfp8": "fp8",
    "gguf-q4_0": "Q4_0",
    "gguf-q4_k_s": "Q4_K_S",
    "gguf-q4_k_m": "Q4_K_M",
    "gguf-q5_0": "Q5_0",
    "gguf-q8_0": "Q8_0",
    "gguf-iq3_xxs": "IQ3_XXS",
}
GPUS = {
    "a100-80gb-pcie-no-nvlink": "a100-pcie-80gb",
    "mi250x (one GCD)": "mi250x-gcd",
    "rtx-3060": "rtx-3060-12gb",
    "tesla-p40": "p40",
}
"""Rows' names of a GPU -> ids of the catalogue."""


class Case(NamedTuple):
    """A row that says what its figure depends on."""

    row: Mapping[str, Any]
    architecture: Architecture
    precision: Precision
    layout: Layout
    gpu: GPU

    @property
    def engine(self) -> str:
        return str(self.row["engine"])

    @property
    def name(self) -> str:
        return str(self.row["id"])


@cache
def architecture_of(model: str) -> Architecture | None:
    name = model.rpartition("/")[2].lower()
    number = re.search(r"\((\d+) parameters\)", name)
    config = CONFIGS.get(number[1] if number else name) or resolve(model)
    return None if config is None else Architecture.from_config(config)


def read_case(row: Mapping[str, Any]) -> Case | LeftOut:
    gpu = gpus().get(GPUS.get(row["gpu"], row["gpu"]))
    if gpu is None:
        return LeftOut(row, f"no such GPU in the catalogue: {row['gpu']}")
    if row["gpu"].endswith("no-nvlink"):
        gpu = gpu.model_copy(update={"link_gb_s": None, "topology": "pcie only"})
    architecture = architecture_of(row["model"])
    if architecture is None:
        return LeftOut(row, f"no config of {row['model']}")
    weights = FORMATS.get(row["precision"])
    if "gpt-oss" in row["model"] and row["precision"].startswith(("gguf", "mxfp4")):
        weights = "Q8_0"  # of all but its experts, which stay in MXFP4
    if weights is None:
        return LeftOut(row, f"format not stated exactly: {row['precision']}")
    kv: CacheFormat = "bf16"
    if row["engine"].startswith(("tensorrt-llm", "nim")) and weights in ("fp8-channel", "nvfp4"):
        kv = "fp8"
    config: Config = {}
    if row["precision"] == "int4-g32":
        config = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}
    layout = Layout(tp=row["tp"], pp=max(1, row["n_gpus"] // row["tp"]) if row["kind"] != "train" else 1)
    return Case(row, architecture, Precision.of(config, weights, kv), layout, gpu)


def speed_of(
    architecture: Architecture,
    rank: Architecture,
    stages: tuple[range, ...],
    precision: Precision,
    layout: Layout,
    gpu: GPU,
    engine: str,
    *,
    file: StoredAs = stored,
    all_to_all: bool = False,
) -> Speed:
    """Speed of a model whose ranks hold `rank`, in an engine's files, under kernels by their name."""
    demands = tuple(demand(architecture, rank, precision, layout, stage, file=file) for stage in stages)
    ranks = sharing(layout, experts=demands[0].routing is not None)
    machines = cache(lambda end: machine(gpu, engine, precision.weights, ranks, end))
    return Speed(demands, layout, machines, all_to_all=all_to_all)


def divided(
    engine: str,
    model: Architecture,
    precision: Precision,
    layout: Layout,
    gpu: GPU,
    kernels: str | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Speed:
    """Speed of a model whose ranks hold what an engine with some flags gives them, by its name, or even parts where
    that engine is not weighed. Stages have as many layers as divide evenly; `kernels` is the name under which they are
    measured, if not the engine's."""
    bounds = [stage * model.num_layers // layout.pp for stage in range(layout.pp + 1)]
    stages = tuple(range(first, last) for first, last in pairwise(bounds))
    on = precision, layout, gpu, kernels or engine
    if engine not in ENGINES:
        return speed_of(model, layout.rank(model, -(-model.vocab // layout.tp)), stages, *on)
    kind = ENGINES[engine]
    started = kind(kind.options_type(**flags or {}))
    rank = started.rank(model, layout)
    return speed_of(model, rank, stages, *on, file=started.file, all_to_all=started.all_to_all(layout))
