"""How much vLLM does at once and what it takes of a GPU, where its flags do not say (`engine/arg_utils.py`)."""

from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.encoder import image_bytes, largest_item, profiled_images
from calc.serving.engines.vllm.habits import habits, sees_images_whole
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds
from calc.units import GIB

LONGEST_WHOLE_PROMPT = 32_768
"""Tokens of a prompt that vLLM before 0.8 does not cut."""


def limits(options: VLLMOptions, gpu: GPU, architecture: Architecture, max_model_len: int, *, pp: int = 1) -> Limits:
    """The limits of a server, for requests of up to max_model_len tokens on pp pipeline stages."""
    tokens, sequences = defaults(options, gpu, max_model_len)
    sequences = options.max_num_seqs or sequences
    if options.max_num_batched_tokens is not None:
        tokens = options.max_num_batched_tokens
    else:
        if sees_images_whole(architecture, options):
            tokens = max(tokens, habits(architecture).item_tokens)
        tokens = min(tokens, sequences * max_model_len)
    if options.max_num_seqs is None:
        sequences = min(sequences, tokens)
    share = options.gpu_memory_utilization or (0.92 if holds("0.92 of the GPU", options) else 0.9)
    images = profiled_images(architecture, options, tokens, max_model_len)
    return Limits(
        step_tokens=tokens,
        sequences=sequences,
        share=share,
        in_flight_tokens=tokens * steps_in_flight(options, pp),
        encoder_bytes=image_bytes(architecture, options, images),
        image_patches=images.patches,
        image_tokens=largest_item(architecture, options, max_model_len) if images.tokens else 0,
    )


def defaults(options: VLLMOptions, gpu: GPU, max_model_len: int) -> tuple[int, int]:
    """Tokens of a step and sequences on this GPU (`get_batch_defaults`). Large steps made the A100 slower; the GB10 has
    the memory of a large GPU but not its speed."""
    if not holds("prompts are cut into chunks", options):
        return (max_model_len if 2048 < max_model_len <= LONGEST_WHOLE_PROMPT else 2048), 256
    if gpu.memory_bytes >= 160 * GIB and holds("16,384 tokens from 160 GiB on", options):
        return 16_384, 1024
    if gpu.memory_bytes >= 70 * GIB and "A100" not in gpu.name and gpu.capability != "12.1":
        return 8192, 1024
    return 2048, 256


def steps_in_flight(options: VLLMOptions, pp: int) -> int:
    """Steps whose tokens may be unsettled at once: one a pipeline stage, and one that is scheduled while the last one
    runs (`VllmConfig.max_concurrent_batches`)."""
    if not holds("steps in flight", options):
        return 1
    return pp if options.async_scheduling is False else pp + 1
