"""An agent's own judgement of its solution as reward."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from marti_ext.rewards.base import RewardFunction
from marti_ext.types import Episode, Turn


@dataclass(frozen=True)
class SelfJudgeReward(RewardFunction):
    """A solution earns the mean of the scores it was given, over 5 (SRLM, self-rewarding language models,
    arXiv:2401.10020; workflow self_judge).

    Only usable scores count: without any, a solution gets no reward, and neither does a failed call. Scorings get
    none: SRLM trains answers. How they are trained the CoMAS paper (arXiv:2510.08529) says twice: section 4.1.1 has
    REINFORCE++ for all methods (experience reinforce_pp), section 4.1.2, as SRLM itself, DPO on the best against the
    worst answer to a task (experience preference_pairs with training.loss dpo). SRLM's supervised start and its
    iterations over new prompts are not part of it.
    """

    def assign(self, episodes: Sequence[Episode]) -> None:
        given: defaultdict[Turn, list[float]] = defaultdict(list)
        for scoring in (t for e in episodes for t in e.turns if t.interaction == "scoring"):
            usable = scoring.score is not None and scoring.score.status == "ok" and not scoring.completion.silent
            for solution in scoring.about[:1]:
                if scoring.score is not None and usable and not solution.completion.silent:
                    given[solution].append(scoring.score.value)
        for solution, values in given.items():
            solution.reward = fmean(values)
