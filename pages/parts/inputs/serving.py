"""The controls of serving: workload, engine, layout."""

import streamlit as st

from calc import Architecture, ConfigError
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.serving.engines import ENGINES
from pages.parts import words
from pages.parts.inputs.controls import optional, overhead, whole_number
from pages.parts.state.scenario import Scenario
from pages.parts.state.url import bind, change, show

CONTEXTS = [2**power for power in range(7, 21)]
BATCHES = [2**power for power in range(11)]
LOGITS = {"last": "Of the last token", "all": "Of all tokens", "all_fp32": "Of all tokens, with an fp32 copy"}
DRAFTS = {"none": "None", "mtp": "The model's own prediction layers", "eagle": "EAGLE"}


def workload(scenario: Scenario, _: ConfigError | None) -> None:
    st.markdown("**Workload**")
    st.select_slider(
        "Concurrent sequences (batch)",
        sorted({*BATCHES, scenario.batch}),
        help="Requests that are answered at the same time; each has its own KV cache.",
        **bind("batch", "batch"),
    )
    st.select_slider(
        "Context (tokens of each)",
        sorted({*CONTEXTS, scenario.context}),
        format_func=words.tokens,
        help="Prompt and answer together.",
        **bind("context", "context"),
    )
    native = scenario.native()
    show("weights", scenario.weights or native)
    st.selectbox(
        "Weight format",
        WEIGHT_FORMATS,
        format_func=lambda name: f"{name} (default)" if name == native else name,
        key="weights",
        on_change=lambda: change(weights=None if st.session_state.weights == native else st.session_state.weights),
        help="Quantised formats hold the large matrices; embeddings, head, norms and router stay in 16 bits.",
    )
    st.selectbox("KV cache format", CACHE_FORMATS, **bind("kv", "kv"))


def advanced(scenario: Scenario, error: ConfigError | None) -> None:
    touched = error is not None and error.field in ("tp", "pp", "attention_dp", "expert_ranks", "generated")
    with st.expander("Engine, layout, overhead", expanded=touched):
        show("engine", scenario.engine)
        st.segmented_control(
            "Engine",
            list(ENGINES),
            required=True,
            format_func=lambda name: ENGINES[name].title,
            help="vLLM cuts long prompts into chunks and keeps CUDA graphs; transformers does neither.",
            key="engine",
            on_change=_take_engine,
        )
        st.segmented_control(
            "Attention",
            ["flash", "eager"],
            required=True,
            help="Eager attention writes the whole matrix of scores to memory.",
            **bind("attention", "attention"),
        )
        optional("prefill", "Prompt tokens in one pass", 2**30, "as the engine does")
        {"vllm": vllm, "transformers": transformers}.get(scenario.engine, lambda: None)()
        if has_tower(scenario):
            st.toggle(
                "Leave the image tower out",
                help="For text alone; vLLM's `--language-model-only`.",
                **bind("language_model_only", "language_model_only"),
            )
        layout(error)
        overhead(scenario)


def has_tower(scenario: Scenario) -> bool:
    try:
        return Architecture.from_config(scenario.base()).vision is not None
    except ConfigError:
        return False


def vllm() -> None:
    """What one tells vLLM when one starts it."""
    st.number_input(
        "Share of the GPU that vLLM takes",
        min_value=0.01,
        max_value=1.0,
        step=0.01,
        value=None,
        placeholder="its default",
        help="`--gpu-memory-utilization`. What weights and the profile run leave of it becomes KV cache.",
        **bind("gpu_memory_utilization", "gpu_memory_utilization"),
    )
    optional("max_num_seqs", "Most sequences at once", 2**24, "its default", "`--max-num-seqs`: the sampler's memory.")
    st.selectbox(
        "Speculative decoding",
        list(DRAFTS),
        format_func=DRAFTS.get,
        help="A draft layer is loaded beside, with a cache of its own.",
        **bind("speculative", "speculative"),
    )


def transformers() -> None:
    """What one's own script decides."""
    st.selectbox(
        "Logits of a prompt",
        list(LOGITS),
        format_func=LOGITS.get,
        help="Rows of the vocabulary's width that the pass over the prompt makes.",
        **bind("logits", "logits"),
    )
    st.number_input(
        "Of the context, tokens generated",
        min_value=0,
        max_value=2**30,
        step=1,
        help="They come one by one, after a prompt of the rest.",
        **bind("generated", "generated"),
    )


def _take_engine() -> None:
    """Each engine has options of its own, which mean nothing to the other."""
    usual = Scenario()
    own = {name: getattr(usual, name) for name in ("logits", "gpu_memory_utilization", "max_num_seqs", "speculative")}
    change(engine=st.session_state.engine, **own)


SERVING = {"dp": "attention_dp", "ep": "expert_ranks"}
"""Fields of the layout, of which training has its own -> what the scenario calls them in serving."""


def layout(error: ConfigError | None) -> None:
    """How the model is spread."""
    whole_number("tp", "Tensor parallel (tp)", error)
    whole_number("pp", "Pipeline stages (pp)", error)
    whole_number("attention_dp", "Data-parallel attention (dp)", error, help="Copies of all but the routed experts.")
    whole_number("expert_ranks", "Expert parallel (ep)", error, 4096, "Ranks over which whole experts are spread.")
