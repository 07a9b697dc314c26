"""A model's tensors as llama.cpp's converter writes them to a GGUF file.

Source: llama.cpp 0c1e57098, convert_hf_to_gguf.py with conversion/*.py, and gguf-py/gguf/constants.py for the names. A
file holds each layer's experts in one tensor, matrices that a checkpoint packs mostly apart, the buffers that a
checkpoint lists besides its parameters, and tables that the converter makes of the config.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calc.model.architecture import Architecture
from calc.model.block import Block, Extra
from calc.model.feedforward import MLP, MoE
from calc.model.mixers import Mixer
from calc.model.tensor import Component, Excluded, Shape, Shapes, Tensor, joined, norm_shapes

TABLE: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("gguf.toml").read_text(encoding="utf-8"))
"""Names in the file by those of a checkpoint."""
RECURRENT = {kind: TABLE["state_space"] | own for kind, own in TABLE["recurrent"].items()}
"""Names of the tensors of recurrent mixers, by their kind."""
QKV, GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
NORMS = {
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"): (
        "attn_norm",
        "post_attention_norm",
        "ffn_norm",
        "post_ffw_norm",
    ),
    ("post_attention_layernorm", "post_feedforward_layernorm"): ("post_attention_norm", "post_ffw_norm"),
}
"""Norms of a layer -> their names; else the first two are those before attention and feed-forward."""


def is_weight(tensor: Tensor) -> bool:
    """Whether it is a matrix, or several, and not a vector that lies in one."""
    wide = [side for side in tensor.shape if side > 1]
    flat = len(wide) < 2 and tensor.shape[-1:] == tuple(wide or tensor.shape[-1:])
    return not flat and tensor.name.endswith(".weight") and not tensor.name.endswith("_norm.weight")


def in_f32(tensor: Tensor) -> bool:
    """Whether the converter writes it in 32 bits in a file of 16."""
    return not is_weight(tensor) or any(part in tensor.name for part in TABLE["in_32_bits"])


def is_quantized(tensor: Tensor) -> bool:
    """Whether a mix chooses a type for it."""
    return is_weight(tensor) and not any(part in tensor.name for part in TABLE["never_quantized"])


def gguf_tensors(architecture: Architecture) -> tuple[Tensor, ...]:
    """Every tensor of the file; `blk.{layer}` stands where it repeats. Draft layers and the vision encoder, which lies
    in a file of its own (mmproj), are listed apart."""
    return tuple(_tensors(architecture))


def _tensors(model: Architecture) -> Iterator[Tensor]:
    width = model.d_embedding or model.hidden
    padded, own = model.gguf.cut_vocab or (model.vocab, model.vocab)
    vocab = own if model.vocab == padded else model.vocab
    yield Tensor("token_embd.weight", (vocab + model.extra_rows, width), "embedding")
    if model.positions:
        yield Tensor("position_embd.weight", (model.positions, model.hidden), "embedding")
    for block in model.all_blocks:
        yield from _block(model, block)
    for module in model.prediction:
        yield from _block(model, module.block, "multi_token_prediction")
        for name, shape in module.own_shapes(model.hidden, vocab, vocab).items():
            module_name, _, leaf = name.rpartition(".")
            where = f"blk.{{layer}}.nextn.{TABLE['prediction'].get(module_name, module_name.replace('.', '_'))}.{leaf}"
            yield Tensor(where, shape, "other", module.block.layers, excluded_as="multi_token_prediction")
    for name, shape in norm_shapes("output_norm", model.final_norm, model.hidden).items():
        yield Tensor(name, shape, "norms")
    yield from _extras(model, vocab)
    yield from _rope_factors(model)
    if not model.tied:
        yield Tensor("output.weight", (vocab, width), "lm_head")
    if model.head_bias:
        yield Tensor("output.bias", (vocab,), "lm_head")
    if model.vision is not None:
        for name, shape, copies in model.vision.shapes(model.hidden):
            yield Tensor(name, shape, "vision", tuple(range(copies)), excluded_as="vision")


def _extras(model: Architecture, vocab: int) -> Iterator[Tensor]:
    """Tensors outside the layers that only one family has. Numbered matrices stand in one tensor; a second table of
    tokens has as many rows as the first."""
    stacks: dict[str, list[Extra]] = {}
    for extra in model.extras:
        stacks.setdefault(re.sub(r"\.\d+\.", ".", extra.name), []).append(extra)
    for name, parts in stacks.items():
        shape, component = parts[0].shape, parts[0].component
        if name == "model.embed_tokens_per_layer.weight":
            shape = (max(vocab, shape[0]), *shape[1:])
        yield Tensor(_named(name, TABLE["extras"]), shape if len(parts) == 1 else (len(parts), *shape), component)


def _rope_factors(model: Architecture) -> Iterator[Tensor]:
    """Factors of the rotary frequencies, which the converter works out of the config."""
    attentions = [mixer for block in model.blocks for mixer in block.attentions if mixer.window is None]
    heads = [mixer.head_width for mixer in attentions if mixer.head_width is not None]
    if heads and (model.details.rope == "llama3" or model.gguf.rope_factors):
        yield Tensor("rope_freqs.weight", (heads[0] // 2,), "other")
    if model.details.rope == "longrope" and model.details.rope_factors:
        for length in ("long", "short"):
            yield Tensor(f"rope_factors_{length}.weight", (model.details.rope_factors,), "other")


def _norms(block: Block) -> list[str]:
    known = next((size for size in (4, 2) if block.norms[:size] in NORMS), 0)
    first = NORMS[block.norms[:known]] if known else ("attn_norm", "ffn_norm")[: len(block.norms)]
    return [*first, *(TABLE["further_norms"].get(name, name) for name in block.norms[len(first) :])]


def _block(model: Architecture, block: Block, excluded_as: Excluded | None = None) -> Iterator[Tensor]:
    def tensor(name: str, shape: Shape, component: Component, experts: int = 1, top_k: int = 1) -> Tensor:
        return Tensor(f"blk.{{layer}}.{name}", shape, component, block.layers, experts, top_k, excluded_as)

    for name in _norms(block):
        for key, shape in norm_shapes(name, block.norm, model.hidden).items():
            yield tensor(key, shape, "norms")
    packed = [parts for parts in model.names.packed.values() if parts == QKV and not model.gguf.splits_qkv]
    for mixer in block.mixers:
        for name, shape in _mixer(mixer, model, packed=bool(packed)).items():
            yield tensor(name, shape, mixer.component)
    if block.moe is not None:
        yield from (tensor(*row) for row in _experts(block.moe, model))
    if block.dense is not None:
        yield from (tensor(name, shape, "mlp") for name, shape in _dense(block.dense, model).items())
    for extra in block.extras:
        if extra.excluded_as in (None, "persistent_buffers"):
            yield tensor(_named(extra.name, TABLE["extras"]), extra.shape, extra.component, extra.experts, extra.top_k)


def _mixer(mixer: Mixer, model: Architecture, *, packed: bool) -> Shapes:
    shapes = mixer.gguf_shapes(model.hidden, model.gguf)
    if packed:
        shapes = joined(shapes, QKV, "attn_qkv")
    modules = {**TABLE["modules"], **RECURRENT.get(mixer.kind, {})}
    return {_named(name, modules): tuple(s for s in shape if s > 1 or len(shape) < 3) for name, shape in shapes.items()}


def _dense(mlp: MLP, model: Architecture) -> Shapes:
    """A dense feed-forward; packed gate and up are called ffn_up."""
    shapes = mlp.shapes(model.hidden)
    packed = any(set(parts) == set(GATE_UP) for parts in model.names.packed.values())
    if packed and not model.gguf.splits_gate_up:
        shapes = joined(shapes, GATE_UP, "ffn_up")
    return {_named(name, TABLE["modules"]): shape for name, shape in shapes.items()}


TensorRow = tuple[str, Shape, Component, int, int]


def _experts(moe: MoE, model: Architecture) -> Iterator[TensorRow]:
    """Router, routed and shared experts of a layer; the routed ones stand in one tensor for each matrix."""
    hidden, local_experts = model.hidden, moe.local_experts or moe.n_experts
    rows = moe.n_experts + moe.n_zero
    yield "ffn_gate_inp.weight", (rows, hidden), "router", 1, 1
    if moe.router_bias:
        yield "ffn_gate_inp.bias", (rows,), "router", 1, 1
    if moe.router_correction != "none":
        yield "exp_probs_b.bias", (rows,), "router", 1, 1
    expert = moe.expert_shapes(hidden)
    if model.gguf.packs_experts:
        expert = joined(expert, GATE_UP, "ffn_gate_up")
    for name, shape in expert.items():
        module, _, leaf = _named(name, TABLE["modules"]).rpartition(".")
        yield f"{module}_exps.{leaf}", (local_experts, *shape), "experts_routed", local_experts, moe.top_k
    if moe.latent is not None:
        yield "ffn_latent_down.weight", (moe.latent, hidden), "other", 1, 1
        yield "ffn_latent_up.weight", (hidden, moe.latent), "other", 1, 1
    if moe.shared is not None:
        for name, shape in moe.shared.shapes(hidden).items():
            module, _, leaf = _named(name, TABLE["modules"]).rpartition(".")
            yield f"{module}_shexp.{leaf}", shape, "experts_shared", 1, 1
    if moe.shared_gate:
        yield "ffn_gate_inp_shexp.weight", (1, hidden), "router", 1, 1
    if moe.parallel_mlp is not None:
        for name, shape in _dense(moe.parallel_mlp, model).items():
            yield name, shape, "mlp", 1, 1


def _named(name: str, modules: Mapping[str, str]) -> str:
    """The file's name of `module.weight`, of a module whose own name is a whole one, or of a bare parameter."""
    if name in modules:
        return modules[name]
    module, dot, leaf = name.rpartition(".")
    return f"{modules.get(module, module)}{dot}{leaf}"
