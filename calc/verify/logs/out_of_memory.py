"""PyTorch's message that memory ran out, of 2.1 on and before it. Its sizes are binary
(c10/cuda/CUDACachingAllocator.cpp). And the phase in which a trainer ran out of it, by the frames of its traceback:
TRL, verl, OpenRLHF, transformers, DeepSpeed and the engine within them."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from calc.errors import Frozen, Message
from calc.serving.engines.startup_log import SIZE
from calc.units import GIB, MIB

OOM_WORDS = "out of memory. Tried to allocate "
CHARACTERS = 2_000  # a narrow terminal breaks a message of 600 characters over several lines
BYTES = {"bytes": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB, "KB": 2**10, "MB": MIB, "GB": GIB}
WORDINGS = {
    "tried": (r"Tried to allocate SIZE",),
    "total": (r"has a total capac(?:i)?ty of SIZE", r"; SIZE total capacity"),
    "free": (r"of which SIZE is free", r"; SIZE free"),
    "allocated": (r"allocated memory SIZE is allocated by PyTorch", r"; SIZE already allocated"),
    "reserved": (r"SIZE is reserved by PyTorch but unallocated", r"; SIZE cached"),
    "in_use": (r"this process has SIZE memory in use",),
    "others": (r"Process [0-9]{1,10} has SIZE memory in use",),
    "pool": (r"; SIZE reserved in total by PyTorch",),
}
PATTERNS = {
    name: tuple(re.compile(wording.replace("SIZE", SIZE.replace("NAME", "a")), re.ASCII) for wording in wordings)
    for name, wordings in WORDINGS.items()
}
RETRY_WORDS = "memory allocation failed with OOM on device "
RETRY = re.compile(
    RETRY_WORDS + r"[0-9]{1,4} while trying to allocate ([0-9]{1,18}) bytes "
    r"\(free: ([0-9]{1,18}), total: ([0-9]{1,18})\)",
    re.ASCII,
)
"""A warning of PyTorch, after which it frees what it has cached and tries again."""


class OutOfMemory(Frozen):
    """PyTorch's message, in bytes."""

    tried: int
    total: int | None = None
    free: int | None = None
    in_use: int | None = None  # by this process; where a container hides its number, by all that are listed
    allocated: int | None = None  # by PyTorch
    reserved: int | None = None  # by PyTorch, but not allocated
    is_warning: bool = False  # PyTorch tries again


def size(match: re.Match[str], name: str = "a") -> int:
    """Bytes of a size. Engines, too, divide by 2^30 whatever they write: vLLM GiB, and GB before 0.8; SGLang GB
    (`get_available_gpu_memory`, memory_pool.py)."""
    return round(float(match[name]) * BYTES[match[f"{name}_unit"]])


def ran_out(line: str) -> bool:
    return OOM_WORDS in line or RETRY_WORDS in line


def out_of_memory(text: str) -> OutOfMemory | None:
    """PyTorch's message, which begins within the text."""
    warning = RETRY.search(text)
    if warning is not None and OOM_WORDS not in text:
        tried, free, total = map(int, warning.groups())
        return OutOfMemory(tried=tried, free=free, total=total, is_warning=True)
    message = OOM_WORDS + text.partition(OOM_WORDS)[2].partition(OOM_WORDS)[0][:CHARACTERS]
    matched = {
        name: [size(match) for wording in wordings for match in wording.finditer(message)]
        for name, wordings in PATTERNS.items()
    }
    if not matched["tried"]:
        return None
    first = {name: sizes[0] if sizes else None for name, sizes in matched.items()}
    allocated, reserved, pool = first["allocated"], first["reserved"], first["pool"]
    if reserved is None and pool is not None and allocated is not None:
        reserved = pool - allocated
    return OutOfMemory(
        tried=matched["tried"][0],
        total=first["total"],
        free=first["free"],
        in_use=first["in_use"] or sum(matched["others"]) or None,
        allocated=allocated,
        reserved=reserved,
    )


FailedPhase = Literal["loading", "engine", "rollout", "weight_sync", "reference", "forward", "backward", "optimizer"]
FRAME = re.compile(r'File "([^"\n]{1,500})", line [0-9]{1,7}, in ([^\s()]{1,200})', re.ASCII)
ENDS = ("out of memory", "OutOfMemoryError")
UPDATE = re.compile(r"[/\\](optim|optimizer|bitsandbytes)[/\\.]|[/\\]deepspeed[/\\]runtime[/\\].*(zero|bf16_optimizer)")
"""Paths of what updates weights, in frames that are called `step` or by a name of Adam's."""

TRAINERS = re.compile(
    r"[/\\](trl|verl|openrlhf|unsloth|swift|llamafactory|axolotl)[/\\]|transformers[/\\]trainer", re.I
)


class FailurePoint(NamedTuple):
    """A phase in words, what makes it smaller, and names of functions that say the phase: of several frames the
    innermost decides."""

    said: Message
    advice: Message
    functions: str = ""


POINTS: dict[FailedPhase, FailurePoint] = {
    "loading": FailurePoint(
        Message("while the model was loaded"),
        Message("Weights in 16 bits, sharding (ZeRO-3, FSDP) or a quantized base make it smaller."),
        "from_pretrained create_model_from_path init_model _build_model_optimizer prepare_model",
    ),
    "engine": FailurePoint(
        Message("while the engine started"),
        Message("Less of the GPU for the engine leaves more to the trainer; too little does not start it."),
        "determine_available_memory profile_run initialize_from_config initialize_kv_cache _initialize_kv_caches "
        "capture_model compile_or_warm_up_model load_model",
    ),
    "rollout": FailurePoint(
        Message("while completions were generated"),
        Message("Less of the GPU for the engine, or trained weights and states offloaded while it generates."),
        "generate _generate _generate_single_turn generate_sequences execute_model",
    ),
    "weight_sync": FailurePoint(
        Message("while weights were handed to the engine, or it woke up"),
        Message(
            "The engine's cache comes back while the trainer's memory is still taken: less of the GPU for the engine, "
            "or states offloaded."
        ),
        "sync_weights _move_model_to_vllm update_weights update_weight load_weights wake_up merge_adapter rollout_mode "
        "broadcast_to_vllm",
    ),
    "reference": FailurePoint(
        Message("in a pass without gradients: of the reference, or of the policy before the update"),
        Message("A smaller micro-batch of log-probabilities, or a trainer that builds no logits."),
        "_generate_and_score_completions compute_ref_log_prob compute_ref_log_probs compute_log_prob "
        "compute_old_log_prob _compute_ref_log_probs _compute_reference_log_probs compute_reference_log_probs "
        "null_ref_context _compute_kl_logps",
    ),
    "forward": FailurePoint(
        Message("in the forward pass or the loss of the update"),
        Message("A smaller micro-batch, shorter completions, or log-probabilities without logits."),
        "compute_loss _compute_loss get_batch_loss_metrics update_policy update_actor forward_step "
        "forward_backward_batch training_step",
    ),
    "backward": FailurePoint(
        Message("in the backward pass of the update"),
        Message("Activation checkpointing, a smaller micro-batch, or log-probabilities without logits."),
        "backward _engine_run_backward run_backward",
    ),
    "optimizer": FailurePoint(
        Message("at the optimizer's step"),
        Message("8-bit states, sharding, or an engine that sleeps while the model is trained."),
    ),
}
PHASES = {name: phase for phase, point in POINTS.items() for name in point.functions.split()}


class TrainingFailure(Frozen):
    """Point where a trainer ran out of memory."""

    phase: FailedPhase
    message: Message
    advice: Message


def training_failure(text: str, failure: OutOfMemory | None) -> TrainingFailure | None:
    """The phase of a training step in which a traceback ran out of memory; None where it is no trainer's."""
    frames = list(FRAME.findall(traceback_of(text)))
    phases = list(phases_of(frames))
    if not phases or not any(TRAINERS.search(path) for path, _ in frames):
        return None
    phase = phases[-1]
    phrase, advice, _ = POINTS[phase]
    if failure is None:
        message = Message("The trainer ran out of memory {when}.", when=phrase)
    elif failure.free is None:
        sentence = "The trainer ran out of memory {when}: PyTorch asked for {tried:.2f} GiB."
        message = Message(sentence, when=phrase, tried=failure.tried / 2**30)
    else:
        sentence = "The trainer ran out of memory {when}: PyTorch asked for {tried:.2f} GiB, {free:.2f} GiB were free."
        message = Message(sentence, when=phrase, tried=failure.tried / 2**30, free=failure.free / 2**30)
    return TrainingFailure(phase=phase, message=message, advice=advice)


def traceback_of(text: str) -> str:
    """The text from the last traceback's head to the first line in which memory has run out."""
    ends = [place for end in ENDS if (place := text.find(end)) >= 0]
    before = text[: min(ends)] if ends else ""
    return before[max(0, before.rfind("Traceback (most recent call last)")) :]


def phases_of(frames: list[tuple[str, str]]) -> Iterator[FailedPhase]:
    """Phases that frames name, the outermost first. A trainer's own step is the optimizer's only below optimizers'
    files; `generate` and a reference's pass stand within what prepares a batch."""
    for path, name in frames:
        if UPDATE.search(path) and ("step" in name or "adam" in name.lower()):
            yield "optimizer"
        elif name in PHASES:
            yield PHASES[name]
