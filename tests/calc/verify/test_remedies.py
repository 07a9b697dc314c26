"""The least changes with which a server that died would have started."""

import pytest

from calc.verify.logs import read_log, remedies, shortage
from tests.calc.verify.test_logs import GIB, LOGS

FREE = "Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB)."
NO_CACHE = "Available KV cache memory: -2.16 GiB\n" + LOGS["vllm-no-cache"].splitlines()[-1]
SGLANG = "\n".join(
    (
        "server_args=ServerArgs(model_path='m', mem_fraction_static=0.7, tp_size=1)",
        "Load weight begin. avail mem=78.00 GB",
        "Load weight end. type=Qwen3, dtype=torch.bfloat16, avail mem=18.00 GB, mem usage=60.00 GB.",
        LOGS["sglang-no-cache"],
    )
)
LENGTH = "max seq len (32768), (8.0 GiB KV cache is needed, which is larger than the available KV cache memory ({}"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        pytest.param(LOGS["vllm-state-blocks"], ["`--max-num-seqs 856`"], id="as the log says"),
        pytest.param(LOGS["vllm-refuses"], ["`--max-model-len 50512`"], id="the length that the log says"),
        pytest.param(LOGS["vllm-2024-01"], ["`--max-model-len 3664`"], id="the tokens that the cache holds"),
        # 8.0 - 5.0 GiB are 3.8 % of 79.19 GiB; 99 % are free
        pytest.param(f"{FREE}\n{LENGTH.format('5.0 GiB')}", ["`--gpu-memory-utilization 0.94`"], id="a larger share"),
        pytest.param(f"{FREE}\n{LENGTH.format('0.5 GiB')}", ["`--gpu-memory-utilization 1`"][1:], id="not so large"),
        pytest.param(LOGS["vllm-free-memory"], ["`--gpu-memory-utilization 0.06`"], id="what is free"),
        pytest.param(LOGS["vllm-failed"], [], id="no reason"),
        # 2.16 and a request of 1 GiB are 4.0 % of 79.19
        pytest.param(f"{FREE}\n{NO_CACHE}", ["`--gpu-memory-utilization 0.94`"], id="a share that leaves a request"),
        pytest.param(NO_CACHE, [], id="of what is not stated"),
        # 60 GiB of weights and 1 for a request are 78.2 % of 78: H100, Qwen3-Omni
        pytest.param(SGLANG, ["`--mem-fraction-static 0.79`"], id="SGLang: what loading took and a request"),
    ],
)
def test_the_least_changes(text, flags):
    assert [str(remedy.what) for remedy in remedies(read_log(text), weights=GIB, request=GIB)] == flags


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(SGLANG, "loading took 60.00 GiB: short by 5.40 GiB before there is any cache", id="SGLang"),
        pytest.param(NO_CACHE, "take 2.16 GiB more than its share of the GPU", id="vLLM"),
        pytest.param(LOGS["vllm-failed"], "these lines do not say why", id="no reason"),
        # vLLM 0.27 died of "TypeError: type 'array.array' is not subscriptable" with 41 GiB of cache
        pytest.param(
            "GPU KV cache size: 292,522 tokens\n" + LOGS["vllm-failed"],
            "do not say that memory was short",
            id="a reason other than memory",
        ),
    ],
)
def test_what_was_short(text, sentence):
    assert sentence in str(shortage(read_log(text)))


def test_a_share_that_does_not_hold_the_weights_helps_nobody():
    assert remedies(read_log(LOGS["vllm-free-memory"]), weights=2 * GIB, request=GIB) == ()
