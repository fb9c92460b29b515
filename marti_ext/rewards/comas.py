"""The interaction reward of CoMAS."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from marti_ext.rewards.base import RewardFunction
from marti_ext.types import Episode, Turn

FORMAT_PENALTY = -1.0


@dataclass(frozen=True)
class ZeroSumReward(RewardFunction):
    """What the solver wins the evaluator loses (arXiv:2510.08529, eq. 6-8).

    A scoring with value v in [0, 1], about a solution and an evaluation, gives v to the solution, 1 - v to the
    evaluation and 0 to itself; several scorings of one turn are averaged. A scoring without a usable score gets -1,
    and the pair gets nothing (`drop`) or, as in the released code, 0 each (`zero`). A scoring in which a call
    failed or had no room for a reply earns and costs nobody anything.
    """

    on_invalid_score: Literal["drop", "zero"] = "drop"

    def assign(self, episodes: Sequence[Episode]) -> None:
        earned: defaultdict[Turn, list[float]] = defaultdict(list)
        for scoring in (t for e in episodes for t in e.turns if t.interaction == "scoring"):
            if any(turn.completion.silent for turn in (scoring, *scoring.about)):
                continue
            valid = scoring.score is not None and scoring.score.status == "ok"
            scoring.reward = 0.0 if valid else FORMAT_PENALTY
            if scoring.score is not None and valid:
                stakes = (scoring.score.value, 1 - scoring.score.value)
            elif self.on_invalid_score == "zero":
                stakes = (0.0, 0.0)
            else:
                continue
            for turn, reward in zip(scoring.about, stakes, strict=False):  # without an evaluation only the first
                earned[turn].append(reward)
        for turn, rewards in earned.items():
            turn.reward = fmean(rewards)
