"""Tensors alive in a pass of mlx-lm above weights and cache.

MLX is lazy: a pass of the prompt is asked for its caches alone, so that logits are those of one token, and memory of an
array is free again once all that reads it has run. Tensors were read off mlx-lm's modules and `mx.get_peak_memory` of
MLX's CPU build (`benchmarks/oracle/write_mlx.py`), where arrays of the same sizes stand for Metal's kernels of
convolutions and gated delta rules. There attention is not one kernel; Metal's is, for the widths of
`has_fused_kernel` (mlx/backend/metal/scaled_dot_product_attention.cpp), and what it holds is computed, not measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.feedforward import MLP
from calc.model.mixers import Mixer
from calc.model.named import Peak
from calc.model.recurrent import Mamba2, Recurrent
from calc.model.tensor import Elements
from calc.serving.engines.mlx.cache import EXPANDED_LATENTS, TOKEN_LOOPS

CHUNK = 256
"""Tokens of a sequence that Mamba-2 takes at once (`ssm_attn` of mlx-lm's models/ssm.py)."""
KERNEL_HEAD_WIDTHS = frozenset({64, 72, 80, 96, 128, 192, 256})
"""Widths of heads, of queries as of values, that Metal's kernel takes for more than eight tokens."""
Place = tuple[int, int]
"""Number of a block, and of a mixer in it."""


@dataclass(frozen=True)
class Pass:
    """A forward pass over tokens of some sequences."""

    sequences: Any
    tokens: Any  # of all sequences
    numbers: tuple[int, int]  # sequences and tokens as integers, also where those above are symbols
    length: Any  # tokens of each sequence that attention reads
    width: int  # bytes of an element
    unfused: frozenset[Place]  # attention without a fused kernel, whose scores are written out

    @property
    def tokens_each(self) -> int:
        """Tokens of a sequence that pass, which decide how many chunks they are."""
        sequences, tokens = self.numbers
        return tokens // sequences


def pass_peaks(blocks: Iterable[Block], model: Architecture, step: Pass) -> Iterator[Peak]:
    """Peaks of a pass, bytes by tensor: in each mixer and feed-forward, with what the layers before the last of its
    kind keep, and at the logits of one token a sequence."""
    blocks = list(blocks)
    for number, block in enumerate(blocks):
        until_end = kept_until_pass_ends(blocks, max(block.runs_in), model, step)
        for peak in layer_peaks(number, block, model, step):
            yield Peak(peak.what, {**peak.tensors, **until_end})
    row = step.sequences * model.vocab
    yield Peak(Message("the logits of a token"), {"logits": step.width * row, "logarithms of shares": step.width * row})


def layer_peaks(number: int, block: Block, model: Architecture, step: Pass) -> Iterator[Peak]:
    """Peaks of a layer, bytes by tensor: of its mixers, of a recurrence that Python runs, and of its feed-forward."""
    for place, mixer in enumerate(block.mixers):
        yield mixer_peak(mixer, block, model, step, unfused=(number, place) in step.unfused)
    if (states := TOKEN_LOOPS.get(model.model_type)) is not None:
        for scan in block.recurrences:
            yield scan_peak(scan, states, model, step)
    for what, elements in feedforward_elements(block, model):
        yield Peak(what, {name: step.width * step.tokens * size for name, size in elements.items()})


def kept_until_pass_ends(blocks: Sequence[Block], layer: int, model: Architecture, step: Pass) -> dict[str, Any]:
    """Bytes that recurrent layers before a layer keep until a pass over prompts ends. Their states are outputs of the
    pass, and MLX computes what is nearest to an output last (`eval_impl` of mlx/transforms.cpp). What states are read
    off waits: inputs of convolutions; of Mamba-2 also x, B and C, x times dt, and the last chunk's decays (`ssm_attn`
    of mlx-lm's models/ssm.py, which Metal runs too)."""
    length = step.tokens_each
    channels, of_states, decays = 0, 0, 0
    if length == 1 or model.model_type in TOKEN_LOOPS:
        return {}
    for block in blocks:
        layers = sum(place < layer for place in block.runs_in)
        for mixer in block.recurrences:
            columns = getattr(mixer, "d_conv", None)
            channels += layers * (mixer.conv_elements() // columns if columns else 0)
            if isinstance(mixer, Mamba2):
                of_states += layers * (step.width * mixer.channels() + 4 * mixer.n_heads * mixer.d_head)
                decays += layers * step.sequences * chunk_decays(mixer, length)
    saved = {
        "inputs of all convolutions": step.width * step.tokens * channels,
        "x, B, C and x times dt of all layers": step.tokens * of_states,
        "decays of every layer's last chunk": decays,
    }
    return {name: nbytes for name, nbytes in saved.items() if nbytes}


def chunk_decays(mixer: Mamba2, length: int) -> Any:
    """Bytes of a sequence's decays from token to token of a chunk, for every head, in fp32 (`segsum`)."""
    tokens = min(CHUNK, length)
    return 4 * mixer.n_heads * tokens * tokens


def without_kernel(blocks: Sequence[Block], model: Architecture) -> frozenset[Place]:
    """Attention for which Metal has no kernel: heads of another width, or values of another one than keys, or capped
    scores. The rotary part of a latent's keys is in the mask."""
    mixers = (
        ((number, place), mixer) for number, block in enumerate(blocks) for place, mixer in enumerate(block.mixers)
    )
    return frozenset(place for place, mixer in mixers if mixer.score_heads and not has_kernel(mixer, model))


def has_kernel(mixer: Mixer, model: Architecture) -> bool:
    """Whether Metal has a fused kernel for attention over a prompt."""
    grouped = mixer.as_grouped()
    if grouped is None or model.kernels.capped_scores:
        return False
    key, value = grouped.attended_widths
    rotary = sum(mixer.shared_parts[1:]) if mixer.absorbs and model.model_type not in EXPANDED_LATENTS else 0
    return key - rotary == value and value in KERNEL_HEAD_WIDTHS


def mixer_elements(mixer: Mixer, model: Architecture) -> Elements:
    """Elements of a token, by name, that attention or a recurrence holds. A latent is expanded to keys and values of
    every head, to which rotary keys are joined only where the cache has them so."""
    made = mixer.fused_elements(model.hidden)
    if not mixer.absorbs:
        return made
    if model.model_type in EXPANDED_LATENTS:
        return made | {"keys and values before they are joined": made["keys"] + made["values and output"]}
    return {name: size for name, size in made.items() if name != "keys"}


def mixer_peak(mixer: Mixer, block: Block, model: Architecture, step: Pass, *, unfused: bool) -> Peak:
    """Peak in attention or a recurrence, with the residual stream and what a feed-forward makes that reads the same
    input. Without a fused kernel it holds the scores of all heads; latent attention always those of rotary keys, which
    a kernel takes as its mask."""
    if isinstance(mixer, Mamba2) and step.numbers[1] > step.numbers[0]:
        return chunks_peak(mixer, model, step)
    elements = {"residual stream": model.hidden} | mixer_elements(mixer, model)
    if block.dense is not None and (model.kernels.parallel or len(block.norms) == 1):
        elements |= mlp_elements(block.dense, 1)
    tensors = {name: step.width * step.tokens * size for name, size in elements.items()}
    seen = step.tokens * step.length
    scores = step.width * seen * mixer.score_heads
    if mixer.absorbs and model.model_type not in EXPANDED_LATENTS:
        tensors["scores of rotary keys"] = scores
    if unfused:
        tensors["scores of every head"] = scores
    if unfused or mixer.window is not None:
        tensors["mask"] = seen
    return Peak(mixer.title(), tensors)


def chunks_peak(mixer: Mamba2, model: Architecture, step: Pass) -> Peak:
    """Peak of Mamba-2 over a prompt: decays of every chunk, and a further one while it is made."""
    length = step.tokens_each
    decays = step.sequences * (-(-length // CHUNK) + 1) * chunk_decays(mixer, length)
    made = {"projections": step.width * step.tokens * mixer.projected(model.hidden)}
    return Peak(mixer.title(), made | {"decays of every chunk, and one more": decays})


def scan_peak(mixer: Recurrent, states: int, model: Architecture, step: Pass) -> Peak:
    """Peak of a recurrence that Python runs token by token: so many states of every token wait to be read, and outputs
    to be joined where each token has one of its own."""
    elements = {"residual stream": model.hidden} | mixer.fused_elements(model.hidden)
    elements["states of every token"] = states * mixer.state_elements()
    if states == 1:
        elements["outputs of every token, and joined"] = mixer.projected(model.hidden)
    return Peak(mixer.title(), {name: step.width * step.tokens * size for name, size in elements.items()})


def feedforward_elements(block: Block, model: Architecture) -> Iterator[tuple[Message, Elements]]:
    """Elements of a token, by name, at the peaks of a feed-forward. Experts read copies of the token, sorted by expert,
    and their outputs are sorted back and weighted (`SwitchGLU`)."""
    hidden = model.hidden
    if block.dense is not None:
        packed = any({"gate_proj", "up_proj"} <= set(parts) for parts in model.names.packed.values())
        wide = mlp_elements(block.dense, 1)
        copies: Elements = {"gate and up, copied": sum(wide.values())} if packed else {}
        yield Message("the feed-forward"), {"residual stream, input and output": 3 * hidden} | wide | copies
    if moe := block.moe:
        stream: Elements = {"residual stream and input": 2 * hidden}
        stream |= {"output of the shared expert": hidden} if moe.shared_gate else {}
        wide = mlp_elements(moe.expert, moe.top_k)
        biases: Elements = {"biases of each choice": sum(wide.values())} if moe.expert.bias else {}
        yield Message("the routed experts"), stream | {"copies of each token": moe.top_k * hidden} | wide | biases
        yield (
            Message("the outputs of routed experts"),
            stream | {"outputs, sorted and weighted": 3 * moe.top_k * hidden},
        )


def mlp_elements(mlp: MLP, copies: Any) -> Elements:
    """Elements of the outputs of a feed-forward's first matrices; the activation takes the place of one of them."""
    return {"gate and up": (2 if mlp.gated else 1) * copies * mlp.intermediate}
