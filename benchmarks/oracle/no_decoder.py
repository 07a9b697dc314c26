"""What transformers has and we have not: classes that are no decoder language model, each with its reason."""

from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM

from calc.families.family_table import FAMILIES, WRAPPED

CLASSES = (AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMultimodalLM)
ENCODER = "an encoder that its class can be told to run as a decoder"
HALF = "the decoder half of an encoder-decoder"
BOTH = "an encoder-decoder"
NO_DECODER = {
    "bert-generation": ENCODER,
    "big_bird": ENCODER,
    "data2vec-text": ENCODER,
    "ernie": ENCODER,
    "megatron-bert": ENCODER,
    "rembert": ENCODER,
    "roberta-prelayernorm": ENCODER,
    "roc_bert": ENCODER,
    "roformer": ENCODER,
    "xlm-roberta-xl": ENCODER,
    "xmod": ENCODER,
    "reformer": "an encoder for long texts, reversible and hashed; no language model was published for prompts",
    "xlm": "an encoder of sentences in many languages",
    "xlnet": "learns permutations of a text; reads both ways",
    "bart": HALF,
    "bigbird_pegasus": HALF,
    "blenderbot": HALF,
    "blenderbot-small": HALF,
    "marian": HALF,
    "mbart": HALF,
    "mvp": HALF,
    "pegasus": HALF,
    "plbart": HALF,
    "prophetnet": HALF,
    "trocr": HALF,
    "whisper": HALF,
    "blip": BOTH,
    "florence2": BOTH,
    "pix2struct": BOTH,
    "pp_formulanet": BOTH,
    "t5gemma2": BOTH,
    "udop": BOTH,
    "vision-encoder-decoder": BOTH,
    "moshi": "speaks: frames of sound in several codebooks, not text",
    "musicgen": "makes music: codebooks of sound that text steers from an encoder",
    "musicgen_melody": "makes music: codebooks of sound that text steers from an encoder",
    "kyutai_speech_to_text": "hears: frames of sound in several codebooks that go in with each word",
    "pi0": "a policy of a robot: its expert for actions reads a PaliGemma",
    "evolla": "answers about proteins: a Llama with an encoder of their structure between its layers",
    "git": "captions: a BERT that reads images",
}
"""model_types of causal and multimodal classes that are no decoder language model, each with its reason."""


def missing() -> list[str]:
    """model_types of causal, image-text and multimodal classes that neither table knows."""
    classes = {model_type for auto in CLASSES for model_type in auto._model_mapping._model_mapping}
    return sorted(classes - set(FAMILIES) - set(WRAPPED) - set(NO_DECODER))
