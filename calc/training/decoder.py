"""Decoder layers, the embedding and the head, as transformers' classes compute them in training."""

from calc.model.attention import GQA
from calc.model.block import Block, Norm
from calc.model.feedforward import MoE
from calc.model.mixers import CompressedAttention, Mixer
from calc.model.mla import LatentAttention
from calc.training.autograd import TrackedTensor, scoped
from calc.training.experts import beside_dense, mixture
from calc.training.latent import compressed_attention, latent_attention
from calc.training.modules import Modules, Rotary
from calc.training.per_layer import mixed_in
from calc.training.training_attention import grouped_query
from calc.training.training_feedforward import mlp
from calc.training.training_recurrent import recurrent


@scoped
def layer(
    t: Modules, block: Block, x: TrackedTensor, rotary: Rotary | None, inputs: TrackedTensor | None
) -> TrackedTensor:
    """One decoder layer: mixer and feed-forward, each with norms before or behind it, added to the stream; `inputs` are
    those of single layers, where there are any."""
    if block.mixers and block.ffn is not None and (len(block.norms) == 1 or t.kernels.parallel):
        return parallel(t, block, x, rotary)
    if block.mixers:
        residual = t.cast(x, 4, "residual stream") if t.kernels.fp32_stream else x
        x = before(t, block, t.cast(x, t.settings.rest, "states") if t.kernels.fp32_stream else x)
        residual = x if t.kernels.normed_stream else residual
        with t.alive(residual):
            x = behind(t, block, mixed(t, block, x, rotary))
            x = summed(t, block, residual, t.local(x) if t.kernels.holds_attended else x)
    if block.ffn is not None:
        residual = x
        x = before(t, block, x)
        residual = t.local(x if t.kernels.normed_stream else residual)
        x = summed(t, block, residual, behind(t, block, fed(t, block, x, residual)))
    if inputs is not None:
        x = mixed_in(t, block, x, inputs)
    return t.scaled_in_place(x) if t.kernels.scaled_layers else x


@scoped
def before(t: Modules, block: Block, x: TrackedTensor) -> TrackedTensor:
    """What mixers or a feed-forward read: the states of all tokens, normed by most."""
    normed = block.norms_first and not t.kernels.norms_sums
    return t.gathered(t.norm(x, t.kernels.norm_kind(block.norm), "normed states") if normed else x)


@scoped
def behind(t: Modules, block: Block, x: TrackedTensor) -> TrackedTensor:
    """The norm of a block's output, for those that have one, and dropout."""
    if len(block.norms) == 4 or not block.norms_first:
        x = t.norm(x, t.kernels.norm_kind(block.norm), "normed output")
    return t.dropout(x, "output after dropout") if "residual" in t.kernels.dropout else x


@scoped
def summed(t: Modules, block: Block, residual: TrackedTensor, x: TrackedTensor) -> TrackedTensor:
    """The residual stream; with a norm behind the sum in OPT-350m."""
    if t.kernels.normed_stream:
        residual, x = t.scale(residual, "residual stream"), t.scale(x, "residual stream")
    x = t.add(residual, x, "residual stream")
    return t.norm(x, t.kernels.norm_kind(block.norm), "residual stream") if t.kernels.norms_sums else x


@scoped
def parallel(t: Modules, block: Block, x: TrackedTensor, rotary: Rotary | None) -> TrackedTensor:
    """Attention and feed-forward read the same states, normed together or each by itself."""
    residual = x
    x = before(t, block, x)
    attended = t.local(behind(t, block, mixed(t, block, x, rotary)))
    if len(block.norms) > 1:
        with t.alive(x):
            x = before(t, block, residual)
    x = t.local(behind(t, block, fed(t, block, x, residual)))
    return t.add(t.add(residual, attended, "residual stream"), x, "residual stream")


@scoped
def mixed(t: Modules, block: Block, x: TrackedTensor, rotary: Rotary | None) -> TrackedTensor:
    """What the mixers make of the same states, side by side where there are several."""
    first, *others = reversed(block.mixers) if t.kernels.multiplied else block.mixers
    y = mixed_by(t, first, block.norm, x, rotary)
    for mixer in others:
        y = t.add(y, mixed_by(t, mixer, block.norm, x, rotary), "output of the mixers")
    return y


@scoped
def mixed_by(t: Modules, mixer: Mixer, norm: Norm, x: TrackedTensor, rotary: Rotary | None) -> TrackedTensor:
    if isinstance(mixer, GQA):
        return grouped_query(t, mixer, norm, x, rotary)
    if isinstance(mixer, LatentAttention):
        return latent_attention(t, mixer, x, rotary)
    if isinstance(mixer, CompressedAttention):
        return compressed_attention(t, mixer, x)
    return recurrent(t, mixer, x)


@scoped
def fed(t: Modules, block: Block, x: TrackedTensor, state: TrackedTensor) -> TrackedTensor:
    """What the feed-forward makes of normed states; some experts read the state itself."""
    if isinstance(block.ffn, MoE):
        if block.ffn.beside is not None:
            return beside_dense(t, block, block.ffn, block.ffn.beside, x, state)
        return mixture(t, block.ffn, x)
    assert block.ffn is not None
    return mlp(t, block.ffn, x)
