"""Printed module trees, with what PyTorch and transformers say of the same modules."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc import Architecture, ConfigError
from calc.verify.printed import module_tree, read_printed
from tests import load

PRINTED = load("printed.json")
PRINTED_4 = load("printed_4.json")
CONFIGS = {row["id"]: row["config"] for row in load("oracle.json")}
TEXTS = {("5", row["id"]): row["text"] for row in PRINTED} | {("4", row["id"]): row["text"] for row in PRINTED_4}
QWEN = TEXTS["5", "Qwen/Qwen3-8B"]
HIDDEN = {  # transformers 4.57: parameters of which it prints no size, by their classes' source
    "deepseek-ai/DeepSeek-V3": 58 * 256 * 7168,  # routers
    "openai/gpt-oss-20b": 24 * (32 * (5760 * 2880 + 5760 + 2880 * 2880 + 2880) + 32 * 2880 + 32 + 64),
    # routed experts of 40 layers; A_log, D, dt_bias and the gated norm of 36
    "ibm-granite/granite-4.0-h-tiny": 40 * 64 * (1024 * 1536 + 1536 * 512) + 36 * (3 * 48 + 3072),
}


def shapes_of(module):
    """The weights that one module shows, standing alone in a tree."""
    return read_printed(f"Model(\n  (x): {module}\n  (e): Embedding(2, 2)\n)").shapes


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in PRINTED])
def test_shows_what_the_class_holds(row):
    printed = read_printed(row["text"])
    assert printed.elements == row["shown"]
    shown, held = Counter(), Counter()
    for name, shape in printed.shapes.items():
        parts = ["N" if part.isdecimal() else part for part in name.split(".")]
        shown[".".join(parts), shape] += 1
    for module in row["modules"]:
        for name, shape in module["tensors"].items():
            held[f"{module['module']}.{name}", tuple(shape)] += module["count"]
    assert shown == held


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in PRINTED_4])
def test_shows_what_the_class_of_transformers_4_holds(row):
    assert read_printed(row["text"]).elements == row["untied"] - HIDDEN.get(row["id"], 0)


@pytest.mark.parametrize(
    ("version", "model", "hidden", "tied"),
    [
        *[
            pytest.param(version, model, (), False, id=f"{model} by {version}")
            for version, model in [
                ("5", "Qwen/Qwen3-8B"),
                ("5", "meta-llama/Meta-Llama-3.1-8B"),
                ("5", "allenai/OLMo-2-1124-7B"),
                ("4", "Qwen/Qwen3-8B"),
                ("4", "Qwen/Qwen3-30B-A3B"),
                ("4", "mistralai/Mixtral-8x7B-v0.1"),
            ]
        ],
        *[
            pytest.param(version, model, (), True, id=f"{model} by {version}")
            for version, model in [
                ("5", "Qwen/Qwen2.5-0.5B"),
                ("5", "LiquidAI/LFM2-1.2B"),
                ("5", "bigcode/starcoder2-7b"),
                ("5", "facebook/opt-350m"),
                ("5", "google/gemma-2-9b"),
                ("5", "openai-community/gpt2"),
                ("5", "tiiuae/falcon-40b"),
                ("4", "google/gemma-2-9b"),
                ("4", "openai-community/gpt2"),
            ]
        ],
        pytest.param("4", "deepseek-ai/DeepSeek-V3", ("mlp.gate.weight",), False, id="DeepSeek-V3 by 4"),
        pytest.param("5", "deepseek-ai/DeepSeek-V3", ("mlp.gate.weight", "mlp.experts."), False, id="DeepSeek-V3 by 5"),
        pytest.param("5", "openai/gpt-oss-20b", ("sinks", ".router.", ".experts."), False, id="gpt-oss-20b by 5"),
        pytest.param("5", "state-spaces/mamba-130m-hf", (".A_log", ".D"), True, id="mamba-130m by 5"),
    ],
)
def test_names_are_those_of_the_config(version, model, hidden, tied):
    tensors = Architecture.from_config(CONFIGS[model]).tensors()
    ours = {name: tensor.shape for tensor in tensors if tensor.excluded_as is None for name in tensor.names()}
    printed = read_printed(TEXTS[version, model]).shapes
    head = {"lm_head.weight": printed["lm_head.weight"]} if tied else {}
    assert printed == head | {name: shape for name, shape in ours.items() if not any(part in name for part in hidden)}


@pytest.mark.parametrize(
    ("module", "shapes"),
    [  # as PyTorch 2.13 prints them, with their named_parameters
        ("Linear(in_features=8, out_features=6, bias=True)", {"weight": (6, 8), "bias": (6,)}),
        ("Linear(in_features=8, out_features=6, bias=False)", {"weight": (6, 8)}),
        ("Embedding(10, 4, padding_idx=0)", {"weight": (10, 4)}),
        ("EmbeddingBag(10, 3, mode='mean')", {"weight": (10, 3)}),
        (
            "Conv1d(8, 8, kernel_size=(3,), stride=(1,), padding=(2,), groups=8)",
            {"weight": (8, 1, 3), "bias": (8,)},
        ),
        ("Conv1d(8, 12, kernel_size=(4,), stride=(1,), groups=4, bias=False)", {"weight": (12, 2, 4)}),
        ("Conv2d(3, 8, kernel_size=(14, 14), stride=(14, 14), bias=False)", {"weight": (8, 3, 14, 14)}),
        ("Conv3d(3, 8, kernel_size=(2, 14, 14), stride=(1, 1, 1))", {"weight": (8, 3, 2, 14, 14), "bias": (8,)}),
        ("LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)", {"weight": (8,), "bias": (8,)}),
        ("LayerNorm((4, 8), eps=1e-05, elementwise_affine=True, bias=False)", {"weight": (4, 8)}),
        ("LayerNorm((8,), eps=1e-05, elementwise_affine=False, bias=False)", {}),
        ("RMSNorm((8,), eps=None, elementwise_affine=True)", {"weight": (8,)}),
        ("RMSNorm((8,), eps=None, elementwise_affine=False)", {}),
        (
            "BatchNorm1d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
            {"weight": (8,), "bias": (8,)},
        ),
        ("Conv1D(nf=12, nx=8)", {"weight": (8, 12), "bias": (12,)}),
        ("MambaRMSNorm(8, eps=1e-05)", {"weight": (8,)}),
        ("FusedRMSNorm(torch.Size([8]), eps=1e-06, elementwise_affine=True)", {"weight": (8,)}),
        ("Linear4bit(in_features=8, out_features=6, bias=False)", {"weight": (6, 8)}),
        ("Linear8bitLt(in_features=8, out_features=6, bias=True)", {"weight": (6, 8), "bias": (6,)}),
        (
            "ParameterList(\n      (0): Parameter containing: [torch.float32 of size 2x3]\n"
            "      (1): Parameter containing: [torch.cuda.FloatTensor of size  (GPU 0)]\n  )",
            {"0": (2, 3), "1": ()},
        ),
        ("ParameterDict(  (a): Parameter containing: [torch.FloatTensor of size 4])", {"a": (4,)}),
        ("ModuleList(\n    (0-1): 2 x None\n  )", {}),
        ("None", {}),
        ("Linear(\n    in_features=8, out_features=6, bias=False\n    (drop): Dropout(p=0.1)\n  )", {"weight": (6, 8)}),
        (
            "Sequential(\n    (0): Linear(in_features=2, out_features=3, bias=True)\n    (1): ReLU()\n"
            "    (2): Linear(in_features=3, out_features=2, bias=False)\n  )",
            {"0.weight": (3, 2), "0.bias": (3,), "2.weight": (2, 3)},
        ),
    ],
)
def test_kinds_of_modules(module, shapes):
    assert shapes_of(module) == {f"x.{name}": shape for name, shape in shapes.items()} | {"e.weight": (2, 2)}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(QWEN.replace("\n", "\r\n"), id="Windows"),
        pytest.param(QWEN.replace("  ", "\t"), id="tabs"),
        pytest.param("\n".join(line.strip() for line in QWEN.splitlines()), id="no indentation"),
        pytest.param(" ".join(QWEN.split()), id="one line"),
        pytest.param(f">>> print(model)\n{QWEN}\n>>> exit()\n", id="prompt"),
        pytest.param(f"In [3]: model\nOut[3]: {QWEN}", id="notebook"),
        pytest.param(f"Loading (4 shards): 100% (28/28)\nmodel is {QWEN}\nloss (first) = 2.3 (nats)\n", id="log"),
        pytest.param("".join(f"[rank0]: {line}\n" for line in QWEN.splitlines()), id="ranks"),
    ],
)
def test_text_around_it_changes_nothing(text):
    plain, read = read_printed(QWEN), read_printed(text)
    assert module_tree(text)[0].kind == "Qwen3ForCausalLM"
    assert read.tensors == plain.tensors
    assert read.unseen == plain.unseen


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "DataParallel", "OptimizedModule"])
def test_wrappers_leave_the_names(wrapper):
    read = read_printed(f"{wrapper}(\n  (module): {QWEN})")
    assert read.tensors == read_printed(QWEN).tensors
    assert any(wrapper in note for note in map(str, read.unseen))


def test_adapters_stand_beside_the_weights():
    lora = """PeftModelForCausalLM(
      (base_model): LoraModel(
        (model): LlamaForCausalLM(
          (model): LlamaModel(
            (layers): ModuleList(
              (0-31): 32 x LlamaDecoderLayer(
                (q_proj): lora.Linear4bit(
                  (base_layer): Linear4bit(in_features=4096, out_features=4096, bias=False)
                  (lora_dropout): ModuleDict(
                    (default): Dropout(p=0.1, inplace=False)
                  )
                  (lora_A): ModuleDict(
                    (default): Linear(in_features=4096, out_features=64, bias=False)
                  )
                  (lora_embedding_A): ParameterDict()
                )
              )
            )
          )
        )
      )
    )"""
    read = read_printed(lora)
    names = [f"model.layers.{layer}.q_proj" for layer in range(32)]
    assert read.shapes == {
        **{f"{name}.weight": (4096, 4096) for name in names},
        **{f"{name}.lora_A.default.weight": (64, 4096) for name in names},
    }
    assert any("32 × Linear4bit" in note and "packed" in note for note in map(str, read.unseen))
    assert not any("no sizes" in note for note in map(str, read.unseen))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("(a): Embedding(5, 3)\n(b): Embedding(5, 3)", ["a.weight", "b.weight"], id="parts"),
        pytest.param("Qwen3Model(\n(embed_tokens): Embedding(5, 3)\n)", ["embed_tokens.weight"], id="inner model"),
        pytest.param("ModuleList(\n(2-3): 2 x Embedding(5, 3)\n)", ["2.weight", "3.weight"], id="layers"),
    ],
)
def test_part_of_a_model_keeps_its_names(text, names):
    assert list(read_printed(text).shapes) == names


@pytest.mark.parametrize(
    ("version", "model", "words"),
    [
        ("5", "Qwen/Qwen3-30B-A3B", ["48 × Qwen3MoeExperts", "model.layers.0-47.mlp.experts"]),
        ("5", "Qwen/Qwen3-30B-A3B", ["48 × Qwen3MoeTopKRouter", "model.layers.0-47.mlp.gate"]),
        ("4", "deepseek-ai/DeepSeek-V3", ["58 × DeepseekV3TopkRouter", "model.layers.3-60.mlp.gate"]),
        ("4", "openai/gpt-oss-20b", ["24 × GptOssExperts"]),
        ("5", "CohereLabs/c4ai-command-r-plus", ["193 × CohereLayerNorm", "elsewhere"]),
        ("5", "state-spaces/mamba-130m-hf", ["A_log", "never printed"]),
        ("5", "Zyphra/Zamba2-1.2B", ["share weights"]),
    ],
)
def test_says_what_it_cannot_see(version, model, words):
    notes = map(str, read_printed(TEXTS[version, model]).unseen)
    assert [note for note in notes if all(word in note for word in words)]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("LayerNorm((8,), eps=1e-05, elementwise_affine=True)", "1 × LayerNorm have a bias is not printed; one"),
        ("Odd(in_features=8, out_features=6)", "1 × Odd have a bias is not printed; none"),
        ("Odd(size=8)", "no sizes for 1 × Odd (x)"),
        ("XIELUActivation()", "no sizes for 1 × XIELUActivation (x)"),
        ("Linear(in_features=8, out_features=6, bias=False)\n)\nOther(\n (y): Embedding(2, 2)", "More modules follow"),
    ],
)
def test_says_what_it_assumes(module, words):
    read = read_printed(f"Model(\n  (e): Embedding(2, 2)\n  (x): {module}\n)")
    assert any(words in note for note in map(str, read.unseen))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("M(\n (a): Embedding(2, 2)\n ...\n)", "M", id="a line"),
        pytest.param("M(\n (a): Embedding(2, 2)\n (b): Block(...)\n)", "b", id="a block"),
    ],
)
def test_says_where_the_text_was_shortened(text, place):
    assert any(f"“...” inside {place}:" in note for note in map(str, read_printed(text).unseen))


def test_a_layer_that_could_be_quantized_is_not():
    module = "NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)"  # of nn.MultiheadAttention
    usual = read_printed("Model((e): Embedding(2, 2))").unseen
    assert read_printed(f"Model((e): Embedding(2, 2)\n(x): {module})").unseen == usual


def test_a_complete_print_out_has_nothing_but_the_usual_notes():
    usual = read_printed("Model((e): Embedding(2, 2))").unseen
    assert read_printed(TEXTS["5", "meta-llama/Meta-Llama-3.1-8B"]).unseen == usual


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "No printed model"),
        ('{"hidden_size": 8}', "No printed model"),
        ("Model(\n  (act): SiLU()\n)", "no sizes"),
        ("M((e): Embedding(-5, 3))", "e says “-5”"),
        ("M((e): Embedding(0, 3))", "e says “0”"),
        ("M((e): Embedding(2.5, 3))", "e says “2.5”"),
        (f"M((e): Embedding({10**30}, 3))", "between 1 and 2,147,483,648"),
        (f"M((e): Embedding({'9' * 9000}, 3))", "between 1 and 2,147,483,648"),
        ("M((e): Linear(in_features=a, out_features=3))", "e says “a”"),
        ("M((e): Conv1d(8, 8, kernel_size=(3,), groups=3))", "3 groups"),
        ("M((e): Embedding(5, 3)\n(e): Embedding(5, 3))", "“e.weight” is printed twice"),
        ("M((0-3): 4 x Embedding(5, 3)\n(2): Embedding(5, 3))", "Index 2 in M comes after 3"),
        ("M((0-3): 5 x Embedding(5, 3))", "a range and its length"),
        ("M((0-3): Embedding(5, 3))", "a range and its length"),
        ("M((a): 2 x Embedding(5, 3))", "a range and its length"),
        ("M((0-99998): 99999 x Embedding(5, 3))", "at most 10,000 times"),
        ("M((0-1999): 2000 x L((0-1999): 2000 x Embedding(5, 3)))", "stands for 4,000,000 tensors"),
        ("M(" + "(0-9999): 10000 x L(" * 50 + "(e): Embedding(5, 3)" + ")" * 51, "far too many tensors"),
        ("M(" + "(a): L(" * 200, "more than 100 deep"),
        ("M((a): L(" + "(" * 200, "more than 100 deep"),
        ("\n".join(QWEN.splitlines()[:12]), "ends inside model.layers.0-35"),
        ("\n".join(QWEN.splitlines()[12:]), "never opened"),
        (QWEN + " " * 1_000_000, "1,001,220 characters"),
    ],
)
def test_bad_text_is_a_sentence(text, words):
    with pytest.raises(ConfigError) as error:
        read_printed(text)
    assert words in str(error.value)
    assert len(str(error.value)) < 400


def is_read_or_refused(text):
    try:
        printed = read_printed(text)
    except ConfigError as error:
        assert 20 < len(str(error)) < 700
        return
    assert printed.tensors
    assert all(size > 0 for shape in printed.shapes.values() for size in shape)


@given(st.text() | st.text("(): \n,=x-0129aL"))
def test_any_text_is_read_or_refused(text):
    is_read_or_refused(text)
    is_read_or_refused(f"M(\n(a): Embedding(2, 2)\n{text}\n(b): Embedding(2, 2)\n)")


@given(
    st.sampled_from([row["text"] for row in PRINTED_4]),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 40), st.text("()-: 019ax,.=\n", max_size=5)), max_size=3),
)
def test_any_mutation_is_read_or_refused(text, edits):
    for start, length, instead in edits:
        text = text[:start] + instead + text[start + length :]
    is_read_or_refused(text)


@given(st.lists(st.sampled_from(["q", "k", "0", "1-3"]), min_size=1, max_size=4, unique=True), st.integers(1, 2**20))
def test_what_was_printed_is_what_is_read(path, size):
    """A tree of one weight, printed as PyTorch would."""
    text = f"Embedding({size}, 3)"
    for name in reversed(path):
        text = f"ModuleList(\n  ({name}): {'3 x ' if name == '1-3' else ''}{text}\n)"
    names = [".".join(path).replace("1-3", index) for index in (["1", "2", "3"] if "1-3" in path else ["0"])]
    assert read_printed(text).shapes == {f"{name}.weight": (size, 3) for name in names}
