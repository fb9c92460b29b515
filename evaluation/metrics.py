"""From outcomes to numbers: means with their uncertainty, pass@k, maj@k, what could not be graded, and what it cost.

Values are in [0, 1], times in seconds, lengths in tokens. No number depends on the order of the outcomes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from evaluation.outcome import Outcome
from marti_ext.errors import UserError

Z = NormalDist().inv_cdf(0.975)  # of a two-sided 95 % interval
NOT_GRADED = ("unparsed", "truncated", "failed", "timeout")  # counted as 0, and shown apart

ByTask = Mapping[str, Sequence[float]]  # task -> its values, one a seed


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of one measure over tasks and seeds, and how far it can be trusted: see `estimate`.

    NaN where no task has a label; `error` also with a single task.
    """

    mean: float
    error: float  # the standard error, clustered by task
    low: float  # the 95 % interval
    high: float
    std: float | None
    """Of the seeds' means, None with one seed: divided by the number of seeds, as the CoMAS paper does. All 35 cells
    of its Table 4 can come from whole counts of solved tasks that way; with one seed less as divisor 19 cannot, such
    as 53.12 ± 0.10 (MATH-500, 500 tasks, 5 seeds)."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One (benchmark, set-up). A row is one task with one seed; costs are means over rows."""

    benchmark: str
    setup: str
    tasks: int  # labelled or not
    no_label: int  # tasks that cannot be graded, whoever answers: no measure counts them
    seeds: int
    incomplete: int  # tasks that lack the result of some seed
    missing: int  # results that are planned and not there
    measures: Mapping[str, Estimate]  # the main one first
    pass_at: Mapping[int, float]
    """Unbiased pass@k of the main measure for k = 2, 4, 8, ... and the number of seeds; empty with one seed or where
    the measure is graded."""
    maj_at: Mapping[int, float]
    rates: Mapping[str, float]
    """Why rows were not graded, by the main measure, as shares of all rows: the same denominator for every one."""
    calls: float
    prompt_tokens: float | None  # of the rows that have a count, None without one: failed calls have none
    reply_tokens: float | None
    reply_length: float | None  # tokens a call
    seconds: float

    @property
    def accuracy(self) -> Estimate:
        """The main measure's, whatever its name."""
        return next(iter(self.measures.values()))


def summarise(
    outcomes: Sequence[Outcome],
    maj_at: Mapping[int, float] | None = None,
    unlabelled: Collection[str] = (),
    planned: int = 0,
) -> Summary:
    """Of one benchmark and set-up; at least one outcome. `planned` is how many tasks there are to be.

    A failed or overrun row counts as 0 like a wrong one. A task has no label if any of its rows says so, or if it is
    in `unlabelled`: what other set-ups found, so that a request that failed before its task was read leaves every
    set-up with the same denominator. Raises UserError where a task stands twice for one seed, where the measures of
    two rows differ, or for outcomes of two groups.
    """
    first = outcomes[0]
    _check(outcomes)
    seeds = {row.seed for row in outcomes}
    per_task = Counter(row.task for row in outcomes)
    without = {row.task for row in outcomes if row.score.status == "no_label"} | (per_task.keys() & set(unlabelled))
    labelled = [row for row in outcomes if row.task not in without]
    main = next(iter(first.scores))
    statuses = Counter[str](row.score.status for row in outcomes)
    prompts = [row.prompt_tokens for row in outcomes if row.prompt_tokens is not None]
    replies = [(row.reply_tokens, row.calls) for row in outcomes if row.reply_tokens is not None]
    calls = sum(count for _, count in replies)
    return Summary(
        first.benchmark,
        first.setup,
        tasks=len(per_task),
        no_label=len(without),
        seeds=len(seeds),
        incomplete=sum(count < len(seeds) for count in per_task.values()),
        missing=max(0, planned * len(seeds) - len(outcomes)),
        measures={name: estimate(labelled, name) for name in first.scores},
        pass_at=_pass_at(_values(labelled, main)),
        maj_at=maj_at or {},
        rates={status: statuses[status] / len(outcomes) for status in NOT_GRADED},
        calls=exact_mean([row.calls for row in outcomes]),
        prompt_tokens=exact_mean(prompts) if prompts else None,
        reply_tokens=exact_mean([tokens for tokens, _ in replies]) if replies else None,
        reply_length=sum(tokens for tokens, _ in replies) / calls if calls else None,
        seconds=exact_mean([row.seconds for row in outcomes]),
    )


def _check(outcomes: Sequence[Outcome]) -> None:
    first = outcomes[0]
    for row in outcomes:
        if (row.benchmark, row.setup) != (first.benchmark, first.setup):
            raise UserError(
                f"one summary is of one group: {first.benchmark}/{first.setup}, {row.benchmark}/{row.setup}"
            )
        if row.scores.keys() != first.scores.keys():
            measures = f"{', '.join(row.scores)}, that of {first.task!r} {', '.join(first.scores)}"
            raise UserError(f"{row.benchmark}/{row.setup}: task {row.task!r} has the measures {measures}")
    for (seed, task), count in Counter((row.seed, row.task) for row in outcomes).items():
        if count > 1:
            raise UserError(f"{first.benchmark}/{first.setup}: task {task!r} stands {count} times for seed {seed}")


def estimate(rows: Sequence[Outcome], measure: str) -> Estimate:
    """The mean of a measure over rows whose tasks have labels, with a 95 % interval.

    Values all 0 or 1: Wilson's interval for the effective sample size mean (1 - mean) / error^2, kept between the
    number of tasks (exactly that with one seed, and where all rows are alike so that the error says nothing) and the
    number of rows. Unlike mean ± 1.96 errors it stays within [0, 1], and has a width where everything was solved.
    For clustered samples: Franco, Little, Louis and Slud, J. Surv. Stat. Methodol. 7(3), 2019.
    Graded values (F1): mean ± 1.96 errors, cut to [0, 1]; the whole of it with a single task.
    """
    by_task, by_seed = _values(rows, measure), defaultdict(list)
    for row in rows:
        by_seed[row.seed].append(row.scores[measure].value)
    if not rows:
        return Estimate(math.nan, math.nan, math.nan, math.nan, None)
    mean, error = exact_mean([row.scores[measure].value for row in rows]), clustered_error(by_task)
    if _is_binary(by_task):
        low, high = wilson(mean, _effective_size(mean, error, len(by_task), len(rows)))
    elif math.isnan(error):
        low, high = 0.0, 1.0
    else:
        low, high = max(0.0, mean - Z * error), min(1.0, mean + Z * error)
    return Estimate(mean, error, low, high, _std([exact_mean(values) for values in by_seed.values()]))


def _effective_size(mean: float, error: float, tasks: int, rows: int) -> float:
    """How many independent tasks say as much as these rows do."""
    if rows == tasks or not error > 0:
        return tasks
    return min(max(tasks, mean * (1 - mean) / error**2), rows)


def clustered_error(by_task: ByTask) -> float:
    """The standard error of the mean of all values, where the values of one task belong together; NaN with one task.

    With s_tk the value of task t and seed k, m their mean, N values and T tasks:
    sqrt(T / (T - 1) * sum_t (sum_k (s_tk - m))^2) / N. Multiplied out, these are the squares and the products within
    a cluster of Miller 2024 (arXiv:2411.00640, clustered standard errors), with one correction T / (T - 1) for both:
    one seed gives the plain standard error s / sqrt(T), and equally many seeds a task that of the tasks' means.
    """
    tasks, size = len(by_task), sum(len(values) for values in by_task.values())
    if tasks < 2:
        return math.nan
    mean = exact_mean([value for values in by_task.values() for value in values])
    squares = math.fsum(math.fsum(value - mean for value in values) ** 2 for values in by_task.values())
    return math.sqrt(tasks / (tasks - 1) * squares) / size


def wilson(mean: float, size: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a proportion of `size` > 0 independent trials (Wilson 1927)."""
    spread = Z**2 / size
    centre = (mean + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt((mean * (1 - mean) + spread / 4) / size)
    return (0.0 if mean == 0 else centre - half), (1.0 if mean == 1 else centre + half)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of a task's n replies, c of them right, hold a right one: 1 - C(n-c, k) / C(n, k).

    Unbiased (Chen et al. 2021, arXiv:2107.03374, equation 1). Raises ValueError for k > n, where it is not defined.
    n counts the replies to one task, never tasks.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} is not defined for {c} right of {n} replies: it needs 0 <= c <= n and 1 <= k <= n")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def maj_at_k(winners: Sequence[float | None]) -> float:
    """The share of tasks whose majority over k replies is right, those of the first k seeds.

    For each task the value of the reply that `marti_ext.verifiers.votes.majority` elects, None where no reply had an
    answer, which counts as 0. Raises ValueError without tasks.
    """
    if not winners:
        raise ValueError("maj@k is not defined without tasks")
    return exact_mean([value or 0.0 for value in winners])


def _pass_at(by_task: ByTask) -> dict[int, float]:
    if not _is_binary(by_task):
        return {}
    counts = [(len(values), round(sum(values))) for values in by_task.values()]
    most = min((n for n, _ in counts), default=0)
    ks = sorted({2**power for power in range(1, most.bit_length())} | {most} - {0, 1})
    return {k: exact_mean([pass_at_k(n, c, k) for n, c in counts]) for k in ks}


def _values(rows: Iterable[Outcome], measure: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        values[row.task].append(row.scores[measure].value)
    return values


def _is_binary(by_task: ByTask) -> bool:
    return all(value in (0, 1) for values in by_task.values() for value in values)


def exact_mean(values: Sequence[float]) -> float:
    """Summed exactly, so that order does not matter."""
    return math.fsum(values) / len(values)


def _std(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = exact_mean(values)
    return math.sqrt(exact_mean([(value - mean) ** 2 for value in values]))
