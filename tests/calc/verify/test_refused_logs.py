"""What an engine says when it refuses to start, beside ours."""

import pytest

from tests.calc.verify.test_log_differences import ours


def too_long(length, needed, left, longest, start="LLM engine (v0.11.0) with config: \n"):
    return (
        f"{start}ValueError: To serve at least one request with the models's max seq len ({length}), ({needed} GiB KV "
        f"cache is needed, which is larger than the available KV cache memory ({left} GiB). Based on the available "
        f"memory, the estimated maximum model length is {longest}."
    )


def too_many(sequences, blocks, left, start):
    return (
        f"{start}Available KV cache memory: {left} GiB\n"
        f"max_num_seqs ({sequences}) exceeds available Mamba cache blocks ({blocks})."
    )


@pytest.mark.parametrize(
    ("model", "text", "term"),
    [  # public logs; where the text is not whole, its figures in vLLM's words
        pytest.param(  # stored public file 57015679456, on two L40S
            "Qwen/Qwen3-30B-A3B",
            too_long(262144, "12.0", "10.59", 231328, "LLM engine (v0.11.0) with config: tensor_parallel_size=2, \n"),
            "max length",
            id="length-of-moe",
        ),
        pytest.param(  # stored public file 57119329401, on an RTX 5080
            "Qwen/Qwen3-4B",
            too_long(40960, "5.62", "4.89", 35600, "LLM engine (v0.9.2) with config: \n"),
            "max length",
            id="length-before-0.10",
        ),
        pytest.param(  # stored public file 59804373189, which does not state its version
            "Qwen/Qwen3-14B", too_long(32768, "5.0", "3.88", 25424, ""), "max length", id="length-of-14b"
        ),
        pytest.param(  # stored public file 61972307986, on an L40S
            "Qwen/Qwen3.6-27B",
            too_many(256, 184, 8.82, "LLM engine (v0.25.0) with config: max_seq_len=131072, quantization=fp8, \n"),
            "state blocks",
            id="states-of-an-l40s",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/49064, on two RX 7900 XT
            "Qwen/Qwen3.6-27B",
            too_many(
                256,
                161,
                3.86,
                "LLM engine (v0.23.1) with config: max_seq_len=122633, tensor_parallel_size=2, quantization=fp8, \n",
            ),
            "state blocks",
            id="states-of-two-7900-xt",
        ),
        pytest.param(  # stored public file 66202049190: 528 in 16 bits, 1,056 in 8
            "Qwen/Qwen3.5-9B", "Setting attention block size to 528 tokens to", "attention block", id="block"
        ),
        pytest.param(
            "Qwen/Qwen3.5-9B",
            "LLM engine (v0.24.0) with config: kv_cache_dtype=fp8, \nSetting attention block size to 1056 tokens to",
            "attention block",
            id="block-of-8-bits",
        ),
    ],
)
def test_what_an_engine_says_when_it_refuses(model, text, term):
    found, _ = ours(text, model)
    assert [str(row.sentence) for row in found.values() if not row.agrees] == []
    assert term in found


def test_a_block_of_attention_of_another_cache():
    found, most = ours("Setting attention block size to 1056 tokens to", "Qwen/Qwen3.5-9B")
    assert most == found["attention block"]
    assert "A block of attention has 1,056 tokens in the log and " in str(most.sentence)
