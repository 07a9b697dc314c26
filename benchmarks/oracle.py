"""python benchmarks/oracle.py [MODEL ...]: our tensors beside those of the classes in Hugging Face transformers.

Each class is built on the meta device and its weights are named as it would save them, so both lists are in the
checkpoint's own words and are compared by name and shape. MODEL is a preset id or the path of a config.json; without
any, all presets. --defaults compares what each class makes of a config that says nothing but its model_type, and
--random N compares N small models of each family with every flag drawn at random. Exits with 1 on any difference.

Needs transformers 5.23 and torch beside this project's own requirements.
"""

import argparse
import json
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, logging
from transformers.core_model_loading import revert_weight_conversion

sys.path.insert(0, str(Path(__file__).parents[1]))
from calc import Architecture, ConfigError
from calc.families.table import FAMILIES, WRAPPERS
from presets import models

Shapes = dict[str, tuple[int, ...]]
PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "vision_tower.": "vision_tower.vision_model.",
}
"""How a class saves what it wraps -> how the language model alone names it, and published checkpoints the tower."""


def theirs(config: dict[str, Any]) -> tuple[Shapes, int]:
    """Every tensor that the class would save, a tied one once; and the class's own count of its parameters."""
    settings = AutoConfig.for_model(**config)
    auto = AutoModelForImageTextToText if config["model_type"] in WRAPPERS else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(settings)
    once = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    saved = revert_weight_conversion(model, {n: t for n, t in model.state_dict().items() if n not in again})
    return {plain(name): tuple(t.shape) for name, t in saved.items()}, sum(p.numel() for p in model.parameters())


def plain(name: str) -> str:
    for prefix, own in PREFIXES.items():
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name


def ours(config: dict[str, Any]) -> tuple[Shapes, int]:
    """The same from our list, without multi-token prediction, which the classes leave out."""
    architecture = Architecture.from_config(config)
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
    b, total = theirs(config)
    try:
        a, own_total = ours(config)
    except ConfigError as error:
        print(f"{name:46} refused: {error}")
        return False
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

CHOICES: dict[str, list[Any]] = {
    "hidden_size": [64, 128],
    "n_embd": [64, 128],
    "intermediate_size": [96, 112],
    "n_inner": [None, 100],
    "num_hidden_layers": [2, 3, 4, 6],
    "n_layer": [2, 3],
    "num_attention_heads": [4, 8],
    "n_head": [4, 8],
    "num_key_value_heads": [1, 2, 4],
    "head_dim": [8, 16, 24],
    "vocab_size": [300, 333],
    "max_position_embeddings": [128],
    "n_positions": [128],
    "pad_token_id": [0],
    "tie_word_embeddings": [True, False],
    "attention_bias": [True, False],
    "mlp_bias": [True, False],
    "use_bias": [True, False],
    "bias": [True, False],
    "qkv_bias": [True, False],
    "use_qkv_bias": [True, False],
    "use_qk_norm": [True, False],
    "qk_layernorm": [True, False],
    "lm_head_bias": [True, False],
    "use_parallel_residual": [True, False],
    "parallel_attn": [True, False],
    "new_decoder_architecture": [True, False],
    "multi_query": [True, False],
    "use_sliding_window": [True, False],
    "sliding_window": [32, 64],
    "max_window_layers": [0, 1, 2],
    "q_lora_rank": [None, 24],
    "kv_lora_rank": [32],
    "qk_nope_head_dim": [16],
    "qk_rope_head_dim": [8],
    "v_head_dim": [12, 16],
    "n_routed_experts": [4, 8],
    "num_experts": [4, 8],
    "num_local_experts": [4, 8],
    "moe_num_experts": [4, 8],
    "num_experts_per_tok": [1, 2],
    "moe_k": [1, 2],
    "moe_topk": [1, 2],
    "n_shared_experts": [1, 2],
    "num_shared_experts": [1, 2],
    "moe_num_shared_experts": [1, 2],
    "shared_expert_intermediate_size": [40, 64],
    "shared_intermediate_size": [40, 64],
    "moe_intermediate_size": [48, 56],
    "first_k_dense_replace": [0, 1, 2],
    "mlp_only_layers": [[], [0], [1]],
    "decoder_sparse_step": [1, 2],
    "n_group": [1],
    "topk_group": [1],
    "no_rope_layer_interval": [2, 4],
    "interleave_moe_layer_step": [1, 2],
    "index_n_heads": [2],
    "index_head_dim": [16],
    "layer_types": ["sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse"],
    "use_conv_bias": [True, False],
    "mamba_rms_norm": [True, False],
    "do_layer_norm_before": [True, False],
    "enable_bias": [True, False],
    "ffn_dim": [96, 112],
    "word_embed_proj_dim": [48, 64],
}
PER_LAYER = ("layer_types", "mlp_layer_types")
FIXED: dict[str, dict[str, Any]] = {"phi3": {"pad_token_id": 0}, "opt": {"hidden_size": 64}}


def random_config(model_type: str, chance: random.Random) -> dict[str, Any]:
    """A small config of a family, with each field that its class has drawn or left out."""
    fields = AutoConfig.for_model(model_type).to_dict()
    config: dict[str, Any] = {"model_type": model_type}
    for name, values in CHOICES.items():
        flag = isinstance(values[0], bool) or name in ("mlp_only_layers", "head_dim", *PER_LAYER)
        if name in fields and name not in PER_LAYER and not (flag and chance.random() < 0.4):
            config[name] = chance.choice(values)
    layers = next((config[name] for name in ("num_hidden_layers", "n_layer") if name in config), 0)
    for name in PER_LAYER:
        words = fields.get(name)
        if words and set(words) <= set(CHOICES[name]) and chance.random() < 0.6:
            config[name] = [chance.choice(CHOICES[name]) for _ in range(layers)]
    return config | FIXED.get(model_type, {})


def has_class(model_type: str) -> bool:
    try:
        AutoConfig.for_model(model_type)
    except ValueError:
        return False
    return True


def compare_random(model_type: str, n: int, seed: int) -> bool:
    chance = random.Random(f"{model_type} {seed}")
    compared, right = 0, True
    for i in range(n):
        config = random_config(model_type, chance)
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


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Our tensors beside those of the classes in transformers.")
    p.add_argument("models", nargs="*", metavar="MODEL", help="a preset id or the path of a config.json")
    p.add_argument("--defaults", action="store_true", help="compare what each class makes of an empty config")
    p.add_argument("--random", type=int, metavar="N", help="compare N random small configs of each family")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--family", action="append", choices=sorted(FAMILIES), help="with the two above: only these")
    return p.parse_args()


def main() -> int:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    a = arguments()
    right = []
    if not a.random:
        columns = f"{'tensors':>8} {'missing':>8} {'extra':>6} {'shape':>6} {'ours':>18} {'theirs':>18}"
        print(f"{'model':46} {columns}")
    if a.random or a.defaults:
        for name in a.family or FAMILIES:
            if not has_class(name):
                print(f"{name:46} transformers has no class for it")
            elif a.random:
                right.append(compare_random(name, a.random, a.seed))
            else:
                try:
                    right.append(compare(name, {"model_type": name}))
                except Exception as error:
                    print(f"{name:46} the class can't be built so: {type(error).__name__}: {str(error)[:90]}")
    else:
        for name in a.models or models():
            config = models()[name].config if name in models() else json.loads(Path(name).read_text(encoding="utf-8"))
            right.append(compare(name, dict(config)))
    print(f"{sum(right)} of {len(right)} equal")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
