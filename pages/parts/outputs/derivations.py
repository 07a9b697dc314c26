"""The working behind each number: formula, the same with the values filled in, result."""

from collections.abc import Iterable

import streamlit as st

from calc import Architecture, Report
from calc.model.derivation import Step, derive
from calc.model.rough import rough_total
from calc.serving.derivation import Derivations, cache_steps
from calc.serving.memory import Serving
from pages.parts import words
from pages.parts.outputs.charts import LABELS
from pages.parts.state.scenario import Scenario, usual_gpus
from presets import gpus

TITLES = LABELS | {
    "overhead_low": "Overhead, least",
    "overhead_high": "Overhead, most",
    "cuda_context": "CUDA context",
    "libraries": "Libraries",
    "cuda_graphs": "CUDA graphs",
    "fragmentation": "Fragmentation",
    "loading": "Tables, padding, rounding",
}


class Working:
    """The derivation of one report, ready to be shown part by part."""

    def __init__(self, architecture: Architecture, report: Report, scenario: Scenario) -> None:
        self.architecture, self.report = architecture, report
        self.derivation = derive(architecture)
        asked = report.scenario
        engine, gpu = scenario.serving_engine(), gpus()[(scenario.gpu or usual_gpus())[0]]
        serving = Serving(architecture, engine, asked.precision, asked.layout, asked.overhead)
        self.served = Derivations(serving.on(gpu, asked.workload))

    def parameters(self) -> None:
        table(self.derivation.parameters, "Parameters")
        total, rough = self.report.parameters.total, rough_total(self.architecture)
        st.markdown(f"Sum: **{total:,}**")
        if rough is not None:
            st.caption(
                f"The usual rough formula `2·V·h + L·(4·h² + 3·f·h)` gives {rough:,}, {rough / total - 1:+.1%}: it "
                "gives every head keys and values of its own, counts a tied head twice, and omits norms and biases."
            )
        self.legend()

    def active(self) -> None:
        parameters = self.report.parameters
        table(self.derivation.active, "Parameters")
        st.markdown(f"Sum: **{parameters.active:,}**, all that one token passes through.")
        self.legend()

    def weights(self) -> None:
        table(self.served.weights(), "Bytes")
        loaded = {name: size for name, size in self.report.loaded if size}
        st.markdown(
            f"**{self.report.memory.weights:,} bytes** on "
            + ("the GPU." if self.report.scenario.layout.gpus == 1 else "the fullest GPU, which holds its share.")
        )
        parts = ", ".join(f"{name} {words.size(size)}" for name, size in loaded.items())
        st.caption(f"Once loaded: {words.size(self.report.loaded.total)}, made of {parts}.")

    def cache_per_token(self) -> None:
        cache = self.report.kv_cache
        table(cache_steps(self.architecture, self.report.scenario.precision.kv), "Bytes a token")
        st.markdown(
            f"The layers that keep the whole context: **{cache.bytes_per_token:,} bytes** a token. Layers with a "
            f"window stop growing; they hold {cache.window_bytes:,} bytes a sequence here. States of recurrent layers: "
            f"{cache.state_bytes:,} bytes."
        )
        self.legend()

    def cache(self) -> None:
        cache, workload = self.report.kv_cache, self.report.scenario.workload
        st.markdown(
            f"`batch · (context · bytes a token + windows + states)`  \n"
            f"`{workload.batch:,} · ({workload.context:,} · {cache.bytes_per_token:,} + {cache.window_bytes:,} + "
            f"{cache.state_bytes:,})`  \n= **{cache.total:,} bytes**"
        )

    def memory(self) -> None:
        memory, items = self.report.memory, self.report.overhead_items
        table(self.served.activations(), "Bytes")
        table(self.served.total(), "Bytes")
        table(self.served.overhead(), "Bytes")
        st.markdown(f"Sum: **{memory.total:,} bytes**, {words.gib(memory.low)} to {words.gib(memory.high)}.")
        rows = [f"| {TITLES[name]} | {words.gib(low)} | {words.gib(high)} |" for name, (low, high) in items.items()]
        st.markdown("\n".join(["| Overhead | from | to |", "| --- | ---: | ---: |", *rows]))

    def tensors(self) -> None:
        """Every weight: name, shape, formula, where it occurs."""
        rows = [
            {
                "Tensor": tensor.name,
                "Shape": " × ".join(f"{side:,}" for side in tensor.shape),
                "Formula": step.formula,
                "With values": step.values,
                "Occurs": tensor.count,
                "Parameters": tensor.parameters,
                "Share": tensor.parameters / self.report.parameters.total,
                "Part": LABELS.get(tensor.component, tensor.component),
                "Listed apart": (tensor.apart or "").replace("_", " "),
            }
            for tensor, step in zip(self.architecture.tensors(), self.derivation.tensors, strict=True)
        ]
        st.dataframe(
            rows,
            hide_index=True,
            key="tensors",
            column_config={
                "Occurs": st.column_config.NumberColumn(format="localized"),
                "Parameters": st.column_config.NumberColumn(format="localized"),
                "Share": st.column_config.NumberColumn(format="percent"),
            },
        )
        self.legend()

    def legend(self) -> None:
        st.caption("; ".join(f"`{s}` {meaning} = {value:,}" for s, (meaning, value) in self.derivation.legend.items()))


def table(steps: Iterable[Step], result: str) -> None:
    """The result before its formula, so that a telephone shows it."""
    rows = [
        f"| {TITLES.get(step.what, step.what)} | {step.result:,} | `{step.formula}` | `{step.values}` |"
        for step in steps
    ]
    st.markdown("\n".join([f"| Part | {result} | Formula | With values |", "| --- | ---: | --- | --- |", *rows]))
