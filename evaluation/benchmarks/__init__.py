"""One small file a benchmark."""

from evaluation.benchmark import Benchmark
from evaluation.benchmarks.aime import AIME2022, AIME2023, AIME2024, AIME2025
from evaluation.benchmarks.codecontests import CodeContests
from evaluation.benchmarks.drop import DROP
from evaluation.benchmarks.gpqa import GPQA
from evaluation.benchmarks.gsm8k import GSM8K
from evaluation.benchmarks.hotpotqa import HotpotQA
from evaluation.benchmarks.humaneval import HumanEval, HumanEvalPlus
from evaluation.benchmarks.math500 import MATH500
from evaluation.benchmarks.mbpp import MBPP, MBPPPlus
from evaluation.benchmarks.mmlu import MMLU
from evaluation.benchmarks.scibench import SciBench
from marti_ext.errors import UserError
from marti_ext.registry import nearest

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        GSM8K(), MATH500(), HumanEval(), MBPP(), SciBench(), GPQA(), MMLU(),
        AIME2022(), AIME2023(), AIME2024(), AIME2025(),
        CodeContests(), HotpotQA(), DROP(), HumanEvalPlus(), MBPPPlus(),
    )
}  # fmt: skip


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of a name. Raises UserError naming the nearest."""
    if name not in BENCHMARKS:
        raise UserError(f"unknown benchmark {name!r}: {nearest(name, BENCHMARKS)}")
    return BENCHMARKS[name]
