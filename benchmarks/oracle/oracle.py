"""python -m benchmarks.oracle [MODEL ...]: our tensors beside those of the classes in Hugging Face transformers.

Each class is built on the meta device and its weights are named as it would save them, so both lists are in the
checkpoint's own words and are compared by name and shape. MODEL is a preset id or the path of a config.json; without
any, all presets, of which `departures.py` accounts for those whose class is not the checkpoint's. --defaults compares
what each class makes of a config that says nothing but its model_type, and --random N compares N small models of each
family with every flag drawn at random; --missing lists the classes that we do not know. Exits with 1 on any other
difference.

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
from typing import Any, Literal

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    Gemma4TextConfig,
    Gemma4UnifiedTextConfig,
    logging,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.oracle.departures import DEPARTURES
from benchmarks.oracle.no_decoder import CLASSES, NO_DECODER, missing
from benchmarks.oracle.random_configs import random_config
from calc import Architecture, ConfigError
from calc.families.family_table import FAMILIES, WRAPPED
from calc.families.tasks import POOLING
from presets import models

Shapes = dict[str, tuple[int, ...]]
Outcome = Literal["equal", "departs", "differs"]
"""All tensors are those of the class; the class departs from the checkpoint as `departures.py` says; neither."""
"""Where to look for a class, in this order; the first only for what wraps nothing."""
PREFIXES = {
    "model.language_model.": "model.",
    "model.text_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "vision_tower.vision_model.": "vision_tower.vision_model.",
    "vision_tower.": "vision_tower.vision_model.",
    "nomic_bert.": "bert.",
    "gte.": "new.",
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
    "kimi_k25": {
        r"^model\.blocks\.": "model.layers.",
        r"^model\.mm_projector\.": "mm_projector.",
        r"^vision_tower\.vision_model\.(encoder\.(?=patch_embed\.))?": "vision_tower.",
    },
    "olmo_hybrid": {"attention_layer_norm": "input_layernorm", "feedforward_layer_norm": "post_attention_layernorm"},
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


def built(config: dict[str, Any]) -> Any:
    """The class of a config, on the meta device."""
    settings, wrapped = AutoConfig.for_model(**config), config["model_type"] in WRAPPED
    named = next(iter(config.get("architectures") or ()), None)
    with torch.device("meta"):
        if (config["model_type"] in FAMILIES and FAMILIES[config["model_type"]].pools) or str(named).endswith(POOLING):
            return (AutoModel.from_config if named is None else getattr(transformers, named)._from_config)(settings)
        causal = (auto for auto in CLASSES[wrapped:] if type(settings) in auto._model_mapping)
        return next(causal, AutoModelForCausalLM).from_config(settings)


def is_language(name: str, model_type: str) -> bool:
    """Whether a tensor is one of the language model, and none of its encoders."""
    if model_type in WRAPPED:
        return any(part in name for part in TEXT)
    return model_type not in BESIDE or not name.startswith(BESIDE[model_type])


def theirs(config: dict[str, Any], *, tower: bool) -> tuple[Shapes, int]:
    """Every tensor that the class would save, a tied one once, and the class's own count of its parameters; with the
    vision encoder or without."""
    model, model_type = built(config), config["model_type"]
    once = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    if tables := {name for name in again if name.endswith("word_embeddings.weight")}:  # a head stands before it
        again = again - tables | {name for name in once if name.endswith("decoder.weight")}
    kept = {name: t for name, t in model.state_dict().items() if tower or is_language(name, model_type)}
    saved = revert_weight_conversion(model, {name: t for name, t in kept.items() if name not in again})
    shapes = {plain(name, model_type): tuple(t.shape) for name, t in saved.items()}
    if model_type in TRANSPOSED:
        shapes |= {name: (shape[0], *shape[:0:-1]) for name, shape in shapes.items() if ".mlp.experts." in name}
    return shapes, sum(p.numel() for name, p in model.named_parameters() if name in kept)


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
    kept = [t for t in architecture.tensors() if t.excluded_as != "multi_token_prediction"]
    total = sum(t.parameters for t in kept if t.excluded_as != "persistent_buffers")
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


def compare(name: str, config: dict[str, Any], *, quiet: bool = False) -> Outcome:
    """One row of the table, and the differences below it, or the reason that accounts for all of them."""
    try:
        architecture = Architecture.from_config(config)
    except ConfigError as error:
        theirs(config, tower=False)  # where the class refuses too, this raises
        print(f"{name:46} refused: {error}")
        return "differs"
    b, total = theirs(config, tower=architecture.vision is not None)
    a, own_total = ours(architecture)
    lines = differences(a, b)
    count = Counter(line.split()[0] for line in lines)
    equal = not lines and own_total == total
    departure = DEPARTURES.get(name)
    departs = departure is not None and departure.accounts_for(lines, own_total - total)
    mark = "" if equal else "  departs" if departs else "  NAMES" if own_total == total else "  TOTAL"
    if not (equal and quiet):
        numbers = f"{len(b):>8,} {count['missing']:>8} {count['extra']:>6} {count['shape']:>6}"
        print(f"{name:46} {numbers} {own_total:>18,} {total:>18,}{mark}")
        if departure is not None and departs:
            print(f"    {departure.reason}\n    read in: {departure.source}")
        for line in () if departs else list(of_one_kind(lines))[:12]:
            print(f"    {line}")
    return "equal" if equal else "departs" if departs else "differs"


OUTER: dict[str, dict[str, Any]] = {
    "emu3": {"vocabulary_map": {"<image>": 1}},
    "granite_docling": {"vision_config": {"out_hidden_size": 64}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "4/8"},
    "muse_spark": {"audio_config": {"out_hidden_size": 64}},
}
"""What a wrapper needs beside its language model."""


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


def compare_random(model_type: str, n: int, seed: int) -> Outcome:
    chance = random.Random(f"{model_type} {seed}")
    compared, right = 0, True
    for i in range(n):
        config = alone(random_config(model_type, chance))
        try:
            equal = compare(f"{model_type} {i}", config, quiet=True) == "equal"
        except Exception as error:  # the class itself refuses this draw, with whatever it raises
            last = f"{type(error).__name__}: {str(error)[:90]}"
            continue
        compared += 1
        right &= equal
        if not equal:
            print(f"    {json.dumps(config)}")
    print(f"{model_type:46} {compared} of {n} drawn configs build{'' if compared else f': {last}'}", flush=True)
    return "equal" if right and compared else "differs"


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
    outcomes: list[Outcome] = []
    if not a.random:
        columns = f"{'tensors':>8} {'missing':>8} {'extra':>6} {'shape':>6} {'ours':>18} {'theirs':>18}"
        print(f"{'model':46} {columns}")
    for name, config in configs(a):
        if not has_class(config["model_type"]):
            print(f"{name:46} transformers has no class for it")
            continue
        if a.random:
            outcomes.append(compare_random(name, a.random, a.seed))
            continue
        try:
            outcomes.append(compare(name, config))
        except Exception as error:  # the class can't be built so, for whatever reason
            print(f"{name:46} the class refuses: {type(error).__name__}: {str(error)[:90]}")
    count = Counter(outcomes)
    print(f"{count['equal']} of {len(outcomes)} equal, {count['departs']} where the class departs from the checkpoint")
    return 1 if count["differs"] else 0
