"""The sidebar: model, its sliders, workload, and the rest."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from calc import Architecture, ConfigError, Overhead, Range
from calc.families import as_llama, knows, override, settings
from calc.precision import CACHE_FORMATS, WEIGHT_FORMATS
from calc.text import parse_config
from presets import gpus, models
from presets.hub import HubModel, preferred
from screens.parts import formats, hub_picker
from screens.parts.scenario import DEFAULT_MODEL, Scenario
from screens.parts.settings import MULTIPLIERS, Control, Switch, controlled
from screens.parts.state import bind, change, choose, show

Section = Callable[[Scenario, ConfigError | None], None]
CONTEXTS = [2**power for power in range(7, 21)]
LOGITS = {"last": "Of the last token", "all": "Of all tokens", "all_fp32": "Of all tokens, with an fp32 copy"}
DRAFTS = {"none": "None", "mtp": "The model's own prediction layers", "eagle": "EAGLE"}
BATCHES = [2**power for power in range(11)]


def draw(scenario: Scenario, error: ConfigError | None, *sections: Section) -> None:
    """All inputs: the model and what the screen asks beside. A sentence about an impossible combination stands beside
    the control that it is about."""
    with st.sidebar:
        st.markdown("### :material/scale: Weighbridge")
        st.caption("Weigh a language model before you load it.")
        model_picker(scenario)
        if scenario.settings():
            sliders(scenario, error)
        for section in sections:
            section(scenario, error)


def model_picker(scenario: Scenario) -> None:
    presets = models()
    preset = scenario.preset()
    show("model", preset.id if preset else None)
    st.selectbox(
        "Model",
        list(presets),
        index=None,
        format_func=lambda name: presets[name].name,
        placeholder=scenario.name(),
        key="model",
        on_change=lambda: choose(st.session_state.model or DEFAULT_MODEL),
        help="Type to search.",
    )
    if preset is not None:
        st.caption(f"[{preset.id}]({preset.source})")
    elif scenario.hub is not None:
        st.caption(f"[{scenario.model}]({scenario.hub.source}), commit {scenario.hub.revision[:8]}")
        several_files(scenario, scenario.hub)
    hub_picker.draw(scenario)
    own_config()


def several_files(scenario: Scenario, model: HubModel) -> None:
    """The choice between the GGUF files of a repository without a config.json."""
    if "config.json" not in model.files and len(model.gguf_files) > 1:
        show("file", scenario.file or preferred(model.gguf_files))
        st.selectbox(
            "GGUF file",
            model.gguf_files,
            key="file",
            on_change=lambda: choose(scenario.model, scenario.revision, st.session_state.file),
        )


def own_config() -> None:
    with st.expander("Your own config.json", icon=":material/upload_file:"):
        st.text_area("Paste it", key="own_text", height=120, placeholder='{"model_type": "llama", ...}')
        st.file_uploader("or upload it", type="json", max_upload_size=1, key="own_file")
        st.button("Weigh it", key="own_weigh", on_click=_take_own)
        if (problem := st.session_state.get("own_problem")) is not None:
            st.error(problem, icon=":material/error:")
        if (unknown := st.session_state.get("own_unknown")) is not None:
            st.button(
                "Read it as a Llama-like decoder, an assumption",
                key="own_assume",
                on_click=_take_config,
                args=(as_llama(unknown),),
            )


def _take_own() -> None:
    """The uploaded file, else the pasted text, becomes the model; or its problem a sentence."""
    state = st.session_state
    try:
        _take_config(parse_config(state.own_file.getvalue().decode() if state.own_file else state.own_text))
    except UnicodeDecodeError:
        state.own_problem = "The file is not text; a config.json is JSON in UTF-8."
    except ConfigError as error:
        state.own_problem = str(error)


def _take_config(config: dict[str, Any]) -> None:
    state = st.session_state
    state.own_problem = state.own_unknown = None
    try:
        Architecture.from_config(config)
    except ConfigError as error:
        state.own_problem = str(error)
        state.own_unknown = config if isinstance(config.get("model_type"), str) and not knows(config) else None
    else:
        change(pasted=config, hub=None, unread=None, revision=None, file=None, assume=None, overrides={})


def sliders(scenario: Scenario, error: ConfigError | None) -> None:
    published = settings(scenario.base())
    try:
        now = settings(override(scenario.base(), scenario.overrides))
    except ConfigError:
        now = published | scenario.overrides
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown("**Architecture**")
        st.button(
            "Reset all",
            icon=":material/undo:",
            type="tertiary",
            key="reset_all",
            disabled=not scenario.overrides,
            on_click=lambda: change(overrides={}),
        )
    for name, control in controlled(published).items():
        setting(name, control, scenario, published, now)
        if error is not None and error.field == name:
            explain(error, lambda value, name=name: put(name, value, published[name]))


def setting(
    name: str, control: Control | Switch, scenario: Scenario, published: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """One slider, with the preset's value and a way back to it when it differs."""
    key, original, value = f"field_{name}", published[name], now[name]
    differs = name in scenario.overrides
    label = f"{control.label} :orange-badge[preset {_shown(original)}]" if differs else control.label
    with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall"):
        if isinstance(control, Switch):
            show(key, value)
            st.toggle(label, key=key, help=control.help, width="stretch", on_change=_take, args=(key, name, original))
        elif name in MULTIPLIERS:
            hidden = now[MULTIPLIERS[name]]
            show(key, round(value / hidden, 4))
            st.slider(
                f"{label}: {value:,} wide",
                min_value=min(0.125, round(value / hidden, 4)),
                max_value=max(16.0, round(value / hidden, 4)),
                step=0.125,
                format="%.4g",
                key=key,
                help=control.help,
                on_change=lambda: put(name, max(1, round(st.session_state[key] * hidden)), original),
            )
        else:
            low, high = control.span(original)
            show(key, value)
            st.slider(
                label,
                min_value=min(low, value),
                max_value=max(high, value),
                step=control.step,
                key=key,
                help=control.help,
                on_change=_take,
                args=(key, name, original),
            )
        if differs:
            st.button(
                "",
                icon=":material/undo:",
                type="tertiary",
                key=f"reset_{name}",
                help=f"Back to {_shown(original)}",
                on_click=lambda: put(name, original, original),
            )


def explain(error: ConfigError, take: Callable[[int | str], None], place: str = "near") -> None:
    """What is wrong and what would be right, to click."""
    st.error(str(error), icon=":material/error:")
    if error.nearest:
        with st.container(horizontal=True, gap="xsmall"):
            for value in error.nearest:
                st.button(
                    f"Use {value:,}" if isinstance(value, int) else f"Use {value}",
                    key=f"{place}_{value}",
                    on_click=take,
                    args=(value,),
                )


def taker(scenario: Scenario, field: str) -> Callable[[int | str], None] | None:
    """What puts a value into the field that a sentence is about; None where no control has it."""
    published = scenario.settings()
    if field in published:
        return lambda value: put(field, value, published[field])
    return (lambda value: change(**{field: value})) if field in Scenario.model_fields else None


def put(name: str, value: int | bool, original: int | bool) -> None:
    """Change one field of the config; the preset's own value is no change."""
    others = {field: kept for field, kept in st.session_state.scenario.overrides.items() if field != name}
    change(overrides=others if value == original else others | {name: value})


def _take(key: str, name: str, original: int | bool) -> None:
    put(name, st.session_state[key], original)


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
        format_func=formats.tokens,
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


def gpu_picker(_: Scenario, __: ConfigError | None) -> None:
    table = gpus()
    show("gpu", list(st.session_state.scenario.gpu))
    st.multiselect(
        "GPUs",
        list(table),
        format_func=lambda name: table[name].name,
        key="gpu",
        on_change=lambda: change(gpu=tuple(st.session_state.gpu)),
        help="Each gets a verdict.",
    )


def advanced(scenario: Scenario, error: ConfigError | None) -> None:
    touched = error is not None and error.field in ("tp", "pp", "attention_dp", "expert_ranks", "generated")
    with st.expander("Engine, layout, overhead", expanded=touched):
        show("engine", scenario.engine)
        st.segmented_control(
            "Engine",
            ["vllm", "transformers"],
            required=True,
            format_func={"vllm": "vLLM", "transformers": "transformers"}.get,
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
        (vllm if scenario.engine == "vllm" else transformers)()
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


def optional(name: str, label: str, most: int, placeholder: str, help: str | None = None) -> None:
    """A whole number that may be left to the engine."""
    st.number_input(
        label, min_value=1, max_value=most, value=None, placeholder=placeholder, help=help, **bind(name, name)
    )


def whole_number(
    name: str,
    label: str,
    error: ConfigError | None,
    most: int = 1024,
    help: str | None = None,
) -> None:
    """A field of the scenario, with what is wrong with it beside it."""
    st.number_input(label, min_value=1, max_value=most, step=1, help=help, **bind(name, name))
    if error is not None and error.field == name:
        explain(error, lambda value: change(**{name: value}))


def overhead(scenario: Scenario) -> None:
    """A slider with two ends for each item of the overhead."""
    st.markdown("**Overhead, from low to high**")
    usual = Overhead().ranges(scenario.engine, scenario.tp * scenario.pp)
    items = (
        ("cuda_context", "CUDA context (GiB)", 4.0),
        ("libraries", "Libraries, NCCL (GiB)", 6.0),
        ("cuda_graphs", "CUDA graphs (GiB)", 8.0),
        ("fragmentation", "Fragmentation (% of the rest)", 20.0),
    )
    for name, label, most in items:
        now = getattr(scenario, name) or usual[name]
        key = f"overhead_{name}"
        show(key, (now.low, now.high))
        st.slider(
            label,
            0.0,
            max(most, now.high),
            step=0.01,
            format="%.2f",
            key=key,
            on_change=_take_range,
            args=(key, name, usual[name]),
        )


def _take_range(key: str, name: str, usual: Range) -> None:
    low, high = st.session_state[key]
    chosen = Range(low=low, high=high)
    change(**{name: None if chosen == usual else chosen})


def _shown(value: int | bool) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value:,}"
