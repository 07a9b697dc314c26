"""python -m benchmarks.oracle.write_defaults: what each class of transformers takes for a field that is left out.

Run it in an environment with Hugging Face transformers 5.23; it writes calc/families/defaults.json.
"""

import dataclasses
import importlib.util
import json
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TARGET = Path(__file__).parents[2] / "calc" / "families" / "defaults.json"
TYPES = """
afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid bamba beam biogpt bitnet bloom chameleon codegen cohere cohere2
cohere2_moe cohere_compass_text cosmos3_edge_text cwm dbrx deepseek_ocr2_text deepseek_v2 deepseek_v3 deepseek_v32
deepseek_v4 diffllama doge dots1 emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text exaone4 exaone_moe falcon
falcon_h1 falcon_mamba flex_olmo flint gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm glm4
glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text glm_moe_dsa glm_ocr_text gpt2 gpt_bigcode gpt_neo gpt_neox
gpt_neox_japanese gpt_oss gptj granite granite4_vision_text granite_docling_text granite_swa granitemoe granitemoe_swa
granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hyperclovax
inkling_text internlm3 iquestcoder jais2 jamba jetmoe kimi_linear kolibri1 laguna lfm2 lfm2_moe lfm3 llama llama4_text
longcat_flash mamba mamba2 mellum mimo_v2_flash minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral ministral3
mistral mistral4 mixtral mllama_text_model molmo2_text mpt muse_glimmer_text muse_spark_text nanochat nemotron
nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt paddleocr_vl_text persimmon phi phi3 phi4_multimodal
phimoe qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe
qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text recurrent_gemma seed_oss smollm3 solar_open stablelm
starcoder2 step3p5 unlimited_ocr_text vaultgemma voxtral_realtime_text xglm youtu zamba zamba2
""".split()
COMMON = """
return_dict output_hidden_states dtype chunk_size_feed_forward is_encoder_decoder architectures id2label label2id
problem_type transformers_version output_attentions bos_token_id eos_token_id pad_token_id initializer_range use_cache
rope_parameters output_router_logits hidden_act hidden_activation activation activation_function pretraining_tp
""".split()  # fields of every class, or nothing to do with a size


def defaults(config_class: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            continue
        if field.name in COMMON or isinstance(value, float) or field.name.endswith("_token_id"):
            continue
        if isinstance(value, int | str | list | tuple | None):
            found[field.name] = list(value) if isinstance(value, tuple) else value
    source = importlib.util.find_spec(config_class.__module__.replace("configuration", "modeling"))
    text = Path(source.origin).read_text(encoding="utf-8") if source and source.origin else ""
    if "head_dim" not in found and 'getattr(config, "head_dim"' in text:
        found["head_dim"] = None
    return found


def main() -> None:
    table = {
        name: {"fields": defaults(CONFIG_MAPPING[name]), "aliases": dict(CONFIG_MAPPING[name].attribute_map)}
        for name in TYPES
    }
    rows = (f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in table.items())
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(table)} classes in {TARGET}")


if __name__ == "__main__":
    main()
