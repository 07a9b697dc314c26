"""The least changes with which a server that died would have started."""

import pytest

from calc.verify.logs import read_log, remedies
from tests.calc.verify.test_logs import GIB, LOGS

FREE = "Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB)."
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
    ],
)
def test_the_least_changes(text, flags):
    assert [str(remedy.what) for remedy in remedies(read_log(text), weights=GIB)] == flags


def test_a_share_that_does_not_hold_the_weights_helps_nobody():
    assert remedies(read_log(LOGS["vllm-free-memory"]), weights=2 * GIB) == ()
