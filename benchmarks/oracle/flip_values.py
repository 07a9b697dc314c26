"""What a class's default config is cut to, and what each of its fields is changed to."""

import dataclasses
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Config = dict[str, Any]
Flip = tuple[tuple[str, ...], Any]
"""Where a field lies, section by section, and its other value."""
LAYERS = 4
DEPTHS = (
    "num_hidden_layers n_layer n_layers num_layers layers decoder_layers depth encoder_layers vision_layers".split()
)
"""Fields that count layers."""
NEAR = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "first_k_dense_replace": 1,
    "full_attention_interval": 2,
    "moe_layer_start_index": 1,
    "num_dense_layers": 1,
    "num_kv_shared_layers": 2,
    "num_mem_blocks": 1,
    "sliding_window_pattern": 2,
    "zero_expert_num": 0,
}
"""Values that let both kinds of layer occur among four."""
UNREAD = set(
    """
    architectures chunk_size_feed_forward dtype id2label is_encoder_decoder label2id model_type output_attentions
    output_hidden_states problem_type return_dict rope_parameters rope_scaling transformers_version _name_or_path
    quantization_config vocabulary_map torch_dtype use_cache per_layer_config
    talker_config token2wav_config enable_audio_output
""".split()
)
"""Fields of every class that have to do with no size, and what speaks, which is no part of the language model."""
QUIRKS: Mapping[str, Mapping[str, str]] = {
    "hy_v3": {"num_shared_experts": "0 gives a shared expert as wide as a dense layer, which no checkpoint holds"},
    "longcat_flash": {"zero_expert_num": "experts that compute nothing get a matrix, which no checkpoint holds"},
    "mpt": {"expansion_ratio": "the class takes 4 whatever it says; MosaicML's own code reads it, and so do we"},
    "nemotron_h": {"moe_shared_expert_intermediate_size": "0 gives a shared expert as wide as a dense layer"},
    "ovis2": {"tie_word_embeddings": "an untied head is sized by the wrapper's own vocab_size and hidden_size"},
    "step3p5": {"share_expert_dim": "with 0 and biases the class keeps one bias of an expert without a width"},
    "zamba": {"tie_word_embeddings": "untied, each place has a copy of the block that all places share"},
    "zamba2": {
        "hybrid_layer_ids": "follows from layers_block_type; where they contradict each other, adapters follow this",
        "tie_word_embeddings": "untied, each place has a copy of the blocks that places share",
    },
}
"""Fields whose count in a class we do not follow, each with its reason."""
ACTIVATIONS = ("silu", "gelu", "relu", "xielu")
WORDS: Mapping[str, tuple[Any, ...]] = {
    "alpha_type": ("vector",),
    "topk_method": ("noaux_tc", "group_limited_greedy"),
    "weight_mode": ("fused",),
    "norm_type": ("layernorm", "rms_norm", "layer_norm"),
    "qk_norm_type": ("olmo",),
    "scoring_func": ("softmax", "sigmoid"),
    "use_bidirectional_attention": ("all", "vision", True, None),
    "patching_mode": ("space",),
    "output_gate_type": ("sigmoid", "swish", "headwise", "elementwise"),
    "position_embedding_type": ("rope", "nope", "absolute", "relative_key"),
    "gating": ("per-head", "per-channel", "per-element", True, False),
    "vision_feature_select_strategy": ("full", "default"),
    "spatial_pool_mode": ("max", "conv"),
    "downsample_mode": ("4x", "16x"),
    "mamba_dt_rank": (5, "auto"),
    "time_step_rank": (5, "auto"),
}
"""Other words of fields that hold one."""
KINDS = (
    {"full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv", "mamba"},
    {"dense", "sparse"},
    {"mamba", "hybrid", "attention", "moe", "mlp", "linear_attention"},
    {"recurrent", "attention"},
)
"""Words that stand in the same lists, one for each layer."""


def cut(fields: Mapping[str, Any], *, mixed: bool = True) -> Config:
    """What a default config must state to have four layers; `mixed`: of every kind that the default has."""
    depth = next((name for name in DEPTHS if isinstance(fields.get(name), int)), None)
    before = fields[depth] if depth else 0
    short: Config = {"model_type": fields["model_type"]} if "model_type" in fields else {}
    if depth and before > LAYERS:
        short[depth] = LAYERS
    for name, value in fields.items():
        if isinstance(value, dict) and name not in UNREAD:
            inner = cut(value, mixed=mixed)
            if inner:
                short[name] = inner
        elif isinstance(value, list) and before > LAYERS and len(value) == before:
            kinds = list(dict.fromkeys(value)) if mixed and all(isinstance(word, str) for word in value) else []
            short[name] = (kinds + value)[:LAYERS]
        elif name in NEAR and type(value) is type(NEAR[name]) and value >= NEAR[name]:
            short[name] = NEAR[name]
    return short


def merged(fields: Mapping[str, Any], over: Mapping[str, Any]) -> Config:
    """The one config over the other, section by section."""
    found = {**fields, **over}
    for name in fields.keys() & over.keys():
        if isinstance(fields[name], dict) and isinstance(over[name], dict):
            found[name] = merged(fields[name], over[name])
    return found


def changed(config: Config, flips: Iterator[Flip] | list[Flip]) -> Config:
    """A config with some fields changed; lists with a word for each layer follow the number of layers."""
    found = deepcopy(config)
    for path, value in flips:
        section = found
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
        if path[-1] in DEPTHS and isinstance(value, int):
            for name, words in section.items():
                if isinstance(words, list) and len(words) == LAYERS:
                    section[name] = (words * (1 + value // LAYERS))[:value]
    return found


def annotations(model_type: object) -> dict[str, str]:
    """What each field of a class may be, in words."""
    if model_type not in CONFIG_MAPPING:
        return {}
    return {field.name: str(field.type) for field in dataclasses.fields(CONFIG_MAPPING[str(model_type)])}


def flips_of(fields: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[Flip]:
    """Every field of a config with each other value that is tried alone."""
    hints = annotations(fields.get("model_type"))
    for name, value in fields.items():
        if name in UNREAD:
            continue
        if isinstance(value, dict):
            yield from flips_of(value, (*at, name))
        else:
            for other in others(name, value, hints.get(name, "")):
                yield (*at, name), other


def others(name: str, value: Any, hint: str) -> Iterator[Any]:
    """Other values of a field."""
    if name.endswith(("_token_id", "_token_index", "_token_ids")):
        yield from [7] if isinstance(value, int) else []
    elif name in WORDS:
        yield from (word for word in WORDS[name] if word != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from sorted({2 * value or 1, value // 2, 0} - {value})
        if "None" in hint or not hint:
            yield None
    elif isinstance(value, float):
        yield 2 * value or 0.5
    elif isinstance(value, str):
        yield from (word for word in ACTIVATIONS if "act" in name or name == "afn" if word != value)
    elif isinstance(value, list):
        yield from other_lists(value)
    elif value is None:
        yield from of_null(name, hint)


def of_null(name: str, hint: str) -> Iterator[Any]:
    """What may stand in the place of a null."""
    if "bool" in hint:
        yield True
    if "int" in hint:
        yield from (2, 64)
    elif "float" in hint:
        yield 2.0
    if "list[int]" in hint:
        yield from ([], [1], [0, 2])
    if not hint:
        yield from (True, 2, 64)


def other_lists(value: list[Any]) -> Iterator[list[Any] | None]:
    """The list with one item changed, and without it."""
    yield None
    yield []
    if value and all(type(item) is int for item in value):
        yield [2 * value[0] or 1, *value[1:]]
        yield value[:-1]
        yield value[1:]
        yield [value[-1]] * len(value)
        if set(value) <= {0, 1}:
            yield [1 - item for item in value]
    elif value and all(isinstance(item, str) for item in value):
        known = set().union(*(kinds for kinds in KINDS if set(value) <= kinds)) | set(value)
        for word in sorted(known):
            yield from ([word, *value[1:]], [*value[:-1], word], [word] * len(value))
    elif value and all(isinstance(item, bool) for item in value):
        yield [not item for item in value]
        yield [not value[0], *value[1:]]
