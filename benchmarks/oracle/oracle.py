"""python -m benchmarks.oracle [MODEL ...]: our tensors beside those of the classes in Hugging Face transformers.

Each class is built on the meta device and its weights are named as it would save them, so both lists are in the
checkpoint's own words and are compared by name and shape. MODEL is a preset id or the path of a config.json; without
any, all presets. --defaults compares what each class makes of a config that says nothing but its model_type, and
--random N compares N small models of each family with every flag drawn at random; --missing lists the classes that we
do not know. Exits with 1 on any difference.

Needs transformers 5.23 and torch beside this project's own requirements.
"""

import argparse
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    Gemma4TextConfig,
    Gemma4UnifiedTextConfig,
    logging,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calc import Architecture, ConfigError
from calc.families.family_table import FAMILIES, WRAPPED
from presets import models

Shapes = dict[str, tuple[int, ...]]
CLASSES = (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM)
"""Where to look for a class, in this order; the first only for what wraps nothing."""
PREFIXES = {
    "model.language_model.": "model.",
    "model.text_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "vision_tower.": "vision_tower.vision_model.",
}
"""How a class saves what it wraps -> how the language model alone names it, and published checkpoints the tower."""
NAMING = {"minimax_m3_vl", "gemma3", "gemma4", "llama4", "qwen3_5", "qwen3_5_moe"}
"""Those whose language model has a class of its own, which names the published checkpoint otherwise."""
PUBLISHED = {
    "deepseek_v4": {
        r"^model\.embed_tokens": "embed",
        r"^model\.hc_head\.hc": "hc_head",
        r"^model\.(layers|norm)\.": r"\1.",
        r"\.attn\.norm\.": ".attn.kv_norm.",
    },
    "kimi_k25": {r"^model\.blocks\.": "model.layers."},
    "kimi_linear": {r"block_sparse_moe\.(gate|up|down)_proj": r"mlp.\1_proj"},
}
"""Names that a class reads from the published checkpoint and would save otherwise."""
TEXT = ("language_model.", "text_model.", "lm_head.", "self_conditioning.", "model.decoder.layers.")
"""Within which modules a class that wraps a language model keeps it."""
BESIDE: dict[str, str | tuple[str, ...]] = {
    "phi4_multimodal": "model.embed_tokens_extend.",
    "chameleon": "model.vqmodel.",
    "idefics": ("model.vision_model.", "model.perceiver_resampler."),
}
"""Towers of those that wrap nothing."""
TRANSPOSED = {"qwen3_vl_moe"}
"""Those whose experts lie as [expert, in, out] in the published checkpoint, and are turned as they are read."""


def theirs(config: dict[str, Any], *, tower: bool) -> tuple[Shapes, int]:
    """Every tensor that the class would save, a tied one once, and the class's own count of its parameters; with the
    vision encoder or without."""
    settings, wrapped = AutoConfig.for_model(**config), config["model_type"] in WRAPPED
    maker = next((auto for auto in CLASSES[wrapped:] if type(settings) in auto._model_mapping), AutoModelForCausalLM)
    with torch.device("meta"):
        model = maker.from_config(settings)

    def kept(name: str) -> bool:
        beside = BESIDE.get(config["model_type"])
        inside = any(part in name for part in TEXT) if wrapped else beside is None or not name.startswith(beside)
        return tower or inside

    once = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    own = {name: t for name, t in model.state_dict().items() if name not in again and kept(name)}
    saved = revert_weight_conversion(model, own)
    shapes = {plain(name, config["model_type"]): tuple(t.shape) for name, t in saved.items()}
    if config["model_type"] in TRANSPOSED:
        shapes |= {name: (shape[0], *shape[:0:-1]) for name, shape in shapes.items() if ".mlp.experts." in name}
    return shapes, sum(p.numel() for name, p in model.named_parameters() if kept(name))


def of_assistants(theirs: property) -> property:
    """How the layers of a Gemma 4 share caches, where all of them read another model's: the class's own check asks for
    a layer that stores one, which no assistant has, so that it can't be built without this."""

    def modes(config: Any) -> list[str | None]:
        layers: int = config.num_hidden_layers
        found: list[str | None] = (
            ["reuse"] * layers if config.num_kv_shared_layers == layers else theirs.__get__(config)
        )
        return found

    return property(modes)


for text_config in (Gemma4TextConfig, Gemma4UnifiedTextConfig):
    text_config.kv_sharing_modes = of_assistants(text_config.kv_sharing_modes)


def plain(name: str, model_type: str) -> str:
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    name = PREFIXES.get(prefix, "") + name.removeprefix(prefix)
    for pattern, published in PUBLISHED.get(model_type, {}).items():
        name = re.sub(pattern, published, name)
    return name


def ours(architecture: Architecture) -> tuple[Shapes, int]:
    """The same from our list, without multi-token prediction, which the classes leave out."""
    kept = [t for t in architecture.tensors() if t.apart != "multi_token_prediction"]
    total = sum(t.parameters for t in kept if t.apart != "persistent_buffers")
    return {name: t.shape for t in kept for name in t.names()}, total


def differences(a: Shapes, b: Shapes) -> list[str]:
    """What is in one list only, and what has another shape, with layers of one kind together."""
    lines = [f"missing    {name} {b[name]}" for name in b if name not in a]
    lines += [f"extra      {name} {a[name]}" for name in a if name not in b]
    lines += [f"shape      {name} {a[name]}, theirs {b[name]}" for name in a if name in b and a[name] != b[name]]
    return lines


def of_one_kind(lines: list[str]) -> Iterator[str]:
    """Lines that differ only in the numbers of their layer and expert, as one."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(re.sub(r"\.\d+\.", ".#.", line), []).append(line)
    for first, *more in kinds.values():
        yield f"{first}{f'   and {len(more):,} like it' if more else ''}"


def compare(name: str, config: dict[str, Any], *, quiet: bool = False) -> bool:
    """One row of the table, and the differences below it. True where there are none."""
    try:
        architecture = Architecture.from_config(config)
    except ConfigError as error:
        theirs(config, tower=False)  # where the class refuses too, this raises
        print(f"{name:46} refused: {error}")
        return False
    b, total = theirs(config, tower=architecture.vision is not None)
    a, own_total = ours(architecture)
    lines = differences(a, b)
    count = Counter(line.split()[0] for line in lines)
    equal = not lines and own_total == total
    mark = "" if equal else "  NAMES" if own_total == total else "  TOTAL"
    if not (equal and quiet):
        numbers = f"{len(b):>8,} {count['missing']:>8} {count['extra']:>6} {count['shape']:>6}"
        print(f"{name:46} {numbers} {own_total:>18,} {total:>18,}{mark}")
        for line in list(of_one_kind(lines))[:12]:
            print(f"    {line}")
    return equal


# Random configs

FLAGS = """
    tie_word_embeddings attention_bias mlp_bias use_bias bias qkv_bias use_qkv_bias use_qk_norm qk_layernorm
    lm_head_bias
    use_parallel_residual parallel_attn new_decoder_architecture multi_query use_sliding_window use_conv_bias
    mamba_conv_bias mamba_proj_bias mamba_rms_norm projectors_bias conv_bias use_expert_bias block_auto_adjust_ff_dim
    do_layer_norm_before enable_bias add_bias_linear use_shared_attention_adapter attention_k_eq_v enable_moe_block
    use_double_wide_mlp use_bidirectional_attention is_moe qk_layer_norms
""".split()
SIZES: dict[str, list[Any]] = {
    "hidden_size": [64, 128],
    "n_embd": [64, 128],
    "d_model": [64, 128],
    "intermediate_size": [96, 112],
    "intermediate_size_mlp": [80],
    "dense_intermediate_size": [80],
    "ffn_dim": [96, 112],
    "n_inner": [None, 100],
    "num_hidden_layers": [2, 3, 4, 6],
    "n_layer": [2, 3],
    "n_layers": [2, 3],
    "num_attention_heads": [4, 8],
    "num_heads": [4, 8],
    "n_head": [4, 8],
    "n_heads": [4, 8],
    "num_key_value_heads": [1, 2, 4],
    "head_dim": [8, 16, 24],
    "vocab_size": [300, 333],
    "vocab_size_per_layer_input": [200],
    "hidden_size_per_layer_input": [16],
    "max_position_embeddings": [128],
    "n_positions": [128],
    "max_seq_len": [128],
    "word_embed_proj_dim": [48, 64],
    "sliding_window": [32, 64],
    "max_window_layers": [0, 1, 2],
    "no_rope_layer_interval": [2, 4],
    "full_attention_interval": [2, 4],
    "q_lora_rank": [None, 24],
    "kv_lora_rank": [32],
    "o_lora_rank": [16],
    "o_groups": [2],
    "qk_nope_head_dim": [16],
    "qk_rope_head_dim": [8],
    "v_head_dim": [12, 16],
    "index_n_heads": [2],
    "index_head_dim": [16],
    "n_routed_experts": [4, 8],
    "num_experts": [4, 8],
    "num_local_experts": [4, 8],
    "moe_num_experts": [4, 8],
    "num_experts_per_tok": [1, 2],
    "num_experts_per_token": [1, 2],
    "top_k_experts": [1, 2],
    "moe_k": [1, 2],
    "moe_topk": [1, 2],
    "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2],
    "moe_num_shared_experts": [1, 2],
    "shared_expert_intermediate_size": [40, 64],
    "shared_intermediate_size": [40, 64],
    "moe_shared_expert_intermediate_size": [40],
    "moe_intermediate_size": [48, 56],
    "moe_latent_size": [None, 32],
    "first_k_dense_replace": [0, 1, 2],
    "num_dense_layers": [0, 1],
    "mlp_only_layers": [[], [0], [1]],
    "decoder_sparse_step": [1, 2],
    "interleave_moe_layer_step": [1, 2],
    "n_group": [1],
    "topk_group": [1],
    "num_expert_group": [1],
    "linear_num_key_heads": [2],
    "linear_num_value_heads": [2, 4],
    "linear_key_head_dim": [8, 16],
    "linear_value_head_dim": [8, 16],
    "linear_conv_kernel_dim": [3, 4],
    "linear_head_dim": [16],
    "linear_num_heads": [4],
    "attn_layer_period": [2, 3],
    "attn_layer_offset": [0, 1],
    "expert_layer_period": [2],
    "expert_layer_offset": [0, 1],
    "mamba_d_state": [8, 16],
    "mamba_d_conv": [3, 4],
    "mamba_n_groups": [1, 2],
    "mamba_dt_rank": [5, "auto"],
    "state_size": [8, 16],
    "ssm_state_size": [8, 16],
    "conv_kernel": [3, 4],
    "n_groups": [1, 2],
    "time_step_rank": [5, "auto"],
    "mamba_num_heads": [4],
    "mamba_head_dim": [8, 16],
    "lru_width": [64],
    "conv1d_width": [3, 4],
    "conv_L_cache": [3, 4],
    "laurel_rank": [8],
    "num_mem_blocks": [1, 2],
    "adapter_rank": [8],
}
OPTIONAL = {*FLAGS, "mlp_only_layers", "head_dim", "mamba_dt_rank", "time_step_rank", "conv_kernel"}
WORDS = {"layer_types", "mlp_layer_types"}
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "hidden_size": 64, "mamba_expand": 2}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
FIXED: dict[str, dict[str, Any]] = {
    "bamba": MAMBA_2,
    "chameleon": {"vocabulary_map": {}, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 80, "moe_num_experts": 8, "moe_top_k": 2},
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse", "sparse"], "num_hidden_layers": 3},
    "ernie4_5_vl_moe_text": {"hidden_size": 512, "num_attention_heads": 4, "moe_intermediate_size": [48, 32]},
    "falcon_h1": {**MAMBA_2, "mamba_d_ssm": 128},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "intermediate_size": 96}
    | {"layer_types": ["sliding_attention", "full_attention"] * 2, "activation_sparsity_pattern": [0.0] * 4},
    "gemma4_text": {"use_bidirectional_attention": None},
    "granite_docling_text": {"hidden_size": 64},
    "granitemoehybrid": MAMBA_2,
    "helium": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16},
    "hunyuan_vl_text": {"head_dim": 24},
    "idefics": {"additional_vocab_size": 2, "cross_layer_interval": 2, "vision_config": {"embed_dim": 48}},
    "kosmos_2_text_model": {"embed_dim": 64, "attention_heads": 4, "layers": 3},
    "kosmos_2_5_text_model": {"embed_dim": 64, "attention_heads": 4, "layers": 3},
    "inkling_text": {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 16}
    | {"sliding_window_size": 40, "rel_extent": 96},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]},
    "longcat_flash": {"q_lora_rank": 24, "num_layers": 3, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 40}
    | {"zero_expert_num": 0},  # the class gives such experts a first matrix, the checkpoint nothing
    "qwen4_exp_text": {"indexer_n_heads": 3, "indexer_kv_heads": 1, "indexer_head_dim": 24, "indexer_budget": 32}
    | {"indexer_compress_ratio": 8, "hc_count": 3, "hc_lowrank": 20, "num_hidden_layers": 5, "eos_token_id": 3}
    | {"ple_layer_ids": [1, 2, 5], "ngram_vocab_size_base": 400, "heads_per_ngram": 2, "split_ngram_parts": 4}
    | {"layer_types": ["linear_attention"] * 2 + ["full_attention"] * 2 + ["linear_attention"], "hidden_size": 64}
    | {"rope_parameters": ROPE},
    "mistral_large4_text": {"num_hidden_layers": 4, "kv_source_layers": [0, 1, 0, 3], "num_key_value_heads": 4}
    | {"num_attention_heads": 4, "layer_types": None, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]}
    | {"indexer_types": ["full", "shared", "full", "shared"]},
    "glm5_next_text": {"q_lora_rank": 24, "qk_rope_head_dim": 0, "num_attention_heads": 4, "num_key_value_heads": 4}
    | {"index_kpool": 4},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 40}
    | {"tie_word_embeddings": True},  # else the class keeps two stacks
    "hrm_text": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "mlp_bias": False}
    | {"attention_bias": False},  # the class packs matrices as it saves them, and leaves their biases apart
    "zaya": {"num_experts_per_tok": 1, "sliding_window": 32},
    "blt": {"encoder_hash_byte_group_vocab": 100, "cross_attn_k": 2, "tie_word_embeddings": False},
    "dots3_note_text": {"q_lora_rank": 24, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 24}
    | {"swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "swa_v_head_dim": 20},
    "mamba2": {"hidden_size": 64, "expand": 2, "num_heads": 8, "head_dim": 16},
    "mimo_v2_flash": {"num_key_value_heads": 2, "swa_num_key_value_heads": 4},
    "muse_spark_text": {"hidden_size": 64, "moe_hidden_size": 32},
    "nemotron_h": {"hidden_size": 64},
    "opt": {"hidden_size": 64},
    "zamba": {
        "tie_word_embeddings": True,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "attention_head_dim": 16,
    }
    | {"attention_hidden_size": 128, "num_hidden_layers": 6},
    "zamba2": {
        "tie_word_embeddings": True,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "n_mamba_heads": 8,
    }
    | {"mamba_ngroups": 1, "num_hidden_layers": 5}
    | {"layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"]},
}


OUTER: dict[str, dict[str, Any]] = {
    "emu3": {"vocabulary_map": {"<image>": 1}},
    "granite_docling": {"vision_config": {"out_hidden_size": 64}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "4/8"},
    "muse_spark": {"audio_config": {"out_hidden_size": 64}},
}
"""What a wrapper needs beside its language model."""


ASSISTANTS = {"gemma4_assistant": "gemma4_text", "gemma4_unified_assistant": "gemma4_unified_text"}
"""Those whose class takes no empty config, and what their text_config is."""
WITHOUT_CACHE: dict[str, Any] = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
WITHOUT_CACHE |= {"enable_moe_block": False, "use_double_wide_mlp": False, "num_hidden_layers": 4}
WITHOUT_CACHE |= {"num_kv_shared_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
BLT_SECTIONS = {"global_config", "encoder_config", "decoder_config", "patcher_config"}


def random_config(model_type: str, chance: random.Random) -> dict[str, Any]:
    """A small config of a family, with each field that its class has drawn or left out."""
    if model_type in ASSISTANTS:
        text = random_config(ASSISTANTS[model_type], chance) | WITHOUT_CACHE
        flags = {"use_ordered_embeddings": chance.random() < 0.5, "num_centroids": 20, "backbone_hidden_size": 96}
        tied = {} if chance.random() < 0.5 else {"tie_word_embeddings": chance.random() < 0.5}
        return {"model_type": model_type, "text_config": text, **flags, **tied}
    fields = AutoConfig.for_model(model_type).to_dict()
    config: dict[str, Any] = {"model_type": model_type}
    for name in sorted(BLT_SECTIONS & set(fields)):
        heads = {"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": chance.choice([2, 4])}
        widths = [None, 96] if name == "encoder_config" else [80, 96]
        sizes = {"num_hidden_layers": chance.choice([1, 3]), "intermediate_size": chance.choice(widths)}
        every = {"cross_attn_all_layers": chance.random() < 0.5} if name in ("encoder_config", "decoder_config") else {}
        config[name] = heads | sizes | every | ({"hidden_size_global": 64} if name == "decoder_config" else {})
    for name, values in (SIZES | {flag: [True, False] for flag in FLAGS}).items():
        if name in fields and not (name in OPTIONAL and chance.random() < 0.4):
            config[name] = chance.choice(values)
    if "pad_token_id" in fields:
        config["pad_token_id"] = 0  # inside the small vocabulary
    layers = next((config[name] for name in ("num_hidden_layers", "n_layer") if name in config), 0)
    for name in sorted(WORDS & set(fields)):
        words = sorted(set(fields[name] or ()))
        if words and chance.random() < 0.6:
            config[name] = [chance.choice(words) for _ in range(layers)]
    return config | FIXED.get(model_type, {})


def alone(config: dict[str, Any]) -> dict[str, Any]:
    """A language model that transformers only loads inside its wrapper, in that wrapper."""
    text = config["model_type"]
    wrappers = [name for name in WRAPPED if WRAPPED[name] == text]
    wrapper = next((name for name in wrappers if text.startswith(name)), wrappers[0] if wrappers else None)
    if wrapper is None or (CONFIG_MAPPING[text] in AutoModelForCausalLM._model_mapping and wrapper not in NAMING):
        return config
    tied = {name: config[name] for name in ("tie_word_embeddings",) if name in config}
    return {"model_type": wrapper, "text_config": config, **tied, **OUTER.get(wrapper, {})}


def has_class(model_type: str) -> bool:
    return model_type in CONFIG_MAPPING


def compare_random(model_type: str, n: int, seed: int) -> bool:
    chance = random.Random(f"{model_type} {seed}")
    compared, right = 0, True
    for i in range(n):
        config = alone(random_config(model_type, chance))
        try:
            equal = compare(f"{model_type} {i}", config, quiet=True)
        except Exception as error:  # the class itself refuses this draw, with whatever it raises
            last = f"{type(error).__name__}: {str(error)[:90]}"
            continue
        compared += 1
        right &= equal
        if not equal:
            print(f"    {json.dumps(config)}")
    print(f"{model_type:46} {compared} of {n} drawn configs build{'' if compared else f': {last}'}", flush=True)
    return right and compared > 0


# What transformers has and we have not

ENCODER = "an encoder that its class can be told to run as a decoder"
HALF = "the decoder half of an encoder-decoder"
BOTH = "an encoder-decoder"
NO_DECODER = {
    "bert": ENCODER,
    "bert-generation": ENCODER,
    "big_bird": ENCODER,
    "camembert": ENCODER,
    "data2vec-text": ENCODER,
    "electra": ENCODER,
    "ernie": ENCODER,
    "megatron-bert": ENCODER,
    "rembert": ENCODER,
    "roberta": ENCODER,
    "roberta-prelayernorm": ENCODER,
    "roc_bert": ENCODER,
    "roformer": ENCODER,
    "xlm-roberta": ENCODER,
    "xlm-roberta-xl": ENCODER,
    "xmod": ENCODER,
    "reformer": "an encoder for long texts, reversible and hashed; no language model was published for prompts",
    "xlm": "an encoder of sentences in many languages",
    "xlnet": "learns permutations of a text; reads both ways",
    "bart": HALF,
    "bigbird_pegasus": HALF,
    "blenderbot": HALF,
    "blenderbot-small": HALF,
    "marian": HALF,
    "mbart": HALF,
    "mvp": HALF,
    "pegasus": HALF,
    "plbart": HALF,
    "prophetnet": HALF,
    "trocr": HALF,
    "whisper": HALF,
    "blip": BOTH,
    "florence2": BOTH,
    "pix2struct": BOTH,
    "pp_formulanet": BOTH,
    "t5gemma2": BOTH,
    "udop": BOTH,
    "vision-encoder-decoder": BOTH,
    "moshi": "speaks: frames of sound in several codebooks, not text",
    "musicgen": "makes music: codebooks of sound that text steers from an encoder",
    "musicgen_melody": "makes music: codebooks of sound that text steers from an encoder",
    "kyutai_speech_to_text": "hears: frames of sound in several codebooks that go in with each word",
    "pi0": "a policy of a robot: its expert for actions reads a PaliGemma",
    "evolla": "answers about proteins: a Llama with an encoder of their structure between its layers",
    "git": "captions: a BERT that reads images",
}
"""model_types of causal and multimodal classes that are no decoder language model, each with its reason."""


def missing() -> list[str]:
    """model_types of causal, image-text and multimodal classes that neither table knows."""
    classes = {model_type for auto in CLASSES for model_type in auto._model_mapping._model_mapping}
    return sorted(classes - set(FAMILIES) - set(WRAPPED) - set(NO_DECODER))


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Our tensors beside those of the classes in transformers.")
    p.add_argument("models", nargs="*", metavar="MODEL", help="a preset id or the path of a config.json")
    p.add_argument("--defaults", action="store_true", help="compare what each class makes of an empty config")
    p.add_argument("--random", type=int, metavar="N", help="compare N random small configs of each family")
    p.add_argument("--missing", action="store_true", help="list classes of transformers that we do not know")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--family", action="append", choices=sorted(FAMILIES), help="with the two above: only these")
    return p.parse_args()


def configs(a: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    if a.random or a.defaults:
        for name in a.family or FAMILIES:
            yield name, alone({"model_type": name}) if has_class(name) else {"model_type": name}
    else:
        for name in a.models or models():
            path = Path(name)
            yield name, models()[name].config if name in models() else json.loads(path.read_text(encoding="utf-8"))


def main() -> int:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    a = arguments()
    if a.missing:
        print(*(unknown := missing()), sep="\n")
        print(f"{len(unknown)} unknown; {len(NO_DECODER)} are no decoder language models")
        return 1 if unknown else 0
    right = []
    if not a.random:
        columns = f"{'tensors':>8} {'missing':>8} {'extra':>6} {'shape':>6} {'ours':>18} {'theirs':>18}"
        print(f"{'model':46} {columns}")
    for name, config in configs(a):
        if not has_class(config["model_type"]):
            print(f"{name:46} transformers has no class for it")
            continue
        if a.random:
            right.append(compare_random(name, a.random, a.seed))
            continue
        try:
            right.append(compare(name, config))
        except Exception as error:  # the class can't be built so, for whatever reason
            print(f"{name:46} the class refuses: {type(error).__name__}: {str(error)[:90]}")
    print(f"{sum(right)} of {len(right)} equal")
    return 0 if all(right) else 1
