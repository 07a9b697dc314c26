from dataclasses import dataclass
from typing import Literal

Known70B = Literal["no", "grouped", "always"]
"""Whether a model of 80 layers is known as one of 70 billion parameters: always, or where values are grouped."""


@dataclass(frozen=True)
class GGUFRules:
    """Rules of llama.cpp's converter and of llama-quantize for one family.

    Source: llama.cpp 0c1e57098, conversion/*.py (the classes that it registers), gguf-py/gguf/constants.py and
    src/llama-quant.cpp.
    """

    architecture: str | None = None  # `general.architecture`; None: llama.cpp does not read the family
    with_experts: str | None = None  # the same of a model with routed experts, where that is another
    splits_qkv: bool = False  # packed query, key and value lie apart in the file
    splits_gate_up: bool = False  # gate and up of a dense feed-forward lie apart
    packs_experts: bool = False  # gate and up of the experts lie in one tensor
    packs_beta_alpha: bool = False  # the two gates of a gated delta net lie in one tensor
    splits_latent: bool = True  # the up-projection of the latent lies apart as keys and values
    rope_factors: bool = False  # factors of the rotary frequencies, whatever the scaling
    cut_vocab: tuple[int, int] | None = None  # rows of a padded vocabulary, and those of them that have a token
    native_mxfp4: bool = False  # experts are published in MXFP4 and stay so in every file
    known_70b: Known70B = "no"
    heads_by_layer: bool = False  # KV heads layer by layer in the header: none in layers without attention
    falcon: bool = False  # llama-quantize has rules for this architecture alone

    def is_70b(self, *, grouped: bool) -> bool:
        """Whether a model of 80 layers, with grouped values or without, is known as one of 70 billion."""
        return self.known_70b == "always" or (self.known_70b == "grouped" and grouped)
