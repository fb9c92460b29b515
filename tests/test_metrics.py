"""Every number is worked out by hand beside it, or by scipy."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from evaluation.metrics import clustered_error, estimate, maj_at_k, pass_at_k, summarise, wilson
from evaluation.outcome import Outcome
from marti_ext.errors import UserError
from marti_ext.types import Score


def outcome(task: str, value: float = 1.0, seed: int = 0, **fields: Any) -> Outcome:
    scores = fields.pop("scores", {"accuracy": Score(value, status=fields.pop("status", "ok"))})
    base = Outcome("gsm8k", "vanilla", seed, task, scores, calls=2, prompt_tokens=30, reply_tokens=10, seconds=1.5)
    return replace(base, **fields)


def outcomes(values: dict[str, list[float]]) -> list[Outcome]:
    """Task -> its values by seed."""
    return [outcome(task, value, seed) for task, row in values.items() for seed, value in enumerate(row)]


# pass@k


def test_pass_at_k_of_known_counts() -> None:
    assert pass_at_k(10, 3, 5) == pytest.approx(0.916667, abs=5e-7)  # 1 - C(7,5)/C(10,5) = 1 - 21/252
    assert pass_at_k(4, 1, 2) == 0.5  # 1 - 3/6
    assert pass_at_k(200, 1, 1) == pytest.approx(0.005)  # a small value is still that value
    assert pass_at_k(2, 0, 2) == 0
    assert pass_at_k(3, 2, 2) == 1  # any two of three hold one of the two right ones


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (2, 2, 3), (0, 0, 1), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_is_not_defined_beyond_the_replies_there_are(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, c, k)


@given(st.integers(1, 30), st.data())
def test_pass_at_k_grows_from_the_mean_to_whether_any_is_right(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert values[0] == pytest.approx(c / n)
    assert values == sorted(values)
    assert values[-1] == (c > 0)


def test_the_number_of_tasks_is_no_number_of_samples() -> None:
    summary = summarise([outcome(f"t{i}", float(i < 50)) for i in range(164)])
    assert f"{100 * summary.accuracy.mean:.1f}" == "30.5"  # 50 of 164
    assert summary.pass_at == {}  # one reply a task: nothing beyond pass@1, and never pass@10


def test_pass_at_k_of_a_run_is_the_mean_over_tasks() -> None:
    summary = summarise(outcomes({"a": [1, 0, 0, 0], "b": [0, 0, 0, 0], "c": [1, 1, 1, 1]}))
    assert summary.pass_at == {2: 0.5, 4: pytest.approx(2 / 3)}  # (0.5 + 0 + 1) / 3; (1 + 0 + 1) / 3


def test_pass_at_k_stops_at_the_fewest_replies_and_is_not_for_graded_measures() -> None:
    assert summarise(outcomes({"a": [1, 0, 0], "b": [0, 1, 1]})).pass_at.keys() == {2, 3}
    assert summarise(outcomes({"a": [1, 0, 0], "b": [0]})).pass_at == {}
    assert summarise(outcomes({"a": [1, 0.5], "b": [0, 1]})).pass_at == {}


def test_maj_at_k_counts_no_answer_as_wrong() -> None:
    assert maj_at_k([1.0, 0.0, None, 1.0]) == 0.5
    with pytest.raises(ValueError, match="without tasks"):
        maj_at_k([])


# Errors and intervals


def test_the_clustered_error_of_three_tasks_and_two_seeds() -> None:
    # m = 1/2; by task the deviations sum to 1, 0, -1; sqrt(3/2 * (1 + 0 + 1)) / 6 = sqrt(3) / 6
    by_task = {"a": [1.0, 1.0], "b": [1.0, 0.0], "c": [0.0, 0.0]}
    assert clustered_error(by_task) == pytest.approx(math.sqrt(3) / 6)
    # The plain error over all six rows would be sqrt(6 * 0.25 / 5 / 6) = 0.2236: too small.
    assert clustered_error(by_task) > 0.2236


def test_seeds_that_disagree_within_tasks_tell_nothing_less_than_rows_apart() -> None:
    # Each task has one right and one wrong: all task means are 1/2.
    assert clustered_error({"a": [1.0, 0.0], "b": [0.0, 1.0]}) == 0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_one_seed_gives_the_plain_standard_error(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    by_task = {str(task): [value] for task, value in enumerate(values)}
    assert clustered_error(by_task) == pytest.approx(math.sqrt(variance / len(values)))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_equally_many_seeds_give_the_error_of_the_task_means(values: list[tuple[float, ...]]) -> None:
    means = [math.fsum(seeds) / 3 for seeds in values]
    by_task = {str(task): list(seeds) for task, seeds in enumerate(values)}
    assert clustered_error(by_task) == pytest.approx(clustered_error({str(i): [m] for i, m in enumerate(means)}))


def test_a_single_task_has_no_standard_error() -> None:
    assert math.isnan(clustered_error({"a": [1.0, 0.0]}))


def test_wilson_of_50_in_164() -> None:
    low, high = wilson(50 / 164, 164)
    # centre (0.304878 + 0.011712) / 1.023423 = 0.309344, half width 0.069789
    assert (low, high) == (pytest.approx(0.239555, abs=1e-6), pytest.approx(0.379132, abs=1e-6))


@given(st.integers(1, 500), st.data())
def test_wilson_is_scipys(size: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, size))
    theirs = binomtest(right, size).proportion_ci(0.95, "wilson")
    assert wilson(right / size, size) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_one_seed_has_wilsons_interval_over_its_tasks() -> None:
    found = estimate([outcome(f"t{i}", float(i < 50)) for i in range(164)], "accuracy")
    assert (found.low, found.high) == wilson(50 / 164, 164)
    assert found.std is None


def test_several_seeds_count_as_many_tasks_as_they_are_worth() -> None:
    # Both seeds alike: deviations by task 1, -1, 1, -1, error^2 = 4/3 * 4 / 64 = 1/12, size 0.25 * 12 = 3: by less
    # than a task below the four that there are, and never below them.
    alike = estimate(outcomes({"a": [1, 1], "b": [0, 0], "c": [1, 1], "d": [0, 0]}), "accuracy")
    assert (alike.low, alike.high) == wilson(0.5, 4)
    # Seeds that disagree everywhere: the error is 0, and the interval is not believed to be.
    mixed = estimate(outcomes({"a": [1, 0], "b": [0, 1], "c": [1, 0], "d": [0, 1]}), "accuracy")
    assert (mixed.low, mixed.high) == wilson(0.5, 4)
    # In between: deviations by task 1, 0, 0, -1, error^2 = 4/3 * 2 / 64 = 1/24, size 0.25 * 24 = 6 of 8 rows.
    between = estimate(outcomes({"a": [1, 1], "b": [0, 1], "c": [1, 0], "d": [0, 0]}), "accuracy")
    assert (between.low, between.high) == pytest.approx(wilson(0.5, 6))


def test_all_solved_still_has_a_width() -> None:
    found = estimate(outcomes({"a": [1, 1], "b": [1, 1]}), "accuracy")
    assert (found.mean, found.error, found.high) == (1, 0, 1)
    assert found.low == wilson(1.0, 2)[0] < 0.5


def test_a_graded_measure_has_the_normal_interval() -> None:
    # mean 0.5; error sqrt(3/2 * (0.0625 * 2)) / 3 = 0.144338
    found = estimate(outcomes({"a": [0.25], "b": [0.5], "c": [0.75]}), "accuracy")
    assert found.error == pytest.approx(0.144338, abs=1e-6)
    assert (found.low, found.high) == (pytest.approx(0.5 - 0.282896, abs=1e-6), pytest.approx(0.782896, abs=1e-6))
    single = estimate([outcome("a", 0.25)], "accuracy")
    assert (single.low, single.high) == (0, 1)


def test_the_interval_of_a_graded_measure_stays_in_range() -> None:
    found = estimate(outcomes({"a": [0.9], "b": [1.0], "c": [1.0], "d": [0.2]}), "accuracy")
    assert found.high == 1


def test_std_over_seeds_is_the_papers() -> None:
    # Seeds solve 266, 266, 266, 265, 265 of 500: deviations 0.4, 0.4, 0.4, -0.6, -0.6, their squares' mean 0.24;
    # sqrt(0.24) / 5 = 0.098 points. The paper prints 53.12 ± 0.10; with divisor 4 it would be 0.11, and no other
    # counts with this mean lie closer together.
    rows = [
        outcome(f"t{i}", float(i < solved), seed) for seed, solved in enumerate([266, 266, 266, 265, 265])
        for i in range(500)
    ]  # fmt: skip
    found = summarise(rows).accuracy
    assert found.std is not None
    assert (f"{100 * found.mean:.2f}", f"{100 * found.std:.2f}") == ("53.12", "0.10")


# Summaries


def test_failed_rows_count_as_wrong_and_are_shown_apart() -> None:
    rows = [outcome("a"), outcome("b", 0), outcome("c", 0, status="failed"), outcome("d", 0, status="timeout")]
    summary = summarise(rows)
    assert summary.accuracy.mean == 0.25
    assert summary.rates == {"unparsed": 0, "truncated": 0, "failed": 0.25, "timeout": 0.25}


def test_tasks_without_a_label_are_in_no_measure_but_in_every_rate() -> None:
    rows = [outcome("a"), outcome("b", 0, status="unparsed"), outcome("c", 0, status="no_label"), outcome("d", 0)]
    summary = summarise(rows)
    assert (summary.tasks, summary.no_label) == (4, 1)
    assert summary.accuracy.mean == pytest.approx(1 / 3)
    assert summary.rates["unparsed"] == 0.25


def test_a_failed_request_does_not_hide_that_a_task_has_no_label() -> None:
    by_other_seed = [outcome("a"), outcome("c", 0, status="no_label"), outcome("a", seed=1),
                     outcome("c", 0, seed=1, status="failed")]  # fmt: skip
    assert summarise(by_other_seed).accuracy.mean == 1
    by_other_setup = [outcome("a"), outcome("c", 0, status="failed")]
    assert summarise(by_other_setup).accuracy.mean == 0.5
    assert summarise(by_other_setup, unlabelled={"c", "x"}).accuracy.mean == 1
    assert summarise(by_other_setup, unlabelled={"c", "x"}).no_label == 1


def test_nothing_but_unlabelled_tasks_gives_no_number() -> None:
    found = summarise([outcome("a", 0, status="no_label")]).accuracy
    assert math.isnan(found.mean)
    assert math.isnan(found.low)


def test_costs_are_means_over_rows() -> None:
    summary = summarise([outcome("a"), outcome("b", calls=4, prompt_tokens=50, reply_tokens=26, seconds=0.5)])
    assert (summary.calls, summary.prompt_tokens, summary.reply_tokens) == (3, 40, 18)
    assert (summary.reply_length, summary.seconds) == (6, 1)  # 36 tokens in 6 calls


def test_token_counts_are_means_over_the_rows_that_have_them() -> None:
    counted, failed = outcome("a"), outcome("b", prompt_tokens=None, reply_tokens=None)
    alone, both = summarise([counted]), summarise([counted, failed])
    assert alone.reply_tokens is not None
    assert (both.prompt_tokens, both.reply_tokens) == (alone.prompt_tokens, alone.reply_tokens)
    assert both.reply_length == alone.reply_length
    unknown = summarise([failed])
    assert (unknown.prompt_tokens, unknown.reply_tokens, unknown.reply_length) == (None, None, None)
    assert summarise([outcome("a", calls=0, reply_tokens=0)]).reply_length is None


def test_an_unfinished_run_says_how_many_tasks_lack_a_seed() -> None:
    summary = summarise(outcomes({"a": [1, 0], "b": [1]}))
    assert (summary.tasks, summary.seeds, summary.incomplete) == (2, 2, 1)
    assert summary.accuracy.mean == pytest.approx(2 / 3)  # of the rows there are


def test_every_measure_has_its_own_numbers() -> None:
    both = {"last": Score(0.0, status="unparsed"), "any": Score(1.0)}
    summary = summarise([outcome("a", scores=both), outcome("b", scores={**both, "last": Score(1.0)})])
    assert list(summary.measures) == ["last", "any"]
    assert (summary.accuracy.mean, summary.measures["any"].mean) == (0.5, 1)
    assert summary.rates["unparsed"] == 0.5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([outcome("a"), outcome("a")], "'a' stands 2 times for seed 0"),
        ([outcome("a"), outcome("b", scores={"f1": Score(1.0)})], "task 'b' has the measures f1"),
        ([outcome("a"), outcome("b", setup="debate")], "gsm8k/debate"),
    ],
)
def test_rows_that_do_not_belong_together_are_refused(rows: list[Outcome], message: str) -> None:
    with pytest.raises(UserError, match=message):
        summarise(rows)


VALUES = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
STATUSES = st.sampled_from(["ok", "ok", "ok", "unparsed", "truncated", "failed", "timeout", "no_label"])
RUNS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from("abcdefgh")),
    st.tuples(VALUES, STATUSES, st.integers(0, 9), st.none() | st.integers(0, 99), st.floats(0, 100)),
    min_size=1,
)


@settings(max_examples=200)
@given(RUNS, st.randoms(use_true_random=False))
def test_the_order_of_outcomes_changes_no_number(
    run: dict[tuple[int, str], tuple[float, str, int, int | None, float]], order: random.Random
) -> None:
    rows = [
        outcome(task, value if status == "ok" else 0.0, seed, status=status, calls=calls, reply_tokens=tokens,
                seconds=seconds)
        for (seed, task), (value, status, calls, tokens, seconds) in run.items()
    ]  # fmt: skip
    shuffled = rows.copy()
    order.shuffle(shuffled)
    assert summarise(rows) == summarise(shuffled)
    found = summarise(rows).accuracy
    assert math.isnan(found.mean) or 0 <= found.low <= found.mean <= found.high <= 1
