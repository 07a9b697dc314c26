"""Drafts in vLLM: layers and models that are loaded for them, and which models allow them.

Read in the wheels of vLLM 0.11 to 0.33: `config/speculative.py`, `v1/worker/gpu/spec_decode/eagle/utils.py`,
`model_executor/models/llama_eagle3.py`.
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from calc.errors import Message, Refusal
from calc.formats import Precision
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import PredictionModule
from calc.serving.engines.drafts import DraftingEngine
from calc.serving.engines.vllm.layers import compressed
from calc.serving.engines.vllm.options import Version, VLLMOptions, holds
from calc.serving.engines.vllm.rules import unserved_family

SPECULATION = ("speculative", "num_speculative_tokens", "model_draft", "weights_draft")
"""Options that one flag says."""
PREDICTED_SINCE: dict[str, Version] = {
    "deepseek_v3": (0, 7),
    "mimo": (0, 9),
    **dict.fromkeys(("ernie4_5_moe", "glm4_moe", "qwen3_next"), (0, 10)),
    "deepseek_v32": (0, 11),
    "glm4_moe_lite": (0, 15),
    "glm_moe_dsa": (0, 16),
    **dict.fromkeys(("nemotron_h", "qwen3_5", "qwen3_5_moe"), (0, 17)),
    **dict.fromkeys(("deepseek_v4", "hy_v3"), (0, 20)),
    "bailing_hybrid": (0, 25),
}
"""The first version that predicts further tokens with a family's own layer (`SpeculativeConfig.hf_config_override`)."""
NO_DRAFT_MODELS: tuple[Version, Version] = (0, 11), (0, 15)
"""Versions from the one that took the first engine out to that before the second got them (`v1/spec_decode`)."""


class VLLMDrafts(DraftingEngine):
    """Drafts in vLLM."""

    method_option: ClassVar[str] = "speculative"
    draft_option: ClassVar[str] = "model_draft"
    options: VLLMOptions

    @property
    def drafter(self) -> str:
        return self.options.speculative

    @property
    def guessed(self) -> int:
        return self.options.guessed

    @property
    def draft_precision(self) -> Precision:
        return Precision(weights=self.options.weights_draft or "bf16")

    @property
    def passing_layers(self) -> int:
        """Layers of a draft that one guess passes: of a draft model all, else one (`deepseek_mtp.py`)."""
        if self.drafter in ("none", "ngram"):
            return 0
        return self.draft_model.num_layers if self.drafter == "draft_model" and self.draft_model is not None else 1

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with the layers that guess next to it: its own, which read its embedding and its head
        (`load_eagle_model`), or EAGLE's, one more like the last behind a projection of [state; embedding]."""
        if self.drafter == "mtp":
            shared = {"embedding": None} | ({"head": None} if holds("guesses share the head", self.options) else {})
            own = tuple(module.model_copy(update=shared) for module in architecture.prediction)
            changed = own != architecture.prediction
            return architecture.model_copy(update={"prediction": own}) if changed else architecture
        if self.drafter != "eagle":
            return architecture
        after = architecture.num_layers
        (last,) = (block for block in architecture.blocks if after - 1 in block.layers)
        block = last.model_copy(update={"layers": (after,), "places": ()})
        module = PredictionModule(block=block, norms=(), projection=("fc",))
        return architecture.model_copy(update={"prediction": (module,)})

    def draft_tables(self, architecture: Architecture, tp: int, stages: int) -> int:
        """The embedding once more for the model's own layers, which read it far from the first stage."""
        width = architecture.d_embedding or architecture.hidden
        return 2 * self.vocabulary(architecture.vocab, tp) * width if self.drafter == "mtp" and stages > 1 else 0

    def unpredicted(self, model: Architecture, family: str) -> Iterator[Refusal]:
        options, layers = self.options, len(model.prediction)
        if not layers:
            sentence = "This model has no multi-token prediction (MTP) layer; eagle adds one of its layers."
            yield Refusal(Message(sentence), "speculative", ["eagle"])
        elif family not in PREDICTED_SINCE:
            sentence = "{engine} has no multi-token prediction (MTP) for models of the family {family}."
            yield Refusal(Message(sentence, engine="vLLM", family=family), "speculative", ["none", "ngram"])
        elif options.older(*PREDICTED_SINCE[family]):
            sentence = (
                "vLLM has multi-token prediction (MTP) for models of the family {family} from version {version} on."
            )
            version = ".".join(map(str, PREDICTED_SINCE[family]))
            yield Refusal(Message(sentence, family=family, version=version), "version", [version])
        if layers and options.guessed > layers and options.guessed % layers:
            sentence = "{n} tokens guessed at once are no multiple of the {layers} layers that guess them."
            below = options.guessed - options.guessed % layers
            near = [below, below + layers]
            yield Refusal(Message(sentence, n=options.guessed, layers=layers), "num_speculative_tokens", near)

    def unfit_draft(self, model: Architecture) -> Iterator[Refusal]:
        """Draft models have the model's vocabulary (`verify_equal_vocab_size_if_draft_model`), heads one layer."""
        draft, (missing, back) = self.draft_model, NO_DRAFT_MODELS
        if self.drafter == "draft_model":
            if not self.options.older(*missing) and self.options.older(*back):
                yield Refusal(
                    Message("vLLM {least} to {most} take no draft model.", least="0.11", most="0.14"), "version"
                )
            if draft is not None and draft.vocab != model.vocab:
                sentence = (
                    "The draft model's vocabulary has {other:,} tokens, the model's {own:,}: {engine} takes equal ones."
                )
                why = Message(sentence, other=draft.vocab, own=model.vocab, engine="vLLM")
                yield Refusal(why, "model_draft")
            if draft is not None:
                yield from unserved_family(draft, self.options)
        elif self.drafter == "eagle3" and draft is not None and draft.num_layers != 1:
            sentence = "EAGLE-3's head has one layer, the draft model {n:,}: draft_model serves whole models."
            yield Refusal(Message(sentence, n=draft.num_layers), "speculative", ["draft_model"])
        elif self.drafter == "eagle3" and compressed(model):
            sentence = (
                "There is no EAGLE-3 head for attention that compresses tokens; mtp guesses with a layer of its own."
            )
            yield Refusal(Message(sentence), "speculative", ["mtp"])

    def unstaged(self, model: Architecture, layout: Layout) -> Iterator[Refusal]:
        """Why drafts do not go with pipeline stages. Those that have no embedding of their own read the model's, which
        lies on the first stage (`maybe_share_target_embed`)."""
        if layout.pp == 1 or self.drafter in ("none", "ngram"):
            return
        if not holds("drafts on pipeline stages", self.options):
            yield Refusal(Message("vLLM has drafts on pipeline stages (pp) from version 0.30 on."), "pp", [1])
        elif self.drafter in ("eagle", "eagle3") or model.model_type == "nemotron_h":
            sentence = "This draft reads the model's embedding, which only the first of {pp} pipeline stages has."
            yield Refusal(Message(sentence, pp=layout.pp), "pp", [1])

    @property
    def speculation(self) -> tuple[str, ...]:
        """The flag that says what guesses tokens."""
        if self.drafter == "none":
            return ()
        stated: dict[str, Any] = {"method": self.drafter}
        if self.drafter not in ("mtp", "ngram"):
            stated["model"] = self.options.model_draft or "org/draft"
        return "--speculative-config", json.dumps(stated | {"num_speculative_tokens": self.guessed})
