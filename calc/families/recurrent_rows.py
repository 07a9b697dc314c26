"""The vocabulary of rows: mixers with a state. Strings name config fields."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from calc.errors import ConfigError, Message
from calc.families.feedforward_rows import Times
from calc.families.fields import AlikeInAllLayers, Fields, Size, stated_or
from calc.model.linear_attention import GatedDeltaNet
from calc.model.recurrent import Mamba, Mamba2, Recurrent, ShortConv

R = TypeVar("R", bound=Recurrent)


@dataclass(frozen=True, eq=False)
class Recurrence(AlikeInAllLayers[R]):
    """A kind of recurrent mixer, and for each of its fields the name of a config's, a function, or the value."""

    kind: type[R]
    fields: Mapping[str, Any]

    def read(self, c: Fields) -> R:
        return self.kind(**{name: self.value(c, name, of) for name, of in self.fields.items()})

    def value(self, c: Fields, name: str, of: Any) -> Any:
        """Value of a field of the kind: a flag or a size where a string names the config's."""
        if callable(of):
            return of(c)
        annotation = self.kind.model_fields[name].annotation
        types = get_args(annotation) or (annotation,)
        if not isinstance(of, str) or not {bool, int} & set(types):
            return of
        return c.flag(of) if bool in types else c.size(of)

    def but(self, **fields: Any) -> "Recurrence[R]":
        return replace(self, fields={**self.fields, **fields})


def time_step_rank(field: str) -> Size:
    """Rank of Mamba's time step; “auto”: a sixteenth of the hidden size."""
    return lambda c: -(-c.size("hidden_size") // 16) if c.get(field) == "auto" else c.size(field)


def scan_chunk(field: str) -> Size:
    """Tokens that Mamba-2's scan takes at once."""
    return lambda c: c.maybe(field) or 256


MAMBA1 = Recurrence(
    Mamba,
    {
        "d_inner": stated_or("intermediate_size", Times("expand")),
        "d_state": "state_size",
        "d_conv": "conv_kernel",
        "dt_rank": time_step_rank("time_step_rank"),
        "conv_bias": "use_conv_bias",
        "bias": "use_bias",
    },
)
PREFIXED_MAMBA = Recurrence(
    Mamba,
    {
        "d_inner": Times("mamba_expand"),
        "d_state": "mamba_d_state",
        "d_conv": "mamba_d_conv",
        "dt_rank": time_step_rank("mamba_dt_rank"),
        "conv_bias": "mamba_conv_bias",
        "bias": "mamba_proj_bias",
    },
)
"""Field names of Jamba and Zamba."""
MAMBA2 = Recurrence(
    Mamba2,
    {
        "n_heads": "num_heads",
        "d_head": "head_dim",
        "d_state": "state_size",
        "n_groups": "n_groups",
        "d_conv": "conv_kernel",
        "conv_bias": "use_conv_bias",
        "bias": "use_bias",
        "chunk": scan_chunk("chunk_size"),
    },
)


def mamba_d_head(c: Fields) -> int:
    """Head width of Bamba, Granite 4 and Falcon-H1: stated, or what the heads leave; together the inner width."""
    n_heads = c.size("mamba_n_heads")
    inner = c.maybe("mamba_d_ssm") or c.size("mamba_expand") * c.size("hidden_size")
    d_head = inner // n_heads if c.get("mamba_d_head") == "auto" else c.size("mamba_d_head")
    if n_heads * d_head != inner:
        sentence = (
            "{n_heads:,} heads (mamba_n_heads) of {d_head:,} (mamba_d_head) don't make up the {inner:,} channels "
            "(mamba_d_ssm, or mamba_expand times hidden_size)."
        )
        message = Message(sentence, n_heads=n_heads, d_head=d_head, inner=inner)
        if c.get("mamba_d_ssm"):
            raise ConfigError(message, "mamba_n_heads")
        wide = n_heads * d_head // c.size("mamba_expand")
        raise ConfigError(message, "hidden_size", [wide] if wide else [])
    return d_head


BAMBA = Recurrence(
    Mamba2,
    {
        "n_heads": "mamba_n_heads",
        "d_head": mamba_d_head,
        "d_state": "mamba_d_state",
        "n_groups": "mamba_n_groups",
        "d_conv": "mamba_d_conv",
        "conv_bias": "mamba_conv_bias",
        "bias": "mamba_proj_bias",
        "chunk": scan_chunk("mamba_chunk_size"),
    },
)
"""Field names of Bamba, Granite 4 and Falcon-H1."""
DELTA_NET = Recurrence(
    GatedDeltaNet,
    {
        "n_k": "linear_num_key_heads",
        "n_v": "linear_num_value_heads",
        "d_k": "linear_key_head_dim",
        "d_v": "linear_value_head_dim",
        "d_conv": "linear_conv_kernel_dim",
    },
)
"""The gated delta rule, with Qwen3-Next's field names."""
SHORT_CONV = Recurrence(ShortConv, {"d_inner": "hidden_size", "d_conv": "conv_L_cache", "bias": "conv_bias"})
"""LFM2's gated short convolution."""
