"""python -m benchmarks.oracle.write_caches [FAMILY ...]: bytes of real caches of transformers 5.23, for tests/data.

Small models of every family are saved, and loaded again in bf16 as `from_pretrained` does it, which leaves some weights
in fp32. A prompt passes on the CPU, then single tokens; after each pass the distinct storages that the cache holds are
summed. Families whose figures of ours differ are shown; of families that are named, every tensor, and nothing is
written. Needs torch and transformers; writes tests/data/caches.json.
"""

import importlib
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModel, DynamicCache, PreTrainedModel, logging

from benchmarks.oracle.oracle import has_class
from benchmarks.oracle.random_configs import ROPE, random_config
from benchmarks.oracle.write_test_data import write
from calc import Architecture, Precision
from calc.families.family_table import FAMILIES
from calc.serving.engines.transformers.engine import DynamicCache as KeptCache

DRAWS, TRIES = 2, 25
PROMPTS = {1: 40, 3: 75}
"""Sequences -> tokens of each prompt: one shorter than most windows, one beyond."""
STEPS = 5
CACHES = ("past_key_values", "cache_params", "cache", "state")
SECTIONS = {"rope_parameters": ROPE | {"mrope_section": [2, 3, 3]}, "hidden_size": 64, "num_attention_heads": 4}
SECTIONS |= {"head_dim": 16, "num_key_value_heads": 2}
RUNS: dict[str, dict[str, Any]] = {
    "bamba": {"num_hidden_layers": 4, "attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 8},
    "dbrx": {"tie_word_embeddings": False, "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "diffusion_gemma_text": {"use_bidirectional_attention": None},
    "deepseek_v4": {"compress_rates": {"heavily_compressed_attention": 12, "compressed_sparse_attention": 4}}
    | {"head_dim": 16},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "attention"]},
    "mistral4": {"head_dim": 8},
    "phi4_multimodal": {"num_hidden_layers": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "voxtral_realtime_text": {"head_dim": 16},
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "hunyuan_vl_text"), SECTIONS),
    **dict.fromkeys(("glm4v_text", "glm_ocr_text"), SECTIONS),
    "glm4v_moe_text": SECTIONS | {"rope_parameters": ROPE | {"mrope_section": [1, 1, 2]}},
}
"""What a class needs to run that is not needed to build it."""
NOT_RUN = {
    "openai-gpt": "its class keeps no cache and reads every token again",
    "cpmant": "its class takes all tokens in each pass and `generate` gives it one: no second pass runs",
    "blt": "its class asks its config for a number of layers that it does not have",
    "gemma4_assistant": "it keeps no cache and reads another model's",
    "gemma4_unified_assistant": "it keeps no cache and reads another model's",
}
INPUTS: dict[str, Callable[[Any, int, int], dict[str, torch.Tensor]]] = {
    "idefics": lambda config, batch, tokens: {
        "image_encoder_embeddings": torch.zeros(batch, 1, 2, config.vision_config.embed_dim, dtype=torch.bfloat16),
        "image_attention_mask": torch.ones(batch, tokens, 1),
    },
    "voxtral_realtime_text": lambda config, batch, tokens: {
        "t_cond": torch.zeros(batch, 1, config.hidden_size, dtype=torch.bfloat16)
    },
}
"""What a class reads beside tokens: of its config, for so many sequences of so many tokens."""


class Moment(NamedTuple):
    """A cache after a pass."""

    batch: int
    length: int  # tokens of each sequence
    passed: int  # of these, in the last pass
    tensors: dict[str, tuple[str, tuple[int, ...], int]]  # path -> type, shape, bytes of its storage

    @property
    def bytes(self) -> int:
        return sum(nbytes for _, _, nbytes in self.tensors.values())


def model_of(settings: Any) -> type[PreTrainedModel]:
    """The class that runs a config: of a module of its own the model, or else what has a head."""
    if not find_spec(name := type(settings).__module__.replace("configuration_", "modeling_")):
        return AutoModel._model_mapping[type(settings)]
    takes = [
        one
        for one in vars(importlib.import_module(name)).values()
        if isinstance(one, type) and issubclass(one, PreTrainedModel) and one.config_class is type(settings)
    ]
    return max((one for one in takes if "forward" in vars(one)), key=lambda one: one.__name__.endswith("Model"))


def load(config: dict[str, Any]) -> PreTrainedModel:
    settings = AutoConfig.for_model(**config)
    built = model_of(settings)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        built._from_config(settings).save_pretrained(folder)
        return built.from_pretrained(folder, dtype=torch.bfloat16).eval()


def tensors(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor below an object, by its path."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (dict, list, tuple)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors(part, f"{path}.{key}", seen)
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
        yield from tensors(vars(value), path, seen)


def held(cache: Any) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """The distinct storages of a cache. Counters of one element are left out."""
    found = {}
    for path, tensor in tensors(cache, "", set()):
        storage = tensor.untyped_storage()
        if tensor.numel() != 1 or tensor.is_floating_point():
            found.setdefault(storage._cdata, (path, (str(tensor.dtype), tuple(tensor.shape), storage.nbytes())))
    return dict(found.values())


def plain(model: PreTrainedModel) -> list[torch.Tensor]:
    """Tensors that modules hold as mere attributes: states, where a class keeps them so."""
    every = (value for module in model.modules() for value in vars(module).values())
    return [value for value in every if isinstance(value, torch.Tensor)]


def caches_of(out: Any) -> dict[str, Any]:
    """The caches that a pass gives back, by the name of the argument that takes them."""
    return {name: kept for name in CACHES if (kept := getattr(out, name, None)) is not None}


def moments(config: dict[str, Any]) -> list[Moment]:
    """The cache after a prompt, and after each of some tokens more."""
    found = []
    for batch, prompt in PROMPTS.items():
        model = load(config)
        known, kept = {id(tensor) for tensor in plain(model)}, dict[str, Any]()
        tokens = torch.randint(3, 90, (batch, prompt))
        more = INPUTS.get(config["model_type"], lambda *_: {})
        for step in range(1 + STEPS):
            passing = tokens[:, :1] if step else tokens
            with torch.no_grad():
                also = more(model.config, *passing.shape)
                out = model(input_ids=passing, use_cache=True, **also, **kept)
                kept = caches_of(out) or kept
                if not kept:  # a class that leaves it to `generate` to make one
                    kept = {CACHES[0]: DynamicCache(config=model.config)}
                    model(input_ids=passing, use_cache=True, **also, **kept)
            states = [tensor for tensor in plain(model) if id(tensor) not in known]
            found.append(Moment(batch, prompt + step, 1 if step else prompt, held([*kept.values(), states])))
    return found


def ours(config: dict[str, Any], moment: Moment) -> int:
    kept = KeptCache([Architecture.from_config(config).all_blocks], Precision())
    return kept.allocated_bytes(0, moment.batch, moment.length, moment.batch * moment.passed)


def runs(name: str) -> Iterator[tuple[dict[str, Any], list[Moment]]]:
    """Small configs of a family that run, with their caches."""
    if name in NOT_RUN:
        print(f"{name:26} is not run: {NOT_RUN[name]}", flush=True)
        return
    chance, found, last = random.Random(name), 0, ""
    for _ in range(TRIES):
        config = random_config(name, chance) | RUNS.get(name, {})
        try:
            kept = moments(config)
        except Exception as error:  # the class itself refuses this draw, with whatever it raises
            last = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            continue
        yield config, kept
        found += 1
        if found == DRAWS:
            return
    if not found:
        print(f"{name:26} does not run: {last}", flush=True)


def compare(name: str, config: dict[str, Any], kept: list[Moment], *, by_tensor: bool) -> bool:
    """Print where ours differs; whether it is nowhere."""
    wrong = [(moment, own) for moment in kept if (own := ours(config, moment)) != moment.bytes]
    if wrong:
        far = ", ".join(f"{m.batch} x {m.length}: {own:,} of {m.bytes:,}" for m, own in (wrong[0], wrong[-1]))
        print(f"{name:26} {len(wrong)} of {len(kept)} differ: {far}", flush=True)
    if by_tensor:
        print(config)
        for moment in kept[:2]:
            print(f"  {moment.length} tokens, {moment.bytes:,} bytes, ours {ours(config, moment):,}")
            for path, (kind, shape, nbytes) in moment.tensors.items():
                print(f"    {path} {kind} {shape} {nbytes:,}")
    return not wrong


def main(names: list[str]) -> None:
    rows, right = [], dict[str, bool]()
    for name in names or filter(has_class, FAMILIES):
        for config, kept in runs(name):
            right[name] = compare(name, config, kept, by_tensor=bool(names)) and right.get(name, True)
            told = [moment for i, moment in enumerate(kept) if i % (1 + STEPS) in (0, 1, STEPS)]
            rows.append({"config": config, "held": [[m.batch, m.length, m.passed, m.bytes] for m in told]})
    print(f"{sum(right.values())} of {len(right)} families to the byte")
    if not names:
        write("caches.json", rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    main(sys.argv[1:])
