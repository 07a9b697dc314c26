"""Tables of sines and cosines: how many rows and columns vLLM keeps of them (`layers/rotary_embedding`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.mixers import CompressedAttention, Mixer
from calc.model.mla import LatentAttention


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotary:
    """Rotation of queries and keys in a family."""

    share: float = 1.0  # of a head that is rotated, where a config leaves out `partial_rotary_factor`
    own_within_windows: bool = False  # sliding layers have another base, hence a table of their own
    axes: int = 1  # 3: positions in time, height and width, for which vLLM's table has four times the rows

    def tables(self, c: Fields, mixers: Iterable[Mixer], max_positions: int | None) -> tuple[tuple[int, int], ...]:
        """Rows x width of each distinct table: a row a position, in each a cosine and a sine for every pair."""
        if max_positions is None:
            return ()
        scaling = scaling_of(c)
        rows = scaled_rows(scaling, max_positions)
        if self.axes > 1 or "mrope_section" in scaling:
            rows *= 4
        share = self.rotated_share(c, scaling)
        tables = {
            (width(mixer, share), self.own_within_windows and mixer.window is not None)
            for mixer in mixers
            if isinstance(mixer, GQA | LatentAttention | CompressedAttention)
        }
        return tuple((max_positions if local else rows, columns) for columns, local in sorted(tables))

    def rotated_share(self, c: Fields, scaling: Mapping[str, Any]) -> float:
        """The rotated share of a head."""
        stated = [s.get(name) for s in (scaling, c.stated) for name in ("partial_rotary_factor", "rotary_pct")]
        share = next((value for value in stated if isinstance(value, float | int) and 0 < value <= 1), None)
        return self.share if share is None else float(share)


WHOLE_HEAD = Rotary()


def width(mixer: Mixer, share: float) -> int:
    """Columns of the table that a mixer reads."""
    if isinstance(mixer, LatentAttention):
        return mixer.d_rope
    return int(mixer.d_head * share) if isinstance(mixer, GQA) else 64


def scaling_of(c: Fields) -> Mapping[str, Any]:
    """`rope_parameters`, as configs were written before transformers 5 `rope_scaling`."""
    scalings = [
        value for name in ("rope_parameters", "rope_scaling") if isinstance(value := c.stated.get(name), Mapping)
    ]
    return scalings[0] if scalings else {}


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
