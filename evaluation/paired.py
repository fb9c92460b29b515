"""Two runs on the same tasks: is one better, or is it noise?

`scipy` (the `eval` extra) is imported where it is used.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.metrics import exact_mean
from evaluation.outcome import Outcome
from marti_ext.errors import UserError

FEWEST = 6  # tasks that must differ for a difference to be shown: 2 / 2**6 < 0.05
RESAMPLES = 9999  # so that the 2.5 % and 97.5 % ranks are whole: (9999 + 1) * 0.025 = 250


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run against the first on the tasks of both; values are in [0, 1]."""

    benchmark: str
    setup: str  # "first against second" where they differ
    measure: str
    tasks: int  # those compared
    first: float
    second: float
    difference: float  # second - first
    low: float | None  # the 95 % interval of the difference; None with one task
    high: float | None
    p: float | None
    """Of the exact two-sided McNemar test; None unless both runs have one seed and values 0 or 1."""
    only_first: int  # tasks on which the first run is better, by its mean over seeds
    only_second: int
    left_out_first: tuple[str, ...]  # tasks of one run alone
    left_out_second: tuple[str, ...]
    no_label: int  # tasks of both, left out because they cannot be graded

    @property
    def unpaired(self) -> int:
        """How many tasks are left out because one run alone has them."""
        return len(self.left_out_first) + len(self.left_out_second)

    @property
    def shown(self) -> bool:
        """Whether there is a difference: the interval excludes 0, p, where there is one, is below 0.05, and at least
        six tasks differ.

        Resampling cannot see what no task of a small sample shows: five tasks, all better, have the interval
        [100, 100], yet five fair coins fall alike in 2 of 32 cases. With six it is 2 of 64, below 5 %.
        """
        if self.low is None or self.high is None or self.only_first + self.only_second < FEWEST:
            return False
        return (self.low > 0 or self.high < 0) and (self.p is None or self.p < 0.05)

    @property
    def verdict(self) -> str:
        """In points of a hundred; "better" and "worse" only where a difference is shown."""
        points = f"{100 * self.difference:+z.1f} points"
        if self.low is None or self.high is None:
            return f"no difference shown: {points} (no interval from a single task)"
        interval = f"[{100 * self.low:z.1f}, {100 * self.high:z.1f}]"
        if self.shown:
            return f"{'better' if self.low > 0 else 'worse'} by {points}, 95 % interval {interval}"
        differing = self.only_first + self.only_second
        few = f" (only {differing} tasks differ)" if differing < FEWEST and not self.low <= 0 <= self.high else ""
        return f"no difference shown: {points} {interval}{few}"


def compare(
    first: Sequence[Outcome], second: Sequence[Outcome], *, measure: str | None = None, seed: int = 0
) -> Comparison:
    """`second` against `first`, each of one benchmark and one set-up; the main measure unless one is named.

    A task's value is its mean over seeds; a failed row counts as 0. The interval is the percentile bootstrap of the
    mean difference over tasks (Efron and Tibshirani 1993, chapter 13): a resample draws whole tasks, with all their
    seeds and in both runs, so it is paired and clustered. Swapping the runs gives exactly the opposite signs.
    Raises UserError where the runs share no task or no measure.
    """
    benchmark, setup = _place(first)
    other_benchmark, other_setup = _place(second)
    if benchmark != other_benchmark:
        raise UserError(f"cannot compare {benchmark} with {other_benchmark}: give runs on the same benchmark")
    measure = measure or _main_measure(first, second)
    unlabelled = {row.task for row in (*first, *second) if row.score.status == "no_label"}
    one, other = _values(first, measure), _values(second, measure)
    shared = one.keys() & other.keys()
    tasks = sorted(shared - unlabelled)
    if not tasks:
        raise UserError(f"{benchmark}: the runs share no task that can be graded ({len(one)} and {len(other)} tasks)")
    means = [(exact_mean(one[task]), exact_mean(other[task])) for task in tasks]
    differences = [after - before for before, after in means]
    only_first, only_second = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
    single = all(len(runs[task]) == 1 and runs[task][0] in (0, 1) for task in tasks for runs in (one, other))
    low, high = _bootstrap(differences, seed)
    return Comparison(
        benchmark,
        setup if setup == other_setup else f"{setup} against {other_setup}",
        measure,
        len(tasks),
        first=exact_mean([before for before, _ in means]),
        second=exact_mean([after for _, after in means]),
        difference=exact_mean(differences),
        low=low,
        high=high,
        p=mcnemar(only_first, only_second) if single else None,
        only_first=only_first,
        only_second=only_second,
        left_out_first=tuple(sorted(one.keys() - shared)),
        left_out_second=tuple(sorted(other.keys() - shared)),
        no_label=len(shared & unlabelled),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value of McNemar's test: by the null, each discordant task is a fair coin."""
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0


def _bootstrap(differences: Sequence[float], seed: int) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of the mean. Its ends are whole ranks from below and above, so that the negated
    differences give exactly the negated interval."""
    import numpy as np
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return None, None
    result = bootstrap(
        (np.array(differences),),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
        batch=max(1, 2_000_000 // len(differences)),  # some 16 MB at once
    )
    means = np.sort(result.bootstrap_distribution)
    rank = (RESAMPLES + 1) // 40
    return float(means[rank - 1]), float(means[-rank])


def _place(rows: Sequence[Outcome]) -> tuple[str, str]:
    places = sorted({(row.benchmark, row.setup) for row in rows})
    if len(places) != 1:
        found = ", ".join("/".join(place) for place in places) or "no results"
        raise UserError(f"a comparison needs one benchmark and one set-up on either side, found {found}")
    return places[0]


def _main_measure(first: Sequence[Outcome], second: Sequence[Outcome]) -> str:
    mains = sorted({next(iter(row.scores)) for row in (*first, *second)})
    if len(mains) > 1:
        raise UserError(f"the runs have different main measures: {', '.join(mains)}; name one of both")
    return mains[0]


def _values(rows: Sequence[Outcome], measure: str) -> dict[str, list[float]]:
    """Task -> its values by seed. Raises UserError for an unknown measure and for a task twice with one seed."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if measure not in row.scores:
            raise UserError(f"{row.benchmark}/{row.setup} has no measure {measure!r}: it has {', '.join(row.scores)}")
        if row.seed in found[row.task]:
            raise UserError(f"{row.benchmark}/{row.setup}: task {row.task!r} stands twice for seed {row.seed}")
        found[row.task][row.seed] = row.scores[measure].value
    return {task: list(values.values()) for task, values in found.items()}
