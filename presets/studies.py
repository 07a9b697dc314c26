"""The studies that the project began from: each line of the calculation by hand, reconstructed, with the exact figure,
and where the hand went wrong."""

from collections.abc import Callable
from dataclasses import dataclass

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.formula import Formula, number, power, product, total
from calc.model.paper import Exact, Item, PaperTable, Section
from calc.model.tensor import Component

Count = Callable[[Architecture], int]


@dataclass(frozen=True)
class HandLine:
    """One line: what the hand wrote, what that comes to, and how often it counts in the total."""

    what: Message
    written: Formula
    hand: int
    exact: Count
    times: int = 1
    why: Message | None = None
    """Error of the hand calculation."""


@dataclass(frozen=True)
class Study:
    """A calculation by hand, line by line."""

    about: Message
    lines: tuple[HandLine, ...]

    @property
    def hand_total(self) -> int:
        """Sum of the lines by hand."""
        return sum(line.hand * line.times for line in self.lines)

    def exact_total(self, architecture: Architecture) -> int:
        """Sum of the exact lines."""
        return sum(line.exact(architecture) * line.times for line in self.lines)


def outside_layers(component: Component) -> Count:
    """Parameters of a component outside of the layers."""

    def count(architecture: Architecture) -> int:
        tensors = architecture.tensors()
        return sum(t.parameters for t in tensors if t.component == component and not t.layers and t.excluded_as is None)

    return count


def of_layer(component: Component, layer: int = 0, *, matrices: bool | None = None, experts: int = 1) -> Count:
    """Parameters of a component in one layer: its matrices alone, or what is none; of one of its experts."""

    def count(architecture: Architecture) -> int:
        return sum(
            tensor.parameters // len(tensor.layers) // experts
            for tensor in architecture.tensors()
            if tensor.component == component and layer in tensor.layers and tensor.excluded_as is None
            if matrices is None or (len(tensor.shape) > 1) == matrices
        )

    return count


EMBEDDING = Message("Embedding")
HEAD = Message("Output head")
MATRICES = Message("Matrices of attention, one layer")
HEAD_NORMS = Message("Norms of queries and keys, one layer")
FEED_FORWARD = Message("Feed-forward, one layer")
NORMS = Message("Norms before attention and feed-forward, one layer")
FINAL_NORM = Message("Final norm")
LEFT_OUT = Message("The count by hand left them out.")


def qwen3_study(attention: Formula, matrices: int) -> Study:
    """32 layers of width 4096 with 32 query heads of 128."""
    wide = Message(
        "The count by hand had a norm of {wide:,} for queries and one for keys. Qwen3 has one weight for each of the "
        "{head} elements of a head, shared by all heads.",
        wide=4096,
        head=128,
    )
    return Study(
        about=Message(
            "The first study of the project: a Qwen3-like model counted by hand, then built and measured with 32 KV "
            "heads on a V100. One of these lines is wrong."
        ),
        lines=(
            HandLine(EMBEDDING, product(152064, 4096), 622_854_144, outside_layers("embedding")),
            HandLine(MATRICES, attention, matrices, of_layer("attention", matrices=True), 32),
            HandLine(HEAD_NORMS, product(2, 4096), 8192, of_layer("attention", matrices=False), 32, wide),
            HandLine(FEED_FORWARD, product(3, 4096, 11008), 135_266_304, of_layer("mlp"), 32),
            HandLine(NORMS, product(2, 4096), 8192, of_layer("norms"), 32),
            HandLine(FINAL_NORM, number(4096), 4096, outside_layers("norms")),
            HandLine(HEAD, product(152064, 4096), 622_854_144, outside_layers("lm_head")),
        ),
    )


MISTRAL = Study(
    about=Message("Counted with the rule of articles, V·h·2 + L·(4 + 3·M)·h² with M = 3.5: 8.05 B instead of 7.24 B."),
    lines=(
        HandLine(EMBEDDING, product(32000, 4096), 131_072_000, outside_layers("embedding")),
        HandLine(
            MATRICES,
            product(4, power(4096, 2)),
            67_108_864,
            of_layer("attention"),
            32,
            Message("Four square matrices give all 32 heads keys and values of their own; 8 have them."),
        ),
        HandLine(FEED_FORWARD, product(3, 4096, 14336), 176_160_768, of_layer("mlp"), 32),
        HandLine(NORMS, number(0), 0, of_layer("norms"), 32, LEFT_OUT),
        HandLine(FINAL_NORM, number(0), 0, outside_layers("norms"), 1, LEFT_OUT),
        HandLine(HEAD, product(32000, 4096), 131_072_000, outside_layers("lm_head")),
    ),
)
QWEN25 = Study(
    about=Message("An FFN multiplier of 5.375, 16 query heads on 2 KV heads; with the head counted again it is 3.4 B."),
    lines=(
        HandLine(EMBEDDING, product(151936, 2048), 311_164_928, outside_layers("embedding")),
        HandLine(
            MATRICES,
            total(product(2, power(2048, 2)), product(2, 2, 128, 2048)),
            9_437_184,
            of_layer("attention", matrices=True),
            36,
        ),
        HandLine(
            Message("Biases of queries, keys and values, one layer"),
            total(2048, product(2, 2, 128)),
            2560,
            of_layer("attention", matrices=False),
            36,
        ),
        HandLine(FEED_FORWARD, product(3, 2048, 11008), 67_633_152, of_layer("mlp"), 36),
        HandLine(NORMS, product(2, 2048), 4096, of_layer("norms"), 36),
        HandLine(FINAL_NORM, number(2048), 2048, outside_layers("norms")),
        HandLine(
            HEAD,
            product(151936, 2048),
            311_164_928,
            outside_layers("lm_head"),
            1,
            Message("The head is the embedding again (tie_word_embeddings): it is stored and counted once."),
        ),
    ),
)
QWEN3_SMALL = Study(
    about=Message(
        "16 query heads of 128 are 2,048 wide beside a hidden width of 1,024: head_dim is a field of its own."
    ),
    lines=(
        HandLine(EMBEDDING, product(151936, 1024), 155_582_464, outside_layers("embedding")),
        HandLine(
            MATRICES,
            total(product(2, 16, 128, 1024), product(2, 8, 128, 1024)),
            6_291_456,
            of_layer("attention", matrices=True),
            28,
        ),
        HandLine(HEAD_NORMS, product(2, 128), 256, of_layer("attention", matrices=False), 28),
        HandLine(FEED_FORWARD, product(3, 1024, 3072), 9_437_184, of_layer("mlp"), 28),
        HandLine(NORMS, product(2, 1024), 2048, of_layer("norms"), 28),
        HandLine(FINAL_NORM, number(1024), 1024, outside_layers("norms")),
    ),
)
DEEPSEEK = Study(
    about=Message(
        "3 dense layers, then 58 with 256 routed experts and a shared one. Articles take attention as four square "
        "matrices; it is five of low rank. The multi-token prediction layer is extra."
    ),
    lines=(
        HandLine(EMBEDDING, product(129280, 7168), 926_679_040, outside_layers("embedding")),
        HandLine(
            Message("Attention, one layer"),
            product(4, power(7168, 2)),
            205_520_896,
            of_layer("attention"),
            61,
            Message("Queries pass through a rank of 1,536, keys and values through one of 512, with a norm each."),
        ),
        HandLine(Message("Dense feed-forward, one layer"), product(3, 7168, 18432), 396_361_728, of_layer("mlp"), 3),
        HandLine(Message("Router, one layer"), product(256, 7168), 1_835_008, of_layer("router", 3), 58),
        HandLine(
            Message("One routed expert"),
            product(3, 7168, 2048),
            44_040_192,
            of_layer("experts_routed", 3, experts=256),
            58 * 256,
        ),
        HandLine(
            Message("Shared expert, one layer"), product(3, 7168, 2048), 44_040_192, of_layer("experts_shared", 3), 58
        ),
        HandLine(NORMS, product(2, 7168), 14_336, of_layer("norms"), 61),
        HandLine(FINAL_NORM, number(7168), 7168, outside_layers("norms")),
        HandLine(HEAD, product(129280, 7168), 926_679_040, outside_layers("lm_head")),
    ),
)
STUDIES: dict[str, Study] = {
    "study/Qwen3-8B": qwen3_study(total(product(2, power(4096, 2)), product(2, 8, 128, 4096)), 41_943_040),
    "study/Qwen3-8B-MHA": qwen3_study(product(4, power(4096, 2)), 67_108_864),
    "mistralai/Mistral-7B-v0.1": MISTRAL,
    "Qwen/Qwen2.5-3B": QWEN25,
    "Qwen/Qwen3-0.6B": QWEN3_SMALL,
    "deepseek-ai/DeepSeek-V3": DEEPSEEK,
}
"""Studies by preset."""


RECONSTRUCTED = Message(
    "The lines are reconstructed: they follow the formulas with which the study, or the articles that it used, "
    "counted. Its own notes are not part of this project."
)


def hand_section(study: Study, architecture: Architecture) -> Section:
    rows = []
    for line in study.lines:
        exact = line.exact(architecture)
        rows.append(
            (
                line.what,
                line.written,
                Exact(number=line.hand),
                Exact(number=exact),
                number(line.times),
                Exact(number=(line.hand - exact) * line.times),
                line.why or Message("The same."),
            )
        )
    hand, exact = study.hand_total, study.exact_total(architecture)
    items: tuple[Item, ...] = (
        study.about,
        RECONSTRUCTED,
        PaperTable(
            head=(
                Message("Line"),
                Message("Formula"),
                Message("By hand"),
                Message("Exact"),
                Message("Times"),
                Message("Difference in all"),
                Message("Why"),
            ),
            rows=tuple(rows),
        ),
        Message(
            "By hand **{hand:,}**, exactly **{exact:,}**: {difference:+,}, or {error:+.3%}.",
            hand=hand,
            exact=exact,
            difference=hand - exact,
            error=hand / exact - 1,
        ),
    )
    return Section(anchor="hand", title=Message("The calculation by hand"), items=items)
