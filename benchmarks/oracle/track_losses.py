"""python -m benchmarks.oracle.track_losses > tests/data/loss_kinds.json: steps of TRL's own losses of kinds that the
file of 201 does not have: other models, ranks, lengths and precisions, other variants of the losses, other teachers.

As there, TRL's trainers are made without their constructors, and their own `compute_loss` runs on fake CUDA tensors
with every storage tracked: full rows, accelerate's autocast with its fp32 outputs, the second step of AdamW. TRL's
Triton kernels write into tensors that TRL has allocated and do nothing here. Needs torch, transformers, peft, TRL 1.16
and a C++ compiler.
"""

import gc
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, dataclass, fields
from types import SimpleNamespace
from typing import Any

from benchmarks.oracle import fake_cuda  # noqa: F401 - before torch

# isort: split
import torch
from accelerate.utils import convert_outputs_to_fp32
from peft import LoraConfig, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.gkd.gkd_trainer import GKDTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.kernels import chunked_divergence, chunked_logprob
from trl.models.utils import _ForwardRedirection
from trl.trainer import distillation_trainer, utils
from trl.trainer.distillation_trainer import DistillationTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.reward_trainer import RewardTrainer
from trl.trainer.rloo_trainer import RLOOTrainer
from trl.trainer.sft_trainer import SFTTrainer

from benchmarks.oracle.track_steps import Storages, flash, optimizer_of
from presets import models

PAIRS = ("dpo", "orpo", "simpo", "cpo", "reward")


@dataclass(frozen=True)
class Loss:
    """How a step is run; what is left out is TRL's default."""

    model: str
    method: str
    micro_batch: int = 1
    prompt: int = 512
    completion: int = 512
    recipe: str = "bf16-autocast"  # bf16, autocast (fp32 weights) or bf16-autocast
    optimizer: str = "adamw-fused"
    checkpointing: str = "nonreentrant"  # off, reentrant or nonreentrant
    lora: int = 0
    targets: str = "all-linear"
    reference: str = "none"  # model, precomputed, adapter off
    accumulation: int = 1
    beta: float = 0.1
    variant: str = ""  # loss_type
    iterations: int = 1
    generation_batch: int = 0  # of the passes that make old and reference log-probabilities; 0: of a micro-batch
    entropy_bonus: bool = False
    teacher: str = ""

    @property
    def sequences(self) -> int:
        return self.micro_batch * (2 if self.method in PAIRS else 1)

    @property
    def scored(self) -> int:
        """Tokens whose log-probabilities are made."""
        row = self.prompt + self.completion - 1 if self.method == "sft" else self.completion
        return self.sequences * row

    def told(self) -> dict[str, Any]:
        """What a row says of it: what differs."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.default is MISSING or getattr(self, f.name) != f.default
        }


class Stub:
    """A Triton kernel that does nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **more: None


for module in (chunked_logprob, chunked_divergence, utils, distillation_trainer):
    module._use_triton = lambda device: True
    for name in ("_forward_kernel", "_backward_kernel", "_stats_kernel", "_jsd_kernel", "_grad_kernel"):
        setattr(module, name, Stub())
    module.triton = SimpleNamespace(cdiv=lambda n, of: -(-n // of))


class Numbers(TorchFunctionMode):
    """Answers that a fake tensor has none for: a number is 1, and a mask stands for its scored tokens."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "item":
            return 1.0
        if name == "__bool__":
            return True
        if function is torch.nonzero:
            rows = max(1, len(args[0]) // 2)
            return torch.zeros((rows, 1), dtype=torch.long, device="cuda")
        if name == "__getitem__" and isinstance(args[1], torch.Tensor) and args[1].dtype == torch.bool:
            places = torch.zeros((self.loss.scored, args[1].dim()), dtype=torch.long, device="cuda")
            return torch.ops.aten.index(args[0], list(places.unbind(1)))
        return function(*args, **(kwargs or {}))


class Accelerator:
    """Of one process."""

    num_processes, sync_gradients, is_main_process, parallelism_config = 1, True, True, None
    state = SimpleNamespace(deepspeed_plugin=None, fsdp_plugin=None)

    def __init__(self, loss: Loss) -> None:
        self.device, self.loss = torch.device("cuda"), loss

    def gather(self, x: Any) -> Any:
        return x

    gather_for_metrics = gather

    def reduce(self, x: Any, reduction: str = "sum") -> Any:
        return x

    def unwrap_model(self, model: Any, **more: Any) -> Any:
        return model

    def autocast(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if "autocast" in self.loss.recipe else nullcontext()


TRAINERS: dict[str, Any] = {
    "sft": SFTTrainer,
    "dpo": DPOTrainer,
    "kto": KTOTrainer,
    "orpo": ORPOTrainer,
    "simpo": CPOTrainer,
    "cpo": CPOTrainer,
    "reward": RewardTrainer,
    "grpo": GRPOTrainer,
    "rloo": RLOOTrainer,
    "gkd": GKDTrainer,
    "distillation": DistillationTrainer,
}


ARGUMENTS: dict[str, Any] = {
    "use_bias_correction_kl": False,
    "steps_per_generation": 1,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "average_tokens_across_devices": False,
    "center_rewards_coefficient": None,
    "discopop_tau": 0.05,
    "gradient_checkpointing": True,
}
SETTINGS: dict[str, Any] = {
    "aux_loss_enabled": False,
    "ld_alpha": None,
    "f_divergence_type": "reverse_kl",
    "label_smoothing": 0.0,
    "use_weighting": False,
    "_total_train_tokens": 0,
    "_tp_size": 1,
    "desirable_weight": 1.0,
    "undesirable_weight": 1.0,
    "running": None,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "importance_sampling_level": "token",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "use_vllm": False,
    "vllm_importance_sampling_correction": False,
    "entropy_coef": 0.001,
    "use_adaptive_entropy": False,
    "temperature": 1.0,
    "is_encoder_decoder": False,
    "pad_token_id": 0,
    "padding_value": 0,
    "label_pad_token_id": -100,
    "simpo_gamma": 0.5,
    "alpha": 0.0,
    "compute_loss_func": None,
    "label_smoother": None,
    "model_kwarg_keys": (),
    "_is_vlm": False,
}
"""What the constructors set, as they set it by default."""


def trainer_of(loss: Loss, model: Any, reference: Any) -> Any:
    """A trainer without its constructor, with what its losses read."""
    kind = TRAINERS[loss.method]
    trainer = kind.__new__(kind)
    variants = {"kto": "kto", "simpo": "simpo", "grpo": "dapo"}
    args = SimpleNamespace(
        **ARGUMENTS, loss_type=loss.variant or "nll", gradient_checkpointing_kwargs={}, report_to=[], delta=None
    )
    known: dict[str, Any] = {
        **SETTINGS,
        "model": model,
        "args": args,
        "accelerator": Accelerator(loss),
        "ref_model": reference,
        "teacher_model": reference,
        "beta": loss.beta,
        "_metrics": {"train": defaultdict(list), "eval": defaultdict(list)},
        "_stored_metrics": defaultdict(lambda: defaultdict(list)),
        "_forward_redirection": _ForwardRedirection(),
        "state": SimpleNamespace(global_step=1),
        "precompute_ref_logps": loss.reference == "precomputed",
        "loss_type": loss.variant or variants.get(loss.method, "sigmoid"),
        "loss_types": loss.variant.split("+") if loss.variant else ["sigmoid"],
        "loss_weights": [1.0] * (loss.variant.count("+") + 1),
        "calculate_KL": loss.variant != "apo_zero_unpaired",
        "num_iterations": loss.iterations,
        "current_gradient_accumulation_steps": loss.accumulation,
        "_entropy_bonus_enabled": loss.entropy_bonus,
        "max_completion_length": loss.completion,
        "cpo_alpha": 0.0 if loss.method == "simpo" else 1.0,
    }
    trainer.__dict__.update(known)
    return trainer


def ones(*shape: int) -> Any:
    return torch.ones(shape, dtype=torch.long, device="cuda")


def inputs_of(loss: Loss) -> dict[str, Any]:
    """A micro-batch of full rows, as the trainer's collator gives it."""
    rows, sequence = loss.sequences, loss.prompt + loss.completion
    scored = torch.cat([torch.zeros_like(ones(rows, loss.prompt)), ones(rows, loss.completion)], 1)
    tokens = {"input_ids": ones(rows, sequence), "attention_mask": ones(rows, sequence)}
    vector = torch.ones(loss.micro_batch, device="cuda")
    if loss.method == "sft":
        return tokens | {"labels": ones(rows, sequence)}
    if loss.method == "gkd":
        return tokens | {"labels": ones(rows, sequence), "prompts": ones(rows, loss.prompt)}
    if loss.method == "reward":
        return tokens
    if loss.method in ("dpo", "kto"):
        more: dict[str, Any] = {"completion_mask": scored}
        if loss.method == "dpo" and loss.reference == "precomputed":
            more |= {"ref_chosen_logps": vector, "ref_rejected_logps": vector}
        if loss.method == "kto":
            more |= {f"KL_{name}": torch.ones_like(one) for name, one in (tokens | more).items()}
            more["label"] = torch.ones(loss.micro_batch, dtype=torch.bool, device="cuda")
            if loss.reference == "precomputed":
                more |= {"ref_logps": vector, "ref_KL_logps": vector}
        return tokens | more
    if loss.method in ("orpo", "simpo", "cpo"):
        half = loss.micro_batch
        parts = ("input_ids", "attention_mask", "labels")
        return {f"{side}_{part}": ones(half, sequence) for side in ("chosen", "rejected") for part in parts} | {
            "prompt_input_ids": ones(half, loss.prompt),
            "prompt_attention_mask": ones(half, loss.prompt),
        }
    completions = ones(rows, loss.completion)
    return {
        "prompt_ids": ones(rows, loss.prompt),
        "prompt_mask": ones(rows, loss.prompt),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": vector,
        "num_items_in_batch": torch.ones((), device="cuda"),
    }


def made(name: str, loss: Loss, *, reward: bool = False, dtype: Any = None) -> Any:
    """A model of transformers on fake tensors."""
    config = {k: v for k, v in models()[name].config.items() if k not in ("quantization_config", "dtype")}
    sizes = {k: v for k, v in config.items() if k != "model_type"}
    settings = AutoConfig.for_model(config["model_type"], **sizes).get_text_config()
    settings.use_cache = False
    kind = AutoModelForCausalLM
    if reward:
        kind, settings.num_labels, settings.pad_token_id = AutoModelForSequenceClassification, 1, 0
    dtype = dtype or (torch.float32 if loss.recipe in ("autocast", "fp32") else torch.bfloat16)
    with torch.device("cuda"):
        return kind.from_config(settings, dtype=dtype, attn_implementation="tracked")


def adapted(model: Any, loss: Loss) -> Any:
    """The model with PEFT's adapters in fp32."""
    BaseTunerLayer._move_adapter_to_device_of_base_layer = lambda *args, **more: None
    before, torch.nn.Module.to = torch.nn.Module.to, lambda self, *args, **more: self
    targets: Any = loss.targets if loss.targets == "all-linear" else loss.targets.split("+")
    task = "SEQ_CLS" if loss.method == "reward" else "CAUSAL_LM"
    try:
        with torch.device("cuda"):
            model = get_peft_model(model, LoraConfig(r=loss.lora, target_modules=targets, task_type=task))
    finally:
        torch.nn.Module.to = before
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return model


def autocast(model: Any, loss: Loss) -> None:
    """What accelerate makes of a model's forward."""
    if "autocast" in loss.recipe:
        forward = torch.autocast("cuda", torch.bfloat16)(model.forward)
        model.forward = convert_outputs_to_fp32(forward)


@contextmanager
def numbered(loss: Loss) -> Iterator[None]:
    with FakeTensorMode(allow_non_fake_inputs=True), Numbers(loss):
        yield


def tracked(loss: Loss) -> dict[str, int]:
    """Bytes at the peak of each phase of the second step."""
    ALL_ATTENTION_FUNCTIONS.register("tracked", flash)
    ALL_MASK_ATTENTION_FUNCTIONS.register("tracked", lambda *args, **more: None)
    with numbered(loss):
        base = made(loss.model, loss, reward=loss.method == "reward")
        has_head = loss.method not in ("reward", "orpo", "simpo", "cpo", "gkd", "distillation")
        outputs = ("log_probs", "entropy", "mean_logits", "is_top1")
        if has_head:
            utils.add_fused_lm_head(base, outputs=outputs)
        model = adapted(base, loss) if loss.lora else base
        if loss.checkpointing != "off":
            how = {"use_reentrant": loss.checkpointing == "reentrant", "preserve_rng_state": False}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
            if loss.lora:
                model.enable_input_require_grads()
        model.train()
        autocast(model, loss)
        reference = None
        if loss.reference == "model":
            other = loss.teacher or loss.model
            dtype = torch.bfloat16 if loss.method == "gkd" else None
            reference = made(other, loss, dtype=dtype).eval().requires_grad_(False)
            if has_head:
                utils.add_fused_lm_head(reference)
            autocast(reference, loss)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = optimizer_of(loss.optimizer, weights)
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        trainer, batch = trainer_of(loss, model, reference), inputs_of(loss)
        storages = Storages()
        frozen = [] if reference is None else [*reference.parameters(), *reference.buffers()]
        states = [value for state in optimizer.state.values() for value in state.values()]
        for tensor in (*model.parameters(), *model.buffers(), *frozen, *states, *batch.values()):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                storages.add(tensor)
        before = storages.total
        watch(base, storages, quiet=False)
        if reference is not None:
            watch(reference, storages, quiet=True)
        gc.collect()
        with storages:
            for _ in range(loss.accumulation):
                run(trainer, loss, model, reference, dict(batch), storages)
            storages.enter("optimizer")
            torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        gc.collect()
        return {"before": before} | {f"peak_{name}": size for name, size in storages.peaks.items() if name != "init"}


def watch(model: Any, storages: Storages, *, quiet: bool) -> None:
    """Passes without gradients are a phase; so is what follows the last norm of the policy."""

    def begins(*args: Any) -> None:
        if quiet or not torch.is_grad_enabled():
            storages.enter("reference")

    def ends(*args: Any) -> None:
        if quiet or torch.is_grad_enabled():
            storages.enter("loss")

    (model if quiet else model.base_model).register_forward_pre_hook(begins)
    (model if quiet else model.base_model).register_forward_hook(ends)


def run(trainer: Any, loss: Loss, model: Any, reference: Any, batch: dict[str, Any], storages: Storages) -> None:
    """A micro-batch, with the passes that go before it."""
    if loss.method in ("grpo", "rloo"):
        quiet(trainer, loss, model, reference, batch, storages)
    storages.enter("forward")
    call = {
        "dpo": lambda: trainer._compute_loss(model, batch, False),
        "kto": lambda: trainer._compute_loss(model, batch, False),
        "grpo": lambda: trainer._compute_loss(model, batch),
        "rloo": lambda: trainer._compute_loss(model, batch),
        "orpo": lambda: trainer.get_batch_loss_metrics(model, batch, "train")[0],
        "simpo": lambda: trainer.get_batch_loss_metrics(model, batch, "train")[0],
        "cpo": lambda: trainer.get_batch_loss_metrics(model, batch, "train")[0],
    }.get(loss.method, lambda: trainer.compute_loss(model, batch))
    value = call()
    storages.enter("backward")
    (value / loss.accumulation).backward()
    del value
    gc.collect()


def quiet(trainer: Any, loss: Loss, model: Any, reference: Any, batch: dict[str, Any], storages: Storages) -> None:
    """Old log-probabilities and those of the reference, of a whole generation in pieces of a micro-batch."""
    storages.enter("reference")
    rows = loss.generation_batch or loss.micro_batch
    tokens = [ones(rows, loss.prompt + loss.completion), ones(rows, loss.prompt + loss.completion)]

    def scored(of: Any) -> Any:
        return trainer._get_per_token_logps_and_entropies(of, *tokens, loss.completion, loss.micro_batch)[0]

    made: dict[str, Any] = {}
    with torch.no_grad():
        if loss.iterations > 1 or loss.method == "rloo":
            made["old"] = scored(model)
        if loss.reference == "model":
            made["ref"] = scored(reference)
        if loss.reference == "adapter off":
            with model.disable_adapter():
                made["ref"] = scored(model)
    part = {name: one[: loss.micro_batch] for name, one in made.items()}
    if loss.method == "rloo":
        batch["old_logps"] = part["old"].sum(1)
    elif "old" in part:
        batch["old_per_token_logps"] = part["old"]
    if loss.method == "grpo" and "ref" in part:
        batch["ref_per_token_logps"] = part["ref"]


KINDS = (
    Loss("Qwen/Qwen3-0.6B", "grpo", micro_batch=4, completion=1024, beta=0.0, iterations=2),
    Loss("Qwen/Qwen3-4B", "dpo", prompt=300, completion=1700, reference="model", variant="ipo"),
    Loss(
        "Qwen/Qwen3-4B",
        "grpo",
        micro_batch=2,
        completion=2048,
        reference="model",
        beta=0.04,
        variant="grpo",
        generation_batch=8,
    ),
    Loss("google/gemma-3-1b-it", "dpo", micro_batch=2, reference="model", variant="apo_zero"),
    Loss("google/gemma-3-1b-it", "grpo", micro_batch=4, recipe="autocast", beta=0.0),
    Loss("google/gemma-3-1b-it", "orpo", micro_batch=2),
    Loss("google/gemma-3-1b-it", "sft", micro_batch=4),
    Loss(
        "microsoft/Phi-4-mini-instruct",
        "dpo",
        micro_batch=2,
        lora=64,
        reference="adapter off",
        variant="sigmoid+bco_pair+sft",
    ),
    Loss(
        "microsoft/Phi-4-mini-instruct",
        "kto",
        micro_batch=4,
        checkpointing="reentrant",
        lora=8,
        reference="adapter off",
    ),
    Loss("microsoft/Phi-4-mini-instruct", "orpo", 2, 256, 256, checkpointing="off", lora=64),
    Loss("HuggingFaceTB/SmolLM3-3B", "grpo", 8, 1024, 256, checkpointing="reentrant", beta=0.0, entropy_bonus=True),
    Loss("HuggingFaceTB/SmolLM3-3B", "rloo", 4, 512, 2048, lora=32, targets="q_proj+v_proj", reference="adapter off"),
    Loss("HuggingFaceTB/SmolLM3-3B", "kto", 4, recipe="autocast", reference="precomputed", variant="apo_zero_unpaired"),
    Loss("HuggingFaceTB/SmolLM3-3B", "reward", micro_batch=4, lora=16),
    Loss("google/gemma-3-4b-it", "simpo", micro_batch=2, completion=1024, recipe="bf16"),
    Loss(
        "meta-llama/Llama-3.1-8B",
        "grpo",
        2,
        512,
        4096,
        lora=16,
        reference="adapter off",
        beta=0.04,
        iterations=2,
        generation_batch=8,
    ),
    Loss("meta-llama/Llama-3.1-8B", "cpo", 2, 512, 1500, recipe="autocast", lora=8),
    Loss("Qwen/Qwen3-4B", "gkd", micro_batch=2, lora=16, reference="model", beta=0.5, teacher="Qwen/Qwen3-14B"),
    Loss("openai/gpt-oss-20b", "dpo", 1, 512, 1024, lora=16, targets="q_proj+v_proj", reference="adapter off"),
    Loss("Qwen/Qwen1.5-MoE-A2.7B", "grpo", micro_batch=4, completion=1024, beta=0.0),
    Loss("LiquidAI/LFM2-1.2B", "dpo", 1, 256, 256, checkpointing="off", reference="model"),
    Loss("LiquidAI/LFM2-1.2B", "grpo", 1, 256, 256, beta=0.0),
    Loss("Qwen/Qwen3-0.6B", "distillation", reference="model", beta=1.0),
    Loss(
        "Qwen/Qwen3-0.6B",
        "distillation",
        micro_batch=2,
        completion=2048,
        recipe="autocast",
        reference="model",
        beta=0.5,
        teacher="Qwen/Qwen3-4B",
    ),
)


def main() -> None:
    lines = [json.dumps(loss.told() | {"phases": tracked(loss)}) for loss in KINDS]
    print("[\n " + ",\n ".join(lines) + "\n]")


if __name__ == "__main__":
    main()
