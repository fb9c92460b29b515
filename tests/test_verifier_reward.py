"""What grades benchmarks is also the reward of training."""

import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.gold import gold_reply, wrong_reply
from evaluation.load import FIXTURES, load_benchmark
from marti_ext.rewards.verifier import VerifierReward
from marti_ext.types import Completion, Episode, Task, Turn


def solution(text: str) -> Turn:
    return Turn("ada", "a", "solution", 0, (), Completion(text), text=text)


@pytest.mark.parametrize("name", ["gsm8k", "mmlu", "scibench", "hotpotqa", "drop", "humaneval", "codecontests"])
def test_a_right_solution_earns_1_a_wrong_or_missing_one_0(name: str) -> None:
    tasks = load_benchmark(BENCHMARKS[name], data_dir=FIXTURES, sample=None, sample_seed=0).tasks
    episodes = [
        Episode(task, turns=[solution(gold_reply(task)), solution(wrong_reply(task)), solution("")]) for task in tasks
    ]
    reward = VerifierReward()
    reward.check(tasks)
    reward.assign(episodes)
    assert [[turn.reward for turn in episode.turns] for episode in episodes] == [[1.0, 0.0, 0.0]] * 5


def test_without_a_usable_label_nothing_is_earned() -> None:
    turns = [solution("```python\nprint(1)\n```"), solution("\\boxed{4}")]
    episodes = [
        Episode(Task("c", "?", "", "code"), turns=turns[:1]),
        Episode(Task("n", "?", "", "numeric"), turns=turns[1:]),
    ]
    VerifierReward().assign(episodes)
    assert [turn.reward for turn in turns] == [None, None]
