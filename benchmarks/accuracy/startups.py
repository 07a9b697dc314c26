"""python -m benchmarks.accuracy.startups STARTUP_LOGS.json STARTS.json: our budget at start against real start-ups.

The logs say what vLLM had left for its cache, what CUDA graphs took and what weights took; the starts say which
configurations came up. Figures in GiB; errors of the cache in per cent of the GPU. Each row is asked by its flags."""

import json
import re
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.accuracy.cases import version_of
from benchmarks.accuracy.records import weight_format
from benchmarks.oracle.stored_checkpoints import spelled_out
from calc import GPU, Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.formats import CACHE_BITS, native, with_hf_quant_config
from calc.hardware.overhead import HIGH, LOW, MIDDLE
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.tensorrt_llm.engine import TensorRTLLM
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions, holds
from calc.serving.engines.vllm.working_memory import GRAPH_SIZES, LEAST_GRAPHS, Graphs, graphs_gib
from calc.serving.memory import Allocation, Serving
from calc.serving.report import laid_out_report
from calc.serving.verdict import VerdictWord, verdict_word
from calc.units import GIB
from presets import gpus, models

DRAFTS = {None: "none", "mtp": "mtp"}
"""`speculative` of a row -> the option; other drafts are models that a row does not name."""
NO: tuple[VerdictWord, ...] = ("does not fit", "does not run")
NIM = {"1.12.2": "0.10.0", "2.0.12": "0.27.1"}
"""Releases of NVIDIA's container -> the vLLM in it, as its log says ("Initializing a V0 LLM engine (v0.10.0)")."""
GUESSED = 3
"""Tokens that InferenceX's servers guess at once, 2 or 3 by its scripts; SGLang's there are its default, 3 and one."""
UNMEASURED = -0.15
"""GiB of graphs below which another process freed memory meanwhile."""


ANY_GPU = "h100-sxm"
"""What is asked where a log does not state its GPU: the tokens that given bytes hold hardly depend on it."""
MOSTLY_FREE = 0.9
"""Of a GPU, before weights are loaded: else others use it too."""


def packed(*groups: Mapping[str, Any], skip: Sequence[str] = ()) -> Mapping[str, Any]:
    """A quantization_config as compressed-tensors writes it, with what it leaves in 16 bits."""
    always = ("lm_head", "re:.*visual.*", "re:.*vision.*", "re:.*embed.*", "re:^mtp.*", "re:.*in_proj_[ab]$")
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, "ignore": [*always, *skip]}


def group_of(targets: Sequence[str], bits: int, kind: str, strategy: str, size: int | None = None) -> Mapping[str, Any]:
    """A group of `config_groups`."""
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": size, "symmetric": True}
    return {"targets": list(targets), "weights": weights}


STORED = {
    "gemma-4-26B-A4B-it-qat-AWQ-INT4": packed(
        group_of(("Linear",), 4, "int", "group", 32), skip=("re:.*router.*", r"re:.*layers\.\d+\.mlp\..*")
    ),
    "Qwen3.8-27B-INT4": packed(group_of(("Linear",), 4, "int", "group", 128)),
    "Qwen3.8-27B-NVFP4": packed(
        group_of(("re:.*self_attn.*", "re:.*linear_attn.*"), 8, "float", "channel"),
        group_of(("re:.*mlp.*",), 4, "float", "tensor_group", 16),
    )
    | {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
}
"""quantization_config of checkpoints whose logs do not print it, by model. The scheme is told where the logs are from
(sostrowsk/dgx-spark-local-llm, handouts 03 and 05, commit 4b54864); which modules have it follows from the size of the
files that the logs print: 16.01 GiB (with the dense feed-forward in 16 bits), 18.12 GiB (with linear attention
quantized) and 21.81 GiB."""
FORKS = frozenset({"stored public file 59690061800"})
"""Sources of logs of other code than vLLM's own: the text of that file names vllm-gfx906-mobydick on two MI50 of
34,342,961,152 bytes, which vLLM does not run on, and a checkpoint whose head is quantized too."""


class Start(NamedTuple):
    """A start-up log and our figures of it at the low end of the overhead, in its middle and at the high end."""

    row: Mapping[str, Any]
    weights: float
    cache: tuple[float, float, float]
    graphs: tuple[float, float]
    total: float

    @property
    def logged(self) -> Mapping[str, float]:
        """GiB by name. SGLang states its pools by what they hold, and weights as what is gone from the free memory, of
        which libraries take a part."""
        figures: Mapping[str, Any] = self.row["measured"]
        if "pools" not in figures:
            return figures
        pools = [size for pool in figures["pools"] for name, size in pool.items() if name.endswith("_gb")]
        stated = {"kv_gib": sum(pools) + sum(figures.get(name, 0) for name in ("conv_gb", "ssm_gb"))}
        return stated | ({"graphs_gib": figures["graphs_gb"]} if "graphs_gb" in figures else {})

    @property
    def cache_error(self) -> float:
        """Per cent of the GPU."""
        return 100 * (self.cache[MIDDLE] - self.logged["kv_gib"]) / self.total

    @property
    def weights_agree(self) -> bool:
        """Within 2 %: else the log does not say which modules stay in 16 bits, and the cache is off by as much."""
        return abs(self.weights / self.logged.get("weights_gib", self.weights) - 1) < 0.02

    @property
    def in_range(self) -> bool:
        return self.cache[HIGH] - 0.005 <= self.logged["kv_gib"] <= self.cache[LOW] + 0.005

    @property
    def graphs_error(self) -> float:
        return sum(self.graphs) / 2 - self.logged["graphs_gib"]


def name_of(row: Mapping[str, Any]) -> str:
    return str(row.get("preset") or row.get("config") or row["model"])


def config_of(row: Mapping[str, Any], configs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if row.get("preset"):
        known = models().get(str(row["preset"]))
        stored_as = STORED.get(row.get("model", ""))
        return known and known.config | ({} if stored_as is None else {"quantization_config": stored_as})
    stored = configs.get(row.get("config"))
    if stored is None or "config" not in stored:
        return stored
    beside = stored.get("hf_quant_config")
    config: dict[str, Any] = spelled_out(stored["config"])
    return config if beside is None else with_hf_quant_config(config, spelled_out(beside))


def unusable(row: Mapping[str, Any]) -> str | None:
    """Why a log says too little about the bytes of its start."""
    if row["grade"] == "c":
        return "partial"
    if row["refused"] is not None:
        return "it did not start"
    if "flags may differ" in (row.get("note") or ""):
        return "no line of the flags that it was started with"
    if row["url"] in FORKS or row["gpu"] not in gpus() or gpus()[row["gpu"]].platform not in ("cuda", "rocm", "cann"):
        return "not the engine's own code for this device"
    if row.get("speculative") not in DRAFTS:
        return "a draft model that the row does not name"
    if row.get("offload"):
        return "weights partly in host memory"
    if row.get("lora"):
        return "LoRA slots"
    if row["engine"] == "sglang" and str(row["kv_cache_dtype"]).startswith("fp4"):
        return "a cache in four bits"
    free = row["measured"].get("free_before_gb")
    if free is not None and free * GIB < MOSTLY_FREE * gpus()[row["gpu"]].usable_bytes:
        return "others use the GPU"
    return None


def guessed_by(row: Mapping[str, Any]) -> int | None:
    """Tokens that a draft guesses at once, by the largest size that is captured: twice the sequences, each with those
    and one more, up to 512 (`_set_cudagraph_sizes`). None where a log does not say."""
    sequences, largest = row["max_num_seqs"], row["max_capture"]
    if DRAFTS[row["speculative"]] == "none" or not sequences or not largest or largest >= GRAPH_SIZES[-1]:
        return None
    return max(1, largest // (2 * sequences) - 1)


def engine_of(row: Mapping[str, Any]) -> VLLM | SGLang:
    """The engine of a log with the flags that it states."""
    if row["engine"] == "sglang":
        stated = {name: row[name] for name in SGLangOptions.model_fields if row.get(name) is not None}
        return SGLang(SGLangOptions(**stated))
    options = VLLMOptions(
        max_num_batched_tokens=row["max_num_batched_tokens"] or row.get("chunk_printed"),
        max_num_seqs=row["max_num_seqs"] or row.get("max_num_seqs_told"),
        gpu_memory_utilization=row["gpu_memory_utilization"],
        enforce_eager=bool(row["enforce_eager"]),
        language_model_only=bool(row["language_model_only"]),
        speculative=DRAFTS[row["speculative"]],
        num_speculative_tokens=guessed_by(row),
        version=version_of(row.get("base_version") or row["version"]),
    )
    return VLLM(options)


def gpu_of(row: Mapping[str, Any]) -> GPU:
    """The GPU of a log, with the total that it states: drivers leave more or less of it."""
    gpu, total = gpus()[row["gpu"]], row["measured"].get("total_gib")
    return gpu if total is None else gpu.model_copy(update={"usable_mib": round(total * 1024)})


def planned(row: Mapping[str, Any], configs: Mapping[str, Any]) -> Allocation | str:
    """What we plan for the settings of a row on its GPU, or why that is not clear."""
    config = config_of(row, configs)
    if config is None:
        return "no config of this model"
    form = weight_format(row)
    if form is None:
        return "a format that is not stated exactly"
    word = str(row["kv_cache_dtype"]).partition("_e")[0]
    cache = word if word in CACHE_BITS else None
    try:
        stored = native(config)
        precision = Precision.of(config, None if stored.name == form or stored.scheme else form, cache)
        layout = Layout(tp=row["tp"], pp=row.get("pp") or 1, dp=row["dp"], ep=row["tp"] * row["dp"] if row["ep"] else 1)
        serving = Serving.of(Architecture.from_config(config), engine_of(row), precision, layout, Overhead())
        length = row.get("max_model_len") or row.get("context_length") or 8192
        return serving.on(gpu_of(row), Workload(context=length))
    except ConfigError as error:
        return f"refused by us: {error}"


def weighed(row: Mapping[str, Any], configs: Mapping[str, Any]) -> Start | str:
    """Our figures for a row, or why there are none."""
    found = unusable(row) or planned(row, configs)
    if isinstance(found, str):
        return found
    stage = found.most_loaded
    graphs = found.stages[stage].sizes["cuda_graphs"]
    low, middle, high = (found.room(end).available[stage] / GIB for end in (LOW, MIDDLE, HIGH))
    return Start(
        row=row,
        weights=found.serving.laid_out.stages[stage].loaded.total / GIB,
        cache=(low, middle, high),
        graphs=(graphs[0] / GIB, graphs[1] / GIB),
        total=found.gpu.usable_bytes / GIB,
    )


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def logs_table(truth: Mapping[str, Any]) -> Iterator[str]:
    """Cache, graphs and weights of every usable log, their summaries, and what is left out."""
    found = {row["id"]: weighed(row, truth["configs"]) for row in truth["rows"]}
    every = [one for one in found.values() if isinstance(one, Start)]
    starts = [one for one in every if one.row["engine"] == "vllm"]
    sglang = [one for one in every if one.row["engine"] == "sglang"]
    discrete = [one for one in starts if gpus()[one.row["gpu"]].memory == "dedicated"]
    for one in every:
        if "kv_gib" in one.logged:
            graphs = f"graphs {sum(one.graphs) / 2:5.2f} of {one.logged.get('graphs_gib', float('nan')):5.2f}"
            weights = f"weights {one.weights:6.2f} of {one.logged.get('weights_gib', float('nan')):6.2f}"
            cache = f"cache {one.cache[MIDDLE]:6.2f} of {one.logged['kv_gib']:6.2f} ({one.cache_error:+6.2f} %)"
            yield f"{one.row['id']} {name_of(one.row):40} {one.row['gpu']:18} {cache} {graphs} {weights}"
    cuda = [one for one in discrete if gpus()[one.row["gpu"]].platform == "cuda"]
    for name, chosen in (("all of vLLM", starts), ("discrete", discrete), ("CUDA, discrete", cuda), ("SGLang", sglang)):
        cached = [one for one in chosen if "kv_gib" in one.logged and one.weights_agree]
        captured = [one for one in chosen if one.logged.get("graphs_gib", -1) > UNMEASURED]
        loaded = [abs(one.weights / one.logged["weights_gib"] - 1) for one in chosen if "weights_gib" in one.logged]
        errors = [abs(one.cache_error) for one in cached]
        inside = sum(one.in_range for one in cached)
        misses = [abs(one.graphs_error) for one in captured]
        yield (
            f"{name}: cache {median(errors):.2f} % of the GPU at the median, {percentile(errors, 0.9):.2f} at the 90th "
            f"percentile, in our range {inside} of {len(cached)}; graphs {median(misses):.2f} GiB at the median, "
            f"{percentile(misses, 0.9):.2f} at the 90th percentile, of {len(captured)}"
            + (f"; weights {median(loaded):.2%}, {percentile(loaded, 0.9):.2%}, of {len(loaded)}" if loaded else "")
        )
    for why, count in Counter(one for one in found.values() if isinstance(one, str)).most_common():
        yield f"left out: {count} {why}"


class MaxLength(NamedTuple):
    """The longest request that a refusal prints and ours, in tokens."""

    printed: int
    of_bytes: int  # of the bytes of cache that it prints
    end_to_end: int | None  # by the settings alone; None where they are not all stated


def max_length(row: Mapping[str, Any], configs: Mapping[str, Any]) -> MaxLength | None:
    """The longest request of a log that refuses a longer one; None where it says too little."""
    refused, kv_gib = row.get("refused") or {}, row["measured"].get("kv_gib")
    if not refused.get("est_len") or not kv_gib or row["lora"] or row.get("offload"):
        return None
    allocation = planned({**row, "gpu": row["gpu"] or ANY_GPU, "max_model_len": refused["asked"]}, configs)
    if isinstance(allocation, str) or (pool := allocation.requirements.pool) is None:
        return None

    def longest(nbytes: Sequence[int]) -> int:
        return pool.cached_length(pool.usable_blocks(pool.blocks(nbytes)), refused["asked"])

    return MaxLength(
        printed=refused["est_len"],
        of_bytes=longest([round(kv_gib * GIB)] * len(pool.block_bytes)),
        end_to_end=longest(allocation.room(MIDDLE).available) if states_start(row) else None,
    )


def states_start(row: Mapping[str, Any]) -> bool:
    """Whether the bytes of a cache follow from what a log states."""
    stated = row["gpu"] and row["version"] and row["gpu_memory_utilization"] and row["grade"] != "c"
    return bool(stated) and "not stated" not in row["quant"]


def lengths_table(truth: Mapping[str, Any]) -> Iterator[str]:
    """The longest request of each refusal that prints one, and how far ours are off given its bytes and without."""
    lengths = {row["id"]: (row, max_length(row, truth["configs"])) for row in truth["rows"]}
    known = [(row, length) for row, length in lengths.values() if length is not None]
    for row, length in known:
        end = "not stated" if length.end_to_end is None else f"{length.end_to_end:,}"
        yield (
            f"{row['id']} {name_of(row):40} {row['gpu'] or '?':18} longest request {length.printed:,} printed, "
            f"{length.of_bytes:,} of its bytes, {end} end to end"
        )
    for name, limit, errors in (
        ("given the bytes", 0.02, [length.of_bytes / length.printed - 1 for _, length in known]),
        ("end to end", 0.05, [length.end_to_end / length.printed - 1 for _, length in known if length.end_to_end]),
    ):
        within = sum(abs(error) <= limit for error in errors)
        middle = median(map(abs, errors))
        yield f"longest request {name}: {middle:.2%} off at the median, {within} of {len(errors)} within {limit:.0%}"


class Captured(NamedTuple):
    """Graphs that a log captured without drafts, and what they took, in GiB."""

    model: str
    options: VLLMOptions
    runner: str
    graphs: Graphs
    layers: int
    several: bool
    logged: float

    @property
    def group(self) -> str:
        old = not holds("graphs up to twice the sequences", self.options)
        return f"{self.runner}, {'up to 0.11' if old else '0.12 and later'}"

    def error(self, constants: tuple[float, float] | None = None) -> float:
        """GiB that the formula is off, with other constants where they are stated."""
        found = graphs_gib(self.graphs, self.layers, self.options, several=self.several, constants=constants)
        return abs(max(LEAST_GRAPHS, found) - self.logged)


def captured(row: Mapping[str, Any], configs: Mapping[str, Any]) -> Captured | None:
    """The graphs of a log on CUDA that says how many sizes it captured; a GPU or format need not be stated."""
    gpu, logged, config = gpus().get(row["gpu"] or ""), row["measured"].get("graphs_gib"), config_of(row, configs)
    unified = gpu is not None and (gpu.platform != "cuda" or gpu.memory != "dedicated")
    if row["speculative"] or row["lora"] or not (row.get("captured") and row["runner"] and config) or unified:
        return None
    if logged is None or logged <= UNMEASURED:
        return None
    options = VLLMOptions(version=version_of(row.get("base_version") or row["version"]))
    profiled = re.search(r"FULL=(\d+)", row["measured"].get("graph_profile", ""))
    sequences = row["max_num_seqs"] or (1024 if row["gpu"] == "h100-sxm" else 256)
    in_pieces = row.get("cudagraph_mode") == "PIECEWISE"
    whole = 0 if in_pieces else bisect_right(GRAPH_SIZES, min(sequences, row["max_capture"]))
    full = int(profiled[1]) if profiled else whole * holds("graphs of whole decode steps", options)
    layers = Architecture.from_config(config).num_layers // row["pp"]
    several = row["tp"] * row["pp"] > 1
    return Captured(name_of(row), options, row["runner"], Graphs(row["captured"], full), layers, several, logged)


def refitted(logs: Sequence[Captured]) -> tuple[float, float]:
    """MiB of a graph and of a layer in it with the least absolute errors, to 0.1 and 0.005 MiB."""
    choices = product((n / 10 for n in range(80)), (n / 200 for n in range(60)))
    return min(choices, key=lambda chosen: sum(log.error(chosen) for log in logs))


def graphs_table(truth: Mapping[str, Any]) -> Iterator[str]:
    """How far the formula of CUDA graphs is off by runner and version, and where it is fitted without a model to the
    others."""
    found = [captured(row, truth["configs"]) for row in truth["rows"] if row["engine"] == "vllm"]
    groups = defaultdict[str, list[Captured]](list)
    for log in found:
        if log is not None:
            groups[log.group].append(log)
    for name, logs in groups.items():
        errors = [log.error() for log in logs]
        models = {log.model for log in logs}
        fits = {model: refitted([log for log in logs if log.model != model]) for model in models if len(models) > 1}
        without = [log.error(fits[log.model]) for log in logs if fits]
        yield (
            f"graphs, {name}: {median(errors):.2f} GiB at the median, {percentile(errors, 0.9):.2f} at the 90th "
            f"percentile, of {len(logs)} starts of {len(models)} models"
            + (f"; {median(without):.2f} where the model is not fitted to" if without else "")
        )


def vllm_version(row: Mapping[str, Any]) -> str | None:
    """The version of vLLM that a row states, the later one of a range; None where it states none."""
    text = row.get("version") or row.get("image") or ""
    if text.startswith("NIM "):
        return NIM[text.removeprefix("NIM ")]
    version = re.search(r"(?:\d+\.\d+-)?(\d+\.\d+(\.\d+)?)", text)
    return version[1] if version and version[1].startswith("0.") else None


STATED: dict[str, dict[str, float]] = {
    "ix:dsr1-fp8-b200-sglang:8192-1024:tp4pp1ep1": {
        "mem_fraction_static": 0.95,
        "chunked_prefill_size": 8192,
        "max_running_requests": 32,
        "cuda_graph_max_bs": 32,
    }
}
"""Flags that a script states only for some GPUs, so that the row calls them ambiguous, where they decide: InferenceX's
dsr1_fp8_b200.sh at 432945d has these for four. Without them SGLang takes 85 % of a B200, which the weights exceed."""


def verdict_of(row: Mapping[str, Any], configs: Mapping[str, Any]) -> tuple[VerdictWord, str]:
    """Our word on a start with its own flags, and why."""
    engine: VLLM | SGLang | TensorRTLLM
    asked = {"preset": row["model"]} if row.get("ask") == "preset" else row
    config = config_of(asked, configs)
    if config is None:
        raise ConfigError(f"No config of {row['model']}.")
    options = {name: value for name, value in row.get("options", {}).items() if value is not None}
    options |= STATED.get(row["id"], {})
    cache = options.pop("kv_cache_dtype", None)
    architecture = Architecture.from_config(config)
    drafts, own = row.get("speculative") == "mtp", bool(architecture.prediction)  # else EAGLE-3's head (MiniMax-M3)
    if row["engine"] == "sglang":
        fields = SGLangOptions.model_fields
        given = {name: value for name, value in options.items() if name in fields}
        engine = SGLang(
            SGLangOptions(**given, speculative_algorithm=("EAGLE" if own else "EAGLE3") if drafts else None)
        )
    elif row["engine"] == "trt":
        engine = TensorRTLLM()
    else:
        stated = vllm_version(row) if row["engine"] == "vllm" else None
        fields = VLLMOptions.model_fields
        chosen = {name: value for name, value in options.items() if name in fields}
        if drafts:
            guessed = GUESSED if "image" in row else None
            chosen |= {"speculative": "mtp" if own else "eagle3", "num_speculative_tokens": guessed}
        engine = VLLM(VLLMOptions(**chosen, version=stated))
    precision = engine.precision(native(config), None, "fp8" if str(cache).startswith("fp8") else None)
    workload, gpu = (
        Workload(context=row.get("max_model_len") or options.get("max_model_len") or 8192),
        gpus()[row["gpu"]],
    )
    serving, found = laid_out_report(
        config,
        architecture=architecture,
        workload=workload,
        engine=engine,
        precision=precision,
        layout=Layout(**row["layout"]) if "layout" in row else None,
        num_gpus=None if "layout" in row else row["gpus"],
        gpus=[gpu],
    )
    return verdict_word(serving.on(gpu, workload)), str(found.verdicts[0].reason)


class Judged(NamedTuple):
    """A configuration that starts, or does not, and our word on it."""

    row: Mapping[str, Any]
    word: VerdictWord
    why: str

    @property
    def is_wrong(self) -> bool:
        """What the overhead decides is no miss on either side."""
        return self.word in (NO if self.row["starts"] else ("fits",))


def judged(truth: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[Judged]:
    """Our word on every server whose settings are all stated."""
    for row in truth["rows"]:
        if row["kind"] != "serve" or row["grade"] == "C":
            continue
        try:
            yield Judged(row, *verdict_of(row, {**stored, **truth["configs"]}))
        except ConfigError as error:
            yield Judged(row, "does not run", str(error))


def court(truth: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    """Four cells, what starts and what does not by whether we say that it does not fit or run; then each miss."""
    every = list(judged(truth, stored))
    cells = Counter((one.row["starts"], one.word) for one in every)
    for starts, name in ((True, "starts"), (False, "does not start")):
        no = sum(cells[starts, word] for word in NO)
        yield f"{name}: fits {cells[starts, 'fits']}, tight {cells[starts, 'tight']}, does not fit or run {no}"
    for one in every:
        if one.is_wrong:
            yield f"{'starts' if one.row['starts'] else 'does not start'}, {one.word}: {one.row['id']}: {one.why}"


def load(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    logs, starts = sys.argv[1], sys.argv[2]
    print("\n".join(logs_table(load(logs))))
    print("\n".join(graphs_table(load(logs))))
    print("\n".join(lengths_table(load(logs))))
    configs = load(str(Path(starts).with_name("checkpoint_bytes.json")))["configs"]
    print("\n".join(court(load(starts), configs)))
