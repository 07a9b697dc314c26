"""The controls of a training step."""

from typing import get_args

import streamlit as st

from calc import ConfigError
from calc.formats import WEIGHT_FORMATS
from calc.training.optimizer import Optimizer
from calc.training.training_workload import LoraTargets
from pages.parts import words
from pages.parts.inputs.controls import overhead, whole_number
from pages.parts.inputs.serving import BATCHES, CONTEXTS
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import bind, change, show

METHODS = {"full": "Full fine-tuning", "pretrain": "Pre-training", "lora": "LoRA", "qlora": "QLoRA"}
OPTIMIZERS: dict[Optimizer, str] = {
    "adamw": "AdamW",
    "adamw-8bit": "AdamW, 8-bit states",
    "adamw-8bit-ao": "AdamW, 8-bit states (torchao)",
    "adafactor": "Adafactor",
    "muon": "Muon",
    "sgd": "SGD",
    "sgd-momentum": "SGD with momentum",
}
RECIPES = {
    "master": "16 bits with an fp32 master copy",
    "bf16": "Everything in 16 bits",
    "megatron": "Megatron: fp32 gradients and master copy",
    "deepspeed": "DeepSpeed: master copy, gradients copied",
    "autocast": "fp32 weights, 16-bit compute",
    "bf16-autocast": "16 bits under autocast",
    "master-each": "fp32 master copy, each gradient cast and freed",
    "master-all": "fp32 master copy, all gradients cast",
    "fp32": "Everything in fp32",
}
RECOMPUTE = {"none": "None", "selective": "Scores", "alternate": "Alternate", "full": "Full"}
LOSS = {
    "whole": "Whole, in fp32",
    "native": "Whole, in 16 bits",
    "compiled": "Whole, one kernel",
    "chunked": "In chunks",
    "fused": "Fused with the head",
}
TARGETS: dict[LoraTargets, str] = {
    "all": "All (PEFT)",
    "dense": "All but experts",
    "attention": "Attention",
    "qv": "Queries, values",
}
ZERO = {0: "None", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3"}


def step(scenario: Scenario, error: ConfigError | None) -> None:
    st.markdown("**Training step**")
    st.selectbox("Method", list(METHODS), format_func=METHODS.get, **bind("method", "method"))
    if scenario.method in ("lora", "qlora"):
        adapters(scenario, error)
    st.select_slider(
        "Sequences of a micro-batch",
        sorted({*BATCHES, scenario.micro_batch}),
        help="On each replica, in one forward and backward pass.",
        **bind("micro_batch", "micro_batch"),
    )
    st.select_slider(
        "Length (tokens of each)",
        sorted({*CONTEXTS, scenario.sequence}),
        format_func=words.tokens,
        **bind("sequence", "sequence"),
    )
    whole_number(
        "accumulation", "Micro-batches of a step", error, 65_536, "Gradient accumulation; with stages, those in flight."
    )
    st.selectbox("Optimizer", get_args(Optimizer), format_func=OPTIMIZERS.get, **bind("optimizer", "optimizer"))
    st.selectbox(
        "Mixed precision",
        list(RECIPES),
        format_func=RECIPES.get,
        help="Storage of the trained weights, their gradients and the optimizer's states.",
        **bind("recipe", "recipe"),
    )
    st.segmented_control(
        "Recomputation",
        list(RECOMPUTE),
        format_func=RECOMPUTE.get,
        required=True,
        help="Activation checkpointing. Full keeps only the input of each layer and computes the rest again; alternate "
        "keeps every other matrix product too; scores: all but those of eager attention.",
        **bind("recompute", "recompute"),
    )


def adapters(scenario: Scenario, error: ConfigError | None) -> None:
    whole_number("lora_rank", "LoRA rank", error, 65_536)
    st.segmented_control(
        "Adapters on", list(TARGETS), format_func=TARGETS.get, required=True, **bind("lora_targets", "lora_targets")
    )
    usual = "nf4" if scenario.method == "qlora" else "bf16"
    show("frozen", scenario.weights or usual)
    st.selectbox(
        "Frozen weights",
        WEIGHT_FORMATS,
        key="frozen",
        on_change=lambda: change(weights=None if st.session_state.frozen == usual else st.session_state.frozen),
    )


def spread(_: Scenario, error: ConfigError | None) -> None:
    names = {
        "dp": ("Replicas (dp)", 65_536, "Data parallel: each sees its own sequences."),
        "tp": ("Tensor parallel (tp)", 1024, None),
        "pp": ("Pipeline stages (pp)", 1024, "One forward, one backward; the first stage holds most."),
        "cp": ("Context parallel (cp)", 1024, "Each rank has a part of every sequence."),
        "ep": ("Expert parallel (ep)", 4096, "Routed experts are spread over so many of the replicas."),
    }
    with st.expander("GPUs and sharding", expanded=error is not None and error.field in names):
        for name, (label, most, help) in names.items():
            whole_number(name, label, error, most, help)
        st.segmented_control(
            "Sharded over the replicas",
            list(ZERO),
            format_func=ZERO.get,
            required=True,
            help="1: the optimizer's states; 2: gradients too; 3: weights too, as FSDP.",
            **bind("zero", "zero"),
        )


def details(scenario: Scenario, _: ConfigError | None) -> None:
    with st.expander("Kernels, loss, overhead"):
        st.segmented_control(
            "Attention",
            ["flash", "eager"],
            required=True,
            help="Eager attention writes the whole matrix of scores to memory.",
            **bind("attention", "attention"),
        )
        st.toggle(
            "Fused norms and activations",
            help="One kernel each, as Liger, Transformer Engine and torch.compile have them.",
            **bind("fused", "fused"),
        )
        st.selectbox(
            "Loss",
            list(LOSS),
            format_func=LOSS.get,
            help="Chunked: fp32 logits for one chunk of tokens at a time. Fused with the head: logits never whole.",
            **bind("loss", "loss"),
        )
        st.toggle(
            "Update in the backward pass",
            help="Each gradient is used and freed at once; it can't be accumulated.",
            disabled=scenario.accumulation > 1 and not scenario.optimizer_in_backward,
            **bind("optimizer_in_backward", "optimizer_in_backward"),
        )
        st.toggle(
            "Activations wait in host memory",
            help="Those that full recomputation keeps.",
            **bind("offload_activations", "offload_activations"),
        )
        overhead(scenario)
