"""What people's GPUs held while they trained, beside ours.

A record is used when it, or the published configuration that it names, states every input that the figure depends on;
the others are counted with the reason. No constant is fitted. But where neither says how something was done, the
reading that is marked as inferred was chosen with the figure in sight, so that its row is no independent check.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.accuracy import found
from benchmarks.accuracy.found import Comparison, Found
from benchmarks.accuracy.records import LeftOut, resolve
from calc import RECIPES, Architecture, Overhead, Precision, Recipe, TrainingLayout, TrainingMemory, TrainingWorkload
from calc.hardware.overhead import FRAGMENTATION
from calc.training import WIDTH, Training, TrainingScenario, dot
from calc.training.course import BUFFER
from calc.units import GIB

SOURCE = "https://github.com/pytorch/torchtune"
"""Where the ladder stands."""
SHARDS = "gradients"
"""What the shards of gradients are called among what a stage holds."""
Meter = Literal["allocated", "reserved", "process"]
"""What was read: the allocator's peak of what is in use, of what it holds, or the driver's figure for the process."""


def qwen(hidden: int, layers: int, heads: int, intermediate: int, vocab: int) -> dict[str, Any]:
    """The first Qwen, by the config.json of Qwen/Qwen-7B and its siblings."""
    return {
        "model_type": "qwen",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
    }


SAME = {"Llama 2 7 B": "llama-2-7b", "phi-1.5 1.3 B": "phi-1_5"}
"""Spellings of litgpt's tables."""
FIRST_QWEN = {
    "1.8b": qwen(2048, 24, 16, 11_008, 151_936),
    "7b": qwen(4096, 32, 32, 22_016, 151_936),
    "72b": qwen(8192, 80, 64, 49_152, 152_064),
}


@dataclass(frozen=True)
class Case:
    """A record with all that our figure depends on."""

    record: Mapping[str, Any]
    config: Mapping[str, Any]
    measured: float  # bytes
    meter: Meter
    work: TrainingWorkload
    recipe: Recipe
    layout: TrainingLayout = field(default_factory=TrainingLayout)
    frozen: Precision = field(default_factory=Precision)

    def training(self) -> Training:
        architecture = Architecture.from_config(self.config)
        parts = {"workload": self.work, "recipe": self.recipe, "layout": self.layout, "frozen": self.frozen}
        return Training(architecture, TrainingScenario(**parts))

    def memory(self) -> TrainingMemory:
        return self.training().memory()

    def predicted(self) -> int:
        """Bytes that the meter would have read."""
        training = self.training()
        memory = training.memory()
        held = memory.total - memory.overhead
        if self.meter == "allocated":
            return held
        held += self.idle_logits(memory)
        if training.stage(0, single=self.work.micro_batch == 1).course.by_fsdp:
            held = max(held, self.by_streams(training) + self.idle_logits(memory))
        held = max(held, self.updating(training))
        low, high = Overhead().sizes({"fragmentation": FRAGMENTATION}, held)["fragmentation"]
        return held + (memory.overhead if self.meter == "process" else (low + high) // 2)

    def by_streams(self, training: Training) -> int:
        """Bytes that FSDP2 leaves reserved: PyTorch's caching allocator keeps what was freed for the stream that asked
        for it, so that each stream stands there at its own peaks. All-gather fills its buffers on one stream, and
        reduce-scatter makes the gradients' shards on another (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py,
        `foreach_all_gather`, `foreach_reduce`)."""
        work = self.work
        stage = training.stage(0, single=work.micro_batch == 1)
        units = training.units(work.micro_batch, work.sequence)
        peaks = dict.fromkeys(("computing", BUFFER, SHARDS), 0)
        course = (here for way in (stage.course.forward(), stage.course.backward()) for here in way)
        moments = (here.at(top) for here in course for top in here.snapshots)
        for moment in (*stage.steps.values(), *map(stage.during.merged_with, moments)):
            here = dict.fromkeys(peaks, 0)
            for tensors in moment.tensors:
                here[tensors.name if tensors.name in here else "computing"] += dot(tensors.bytes, units)
            peaks = {stream: max(most, here[stream]) for stream, most in peaks.items()}
        return sum(peaks.values())

    def updating(self, training: Training) -> int:
        """Bytes that DeepSpeed's ZeRO-2 leaves reserved at its update: the buckets are gone by then
        (`_release_ipg_buffers`), but what follows, all gradients in one piece, is too large for their blocks."""
        optimizer = sum(part.bytes for part in training.phases()["optimizer"])
        blocks = (2 if self.recipe.overlap else 1) * WIDTH[self.recipe.gradients] * self.recipe.bucket
        return optimizer + (blocks if self.layout.zero == 2 else 0)

    def idle_logits(self, memory: TrainingMemory) -> int:
        """Bytes of the 16-bit logits once they are gone: what follows is in fp32, too large for their block, so that
        PyTorch's caching allocator keeps it (docs: notes/cuda, memory management)."""
        work, layout = self.work, self.layout
        if work.loss != "whole" or work.keep_outputs or self.recipe.compute == "fp32" or not memory.logits:
            return 0
        tokens = work.micro_batch * -(-work.sequence // layout.cp)
        return 2 * tokens * -(-int(self.config["vocab_size"]) // layout.tp)


LADDER: tuple[tuple[str, float, dict[str, Any]], ...] = (
    ("+ packed dataset", 60.0, {}),
    ("+ compile", 51.0, {"fused": True}),
    ("+ chunked cross entropy", 42.9, {"loss": "chunked"}),
    ("+ activation checkpointing", 24.9, {"recompute": "full"}),
    ("+ optimizer step in backward", 23.1, {"optimizer_in_backward": True}),
    ("+ activation offloading", 21.8, {"offload_activations": True}),
    ("+ 8-bit AdamW", 17.6, {"optimizer": "adamw-8bit-ao"}),
    ("LoRA", 8.5, {"method": "lora", "lora_rank": 64, "optimizer": "adamw", "optimizer_in_backward": False}),
    ("QLoRA", 4.6, {"method": "qlora"}),
)
"""README of torchtune 0.6, "Optimization flags": Llama 3.2 3B, two sequences of 4,096 packed tokens, bf16, peak active
memory in GiB. Each technique comes on top of those before; LoRA goes back to plain AdamW, which the recipes run fused
(recipes/configs/llama3_2).
Inferred: that the 8-bit AdamW is torchao's, and that the compiled loss writes no fp32 chunk."""


def ladder() -> list["Case"]:
    """The steps of torchtune's table, in its order."""
    config = resolve("Llama-3.2-3B")
    assert config is not None
    settings: dict[str, Any] = {"micro_batch": 2, "sequence": 4096, "optimizer_kernel": "fused", "repeated_keys": True}
    cases = []
    for what, gib, change in LADDER:
        settings |= change
        record = {"framework": "torchtune ladder", "model": "Llama-3.2-3B", "method": what}
        frozen = Precision(weights="nf4-dq" if settings.get("method") == "qlora" else "bf16")
        work = TrainingWorkload(**settings)
        cases.append(Case(record, config, gib * GIB, "allocated", work, RECIPES["bf16"], frozen=frozen))
    return cases


@dataclass(frozen=True)
class Row:
    """One comparison."""

    case: Case
    predicted: int
    error: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", self.predicted / self.case.measured - 1)


def read(records: Iterable[Mapping[str, Any]]) -> tuple[list[Case], list[LeftOut]]:
    """The records of training peaks: those that can be compared, and those that cannot."""
    cases: list[Case] = []
    out: list[LeftOut] = []
    for record in records:
        if record["kind"] != "train_peak":
            continue
        read_as = case(record)
        if isinstance(read_as, Case):
            cases.append(read_as)
        else:
            out.append(LeftOut(record, read_as))
    return cases, out


def compare(cases: Iterable[Case]) -> list[Row]:
    return [Row(case, case.predicted()) for case in cases]


def training_peaks(rows: list[Mapping[str, Any]]) -> Iterator[Found]:
    """Peaks of training steps: the ladder, then every record."""
    cases, out = read(rows)
    for row in compare([*ladder(), *cases]):
        record = row.case.record
        yield Comparison(
            kind="training peaks",
            name=f"{record['model']}, {record['framework']}, {record['method']}",
            predicted=row.predicted / GIB,
            measured=row.case.measured / GIB,
            unit="GiB",
            source=record.get("url", SOURCE),
        )
    for left in out:
        name = f"{left.record['model']}, {left.record['framework']}"
        yield found.LeftOut(kind="training peaks", name=name, reason=left.reason)


def case(record: Mapping[str, Any]) -> Case | str:
    """What a record says in our terms, or why it does not say enough."""
    if record["grade"] == "C":
        return "doubtful: the same figures stand elsewhere too"
    if record["framework"] == "unsloth":
        return "only a limit of the sequence length is stated, the data decide"
    config = config_of(record["model"])
    if config is None:
        return "a model that we have no preset of"
    reader = {
        "torchtune": torchtune,
        "torchtitan": torchtitan,
        "litgpt": litgpt,
        "HF Trainer+DeepSpeed": qwen_scripts,
        "ms-swift": ms_swift,
    }[record["framework"]]
    return reader(record, config)


def config_of(name: str) -> Mapping[str, Any] | None:
    if size := re.fullmatch(r"(?i)qwen-(1[._]8b|7b|72b)(-chat)?", name):
        return FIRST_QWEN[size[1].lower().replace("_", ".")]
    return resolve(SAME.get(name, name))


def nbytes(record: Mapping[str, Any]) -> float:
    """GB of 10^9 where the source says so, and for Qwen, whose README has 162.0G for two GPUs of 80 GiB (7B in full,
    1,024 tokens; docs/training.md); torch's tools and nvidia-smi count in GiB whatever they print, and so do the logs
    of torchtitan, which torchao's benchmarks/float8/training reads for the table that is headed GB."""
    decimal = record["measured"]["unit"].startswith(("GB (1e9", "GB (column G)"))
    return float(record["measured"]["mem_per_gpu"]) * (10**9 if decimal else GIB)


def torchtune(record: Mapping[str, Any], config: Mapping[str, Any]) -> Case | str:
    """README: recipes as published in recipes/configs/llama3_1, here of one device, with compile and packed data."""
    if "seq" not in record:
        return "the sequence length is not stated"
    if record["n_gpu"] > 1 or record["gpu"] != "RTX 4090":
        return "how the recipe was changed for this card is not stated"
    method = record["method"].lower()
    work = {
        "full": {"optimizer_in_backward": True, "optimizer": "sgd"},  # paged states are outside the allocator
        "lora": {"lora_rank": 8, "lora_targets": "attention"},
        "qlora": {"lora_rank": 8, "lora_targets": "attention"},
    }[method]
    return Case(
        record,
        config,
        nbytes(record),
        "allocated",
        TrainingWorkload(
            micro_batch=record["batch"],
            sequence=record["seq"],
            method=method,
            fused=True,
            loss="chunked",
            recompute="full",
            optimizer_kernel="fused",
            repeated_keys=True,
            **work,
        ),
        RECIPES["bf16"],
        frozen=Precision(weights="nf4-dq" if method == "qlora" else "bf16"),
    )


def torchtitan(record: Mapping[str, Any], config: Mapping[str, Any]) -> Case | str:
    """FSDP2 with fp32 shards, gathered in bf16; "selective" is per operation, of every other matrix product."""
    if "ac" not in record:
        return "recomputation is not stated"
    if "PP" in record["method"]:
        return "the number of micro-batches is not stated"
    tp, cp = record.get("tp", 1), record.get("cp", 1)
    first = "202412" in record["url"]  # its source had the ends in one unit, and came to compile the loss
    return Case(
        record,
        config,
        nbytes(record),
        "reserved",
        TrainingWorkload(
            micro_batch=record["batch"],
            sequence=record["seq"],
            method="pretrain",
            repeated_keys=True,
            fused=bool(record.get("compile")) or "compile" in record["method"],
            recompute="full" if record["ac"] == "full" else "alternate",
            loss="whole" if first else "compiled",
        ),
        RECIPES["autocast"],
        TrainingLayout(dp=record["fsdp"], tp=tp, cp=cp, zero=3, separate_embedding=not first),
    )


def litgpt(record: Mapping[str, Any], config: Mapping[str, Any]) -> Case | str:
    """finetune/lora.py of October 2023: rank 8 on queries and values, dropout 0.05, `batch_size` 128, all in bf16,
    plain AdamW, loss in chunks; queries, keys and values are made by one matrix, as InternLM 2's (lit_gpt/model.py,
    `CausalSelfAttention`); bitsandbytes 0.41.1, by the table's head, saves what a quantized product reads
    (MatMul4Bit in its autograd/_functions.py)."""
    if "Adapter" in record["method"]:
        return "a method that we do not model: LLaMA-Adapter"
    if record["n_gpu"] > 1:
        return "what FSDP gathers is not stated"
    quant = record["quant"]
    return Case(
        record,
        config | {"model_type": "internlm2"} if config["model_type"] == "llama" else config,
        nbytes(record),
        "allocated",
        TrainingWorkload(
            micro_batch=int(record["batch"]),
            sequence=record["seq"],
            accumulation=128 // int(record["batch"]),
            method="lora" if quant == "None" else "qlora",
            lora_rank=8,
            lora_targets="qv",
            lora_dropout=True,
            fused="phi" in record["model"],  # its GELU is one kernel here
            loss="whole",  # Fabric's bf16-true hands the logits out in fp32
            keep_outputs=True,
        ),
        RECIPES["bf16"].model_copy(update={"saves_inputs": True}),
        frozen=Precision(weights={"None": "bf16", "bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-dq"}[quant]),
    )


def qwen_scripts(record: Mapping[str, Any], config: Mapping[str, Any]) -> Case | str:
    """finetune.py and finetune/*.sh of QwenLM/Qwen: gradient checkpointing, LoRA of rank 64 with dropout 0.05 on every
    matrix; DeepSpeed, which does not cast what the model computes, but for LoRA on one GPU, where autocast does, and
    adapters are fp32 (PEFT 0.5.0, tuners/lora.py, `update_layer`). Models of GPTQ stay as they are
    (`prepare_model_for_kbit_training`). ZeRO-3 leaves two sizes to transformers, which takes them from the width of the
    model (integrations/deepspeed.py).

    Inferred: that all weights were trained with ZeRO-2, as finetune_ds.sh has it at commit 0400505; before and after,
    it has ZeRO-3, which on one GPU holds less than 20 bytes a weight at its peaks, where 23 were measured."""
    method = record["method"]
    if "(emb)" in method:
        return "a method that we do not model: LoRA that trains the embedding too"
    kind = "full" if method.startswith("full") else "qlora" if method == "QLoRA" else "lora"
    gpus, square = record["n_gpu"], int(config["hidden_size"]) ** 2
    autocast, third = kind == "lora" and gpus == 1, "ZeRO-3" in method
    sizes = {"bucket": square, "prefetch": 9 * square // 10} if third else {"bucket": 200_000_000, "overlap": True}
    deepspeed = RECIPES["deepspeed"].model_copy(update=sizes)
    return Case(
        record,
        config,
        nbytes(record) / gpus,  # rows of several GPUs are totals
        "process",
        TrainingWorkload(
            micro_batch=record["batch"],
            sequence=record["seq"],
            accumulation=record["grad_accum"],
            method=kind,
            lora_rank=64,
            lora_dropout=kind != "full",
            fp32_adapters=autocast,
            recompute="full",
            loss="whole" if autocast else "native",  # inferred: no upcast without autocast
            keep_outputs=not autocast,  # inferred: the logits wait too
        ),
        RECIPES["bf16-autocast"] if autocast else deepspeed,
        TrainingLayout(dp=gpus, zero=3 if third else 2),
        Precision(weights="int4" if kind == "qlora" else "bf16"),
    )


def ms_swift(record: Mapping[str, Any], config: Mapping[str, Any]) -> Case | str:
    if "defaults" in record:
        return "only a limit of the sequence length is stated, the data decide"
    return "how it was spread over the GPUs is not stated"
