"""REINFORCE++ for teams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from marti_ext.errors import UserError
from marti_ext.experience.advantages import normalised
from marti_ext.experience.base import ExperienceMaker, ReferenceLogProbs
from marti_ext.experience.samples import samples_from
from marti_ext.types import Episode, Sample


@dataclass(frozen=True)
class ReinforcePP(ExperienceMaker):
    """Batch-normalised REINFORCE++ (Hu, arXiv:2501.03262) as used by CoMAS (arXiv:2510.08529, eq. 9-10).

    `normalize: policy` (the paper) takes mean and deviation over all rows of a policy. Solutions and evaluations
    then average 1/2 and valid scorings 0, so that the mean is 1/3 and every valid scoring is discouraged;
    `normalize: interaction` takes them over the policy's rows of one interaction each.
    """

    normalize: Literal["policy", "interaction"] = "policy"
    kl_coef: float = 0.0  # of log pi - log pi_ref per token, in the reward
    drop_truncated: bool = False  # leave out replies that the length limit cut

    def __post_init__(self) -> None:
        if self.kl_coef < 0:
            raise UserError(f"experience.kl_coef is {self.kl_coef}; it must not be negative")

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    def make(self, episodes: Sequence[Episode], reference: ReferenceLogProbs) -> Mapping[str, list[Sample]]:
        samples = samples_from(episodes, drop_truncated=self.drop_truncated)
        if self.needs_reference:
            samples = {policy: self._with_kl(rows, reference(policy, rows)) for policy, rows in samples.items()}
        return {policy: self._advantages(rows) for policy, rows in samples.items()}

    def _advantages(self, rows: list[Sample]) -> list[Sample]:
        if self.normalize == "policy":
            return normalised(rows, kl_coef=self.kl_coef)
        done: dict[int, Sample] = {}
        for interaction in {row.interaction for row in rows}:
            places = [place for place, row in enumerate(rows) if row.interaction == interaction]
            done.update(zip(places, normalised([rows[p] for p in places], kl_coef=self.kl_coef), strict=True))
        return [done[place] for place in range(len(rows))]

    def _with_kl(self, rows: list[Sample], log_probs: Sequence[np.ndarray]) -> list[Sample]:
        return [
            replace(row, kl=((row.rollout_log_probs - ref) * row.action_mask).astype(np.float32))
            for row, ref in zip(rows, log_probs, strict=True)
        ]
