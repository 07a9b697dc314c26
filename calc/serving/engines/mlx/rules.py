"""Refusals of mlx-lm: families, formats of weights and of the cache, more than one Mac."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.formats.format_names import FLOATS, MLX_FORMATS
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.loading import up_to
from calc.serving.engines.mlx.cache import EXPANDED, IN_LISTS, OWN_CACHES, ROTATING
from calc.serving.engines.mlx.loading import HIGH, is_down
from calc.serving.engines.mlx.options import STEP, MLXOptions
from calc.serving.engines.rules import Question, Rules
from calc.serving.engines.sizes import LaidOut

SERVED = frozenset(
    "afmoe apertus bailing_hybrid bailing_moe bitnet cohere cohere2 dbrx deepseek deepseek_v2 deepseek_v3 "
    "deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe falcon_h1 falcon_mamba gemma gemma2 "
    "gemma3_text gemma3n_text gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neox "
    "gpt_oss gptj granite granitemoe granitemoehybrid helium hunyuan_v1_dense internlm2 internlm3 iquestcoder jamba "
    "kimi_k2 kimi_linear laguna lfm2 lfm2_moe llama llama4_text longcat_flash mamba mamba2 mellum mimo "
    "mimo_v2_flash minicpm minicpm3 minimax minimax_m2 minimax_m3_vl_text ministral3 mistral mistral4 mixtral "
    "muse_glimmer_text muse_spark_text nanochat nemotron nemotron-nas nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe "
    "openelm phi phi3 phi3small phimoe qwen qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text "
    "qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text recurrent_gemma seed_oss smollm3 solar_open "
    "stablelm starcoder2 step3p5 xverse".split()
)
"""Families for which mlx-lm 0.32.2 has a file in `models`, or another's by `MODEL_REMAPPING` of `utils.py`."""
WITH_IMAGES = frozenset(
    "gemma3 gemma3n gemma4 gemma4_unified kimi_k25 kimi_k3 kimi_vl llama4 llava minimax_m3_vl mistral3 muse_glimmer "
    "muse_spark pixtral qwen2_5_vl qwen2_vl qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe".split()
)
"""Models with encoders of which it reads the language model and drops the rest: of others it reads nothing."""
CACHES: tuple[CacheFormat, ...] = ("bf16", "fp16", "fp32")


class MLXRules(Rules):
    options: MLXOptions

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Its own formats, and what is not quantized; gpt-oss is kept in MXFP4 as it is."""
        return weights in MLX_FORMATS or weights in FLOATS or weights == "mxfp4"

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        if layout.gpus > 1:
            degree = "tp" if layout.tp > 1 else "pp" if layout.pp > 1 else "dp"
            yield Refusal(Message("MLX over several Macs (mx.distributed) is not counted here."), degree)
        yield from super().layout_refusals(model, precision, layout)

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        vision, weights, kv = model.vision, precision.weights, precision.kv
        foreign = vision is not None and vision.wrapper not in ("", *WITH_IMAGES)
        family = vision.wrapper if vision is not None and foreign else model.model_type
        if foreign or family not in SERVED:
            sentence = Message("mlx-lm {version} has no file for {family}.", version=self.versions, family=family)
            yield Refusal(sentence, "engine")
        if not self.keeps(weights):
            sentence = Message("mlx-lm does not compute with weights in {format}; mlx-4bit is usual.", format=weights)
            yield Refusal(sentence, "weights", ["mlx-4bit"])
        elif weights == "mxfp4" and precision.checkpoint is None:
            sentence = Message("MLX stores all matrices of a model in mlx-mxfp4; mxfp4 is a checkpoint's own.")
            yield Refusal(sentence, "weights", ["mlx-mxfp4"])
        if weights in HIGH and not any(is_down(tensor.name) for tensor in model.tensors()):
            sentence = Message(
                "mlx_lm.convert has no mixed recipe for {family}: no module is a down_proj.", family=family
            )
            yield Refusal(sentence, "weights", ["mlx-4bit"])
        if kv not in CACHES:
            sentence = Message("MLX has no cache in {kv}: --kv-bits quantizes one as it grows.", kv=kv)
            yield Refusal(sentence, "kv", ["bf16"])
        size = self.options.prefill_step_size
        if size % STEP:
            sentence = Message(
                "Caches grow by {step:,} tokens: passes of {size:,}, no multiple of it, are not counted here.",
                step=STEP,
                size=size,
            )
            yield Refusal(sentence, "prefill_step_size", [size // STEP * STEP, up_to(size, STEP)])
        group, bits = self.options.kv_group_size, self.options.kv_bits
        mixers = [mixer for block in model.blocks for mixer in block.attentions]
        widths = [width for mixer in mixers if len(mixer.cached_vectors()) > 1 for width in mixer.attended_widths]
        if bits is not None and (odd := next((width for width in widths if width % group), None)) is not None:
            sentence = Message(
                "Heads of {width:,} elements do not divide into the cache's groups of {group:,}.",
                width=odd,
                group=group,
            )
            yield Refusal(sentence, "kv_group_size", [n for n in (32, 64, 128) if odd % n == 0])

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        """Refusals: Apple's GPUs alone run it; elsewhere llama.cpp reads files of four bits."""
        for message, field, near in super().gpu_refusals(gpu, laid_out):
            if field != "gpu":
                yield Refusal(message, field, near)
                continue
            sentence = "MLX runs on Apple's GPUs, not on {gpu}: there llama.cpp runs the model in Q4_K_M."
            yield Refusal(Message(sentence, gpu=gpu.name), "gpu")

    def refusals(self, question: Question) -> Iterator[Refusal]:
        """Refusals, with those of a cache that becomes quantized as a request grows."""
        yield from super().refusals(question)
        model, workload, options = question.model, question.workload, self.options
        if (
            model is None
            or workload is None
            or options.kv_bits is None
            or workload.context < options.quantized_kv_start
        ):
            return
        family = model.model_type
        mixers = [mixer for block in model.blocks for mixer in block.attentions]
        if family in ROTATING and any(mixer.window is not None for mixer in mixers):
            sentence = Message("mlx-lm does not quantize rotating caches, which layers with a window have.")
            yield Refusal(sentence, "kv_bits")
        elif model.kernels.capped_scores:
            yield Refusal(Message("mlx-lm reads no quantized cache where scores are capped."), "kv_bits")
        elif family not in EXPANDED | IN_LISTS and any(mixer.absorbs for mixer in mixers):
            yield Refusal(Message("mlx-lm reads no quantized cache of latent attention."), "kv_bits")
        elif family not in OWN_CACHES and options.max_kv_size is not None:
            yield Refusal(Message("mlx-lm does not quantize the rotating cache of --max-kv-size."), "kv_bits")

    def stages(self, layers: int, pp: int) -> Iterator[range]:
        yield range(layers)

    def vocabulary(self, rows: int, tp: int) -> int:
        return rows
