"""Questions that every kind of mixer answers, attention or recurrence: all that differs between kinds."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from calc.errors import Frozen, Message
from calc.model.conventions import GGUFRules, Kernels, Names
from calc.model.tensor import Elements, Shapes, Sides


class LayerTensor(Frozen):
    """A tensor that a layer makes."""

    name: Message
    sides: Sides
    cached: bool = False  # stays for the tokens to come

    @property
    def symbols(self) -> str:
        return f"[{', '.join(symbol for symbol, _ in self.sides)}]"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.sides)


class MixerKind(Frozen):
    """Base of all mixers. What raises here each kind answers; what does not holds for most."""

    divided: ClassVar[tuple[str, ...]]
    """Fields that tensor-parallel ranks divide: heads, or channels."""
    replicated: ClassVar[tuple[str, ...]] = ()
    """Fields of which each rank has one at least, once ranks outnumber them: KV heads."""
    absorbs: ClassVar[bool] = False
    """Whether decode attends to latents, the up-projections of which are taken into queries and outputs."""

    def shapes(self, hidden: int) -> Shapes:
        """Weights by local checkpoint name, matrices as [out, in]."""
        raise NotImplementedError

    def rank(self, tp: int) -> Self:
        """The part that one of tp tensor-parallel ranks holds."""
        parts = {name: getattr(self, name) // tp for name in self.divided}
        return self.model_copy(update=parts | {name: max(1, getattr(self, name) // tp) for name in self.replicated})

    def divides(self, tp: int) -> bool:
        """Whether tp ranks can share it evenly."""
        replicated = [getattr(self, name) for name in self.replicated]
        return not any(getattr(self, name) % tp for name in self.divided) and all(
            count % tp == 0 or tp % count == 0 for count in replicated
        )

    def gguf_shapes(self, hidden: int, rules: GGUFRules) -> Shapes:
        """Weights by local checkpoint name, divided and joined as a GGUF file has them."""
        return self.shapes(hidden)

    def path(self, names: Names, number: int) -> str:
        """Module of a layer that the weights lie in, of its mixer of such a number."""
        return names.attention.replace("{mixer}", str(number))

    def title(self) -> Message:
        """The name on screen: MLA, GQA-8."""
        raise NotImplementedError

    @classmethod
    def terms(cls) -> tuple[Message, ...]:
        """Sentences of a glossary that introduce the kind and its cases, each of which begins with the word."""
        raise NotImplementedError

    def about(self) -> Iterator[Message]:
        """Kind, and what is special about it, each with its paper."""
        raise NotImplementedError

    def readers(self) -> Message:
        """Readers of each key, in a sentence."""
        raise NotImplementedError

    def made(self, batch: tuple[str, int], length: tuple[str, int]) -> Iterator[LayerTensor]:
        """Tensors that it makes of such sequences between a layer's input and its output."""
        raise NotImplementedError

    def why_not_square(self, hidden: int) -> Message:
        """Why it is not four square matrices."""
        return Message("Its projections are not square.")

    def why_not_cached(self) -> Message | None:
        """Why it does not cache a key and a value for every KV head of every token; None where it does."""
        return None

    @property
    def score_heads(self) -> int:
        """Heads that have a matrix of scores each."""
        return 0

    @property
    def sees_ahead(self) -> bool:
        """Whether a token attends to those behind it too."""
        return False

    @property
    def cached_heads(self) -> int:
        """Heads of what is cached, which query heads share; 1: all read the same."""
        return 1

    @property
    def shared_parts(self) -> tuple[int, ...]:
        """Widths of the parts of one vector that all query heads read; none: they read heads of keys and values."""
        return ()

    @property
    def head_width(self) -> int | None:
        """Elements of a key as it is computed, rotated and cached; None: these differ, or there are none."""
        return None

    def cached_elements(self) -> int:
        """Elements cached per token and layer."""
        return 0

    def compressed_elements(self) -> int:
        """Elements that each token adds beyond the window, on average."""
        return 0

    def cached_vectors(self) -> tuple[int, ...]:
        """Widths of the vectors that the text's tokens leave in the cache, all heads together: keys, and values where
        these are not a part of the keys."""
        return ()

    def cached_head_vectors(self) -> int:
        """Vectors of one head each that a token leaves in the cache."""
        return self.cached_heads * len(self.cached_vectors())

    def state_widths(self) -> tuple[int, int]:
        """Elements of a sequence that do not grow with it: what a convolution looks back on, and a state."""
        return 0, 0

    def packed_bits(self) -> dict[int | None, int] | None:
        """Bits of a cached token as a kernel packs latents in fp8, by how far back; None: it has no latent."""
        return None

    def as_grouped(self) -> "MixerKind | None":
        """The kind with plain keys and values that it stands for, as many heads of them as it computes; None: it has
        none of the text's own."""
        return None

    def module_peaks(
        self, hidden: int, kernels: Kernels, rotated: int, *, eager: bool, cached: bool
    ) -> Iterator[tuple[Message, Elements]]:
        """Elements a token, by name, in 16 bits where modules that compute one step after another peak: those with
        `kernels`, whose tables turn so many channels; `cached` keys and values lie elsewhere."""
        raise NotImplementedError

    def fused_elements(self, hidden: Any) -> Elements:
        """Elements a token, by name, that are alive around one kernel for all of it."""
        raise NotImplementedError

    def softmax_bytes(self, width: int, kernels: Kernels) -> int:
        """Bytes of each score where they are written out: once as wide as the states, and twice in fp32."""
        return width + 8

    def repeated_elements(self) -> Any:
        """Elements of a token's keys and values once they are repeated for every query head; 0: none are."""
        return 0

    def expanded_bytes(self, width: int, kernels: Kernels, *, eager: bool) -> Elements:
        """Bytes of a cached token, by name, that modules expand it to as another is generated; none: nothing is."""
        return {}
