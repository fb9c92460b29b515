import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.outcome import Outcome
from evaluation.paired import Comparison, compare, mcnemar
from marti_ext.errors import UserError
from marti_ext.types import Score, ScoreStatus


def outcome(
    task: str, value: float, seed: int = 0, *, setup: str = "vanilla", benchmark: str = "gsm8k",
    measure: str = "accuracy", status: ScoreStatus = "ok",
) -> Outcome:  # fmt: skip
    return Outcome(benchmark, setup, seed, task, {measure: Score(value, status=status)}, 1, None, None, 1.0)


def run(*values: float) -> list[Outcome]:
    """One seed; the tasks are t0, t1, ..."""
    return [outcome(f"t{place}", value) for place, value in enumerate(values)]


def test_mcnemar_of_ten_against_two() -> None:
    # 2 * (C(12,0) + C(12,1) + C(12,2)) / 2^12 = 2 * 79 / 4096
    assert mcnemar(10, 2) == mcnemar(2, 10) == pytest.approx(0.03857, abs=5e-6)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1


def test_a_comparison_counts_discordant_tasks() -> None:
    found = compare(run(*[1] * 10, *[0] * 2, *[1] * 8), run(*[0] * 10, *[1] * 2, *[1] * 8))
    assert (found.only_first, found.only_second, found.tasks) == (10, 2, 20)
    assert found.p == pytest.approx(158 / 4096)
    assert (found.first, found.second) == (0.9, 0.5)
    assert found.difference == pytest.approx(-0.4)
    assert found.verdict.startswith("worse by -40.0 points, 95 % interval [-")


def test_better_is_said_only_with_an_interval_that_excludes_zero() -> None:
    better = compare(run(*[0] * 30, *[1] * 70), run(*[1] * 100))
    assert better.verdict == f"better by +30.0 points, 95 % interval [{100 * better.low:.1f}, {100 * better.high:.1f}]"  # type: ignore[operator]
    noise = compare(run(0, 0, 1, 1, 1), run(1, 1, 0, 1, 1))
    assert noise.verdict.startswith("no difference shown: +20.0 points [")
    assert "better" not in noise.verdict


def test_few_tasks_show_no_difference_however_large() -> None:
    found = compare(run(0, 0, 0, 0, 0), run(1, 1, 1, 1, 1))
    assert (found.low, found.high, found.p) == (1, 1, 0.0625)  # 2 / 2^5
    assert found.verdict == "no difference shown: +100.0 points [100.0, 100.0] (only 5 tasks differ)"
    assert compare(run(*[0] * 6), run(*[1] * 6)).verdict == "better by +100.0 points, 95 % interval [100.0, 100.0]"


def test_an_interval_that_mcnemars_test_does_not_bear_out_shows_nothing() -> None:
    # Eight tasks better and one worse of 30: p = 2 * (1 + 9) / 512 = 0.039; seven and one: 2 * 9 / 256 = 0.07.
    assert compare(run(*[0] * 8, 1, *[1] * 21), run(*[1] * 8, 0, *[1] * 21)).shown
    found = compare(run(*[0] * 7, 1, *[1] * 22), run(*[1] * 7, 0, *[1] * 22))
    assert found.p == pytest.approx(18 / 256)
    assert found.low is not None
    assert found.low > 0
    assert found.verdict.startswith("no difference shown: +20.0 points [")


def test_equal_runs_show_no_difference_and_no_minus_zero() -> None:
    found = compare(run(1, 0, 1), run(1, 0, 1))
    assert found.verdict == "no difference shown: +0.0 points [0.0, 0.0]"
    assert found.p == 1


def test_a_single_task_proves_nothing() -> None:
    found = compare(run(0), run(1))
    assert (found.low, found.high) == (None, None)
    assert found.verdict == "no difference shown: +100.0 points (no interval from a single task)"


def test_the_interval_is_near_the_normal_one_on_many_tasks() -> None:
    values = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], size=400, p=[0.1, 0.7, 0.2])
    found = compare(run(*(values < 0).astype(float)), run(*(values > 0).astype(float)))
    error = values.std(ddof=1) / 20
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.006)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.006)


def test_seeds_of_a_task_are_drawn_together() -> None:
    """Ten copies of every row say no more than one: only tasks are independent."""
    one, other = [1, 0, 0, 1, 0, 1, 1, 0], [1, 1, 0, 1, 1, 1, 0, 0]
    copies = [
        [outcome(f"t{task}", value, seed) for task, value in enumerate(values) for seed in range(10)]
        for values in (one, other)
    ]
    once, ten = compare(run(*one), run(*other)), compare(*copies)
    assert (once.low, once.high) == (ten.low, ten.high)
    assert once.p is not None
    assert ten.p is None  # McNemar's test wants one value a task


def test_tasks_of_one_run_alone_are_named_and_left_out() -> None:
    found = compare(
        [outcome("a", 1), outcome("b", 0), outcome("x", 1)],
        [outcome("a", 1), outcome("b", 1), outcome("y", 0), outcome("z", 0)],
    )
    assert (found.tasks, found.unpaired) == (2, 3)
    assert (found.left_out_first, found.left_out_second) == (("x",), ("y", "z"))
    assert (found.first, found.second) == (0.5, 1)


def test_failed_rows_count_as_wrong_and_unlabelled_tasks_not_at_all() -> None:
    found = compare(
        [outcome("a", 1), outcome("b", 1), outcome("c", 0, status="no_label")],
        [outcome("a", 1), outcome("b", 0, status="failed"), outcome("c", 0, status="failed")],
    )
    assert (found.tasks, found.no_label, found.unpaired, found.difference) == (2, 1, 0, -0.5)


def test_two_setups_of_one_benchmark_can_be_compared() -> None:
    found = compare(run(0, 1), [outcome("t0", 1, setup="debate"), outcome("t1", 1, setup="debate")])
    assert found.setup == "vanilla against debate"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([outcome("a", 1)], [outcome("b", 1)], "share no task"),
        ([outcome("a", 0, status="no_label")], [outcome("a", 1)], "share no task that can be graded"),
        ([outcome("a", 1)], [], "no results"),
        ([outcome("a", 1)], [outcome("a", 1, benchmark="mmlu")], "cannot compare gsm8k with mmlu"),
        ([outcome("a", 1)], [outcome("a", 1), outcome("b", 1, setup="debate")], "gsm8k/debate, gsm8k/vanilla"),
        ([outcome("a", 1)], [outcome("a", 1, measure="f1")], "different main measures: accuracy, f1"),
        ([outcome("a", 1)], [outcome("a", 1), outcome("a", 1)], "stands twice for seed 0"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(first: list[Outcome], second: list[Outcome], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(first, second)


def test_an_unknown_measure_is_refused() -> None:
    with pytest.raises(UserError, match="no measure 'f2': it has accuracy"):
        compare(run(1), run(1), measure="f2")


VALUES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(VALUES, st.integers(0, 5), st.randoms(use_true_random=False))
def test_swapping_the_runs_flips_the_signs_and_order_changes_nothing(
    values: list[tuple[float, float]], seed: int, order: random.Random
) -> None:
    one, other = run(*(a for a, _ in values)), run(*(b for _, b in values))
    there, back = compare(one, other, seed=seed), compare(other, one, seed=seed)
    assert there.difference == -back.difference
    if there.low is not None and there.high is not None:
        assert (there.low, there.high) == (-back.high, -back.low)  # type: ignore[operator]
        # Equal up to rounding where all differences are the same.
        assert there.low <= there.difference + 1e-12
        assert there.difference <= there.high + 1e-12
    assert (there.first, there.only_first, there.p) == (back.second, back.only_second, back.p)
    order.shuffle(one)
    assert compare(one, other, seed=seed) == there


def test_the_interval_holds_what_it_promises() -> None:
    """Of 200 pairs of equal runs about 5 % may show a difference: binomially, more than 22 with a chance of 0.0002."""
    shown = 0
    for number in range(200):
        values = np.random.default_rng(number).integers(0, 2, (2, 60)).astype(float)
        found: Comparison = compare(run(*values[0]), run(*values[1]))
        shown += not found.verdict.startswith("no difference shown")
        assert not math.isnan(found.difference)
    assert shown <= 22
