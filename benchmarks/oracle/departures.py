"""Presets whose class in transformers 5.23 differs from the published checkpoint, which ours follows, and how.

A row accounts for a difference of `python -m benchmarks.oracle` only if every line of it is of the kinds named here and
their numbers are these: whatever else differs, and a class that no longer does, is a difference still."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Departure:
    """How a class in transformers differs from a checkpoint, the reason, and where the checkpoint's form is read."""

    reason: str
    source: str
    lines: Mapping[str, int]
    """Pattern of a line of the comparison -> how many lines are such."""
    parameters: int = 0
    """Parameters that the checkpoint has more than the class."""

    def accounts_for(self, lines: list[str], parameters: int) -> bool:
        """Whether these are all differences and no others."""
        of_kind = {kind: sum(bool(re.match(kind, line)) for line in lines) for kind in self.lines}
        return of_kind == self.lines and sum(of_kind.values()) == len(lines) and parameters == self.parameters


LORA = r"extra +\S+\.parametrizations\.weight\.0\.lora_[AB] "
DEPARTURES = {
    "allenai/Olmo-Hybrid-7B": Departure(
        reason=(
            "it saves its one convolution as three equal parts (Chunk is what reverses Concatenate), where queries and "
            "keys have 2,880 channels and values 5,760"
        ),
        source=(
            "transformers 5.3.0, modeling_olmo_hybrid.py, OlmoHybridGatedDeltaNet: convolutions of key_dim, key_dim "
            "and value_dim, with which the checkpoint came out; vLLM 0.33 olmo_hybrid.py loads them so"
        ),
        lines={
            r"shape +model\.layers\.\d+\.linear_attn\.[qk]_conv1d\.weight \(2880, 1, 4\), theirs \(3840, 1, 4\)$": 48,
            r"shape +model\.layers\.\d+\.linear_attn\.v_conv1d\.weight \(5760, 1, 4\), theirs \(3840, 1, 4\)$": 24,
        },
    ),
    "jinaai/jina-embeddings-v3": Departure(
        reason=(
            "its config.json names code beside the checkpoint, with rotary positions, one matrix for queries, keys and "
            "values, and adapters for five tasks; the class of its model_type has learned positions and no adapters"
        ),
        source=(
            "https://huggingface.co/jinaai/jina-embeddings-v3 states 572,310,396 parameters; vLLM 0.33 "
            "bert_with_rope.py, JinaRobertaModel, maps these modules and adds their adapters"
        ),
        lines={
            r"missing +(embeddings\.LayerNorm\.(weight|bias)|embeddings\.position_embeddings\.weight) ": 3,
            r"missing +encoder\.layer\.\d+\.": 24 * 16,
            r"extra +encoder\.layers\.\d+\.(?!\S*parametrizations)": 24 * 12,
            r"extra +emb_ln\.(weight|bias) ": 2,
            LORA: 2 * (24 * 4 + 3),
        },
        parameters=5 * 4 * (24 * (4096 + 2048 + 2 * 5120) + 251_026 + 1_025 + 2_048) - 8194 * 1024,
    ),
}
