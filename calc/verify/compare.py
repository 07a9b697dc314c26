"""Our tensor list against a real checkpoint's: matched by name and shape."""

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Literal

from calc.errors import Frozen
from calc.model.architecture import Architecture
from calc.model.tensor import Shape
from calc.verify.checkpoint import Checkpoint, StoredTensor

Status = Literal["missing", "extra", "other shape"]

PREFIXES = (
    ("", ""),
    ("", "model."),
    ("model.", ""),
    ("", "transformer."),
    ("transformer.", ""),
    ("language_model.", ""),
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("model.language_model.", ""),
    ("base_model.model.", ""),
    ("model.text_model.", "model."),
    ("vision_tower.", "vision_tower.vision_model."),
    ("model.vision_tower.", "vision_tower.vision_model."),
    ("model.vision_tower.", "model.vision_tower.vision_model."),
    ("vision_tower.vision_model.", "vision_tower."),
    ("model.vision_tower.vision_model.", "model.vision_tower."),
)
"""Prefix of names in a checkpoint -> prefix in ours. transformers 5.23 leaves out a level of some
encoders' names that was published, and puts one before some language models."""
PACKED = {".qweight": ".weight", ".weight_packed": ".weight", "_blocks": "", ".weight": ".weight"}
"""Endings of several weights packed into one number (GPTQ and AWQ; compressed-tensors; MXFP4; bitsandbytes)."""
AUXILIARY_NAMES = (
    "_scale_inv", "_scale", "_scale_2", "_scales", "_global_scale", "_zero_point", "_shape", "_g_idx", ".scales",
    ".qzeros", ".g_idx", ".SCB", ".weight_format", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
    ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4", ".scale", ".k_scale", ".v_scale",
)  # fmt: skip
"""Endings of what a quantized format stores besides its weights."""
DERIVED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
"""Endings of buffers that old checkpoints hold and a class computes by itself."""


class Mismatch(Frozen):
    """Tensors that differ in the same way in several layers or experts, written as one with stars."""

    status: Status
    name: str
    count: int
    ours: Shape | None
    theirs: Shape | None
    parameters: int
    """Elements that all of theirs together hold more than ours, or less."""


class Comparison(Frozen):
    """Counts of tensors and of parameters."""

    matched: int
    packed: int
    """Matched tensors that store several weights in a number, of the size that their bits say."""
    auxiliary: int
    """Tensors that a quantized format needs, scales and zeros, which are no parameters."""
    derived: int
    """Buffers that the class computes by itself."""
    tied: int
    """Copies of the embedding as head, which are counted once."""
    ours: int
    theirs: int
    differences: tuple[Mismatch, ...]

    @property
    def difference(self) -> int:
        return self.theirs - self.ours

    @property
    def meets(self) -> bool:
        """Whether any name is in both."""
        return self.matched > 0 or any(row.status == "other shape" for row in self.differences)


def compare(architecture: Architecture, checkpoint: Checkpoint) -> Comparison:
    """Our tensors, those of vision encoder and MTP layers too, matched with a checkpoint's."""
    ours = {name: tensor.shape for tensor in architecture.tensors() for name in tensor.names()}
    theirs = _renamed(checkpoint.tensors, ours)
    matched: dict[str, int] = {}  # ours -> parameters of theirs
    packed = auxiliary = derived = tied = 0
    rows: list[tuple[Status, str, Shape | None, Shape | None, int]] = []
    for name, stored in theirs.items():
        target, bits = _target(name, stored, ours)
        if target is not None:
            matched[target] = prod(ours[target])
            packed += bits is not None
        elif name in ours:
            shape = ours[name]
            matched[name] = stored.elements
            rows.append(("other shape", name, shape, stored.shape, stored.elements - prod(shape)))
        elif _is_auxiliary(name, ours):
            auxiliary += 1
        elif name.endswith(DERIVED):
            derived += 1
        elif architecture.tied and name.rpartition(".")[0].endswith(architecture.names.lm_head):
            tied += 1
        else:
            rows.append(("extra", name, None, stored.shape, stored.elements))
    rows += [("missing", name, shape, None, -prod(shape)) for name, shape in ours.items() if name not in matched]
    total = sum(map(prod, ours.values()))
    return Comparison(
        matched=len(matched) - sum(row[0] == "other shape" for row in rows),
        packed=packed,
        auxiliary=auxiliary,
        derived=derived,
        tied=tied,
        ours=total,
        theirs=total + sum(row[4] for row in rows),
        differences=tuple(_grouped(rows)),
    )


def _renamed(tensors: Mapping[str, StoredTensor], ours: Mapping[str, Shape]) -> dict[str, StoredTensor]:
    """Each name as ours would have it, where another prefix makes it one that we know."""
    known: dict[str, StoredTensor] = {}
    for name, stored in tensors.items():
        moved = (own + name.removeprefix(before) for before, own in PREFIXES if name.startswith(before))
        known[next((m for m in moved if m in ours or _target(m, stored, ours)[0] or _is_auxiliary(m, ours)), name)] = (
            stored
        )
    return known


def _target(name: str, stored: StoredTensor, ours: Mapping[str, Shape]) -> tuple[str | None, float | None]:
    """Our tensor that this one holds, and its bits a weight when they are packed."""
    if name in ours and stored.shape in (None, ours[name]):
        return name, None
    for ending, own in PACKED.items():
        target = name.removesuffix(ending) + own
        if name.endswith(ending) and target in ours and stored.bytes and stored.dtype in ("I32", "U8", "I8", "F4"):
            bits = stored.bytes * 8 / prod(ours[target])
            if bits in (2, 3, 4, 8):
                return target, bits
    return None, None


def _is_auxiliary(name: str, ours: Mapping[str, Shape]) -> bool:
    ending = next((ending for ending in AUXILIARY_NAMES if name.endswith(ending)), None)
    if ending is None:
        return False
    stem = name.removesuffix(ending)
    return any(stem.removesuffix(extra) + own in ours for extra in ("", ".weight", ".input") for own in ("", ".weight"))


def _grouped(rows: Iterable[tuple[Status, str, Shape | None, Shape | None, int]]) -> Iterable[Mismatch]:
    sums: dict[tuple[Status, str, Shape | None, Shape | None], tuple[int, int]] = {}
    for status, name, shape, stored, parameters in rows:
        key = (status, re.sub(r"\b\d+\b", "*", name), shape, stored)
        count, total = sums.get(key, (0, 0))
        sums[key] = count + 1, total + parameters
    for (status, name, shape, stored), (count, total) in sums.items():
        yield Mismatch(status=status, name=name, count=count, ours=shape, theirs=stored, parameters=total)
