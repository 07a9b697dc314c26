"""Serving a model: its memory on a GPU, the verdict, the report, and what would make it fit. Comparisons stand in
`comparison`, derivations in `derivation`, engines in `engines`, several models on the same GPUs in `shared_gpus`."""

from calc.serving.kv_cache import bytes_per_token, growth
from calc.serving.levers import Lever, levers
from calc.serving.memory import MOST_TOKENS, KVBudget, Memory, Serving
from calc.serving.report import KVCache, Report, laid_out_report, within_positions
from calc.serving.verdict import VERDICT_WORDS, Verdict, VerdictWord
from calc.serving.workload import Workload
