"""The vocabulary of rows: mixers with a state. Strings name config fields."""

from dataclasses import dataclass
from typing import Literal

from calc.errors import ConfigError, Message
from calc.families.fields import AlikeInAllLayers, Fields, Flag, Size, number, true
from calc.model import linear_attention, recurrent


@dataclass(frozen=True, kw_only=True, eq=False)
class Mamba(AlikeInAllLayers[recurrent.Mamba]):
    """A selective state space."""

    inner: str | None = None  # the inner width where a config states it
    expand: str = "expand"  # else that times hidden_size
    d_state: str = "state_size"
    d_conv: str = "conv_kernel"
    dt_rank: str = "time_step_rank"  # “auto”: a sixteenth of hidden_size
    conv_bias: Flag = "use_conv_bias"
    bias: Flag = "use_bias"
    inner_norms: bool = False
    heads: str | None = None

    def read(self, c: Fields) -> recurrent.Mamba:
        hidden = c.size("hidden_size")
        stated = c.maybe(self.inner) if self.inner is not None and c.states(self.inner) else None
        return recurrent.Mamba(
            d_inner=stated or c.size(self.expand) * hidden,
            d_state=c.size(self.d_state),
            d_conv=c.size(self.d_conv),
            dt_rank=-(-hidden // 16) if c.get(self.dt_rank) == "auto" else c.size(self.dt_rank),
            conv_bias=true(c, self.conv_bias),
            bias=true(c, self.bias),
            inner_norms=self.inner_norms,
            n_heads=None if self.heads is None else c.size(self.heads),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Mamba2(AlikeInAllLayers[recurrent.Mamba2]):
    """State space duality."""

    heads: str = "num_heads"
    d_head: Size = "head_dim"
    d_state: str = "state_size"
    groups: str = "n_groups"
    d_conv: str = "conv_kernel"
    conv_bias: Flag = "use_conv_bias"
    bias: Flag = "use_bias"
    out_bias: Flag | None = None
    norm: Flag = True
    chunk: str = "chunk_size"

    def read(self, c: Fields) -> recurrent.Mamba2:
        return recurrent.Mamba2(
            n_heads=c.size(self.heads),
            d_head=number(c, self.d_head),
            d_state=c.size(self.d_state),
            n_groups=c.size(self.groups),
            d_conv=c.size(self.d_conv),
            conv_bias=true(c, self.conv_bias),
            bias=true(c, self.bias),
            out_bias=None if self.out_bias is None else true(c, self.out_bias),
            norm=true(c, self.norm),
            chunk=c.maybe(self.chunk) or 256,
        )


PREFIXED_MAMBA = Mamba(
    expand="mamba_expand",
    d_state="mamba_d_state",
    d_conv="mamba_d_conv",
    dt_rank="mamba_dt_rank",
    conv_bias="mamba_conv_bias",
    bias="mamba_proj_bias",
)
"""Field names of Jamba and Zamba."""


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


BAMBA = Mamba2(
    heads="mamba_n_heads",
    d_head=mamba_d_head,
    d_state="mamba_d_state",
    groups="mamba_n_groups",
    d_conv="mamba_d_conv",
    conv_bias="mamba_conv_bias",
    bias="mamba_proj_bias",
    chunk="mamba_chunk_size",
)
"""Field names of Bamba, Granite 4 and Falcon-H1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaNet(AlikeInAllLayers[linear_attention.GatedDeltaNet]):
    """The gated delta rule, with Qwen3-Next's field names."""

    fp32_state: bool = False

    def read(self, c: Fields) -> linear_attention.GatedDeltaNet:
        return linear_attention.GatedDeltaNet(
            n_k=c.size("linear_num_key_heads"),
            n_v=c.size("linear_num_value_heads"),
            d_k=c.size("linear_key_head_dim"),
            d_v=c.size("linear_value_head_dim"),
            d_conv=c.size("linear_conv_kernel_dim"),
            fp32_state=self.fp32_state,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class KimiDelta(AlikeInAllLayers[linear_attention.KimiDelta]):
    """Kimi delta attention."""

    heads: Size = "linear_num_heads"
    d_head: Size = "linear_head_dim"
    d_conv: Size = "linear_conv_kernel_dim"
    low_rank: frozenset[Literal["f", "g"]] = frozenset(("f", "g"))
    full_rank_output: Flag = False  # the output gate has no bottleneck
    decays: Literal["heads", "heads_4d"] = "heads_4d"

    def read(self, c: Fields) -> linear_attention.KimiDelta:
        full_rank = true(c, self.full_rank_output)
        return linear_attention.KimiDelta(
            n_heads=number(c, self.heads),
            d_head=number(c, self.d_head),
            d_conv=number(c, self.d_conv),
            low_rank=self.low_rank - {"g"} if full_rank else self.low_rank,
            decays="d_head" if full_rank else self.decays,
        )


def short_conv(c: Fields, layer: int = 0) -> recurrent.ShortConv:
    """LFM2's gated short convolution."""
    return recurrent.ShortConv(d_inner=c.size("hidden_size"), d_conv=c.size("conv_L_cache"), bias=c.flag("conv_bias"))
