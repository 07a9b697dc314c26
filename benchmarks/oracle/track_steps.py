"""python -m benchmarks.oracle.track_steps [CONFIG.json [OPTION=VALUE ...]]: peaks of the phases of a training step.

Every storage is tracked while the class of transformers trains on fake CUDA tensors; options are those of `Step`, such
as recipe=autocast. Without a config, small models of many families are tracked for tests/data/family_steps.json, each
in the ways of WAYS. Needs torch, transformers, peft, bitsandbytes and a C++ compiler.
"""

import gc
import json
import sys
import weakref
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.oracle import fake_cuda  # noqa: F401 - before torch

# isort: split
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.optimization import Adafactor

from benchmarks.oracle import fake_tensor_parallel, small_models
from benchmarks.oracle.fake_fsdp import local, resized, shard
from benchmarks.oracle.track_adapters import adapted, quantize, widen
from presets import models

DATA = Path(__file__).parents[2] / "tests" / "data" / "family_steps.json"
BLOCK = 512  # bytes that torch's allocator rounds to
for module in [one for name, one in sys.modules.items() if name.startswith("torch.optim")]:
    if hasattr(module, "_get_value"):
        module._get_value = lambda x: 1.0  # the number of the step, which is read on the host


@dataclass(frozen=True)
class Step:
    """How a step is run."""

    recipe: str = "bf16"  # bf16, fp32, autocast (fp32 weights) or bf16-autocast
    optimizer: str = "adamw-fused"
    impl: str = "flash"
    micro_batch: int = 1
    sequence: int = 1024
    checkpointing: str = "off"  # of layers, reentrant or nonreentrant; or selective: of attention step by step
    lora: int = 0  # rank of adapters on all-linear, in fp32
    dropout: float = 0.0  # before the adapters
    quantized: str = ""  # nf4: the base as bitsandbytes stores it; kbit: after prepare_model_for_kbit_training too
    accumulation: int = 1
    keep_outputs: bool = False
    ranks: int = 1  # of FSDP2
    reduce: str = "float32"
    reshard: bool = True
    separate_embedding: bool = False  # the embedding a unit, norm and head another
    tensor: int = 1  # ranks of tensor parallelism by DTensor

    def told(self) -> dict[str, Any]:
        """What a row says of it: the first nine, and what differs."""
        plain = {field.name: field.default for field in fields(Step)[9:]}
        return {name: value for name, value in asdict(self).items() if value != plain.get(name)}


WAYS = (
    Step(),
    Step(impl="eager", micro_batch=2, sequence=512),
    Step(recipe="autocast", micro_batch=2, sequence=512),
    Step(lora=16),
    Step(checkpointing="nonreentrant", micro_batch=2, sequence=512),
)
ADAPTED = (
    Step(lora=16, dropout=0.05),
    Step(lora=16, dropout=0.05, recipe="bf16-autocast"),
    Step(lora=16, quantized="nf4"),
    Step(lora=16, quantized="nf4", recipe="bf16-autocast"),
    Step(lora=16, quantized="nf4", recipe="bf16-autocast", checkpointing="nonreentrant"),
    Step(lora=16, quantized="kbit"),
    Step(lora=16, quantized="kbit", recipe="bf16-autocast"),
    Step(lora=16, dropout=0.05, quantized="kbit", recipe="bf16-autocast"),
    *(
        Step(checkpointing=kind, lora=16, dropout=dropout, quantized=quantized, recipe=recipe)
        for kind in ("nonreentrant", "reentrant")
        for dropout, quantized, recipe in (
            (0.0, "", "bf16"),
            (0.05, "", "bf16"),
            (0.05, "", "bf16-autocast"),
            (0.0, "kbit", "bf16"),
            (0.0, "kbit", "bf16-autocast"),
            (0.05, "kbit", "bf16-autocast"),
            (0.05, "nf4", "bf16-autocast"),
        )
    ),
)
"""The ways of LoRA with dropout and of QLoRA, in which some families are run too; these need bitsandbytes."""
RECOMPUTED = (
    Step(impl="eager", checkpointing="selective", sequence=512),
    Step(impl="eager", checkpointing="selective", sequence=512, micro_batch=2, recipe="autocast"),
)
"""The ways of attention that runs again."""
SCANNED = (
    Step(sequence=512),
    Step(recipe="autocast", micro_batch=2, sequence=512),
    Step(lora=16, sequence=512),
    Step(checkpointing="nonreentrant", micro_batch=2, sequence=512),
)
SCANNED_TOKENS = (Step(sequence=128), Step(recipe="autocast", micro_batch=2, sequence=64))
"""The ways of recurrent layers, by whole chunks, and token by token, which takes long."""
FULL_ONLY = ("qwen3_next", "minimax")
"""Whose adapters are 0.5 % off in so few layers: the former's shared experts, the latter's buffers."""
SHARDED = {"ranks": 8, "recipe": "autocast", "reduce": "float32"}
QUANTIZED: dict[str, Any] = {"lora": 16, "quantized": "nf4", "recipe": "bf16-autocast"}
OTHERS: dict[str, tuple[Step, ...]] = {
    "Qwen/Qwen1.5-MoE-A2.7B": (
        Step(**SHARDED),
        Step(**SHARDED, checkpointing="reentrant", accumulation=2),
        Step(lora=16, quantized="kbit"),
    ),
    "Qwen/Qwen3-30B-A3B": (Step(**QUANTIZED), Step(lora=16, quantized="kbit", checkpointing="nonreentrant")),
    "zai-org/GLM-4.7-Flash": (Step(), Step(**SHARDED, checkpointing="reentrant", accumulation=2), Step(**QUANTIZED)),
    "baidu/ERNIE-4.5-21B-A3B-PT": (Step(), Step(recipe="bf16-autocast", optimizer="sgdm-foreach"), Step(lora=16)),
    "openai/gpt-oss-120b": (Step(lora=16, dropout=0.05, quantized="kbit", checkpointing="nonreentrant"),),
    "LiquidAI/LFM2-8B-A1B": (Step(), Step(lora=16, quantized="kbit", impl="eager", sequence=512)),
    "stabilityai/stablelm-2-12b": (Step(**QUANTIZED, checkpointing="reentrant"), Step(**QUANTIZED)),
    "microsoft/phi-2": (Step(lora=16, quantized="kbit", checkpointing="nonreentrant"), Step(recipe="fp32")),
    "ibm-granite/granite-3.3-2b-instruct": (Step(lora=16, quantized="nf4", checkpointing="nonreentrant"),),
    "google/gemma-3-270m": (Step(recipe="fp32", impl="eager", sequence=512, optimizer="adafactor"),),
    "arcee-ai/AFM-4.5B-Base": (Step(), Step(recipe="autocast", micro_batch=2, sequence=512)),
    "google/gemma-4-26B-A4B": (Step(), Step(recipe="autocast", micro_batch=2, sequence=512)),
}
"""Other models, and what showed to be wrong for want of a row."""
TYPES = (
    "llama mistral qwen2 qwen3 gemma gemma3_text olmo2 olmo3 phi phi3 gpt2 gpt_neox starcoder2 stablelm granite "
    "cohere cohere2 glm4 smollm3 ernie4_5 seed_oss qwen2_moe qwen3_moe mixtral olmoe granitemoe phimoe gpt_oss "
    "deepseek_v2 deepseek_v3 glm4_moe hunyuan_v1_moe minimax_m2 lfm2"
).split()
"""One preset of each."""


class Storages(TorchDispatchMode):
    """Bytes of the storages that are alive, from their first operation to their end, and the peak of each phase."""

    def __init__(self, *, tensor_parallel: bool = False) -> None:
        super().__init__()
        self.tensor_parallel = tensor_parallel
        self.sizes: dict[int, int] = {}
        self.total, self.phase, self.peaks = 0, "init", dict[str, int]()

    def add(self, tensor: Any) -> None:
        storage = local(tensor).untyped_storage()
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = -(-storage.nbytes() // BLOCK) * BLOCK
            self.total += self.sizes[storage._cdata]
            weakref.finalize(storage, self.remove, storage._cdata)

    def remove(self, key: int) -> None:
        self.total -= self.sizes.pop(key)

    def resize(self, storage: Any) -> None:
        if storage._cdata in self.sizes:
            size = -(-storage.nbytes() // BLOCK) * BLOCK
            self.total += size - self.sizes[storage._cdata]
            self.sizes[storage._cdata] = size
            self.enter(self.phase)

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.peaks[phase] = max(self.peaks.get(phase, 0), self.total)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.tensor_parallel and any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # its own operations follow
        out = function(*args, **(kwargs or {}))
        if self.tensor_parallel and fake_tensor_parallel.deciding():
            return out
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                self.add(tensor)
        self.enter(self.phase)
        return out


def flash(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, **more: Any) -> Any:
    """What CUDA runs: keys and values are not repeated; values are as wide as keys."""
    width = value.shape[-1]
    if width != query.shape[-1]:
        value = torch.nn.functional.pad(value, [0, query.shape[-1] - width])
    dropout = more.get("dropout", 0.0) if module.training else 0.0
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    out = attend(query, key, value, dropout, True, False, scale=scaling)[0]
    return (out if width == query.shape[-1] else out[..., :width]).transpose(1, 2).contiguous(), None


def recomputed(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any) -> Any:
    """Eager attention that runs again on the way back."""
    eager = sys.modules[type(module).__module__].eager_attention_forward

    def attend(query: Any, key: Any, value: Any) -> Any:
        return eager(module, query, key, value, attention_mask, **more)[0]

    return checkpoint(attend, query, key, value, use_reentrant=False, preserve_rng_state=False), None


def built(config: dict[str, Any], step: Step) -> Any:
    """The model, with adapters where they are asked for."""
    ALL_ATTENTION_FUNCTIONS.register("tracked", flash)
    ALL_MASK_ATTENTION_FUNCTIONS.register("tracked", lambda *args, **more: None)
    sizes = {name: value for name, value in config.items() if name != "model_type"}
    settings = AutoConfig.for_model(config["model_type"], **sizes).get_text_config()
    settings.use_cache = False
    ALL_ATTENTION_FUNCTIONS.register("recomputed", recomputed)
    ALL_MASK_ATTENTION_FUNCTIONS.register("recomputed", eager_mask)
    attention = "tracked" if step.impl == "flash" else "recomputed" if step.checkpointing == "selective" else "eager"
    dtype = torch.float32 if step.recipe in ("autocast", "fp32") else torch.bfloat16
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(settings, dtype=dtype, attn_implementation=attention)
        if step.quantized:
            quantize(model)
        if step.quantized == "kbit":
            widen(model)
        if step.lora:
            model = adapted(model, step.lora, step.dropout)
    if step.checkpointing.endswith("reentrant"):
        how = {"use_reentrant": step.checkpointing == "reentrant", "preserve_rng_state": False}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
        if step.lora:
            model.enable_input_require_grads()
    return model.train()


def optimizer_of(name: str, weights: list[Any]) -> Any:
    kind, _, kernel = name.partition("-")
    if kind == "adafactor":
        return Adafactor(weights, lr=1e-5, relative_step=False, scale_parameter=False)
    if kind != "adamw":
        return torch.optim.SGD(weights, lr=1e-5, momentum=0.9 if kind == "sgdm" else 0.0, foreach=True)
    return torch.optim.AdamW(weights, lr=1e-5, foreach=kernel == "foreach", fused=kernel == "fused")


def tracked(config: dict[str, Any], step: Step) -> dict[str, int]:
    """Bytes at the peak of each phase of the second step: the optimizer has its states by then. With FSDP2 a step goes
    before, in which DTensor makes up its mind on fake tensors of full size."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = built(config, step)
        if step.ranks > 1:
            shard(model, step.ranks, step.reduce, reshard=step.reshard, separate_embedding=step.separate_embedding)
        if step.tensor > 1:
            fake_tensor_parallel.spread(model, step.tensor)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = optimizer_of(step.optimizer, weights)
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens = torch.ones((step.micro_batch, step.sequence), dtype=torch.long, device="cuda")
        storages = Storages(tensor_parallel=step.tensor > 1)
        if step.ranks > 1 or step.tensor > 1:
            run(model, step, weights, optimizer, tokens, Storages(tensor_parallel=step.tensor > 1))
        states = [value for state in optimizer.state.values() for value in state.values()]
        scales = [tensor for module in model.modules() for tensor in getattr(module, "scales", ())]
        for tensor in (*model.parameters(), *model.buffers(), *scales, tokens, *states):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                storages.add(tensor)
        gc.collect()
        before = storages.total
        heads = [module for name, module in model.named_modules() if name.endswith(("lm_head", "embed_out"))]
        heads[0].register_forward_hook(lambda *args: storages.enter("loss"))
        with storages, resized(storages.resize):
            run(model, step, weights, optimizer, tokens, storages)
        phases = {name: storages.peaks[name] for name in ("forward", "loss", "backward", "optimizer")}
        if step.tensor > 1:  # the gradient of a table divided by rows is a view of one as large as the whole
            del phases["optimizer"]
        return {"after_init": before, **phases, "after_step": before}


def run(model: Any, step: Step, weights: list[Any], optimizer: Any, tokens: Any, storages: Storages) -> None:
    """One step, each phase as it comes."""
    autocast = "autocast" in step.recipe and step.ranks == 1
    for _ in range(step.accumulation):
        storages.enter("forward")
        with torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext():
            out = None if step.tensor > 1 else model(input_ids=tokens, labels=tokens)
        loss = fake_tensor_parallel.loss(model, tokens) if out is None else out.loss
        if not step.keep_outputs:
            out = None
        storages.enter("backward")
        with loss_parallel() if step.tensor > 1 else nullcontext():
            loss.backward()
        out = loss = None
        gc.collect()
    storages.enter("optimizer")
    torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def small(config: dict[str, Any]) -> dict[str, Any]:
    """The same layers, but few of them, and few tokens to choose from."""
    config = {name: value for name, value in config.items() if name not in ("quantization_config", "dtype")}
    counts = {"n_layer", "n_layers", "num_layers", "num_hidden_layers"} & config.keys()
    lists = {"layer_types", "mlp_layer_types"} & config.keys()
    dense = {"first_k_dense_replace": min(1, config.get("first_k_dense_replace", 0))}
    return (
        config
        | {name: min(4, config[name]) for name in counts}
        | {name: config[name][:4] for name in lists}
        | (dense if "first_k_dense_replace" in config else {})
        | {"vocab_size": 4096, "pad_token_id": 0}
    )


def rows() -> list[dict[str, Any]]:
    """Every family in every way that it can be run in."""
    presets = {preset.config["model_type"]: preset.config for preset in reversed(models().values())}
    ways = [
        *((kind, WAYS) for kind in TYPES),
        *((kind, ADAPTED) for kind in ("llama", "qwen3", "gemma3_text")),
        *((kind, RECOMPUTED) for kind in ("llama", "qwen3", "gemma3_text", "gpt2", "gpt_oss")),
    ]
    return [*tracked_in((presets[kind], taken) for kind, taken in ways), *others(), *small_ones()]


def small_ones() -> list[dict[str, Any]]:
    """Families without a preset, and recurrent layers as torch alone computes them."""
    checkpointed = WAYS[-1]
    plain = [
        (small_models.whole(*one), tuple(step for step in WAYS if one[0] != "opt" or step != checkpointed))
        for one in small_models.WITHOUT_PRESET.items()
    ]
    sharing = small_models.whole("gemma4_text", small_models.SHARING_KEYS), WAYS[:-1]
    scanned = [
        (small_models.whole(*one), tuple(step for step in SCANNED if one[0] not in FULL_ONLY or not step.lora))
        for one in small_models.RECURRENT.items()
    ]
    tokens = [(small_models.whole(*one), SCANNED_TOKENS) for one in small_models.TOKEN_BY_TOKEN.items()]
    return tracked_in([*plain, sharing, *scanned, *tokens])


def others() -> list[dict[str, Any]]:
    return tracked_in((models()[name].config, taken) for name, taken in OTHERS.items())


def tracked_in(ways: Iterable[tuple[Mapping[str, Any], tuple[Step, ...]]]) -> list[dict[str, Any]]:
    """Each model in each of its ways."""
    found = []
    for whole, taken in ways:
        config, steps = small(dict(whole)), list[dict[str, Any]]()
        kind = config["model_type"]
        for step in taken:
            try:
                phases = tracked(config, step)
            except Exception as error:  # whatever a class of transformers raises in a way that it was not made for
                print(f"{kind}: {step} can't be run: {error}", file=sys.stderr)
                continue
            steps.append({**step.told(), "phases": phases})
            print(kind, step.impl, step.recipe, phases["backward"], flush=True)
        found.append({"config": config, "steps": steps})
    return found


def main(path: str | None = None, *options: str) -> None:
    if path is None:
        lines = ",\n".join(json.dumps(row) for row in rows())
        DATA.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        return
    given = dict(option.split("=", 1) for option in options)
    kinds = {name: type(value) for name, value in asdict(Step()).items()}
    step = Step(
        **{name: value == "true" if kinds[name] is bool else kinds[name](value) for name, value in given.items()}
    )
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    print(json.dumps(tracked(config, step), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
