"""The sliders: one for each config field that decides a size and that a reader may want to move."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.errors import Message
from pages.parts.words import say, value


@dataclass(frozen=True)
class Control:
    """A config field on screen."""

    label: str
    least: int
    most: int
    step: int
    help: str

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


@dataclass(frozen=True)
class Switch:
    """A true-or-false field on screen."""

    label: str
    help: str

    def expected(self, name: str) -> Message:
        return Message("{name} is true or false", name=name)

    def parse(self, text: str) -> bool | None:
        return {"true": True, "false": False}.get(text)


HIDDEN = Control("Hidden size", 64, 65_536, 64, "Width of the residual stream: `hidden_size`.")
LAYERS = Control("Layers", 1, 512, 1, "Decoder layers: `num_hidden_layers`.")
HEADS = Control("Query heads", 1, 512, 1, "Attention heads: `num_attention_heads`.")
FFN = Control(
    "FFN multiplier",
    1,
    1_048_576,
    64,
    "Feed-forward width over hidden size. The config holds the product: `intermediate_size`.",
)
KV_HEADS = Control(
    "KV heads",
    1,
    512,
    1,
    "Heads that keep keys and values, each shared by a group of query heads: `num_key_value_heads`.",
)
SHARED_FFN = Control(
    "Shared expert FFN size", 1, 131_072, 64, "Width of the shared expert: `shared_expert_intermediate_size`."
)
STATE = Control(
    "State size", 1, 1024, 8, "Numbers that a Mamba layer keeps for each of its channels, at any length: `state_size`."
)
PER_TOKEN = Control(
    "Experts per token", 1, 512, 1, "Routed experts that one token passes through: `num_experts_per_tok`."
)
EXPERTS = Control("Routed experts", 1, 4096, 1, "Experts of a layer, among which the router chooses.")
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
        "Head dimension",
        8,
        1024,
        8,
        "Width of a head: `head_dim`. Where the config leaves it out it is hidden size / query heads.",
    ),
    "q_lora_rank": Control(
        "Query compression (q_lora_rank)", 1, 16_384, 64, "Width of the compressed query in MLA: `q_lora_rank`."
    ),
    "kv_lora_rank": Control(
        "KV compression (kv_lora_rank)", 1, 16_384, 64, "Width of the latent that MLA caches: `kv_lora_rank`."
    ),
    "qk_nope_head_dim": Control(
        "Non-RoPE head dim", 1, 1024, 8, "Width of a head without rotary positions, in MLA: `qk_nope_head_dim`."
    ),
    "qk_rope_head_dim": Control(
        "RoPE head dim",
        1,
        1024,
        8,
        "Width of a head with rotary positions, in MLA: `qk_rope_head_dim`. Its key is shared by all heads and cached.",
    ),
    "v_head_dim": Control("Value head dimension", 1, 1024, 8, "Width of a head's values, in MLA: `v_head_dim`."),
    "intermediate_size": FFN,
    "n_inner": FFN,
    "ffn_hidden_size": FFN,
    "expansion_ratio": Control(
        "FFN multiplier (expansion_ratio)", 1, 64, 1, "Feed-forward width over hidden size: `expansion_ratio`."
    ),
    "state_size": STATE,
    "mamba_d_state": STATE,
    "vocab_size": Control("Vocabulary", 64, 4_194_304, 64, "Rows of the embedding: `vocab_size`."),
    "tie_word_embeddings": Switch(
        "Tied embeddings", "The head uses the embedding's matrix, which is then counted once: `tie_word_embeddings`."
    ),
    "sliding_window": Control(
        "Sliding window", 1, 1_048_576, 128, "Tokens that a sliding-window layer looks back over: `sliding_window`."
    ),
    "num_experts": EXPERTS,
    "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": PER_TOKEN,
    "n_shared_experts": Control(
        "Shared experts", 0, 64, 1, "Experts that every token passes through: `n_shared_experts`."
    ),
    "shared_expert_intermediate_size": SHARED_FFN,
    "shared_intermediate_size": SHARED_FFN,
    "moe_intermediate_size": Control(
        "Expert FFN size", 1, 131_072, 64, "Width of one routed expert: `moe_intermediate_size`."
    ),
    "first_k_dense_replace": Control(
        "Dense first layers", 0, 512, 1, "Layers before the first one with experts: `first_k_dense_replace`."
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
