"""Tables of sines and cosines: how many rows and columns vLLM keeps of them (`layers/rotary_embedding`)."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.mixers import CompressedAttention, Mixer
from calc.model.mla import LatentAttention

SHARES = {
    "glm": 0.5,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "glm4v_text": 0.5,
    "glm4v_moe_text": 0.5,
    "chatglm": 0.5,
    "minimax": 0.5,
    "minimax_m2": 0.5,
    "nemotron": 0.5,
    "phi": 0.5,
    "qwen3_next": 0.25,
    "qwen3_5_text": 0.25,
    "qwen3_5_moe_text": 0.25,
    "gpt_neox": 0.25,
    "stablelm": 0.25,
}
"""`partial_rotary_factor` where a config leaves it out: the share of a head that is rotated."""
WITHOUT = frozenset({"bloom", "gpt2", "gpt_bigcode", "jamba", "mpt", "nemotron_h", "opt"})
"""No rotary positions."""
OWN_WITHIN_WINDOWS = frozenset({"gemma3_text", "gemma3n_text", "gemma4_text", "olmo3"})
"""Sliding layers have another base, hence a table of their own."""
IN_THREE_AXES = frozenset(
    f"{family}_text"
    for family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe")
)
"""vLLM's table for positions in time, height and width has four times the rows."""


def rotary_tables(
    model_type: str, c: Fields, mixers: Iterable[Mixer], max_positions: int | None
) -> tuple[tuple[int, int], ...]:
    """Rows x width of each distinct table: a row a position, in each a cosine and a sine for every pair."""
    if max_positions is None or model_type in WITHOUT:
        return ()
    scaling = scaling_of(c)
    rows = scaled_rows(scaling, max_positions)
    if model_type in IN_THREE_AXES or "mrope_section" in scaling:
        rows *= 4
    share = share_of(model_type, c, scaling)
    tables = {
        (width(mixer, share), model_type in OWN_WITHIN_WINDOWS and mixer.window is not None)
        for mixer in mixers
        if isinstance(mixer, GQA | LatentAttention | CompressedAttention)
    }
    return tuple((max_positions if local else rows, columns) for columns, local in sorted(tables))


def width(mixer: Mixer, share: float) -> int:
    """Columns of the table that a mixer reads."""
    if isinstance(mixer, LatentAttention):
        return mixer.d_rope
    return int(mixer.d_head * share) if isinstance(mixer, GQA) else 64


def scaling_of(c: Fields) -> Mapping[str, Any]:
    """`rope_parameters`, as configs were written before transformers 5 `rope_scaling`."""
    found = [value for name in ("rope_parameters", "rope_scaling") if isinstance(value := c.stated.get(name), Mapping)]
    return found[0] if found else {}


def share_of(model_type: str, c: Fields, scaling: Mapping[str, Any]) -> float:
    """The rotated share of a head."""
    stated = [s.get(name) for s in (scaling, c.stated) for name in ("partial_rotary_factor", "rotary_pct")]
    share = next((value for value in stated if isinstance(value, float | int) and 0 < value <= 1), None)
    return SHARES.get(model_type, 1.0) if share is None else float(share)


def scaled_rows(scaling: Mapping[str, Any], max_positions: int) -> int:
    """Rows where positions are stretched: YaRN fills the original length times its factor."""
    kind = scaling.get("rope_type", scaling.get("type"))
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    real = isinstance(factor, float | int) and not isinstance(factor, bool) and 1 <= factor <= 4096
    if kind == "yarn" and real and type(original) is int and 0 < original <= max_positions:
        return int(original * float(factor or 1))
    if kind == "longrope" and type(original) is int and 0 < original <= max_positions:
        return original + max_positions  # one table for short prompts, one for long
    return int(max_positions * float(factor or 1)) if kind in ("linear", "dynamic") and real else max_positions
