"""CoMAS without scoring: verdicts judge each other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.comas import FORMAT_PENALTY
from marti_ext.types import Episode, Turn


@dataclass(frozen=True)
class ConsensusReward(RewardFunction):
    """The ablation without scoring of CoMAS (arXiv:2510.08529, section 4.3.1; workflow {name: comas, scoring: false}).

    A solution earns the share of its evaluations' verdicts that support it; an evaluation the share of the *other*
    verdicts on the same solution that are like its own. (The paper speaks of mutual consistency and gives no formula;
    leaving oneself out is our reading.) An evaluation without a verdict gets -1, as a scoring without a score does,
    and counts for nobody; where no other verdict is left there is nothing to agree with, and no reward. A failed call
    earns and costs nobody anything. Since approving of everything pays best, rewards climb to 1: that is the finding.
    """

    def assign(self, episodes: Sequence[Episode]) -> None:
        verdicts: defaultdict[Turn, dict[Turn, float]] = defaultdict(dict)  # solution -> evaluation -> it objects
        for evaluation in (t for e in episodes for t in e.turns if t.interaction == "evaluation"):
            if any(turn.completion.silent for turn in (evaluation, *evaluation.about)):
                continue
            if evaluation.score is None or evaluation.score.status != "ok":
                evaluation.reward = FORMAT_PENALTY
                continue
            for solution in evaluation.about:
                verdicts[solution][evaluation] = evaluation.score.value
        for solution, given in verdicts.items():
            solution.reward = 1 - fmean(given.values())
            for evaluation, verdict in given.items():
                others = [other for turn, other in given.items() if turn is not evaluation]
                evaluation.reward = fmean(other == verdict for other in others) if others else None
