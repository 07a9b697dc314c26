"""Mixers that keep a state of fixed size instead of a cache: it does not grow with the context."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from calc.errors import Message
from calc.model.conventions import GGUFRules, Kernels, Names
from calc.model.mixer_kind import LayerTensor, MixerKind
from calc.model.tensor import Component, Elements, Shapes, biased


class Recurrent(MixerKind):
    """Base of recurrences. The defaults are those of a mixer without a state or a convolution."""

    word: ClassVar[Message] = Message("Short convolution")
    summary: ClassVar[Message] = Message("**A recurrent layer** keeps a state of fixed size.")

    component: Component = "ssm_linear"
    window: None = None
    chunk: int = 1  # tokens that transformers' own scan takes at once in training
    fp32_state: bool = False  # vLLM keeps the state in 16 bits where the config does not ask for fp32
    state_width: ClassVar[int] = 4  # bytes of an element of the state, and of the convolution's memory, in the cache of
    conv_width: ClassVar[int] = 2  # transformers
    element_flops: ClassVar[int] = 0  # of a token in each element of the state
    output: ClassVar[str] = "out_proj"  # the projection back to the model's width

    def state_elements(self) -> int:
        """Elements of the state of a sequence and layer."""
        return 0

    def conv_elements(self) -> int:
        """Elements that convolutions remember of a sequence, a layer."""
        return 0

    def past_elements(self) -> int:
        """Elements of the columns before the current one that a convolution looks back on, one fewer than its
        kernel."""
        columns = getattr(self, "d_conv", None)
        return self.conv_elements() if columns is None else self.conv_elements() // columns * (columns - 1)

    def state_widths(self) -> tuple[int, int]:
        return self.past_elements(), self.state_elements()

    def view_elements(self) -> int:
        """Elements that the storage of the convolution's memory has beyond it while tokens are generated."""
        return 0

    def scan_flops(self) -> Any:
        """FLOPs of one token in the recurrence."""
        return self.element_flops * self.state_elements() if self.element_flops else 0

    def memory_bytes(self) -> int:
        """Bytes a sequence and layer, of any length, as transformers caches them."""
        return self.state_width * self.state_elements() + self.conv_width * self.conv_elements()

    def projected(self, hidden: int) -> int:
        """Elements a token that the projections of the layer's input make, whose output is the layer's own."""
        read = {name: shape for name, shape in self.shapes(hidden).items() if name != f"{self.output}.weight"}
        return sum(shape[0] for shape in read.values() if shape[1:] == (hidden,))

    def module_peaks(
        self, hidden: int, kernels: Kernels, rotated: int, *, eager: bool, cached: bool
    ) -> Iterator[tuple[Message, Elements]]:
        yield Message("a recurrent layer"), self.fused_elements(hidden)

    def fused_elements(self, hidden: Any) -> Elements:
        """Outputs of the projections, and as much again: LFM2's gates, their products and the output (vLLM
        `mamba/short_conv.py`, profiling), Mamba-2's output and its copy of x, B and C (`mamba_mixer2.py`)."""
        return {"projections and what becomes of them": 2 * self.projected(hidden)}

    def path(self, names: Names, number: int) -> str:
        return names.recurrent

    def made(self, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[LayerTensor]:
        yield LayerTensor(
            name=Message("State, of any length"), sides=(batch, ("state", self.state_elements())), cached=True
        )

    def as_grouped(self) -> None:
        return None

    def title(self) -> Message:
        return self.word

    @classmethod
    def terms(cls) -> tuple[Message, ...]:
        return (cls.summary,)

    def about(self) -> Iterator[Message]:
        yield self.summary
        yield Message("Nothing of it grows with the context, and there are no scores.")

    def readers(self) -> Message:
        return Message("No heads of keys and values: the layer keeps a state of fixed size.")

    def why_not_square(self, hidden: int) -> Message:
        return Message("Some layers have a recurrent mixer with matrices of its own.")


class Mamba(Recurrent):
    """Selective state space, arXiv:2312.00752."""

    word: ClassVar[Message] = Message("Mamba")
    summary: ClassVar[Message] = Message(
        "**Mamba** reads the sequence with a selective state space: what it remembers is a state of fixed size "
        "([arXiv:2312.00752](https://arxiv.org/abs/2312.00752))."
    )
    kind: Literal["mamba"] = "mamba"
    divided: ClassVar[tuple[str, ...]] = ("d_inner",)
    element_flops: ClassVar[int] = 5  # a decay (1), an update (2) and a read (2)
    d_inner: int
    d_state: int
    d_conv: int
    dt_rank: int
    conv_bias: bool = True
    bias: bool = False
    inner_norms: bool = False  # on dt, B and C: Jamba
    n_heads: int | None = None  # heads that share nothing but the projections in and out: Zamba

    def shapes(self, hidden: int) -> Shapes:
        weights: Shapes = {
            "in_proj.weight": (2 * self.d_inner, hidden),
            "conv1d.weight": (self.d_inner, 1, self.d_conv),
            "out_proj.weight": (hidden, self.d_inner),
        }
        if self.n_heads is None:
            weights |= {
                "x_proj.weight": (self.dt_rank + 2 * self.d_state, self.d_inner),
                "dt_proj.weight": (self.d_inner, self.dt_rank),
                "dt_proj.bias": (self.d_inner,),
                "A_log": (self.d_inner, self.d_state),
                "D": (self.d_inner,),
            }
        else:
            head = (self.n_heads, self.d_inner // self.n_heads)
            weights |= {
                "x_proj_weight": (self.n_heads, self.dt_rank + 2 * self.d_state, self.d_inner // self.n_heads),
                "dt_proj_weight": (*head, self.dt_rank),
                "dt_proj_bias": head,
                "A_log": (*head, self.d_state),
                "D": head,
            }
        if self.conv_bias:
            weights |= {"conv1d.bias": (self.d_inner,)}
        if self.bias:
            weights |= {"in_proj.bias": (2 * self.d_inner,), "out_proj.bias": (hidden,)}
        if self.inner_norms:
            weights |= {
                "dt_layernorm.weight": (self.dt_rank,),
                "b_layernorm.weight": (self.d_state,),
                "c_layernorm.weight": (self.d_state,),
            }
        return weights

    def state_elements(self) -> int:
        return self.d_inner * self.d_state

    def conv_elements(self) -> int:
        return self.d_inner * self.d_conv


class Mamba2(Recurrent):
    """State space duality, arXiv:2405.21060."""

    word: ClassVar[Message] = Message("Mamba-2")
    summary: ClassVar[Message] = Message(
        "**Mamba-2** keeps a matrix as the state of each head, updated token by token; it can also be computed like "
        "attention without a softmax ([arXiv:2405.21060](https://arxiv.org/abs/2405.21060))."
    )
    kind: Literal["mamba2"] = "mamba2"
    divided: ClassVar[tuple[str, ...]] = ("n_heads",)
    replicated: ClassVar[tuple[str, ...]] = ("n_groups",)
    element_flops: ClassVar[int] = 5  # a decay (1), an update (2) and a read (2)
    n_heads: int
    d_head: int
    d_state: int
    n_groups: int
    d_conv: int
    conv_bias: bool = True
    bias: bool = False
    out_bias: bool | None = None  # of the output projection where it differs: Falcon-H1
    norm: bool = True

    def shapes(self, hidden: int) -> Shapes:
        inner, channels = self.n_heads * self.d_head, self.channels()
        weights: Shapes = {
            "in_proj.weight": (inner + channels + self.n_heads, hidden),
            "conv1d.weight": (channels, 1, self.d_conv),
            "A_log": (self.n_heads,),
            "D": (self.n_heads,),
            "dt_bias": (self.n_heads,),
            "out_proj.weight": (hidden, inner),
        }
        if self.conv_bias:
            weights |= {"conv1d.bias": (channels,)}
        if self.bias:
            weights |= {"in_proj.bias": (inner + channels + self.n_heads,)}
        if self.bias if self.out_bias is None else self.out_bias:
            weights |= {"out_proj.bias": (hidden,)}
        if self.norm:
            weights |= {"norm.weight": (inner,)}
        return weights

    def gguf_shapes(self, hidden: int, rules: GGUFRules) -> Shapes:
        """Weights with numbers of heads as columns, and the norm by groups."""
        shapes = self.shapes(hidden) | {"A_log": (self.n_heads, 1), "D": (self.n_heads, 1)}
        if self.norm:
            shapes["norm.weight"] = (self.n_groups, self.n_heads * self.d_head // self.n_groups)
        return shapes

    def channels(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.n_heads * self.d_head + 2 * self.n_groups * self.d_state

    def state_elements(self) -> int:
        return self.n_heads * self.d_head * self.d_state

    def conv_elements(self) -> int:
        return self.channels() * self.d_conv


class ShortConv(Recurrent):
    """Gated short convolution, LFM2, arXiv:2511.23404."""

    summary: ClassVar[Message] = Message(
        "**A gated short convolution** remembers the last few tokens only "
        "([arXiv:2511.23404](https://arxiv.org/abs/2511.23404))."
    )
    kind: Literal["short_conv"] = "short_conv"
    divided: ClassVar[tuple[str, ...]] = ("d_inner",)
    d_inner: int
    d_conv: int
    bias: bool = False

    def shapes(self, hidden: int) -> Shapes:
        modules: Shapes = {"in_proj": (3 * self.d_inner, hidden), "conv": (self.d_inner, 1, self.d_conv)}
        return biased(self.bias, {**modules, "out_proj": (hidden, self.d_inner)})

    def conv_elements(self) -> int:
        return self.d_inner * self.d_conv


class SideConvs(Recurrent):
    """Short convolutions over keys, values and the outputs of attention and feed-forward, Inkling (transformers
    `modeling_inkling.py`, which has them and their memory in fp32: `_keep_in_fp32_modules_strict`)."""

    kind: Literal["side_convs"] = "side_convs"
    divided: ClassVar[tuple[str, ...]] = ("kv",)
    conv_width: ClassVar[int] = 4
    hidden: int
    kv: int  # width of the keys, and of the values
    d_conv: int
    dynamic: int | None = None  # heads whose kernels follow from the token, besides fixed ones: Inkling 2

    def shapes(self, hidden: int) -> Shapes:
        widths = {"attn_sconv": hidden, "mlp_sconv": hidden}
        weights: Shapes = {}
        for name in ("self_attn.k_sconv", "self_attn.v_sconv"):
            if self.dynamic is None:
                widths[name] = self.kv
            else:
                weights |= {f"{name}.static_w": (self.d_conv, self.kv)}
                weights |= {f"{name}.weight_proj": (self.dynamic * self.d_conv, hidden)}
        return weights | {f"{name}.conv1d.weight": (width, 1, self.d_conv) for name, width in widths.items()}

    def conv_elements(self) -> int:
        return 2 * (self.kv + self.hidden) * self.d_conv


class QKConvs(Recurrent):
    """Compressed convolutional attention, arXiv:2510.04476, as in ZAYA: two short convolutions over queries and keys,
    and the half of a value that waits for the next token."""

    word: ClassVar[Message] = Message("Compressed convolutional attention")
    summary: ClassVar[Message] = Message(
        "**Compressed convolutional attention** passes queries and keys through short convolutions "
        "([arXiv:2510.04476](https://arxiv.org/abs/2510.04476))."
    )
    kind: Literal["qk_convs"] = "qk_convs"
    divided: ClassVar[tuple[str, ...]] = ("n_q",)
    replicated: ClassVar[tuple[str, ...]] = ("n_kv",)
    state_width: ClassVar[int] = 2  # `ZayaAttention` keeps the half value as it was projected
    n_q: int
    n_kv: int
    d_head: int
    d_channel: int  # kernel over each channel
    d_grouped: int  # kernel over the channels of each head

    def shapes(self, hidden: int) -> Shapes:
        channels = (self.n_q + self.n_kv) * self.d_head
        return {
            "qkv_proj.conv_qk_depthwise.weight": (channels, 1, self.d_channel),
            "qkv_proj.conv_qk_depthwise.bias": (channels,),
            "qkv_proj.conv_qk_grouped.weight": (channels, self.d_head, self.d_grouped),
            "qkv_proj.conv_qk_grouped.bias": (channels,),
            "qk_norm.temp": (self.n_kv,),
        }

    def state_elements(self) -> int:
        """Half a value of each KV head."""
        return self.n_kv * self.d_head // 2

    def conv_elements(self) -> int:
        return (self.n_q + self.n_kv) * self.d_head * (self.d_channel + self.d_grouped - 2)


class RWKV(Recurrent):
    """Time mixing of RWKV-4, arXiv:2305.13048 section 3.1."""

    word: ClassVar[Message] = Message("RWKV")
    summary: ClassVar[Message] = Message(
        "**RWKV** mixes tokens over time with a state of one vector for each channel "
        "([arXiv:2305.13048](https://arxiv.org/abs/2305.13048))."
    )
    kind: Literal["rwkv"] = "rwkv"
    divided: ClassVar[tuple[str, ...]] = ("d_inner",)
    output: ClassVar[str] = "output"
    fp32_state: bool = True
    hidden: int
    d_inner: int

    def shapes(self, hidden: int) -> Shapes:
        mixes: Shapes = {f"time_mix_{name}": (1, 1, hidden) for name in ("key", "value", "receptance")}
        return {
            "time_decay": (self.d_inner,),
            "time_first": (self.d_inner,),
            **mixes,
            **{f"{name}.weight": (self.d_inner, hidden) for name in ("key", "value", "receptance")},
            "output.weight": (hidden, self.d_inner),
        }

    def state_elements(self) -> int:
        """Numerator, denominator and largest exponent of each channel."""
        return 3 * self.d_inner

    def conv_elements(self) -> int:
        """The token before, for this and for the feed-forward, which mixes it in, too."""
        return 2 * self.hidden


class GatedLRU(Recurrent):
    """Real-gated linear recurrent unit of Griffin, arXiv:2402.19427, as in RecurrentGemma."""

    word: ClassVar[Message] = Message("RG-LRU")
    summary: ClassVar[Message] = Message(
        "**RG-LRU**, the gated linear recurrence of Griffin, keeps one vector "
        "([arXiv:2402.19427](https://arxiv.org/abs/2402.19427))."
    )
    kind: Literal["rg_lru"] = "rg_lru"
    divided: ClassVar[tuple[str, ...]] = ("n_blocks",)
    output: ClassVar[str] = "linear_out"
    n_blocks: int  # the gates are block-diagonal
    d_block: int
    d_conv: int

    def shapes(self, hidden: int) -> Shapes:
        wide, side = self.n_blocks * self.d_block, self.d_block
        weights: Shapes = {}
        for name, shape in {
            "linear_y": (wide, hidden),
            "linear_x": (wide, hidden),
            "linear_out": (hidden, wide),
        }.items():
            weights |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        weights |= {"conv_1d.weight": (wide, 1, self.d_conv), "conv_1d.bias": (wide,)}
        for gate in ("input_gate", "recurrent_gate"):
            weights |= {
                f"rg_lru.{gate}_weight": (self.n_blocks, side, side),
                f"rg_lru.{gate}_bias": (self.n_blocks, side),
            }
        return weights | {"rg_lru.recurrent_param": (wide,)}

    def state_elements(self) -> int:
        return self.n_blocks * self.d_block

    def conv_elements(self) -> int:
        return self.n_blocks * self.d_block * (self.d_conv - 1)

    def view_elements(self) -> int:
        """The column that has left the memory, a view on what was joined (`RecurrentGemmaRecurrentBlock`)."""
        return self.n_blocks * self.d_block
