"""The sliders: one for each config field that decides a size and that a reader may want to move."""

from collections.abc import Mapping
from typing import Any

from calc.errors import Frozen, Message
from pages.parts.words import say, value


class Control(Frozen):
    """A config field on screen."""

    label: Message
    least: int
    most: int
    step: int
    help: Message

    def expected(self, name: str) -> Message:
        return Message(
            "{name} is a whole number from {least:,} to {most:,}", name=name, least=self.least, most=self.most
        )

    def parse(self, text: str) -> int | None:
        """The value that a text means; None when it makes no sense."""
        if not text.isascii() or not text.isdecimal() or len(text) > len(str(self.most)):
            return None
        return int(text) if self.least <= int(text) <= self.most else None

    def span(self, value: int) -> tuple[int, int]:
        """Ends of the slider, both in whole steps so that arrow keys meet round numbers: the least, and four times the
        preset's value."""
        reach = max(4 * value, 8 * self.step)
        low, high = (-(-end // self.step) * self.step for end in (self.least, reach))
        return min(low, value), max(min(self.most, high), value)

    def multiple(self, factor: float, of: int) -> int:
        """The value that is a multiple of another field."""
        return max(1, round(factor * of))


class Switch(Frozen):
    """A true-or-false field on screen."""

    label: Message
    help: Message

    def expected(self, name: str) -> Message:
        return Message("{name} is true or false", name=name)

    def parse(self, text: str) -> bool | None:
        return {"true": True, "false": False}.get(text)


HIDDEN = Control(
    label=Message("Hidden size"),
    least=64,
    most=65_536,
    step=64,
    help=Message("Width of the residual stream: `hidden_size`."),
)
LAYERS = Control(
    label=Message("Layers"), least=1, most=512, step=1, help=Message("Decoder layers: `num_hidden_layers`.")
)
HEADS = Control(
    label=Message("Query heads"), least=1, most=512, step=1, help=Message("Attention heads: `num_attention_heads`.")
)
FFN = Control(
    label=Message("FFN multiplier"),
    least=1,
    most=1_048_576,
    step=64,
    help=Message("Feed-forward width over hidden size. The config holds the product: `intermediate_size`."),
)
KV_HEADS = Control(
    label=Message("KV heads"),
    least=1,
    most=512,
    step=1,
    help=Message("Heads that keep keys and values, each shared by a group of query heads: `num_key_value_heads`."),
)
SHARED_FFN = Control(
    label=Message("Shared expert FFN size"),
    least=1,
    most=131_072,
    step=64,
    help=Message("Width of the shared expert: `shared_expert_intermediate_size`."),
)
STATE = Control(
    label=Message("State size"),
    least=1,
    most=1024,
    step=8,
    help=Message("Numbers that a Mamba layer keeps for each of its channels, at any length: `state_size`."),
)
EXPERTS = Control(
    label=Message("Routed experts"),
    least=1,
    most=4096,
    step=1,
    help=Message("Experts a layer among which the router chooses."),
)
CONTROLS: dict[str, Control | Switch] = {
    "hidden_size": HIDDEN,
    "n_embd": HIDDEN,
    "d_model": HIDDEN,
    "num_hidden_layers": LAYERS,
    "n_layer": LAYERS,
    "n_layers": LAYERS,
    "num_attention_heads": HEADS,
    "n_head": HEADS,
    "n_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "num_kv_heads": KV_HEADS,
    "head_dim": Control(
        label=Message("Head dimension"),
        least=8,
        most=1024,
        step=8,
        help=Message("Width of a head: `head_dim`. Where the config leaves it out it is hidden size / query heads."),
    ),
    "q_lora_rank": Control(
        label=Message("Query compression (q_lora_rank)"),
        least=1,
        most=16_384,
        step=64,
        help=Message("Width of the compressed query in MLA: `q_lora_rank`."),
    ),
    "kv_lora_rank": Control(
        label=Message("KV compression (kv_lora_rank)"),
        least=1,
        most=16_384,
        step=64,
        help=Message("Width of the latent that MLA caches: `kv_lora_rank`."),
    ),
    "qk_nope_head_dim": Control(
        label=Message("Non-RoPE head dim"),
        least=1,
        most=1024,
        step=8,
        help=Message("Width of a head without rotary positions, in MLA: `qk_nope_head_dim`."),
    ),
    "qk_rope_head_dim": Control(
        label=Message("RoPE head dim"),
        least=1,
        most=1024,
        step=8,
        help=Message(
            "Width of a head with rotary positions, in MLA: `qk_rope_head_dim`. Its key is shared by all heads and "
            "cached."
        ),
    ),
    "v_head_dim": Control(
        label=Message("Value head dimension"),
        least=1,
        most=1024,
        step=8,
        help=Message("Width of a head's values, in MLA: `v_head_dim`."),
    ),
    "intermediate_size": FFN,
    "n_inner": FFN,
    "ffn_hidden_size": FFN,
    "expansion_ratio": Control(
        label=Message("FFN multiplier"),
        least=1,
        most=64,
        step=1,
        help=Message("Feed-forward width over hidden size: `expansion_ratio`."),
    ),
    "state_size": STATE,
    "mamba_d_state": STATE,
    "vocab_size": Control(
        label=Message("Vocabulary"),
        least=64,
        most=4_194_304,
        step=64,
        help=Message("Rows of the embedding: `vocab_size`."),
    ),
    "tie_word_embeddings": Switch(
        label=Message("Tied embeddings"),
        help=Message("The head uses the embedding's matrix, which is then counted once: `tie_word_embeddings`."),
    ),
    "sliding_window": Control(
        label=Message("Sliding window"),
        least=1,
        most=1_048_576,
        step=128,
        help=Message("Tokens that a sliding-window layer looks back on: `sliding_window`."),
    ),
    "num_experts": EXPERTS,
    "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": Control(
        label=Message("Experts per token"),
        least=1,
        most=512,
        step=1,
        help=Message("Routed experts that one token passes through: `num_experts_per_tok`."),
    ),
    "n_shared_experts": Control(
        label=Message("Shared experts"),
        least=0,
        most=64,
        step=1,
        help=Message("Experts that every token passes through: `n_shared_experts`."),
    ),
    "shared_expert_intermediate_size": SHARED_FFN,
    "shared_intermediate_size": SHARED_FFN,
    "moe_intermediate_size": Control(
        label=Message("Expert FFN size"),
        least=1,
        most=131_072,
        step=64,
        help=Message("Width of one routed expert: `moe_intermediate_size`."),
    ),
    "first_k_dense_replace": Control(
        label=Message("Dense first layers"),
        least=0,
        most=512,
        step=1,
        help=Message("Layers before the first one with experts: `first_k_dense_replace`."),
    ),
}
MULTIPLIERS = {"intermediate_size": "hidden_size", "n_inner": "n_embd", "ffn_hidden_size": "hidden_size"}
"""Feed-forward width -> the hidden size that its slider multiplies."""
RARE = frozenset(
    {
        *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "sliding_window"),
        *("vocab_size", "tie_word_embeddings", "n_shared_experts", "shared_expert_intermediate_size"),
        *("first_k_dense_replace", "state_size", "mamba_d_state"),
    }
)
"""Fields that fewer readers move: they stand in a drawer."""


def moved(name: str, before: Any, after: Any) -> str:
    """A slider that differs, and from what: KV heads 8 → 16; of a multiplier the width, which is the config's field."""
    steps = {"label": say(CONTROLS[name].label), "before": value(before), "after": value(after)}
    return say("{label}: {before} → {after} wide" if name in MULTIPLIERS else "{label} {before} → {after}", **steps)


def controlled(settings: Mapping[str, Any]) -> dict[str, Control | Switch]:
    """The controls of one model, in the order of the table: a field that it reads and that is not null."""
    return {name: control for name, control in CONTROLS.items() if settings.get(name) is not None}
