"""What TensorRT-LLM's PyTorch backend refuses: families, formats, and layouts of its attention data parallelism."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import FLOATS, CacheFormat, Precision, WeightFormat
from calc.hardware.engine_rules import version
from calc.hardware.format_rules import WAYS
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.rules import Rules, broken_tiles, even_stages, without_cache, without_pooling
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.engines.tensorrt_llm.options import TensorRTLLMOptions
from calc.serving.engines.tensorrt_llm.support import SUPPORT
from calc.serving.workload import Workload

SERVED = frozenset(
    "afmoe cohere2 deepseek_v3 deepseek_v32 deepseek_v4 exaone4 exaone_moe gemma3_text gemma4_text gemma4_unified_text "
    "glm4_moe glm_moe_dsa gpt_oss hunyuan_v1_dense hunyuan_v1_moe inkling_text kimi_k2 kimi_linear laguna llama "
    "llama4_text minimax_m2 minimax_m3_vl_text ministral3 mistral mixtral mllama_text_model nemotron nemotron-nas "
    "nemotron_h phi3 phi4_multimodal qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text "
    "qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text seed_oss starcoder2 step3p5".split()
)
"""Model types that its PyTorch backend serves: `MODEL_ARCH_TO_MODULE` of `_torch/models/_arch_index.py`, and
nvidia.github.io/TensorRT-LLM/models/supported-models.html without those that the AutoDeploy backend serves."""
WITH_IMAGES = frozenset(
    "exaone4_5 gemma3 gemma4 gemma4_unified inkling_mm_model kimi_k25 kimi_k3 llama4 llava_next minicpmv4_6 "
    "minimax_m3_vl mistral3 mllama nemotron_h_omni phi4_multimodal qwen2_5_vl qwen2_vl qwen3_5 qwen3_5_moe qwen3_vl "
    "qwen3_vl_moe step3p7".split()
)
"""Those of whole models with encoders (`MULTIMODAL_MODEL_TYPE_TO_MODULE`): of others not even the language model is
read."""
CACHES: tuple[CacheFormat, ...] = ("bf16", "fp16", "fp8")
"""Formats of the cache (`KvCacheConfig.dtype`), without nvfp4, which takes scales of a calibration."""
UNTIL_HOPPER = frozenset({"awq", "gptq"})
"""Ways of storing weights for which the documentation's table of hardware has no Blackwell."""
BLACKWELL = (10, 0)


class TensorRTLLMRules(Rules):
    """What TensorRT-LLM's PyTorch backend refuses."""

    options: TensorRTLLMOptions

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Formats of the table of `features/quantization.html`: 16 bits, those of ModelOpt, AWQ and GPTQ."""
        return weights in FLOATS or WAYS.get(weights) in SUPPORT.formats

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        """`enable_attention_dp` makes each tensor-parallel rank a copy (`mapping.py`)."""
        yield from broken_tiles(model, precision, layout)
        if layout.tp > 1 and layout.dp > 1:
            sentence = "{engine} makes every rank a copy of the attention or none: tp {tp:,} with dp {dp:,} is neither."
            yield Refusal(Message(sentence, engine=self.title, tp=layout.tp, dp=layout.dp), "dp", [1])
        yield from super().layout_refusals(model, precision, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        yield from without_pooling(model, self.title)
        yield from without_cache(model)
        engine, vision, weights, kv = self.title, model.vision, precision.weights, precision.kv
        foreign = vision is not None and vision.wrapper not in ("", *WITH_IMAGES)
        family = vision.wrapper if vision is not None and foreign else model.model_type
        if foreign or family not in SERVED:
            sentence = "{engine}'s PyTorch backend does not serve models of the family {family}."
            yield Refusal(Message(sentence, engine=engine, family=family), "engine")
        if not self.keeps(weights):
            sentence = "{engine}'s PyTorch backend does not run weights in {format}."
            yield Refusal(Message(sentence, engine=engine, format=weights), "weights")
        if kv not in CACHES:
            sentence = "{engine} has no cache in {kv}; fp8 is one of its own."
            yield Refusal(Message(sentence, engine=engine, kv=kv), "kv", ["fp8"])

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        yield from super().gpu_refusals(gpu, laid_out)
        weights, capability = laid_out.precision.weights, gpu.capability
        if WAYS.get(weights) in UNTIL_HOPPER and capability is not None and version(capability) >= BLACKWELL:
            sentence = "{engine}'s documentation does not list {format} for {gpu}"
            yield Refusal(Message(sentence, engine=self.title, format=weights, gpu=gpu.name), "weights")

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """Prompts that a pass does not take and that are not cut (`PyExecutor._validate_request`)."""
        if workload.prompt > limits.step_tokens and not self.options.enable_chunked_prefill:
            sentence = "Prompts of {prompt:,} tokens are more than max_num_tokens, {most:,}, without chunked prefill."
            yield Refusal(Message(sentence, prompt=workload.prompt, most=limits.step_tokens), "max_num_tokens")

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """What does not divide goes one each to the first stages (`torch.tensor_split`)."""
        return even_stages(layers, pp, first=0)

    def vocabulary(self, rows: int, tp: int) -> int:
        """Padded to a multiple of the ranks (`_torch/modules/embedding.py`)."""
        return -(-rows // tp)
