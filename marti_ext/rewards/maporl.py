"""The verifier's verdict on every turn of a debate, and what the turn did to later ones."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

from marti_ext.errors import UserError
from marti_ext.rewards.base import RewardFunction
from marti_ext.rewards.verifier import VerifierReward
from marti_ext.types import Episode, Task, Turn


@dataclass(frozen=True)
class MAPoRLReward(RewardFunction):
    """Each turn of a debate earns its verdict V, 1 for right and 0 for wrong (MAPoRL, arXiv:2502.18439).

    `influence: discounted` shares in what came of it: in round t of T, with the mean M of all agents' verdicts,
    R = (V_t + sum_{t'>t} gamma^{t'-t} M_t') / sum_{t'>=t} gamma^{t'-t}; the last round has R = V.

    `shaping` is MARTI's, for V against the mean Q of all agents' verdicts in earlier rounds: `margin` gives
    V + alpha (V - Q), `quality` V + alpha (Q V - (1 - Q)(1 - V)); the first round has no Q and keeps V. `beta` times
    the agent's own verdict in its last round is added to each of its turns (MARTI's `with_outcome`: 0.5).

    A turn that could not be graded gets no reward and is no part of any mean; a round in which none could be graded
    leaves both sums of R. With beta, an agent whose last round could not be graded has no outcome and gets no reward.
    The CoMAS paper (arXiv:2510.08529, section 4.1) puts this verifier in the place of MAPoRL's reward model: workflow
    {name: debate, debaters: 4, rounds: 2, others: 2, aggregate: false}. MAPoRL's own incentive table, its critic and
    its KL term are not part of it.
    """

    needs_label: ClassVar[bool] = True
    interactions: tuple[str, ...] = ("solution",)
    influence: Literal["none", "discounted"] = "none"
    gamma: float = 1.0
    shaping: Literal["none", "margin", "quality"] = "none"
    alpha: float = 0.5
    beta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UserError(f"reward.gamma is {self.gamma}; a discount lies between 0 and 1")
        if self.influence != "none" and (self.shaping != "none" or self.beta):
            raise UserError("reward.influence is MAPoRL's, shaping and beta are MARTI's: use one of the two")

    def assign(self, episodes: Sequence[Episode]) -> None:
        VerifierReward(self.interactions).assign(episodes)
        for episode in episodes:
            self._spread([turn for turn in episode.turns if turn.interaction in self.interactions])

    def check(self, tasks: Sequence[Task]) -> None:
        VerifierReward(self.interactions).check(tasks)

    def _spread(self, turns: Sequence[Turn]) -> None:
        """Puts what each turn is worth in the place of its verdict."""
        verdicts = {turn: turn.reward for turn in turns if turn.reward is not None}
        rounds: defaultdict[int, list[float]] = defaultdict(list)
        for turn, verdict in verdicts.items():
            rounds[turn.round].append(verdict)
        for turn, verdict in verdicts.items():
            if self.influence == "discounted":
                later = {round - turn.round: fmean(rounds[round]) for round in rounds if round > turn.round}
                turn.reward = discounted(verdict, later, self.gamma)
                continue
            earlier = [v for round in rounds if round < turn.round for v in rounds[round]]
            worth = self._shaped(verdict, fmean(earlier)) if earlier else verdict
            if self.beta:
                outcome = _outcome(turn.agent, turns, verdicts)
                turn.reward = None if outcome is None else worth + self.beta * outcome
            else:
                turn.reward = worth

    def _shaped(self, verdict: float, earlier: float) -> float:
        if self.shaping == "margin":
            return verdict + self.alpha * (verdict - earlier)
        if self.shaping == "quality":
            return verdict + self.alpha * (earlier * verdict - (1 - earlier) * (1 - verdict))
        return verdict


def discounted(verdict: float, later: Mapping[int, float], gamma: float) -> float:
    """MAPoRL's R of a turn; `later` has the mean verdict of each later round by how many rounds later it is."""
    weights = {distance: gamma**distance for distance in later}
    return (verdict + sum(weights[d] * later[d] for d in later)) / (1 + sum(weights.values()))


def _outcome(agent: str, turns: Sequence[Turn], verdicts: Mapping[Turn, float]) -> float | None:
    """The agent's mean verdict in its last round, None if that could not be graded."""
    own = [turn for turn in turns if turn.agent == agent]
    last = max(turn.round for turn in own)
    graded = [verdicts[turn] for turn in own if turn.round == last and turn in verdicts]
    return fmean(graded) if graded else None
