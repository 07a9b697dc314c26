"""Refusals of SGLang at start for flags that do not go with a model or a GPU (`arg_groups` of 0.5.23)."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import COMPRESSED_TENSORS, KERNELS, MODELOPT
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.serving.engines.families import class_family, families
from calc.serving.engines.rules import compressing
from calc.serving.engines.sglang.cache import HOPPER, UNBUFFERED, page_size
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.engines.sizes import LaidOut
from calc.serving.engines.vllm.layers import Capability, capability

TEXT_ALONE = families("sglang", "text_alone")


def unfit_flags(model: Architecture, options: SGLangOptions) -> Iterator[Refusal]:
    """Flags that go with this model on no GPU (`model_hook.py`, `deepseek_v4_hook.py`)."""
    if options.language_model_only and (family := class_family(model)) not in TEXT_ALONE:
        sentence = "SGLang leaves the encoder out (language_model_only) of few families, and not of {family}."
        yield Refusal(Message(sentence, family=family), "language_model_only", ["false"])
    if options.speculative_algorithm is not None and any(compressing(model.blocks)):
        if options.speculative_algorithm not in ("EAGLE", "NEXTN"):
            sentence = "SGLang guesses tokens of models of the family {family} by their own layer alone (EAGLE)."
            yield Refusal(Message(sentence, family=model.model_type), "speculative_algorithm", ["EAGLE"])
        elif options.speculative_eagle_topk not in (None, 1):
            sentence = "SGLang guesses one token a pass for models of the family {family}."
            yield Refusal(Message(sentence, family=model.model_type), "speculative_eagle_topk", [1])
    yield from unfit_strategy(model, options)


MARLIN: Capability = (8, 0)
"""First NVIDIA GPUs on which it runs Marlin."""
MODELOPT_FP8: Capability = (8, 9)
"""First NVIDIA GPUs on which it runs ModelOpt's fp8 (`modelopt_quant.py: ModelOptFp8Config.get_min_capability`)."""


def without_modelopt_fp8(laid_out: LaidOut, gpu: GPU) -> Iterator[Refusal]:
    """Refusals of files that ModelOpt quantized to fp8 as a whole, on GPUs that run other tools' fp8 by Marlin."""
    cuda = capability(gpu)
    if cuda is not None and cuda < MODELOPT_FP8 and any(f.tool == MODELOPT for f in laid_out.precision.stored_forms):
        sentence = "SGLang runs ModelOpt's fp8 from compute capability 8.9 on; {gpu} has {has}."
        yield Refusal(Message(sentence, gpu=gpu.name, has=gpu.capability), "weights", ["bf16"])


def without_marlin(laid_out: LaidOut, gpu: GPU) -> Iterator[Refusal]:
    """Why a GPU without Marlin, on which AWQ's own kernel is left, does not run integers of compressed-tensors
    (`compressed_tensors_wNa16.py: get_min_capability`) or routed experts (`awq.py: AWQConfig.get_quant_method`)."""
    precision, cuda = laid_out.precision, capability(gpu)
    older = cuda is not None and cuda < MARLIN
    if KERNELS.get(precision.weights) != "awq" or not (older or gpu.platform == "rocm"):
        return
    tools = {form.tool for form in precision.stored_forms}
    if precision.weights == "int4-w4a16" or COMPRESSED_TENSORS in tools:
        if older:
            sentence = "SGLang runs integers of compressed-tensors from compute capability 8.0 on; {gpu} has {has}."
            yield Refusal(Message(sentence, gpu=gpu.name, has=gpu.capability), "weights", ["int4"])
    elif laid_out.whole.experts:
        sentence = "SGLang runs routed experts in AWQ by Marlin, from compute capability 8.0 on, and not on {gpu}."
        yield Refusal(Message(sentence, gpu=gpu.name), "weights", ["bf16"])


def unfit_strategy(model: Architecture, options: SGLangOptions) -> Iterator[Refusal]:
    """Why recurrent states are not kept so for the prefix cache (`overrides.py: _mamba_radix_cache_resolution`,
    `mamba_hook.py`)."""
    strategy, field = options.mamba_radix_cache_strategy, "mamba_radix_cache_strategy"
    buffers = strategy in ("extra_buffer", "extra_buffer_lazy")
    if buffers and not model.recurrent:
        sentence = "mamba_radix_cache_strategy {strategy} is for recurrent states, which this model does not have."
        yield Refusal(Message(sentence, strategy=strategy), field)
    elif buffers and options.disable_radix_cache:
        sentence = "mamba_radix_cache_strategy {strategy} is for the prefix cache, which disable_radix_cache turns off."
        yield Refusal(Message(sentence, strategy=strategy), "disable_radix_cache", ["false"])
    elif buffers and model.model_type in UNBUFFERED:
        sentence = "SGLang has no mamba_radix_cache_strategy {strategy} for models of the family {family}."
        yield Refusal(Message(sentence, strategy=strategy, family=model.model_type), field, ["no_buffer"])
    unbuffered = strategy == "no_buffer" or (strategy is None and model.model_type in UNBUFFERED)
    if model.recurrent and unbuffered and not options.disable_radix_cache and options.page_size not in (None, 1):
        sentence = "Without buffers of states SGLang's prefix cache has pages of one token, not of {page:,}."
        yield Refusal(Message(sentence, page=options.page_size), "page_size", [1])


def unfit_pages(model: Architecture, gpu: GPU, options: SGLangOptions, step: int) -> Iterator[Refusal]:
    """Pages of the cache that do not divide chunks of so many tokens (`validation_hook.py: check_server_args`), or
    that the kernels do not read where a tree of tokens is verified (`speculative_hook.py`)."""
    page, algorithm = page_size(model, gpu, options), options.speculative_algorithm
    if step % page:
        sentence = "A chunk of {tokens:,} tokens on each copy of the attention is no whole number of pages of {page:,}."
        below = step - step % page
        yield Refusal(Message(sentence, tokens=step, page=page), "chunked_prefill_size", [n for n in (below,) if n])
    mixers = (mixer for block in model.blocks for mixer in block.mixers)
    sparse = any(mixer.absorbs and getattr(mixer, "indexer", None) is not None for mixer in mixers)
    by_ngram = algorithm == "NGRAM" and (sparse or gpu.capability == HOPPER)
    if page > 1 and (by_ngram or (sparse and algorithm is not None and (options.speculative_eagle_topk or 1) > 1)):
        sentence = "On {gpu}, SGLang's kernels verify no tree of tokens ({algorithm}) in pages of {page:,}."
        yield Refusal(Message(sentence, gpu=gpu.name, algorithm=algorithm, page=page), "speculative_algorithm")
