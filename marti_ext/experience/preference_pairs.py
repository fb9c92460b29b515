"""Preferences for DPO."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from marti_ext.errors import UserError
from marti_ext.experience.base import ExperienceMaker, ReferenceLogProbs
from marti_ext.experience.samples import samples_from
from marti_ext.types import Episode, Group, Sample


@dataclass(frozen=True)
class PreferencePairs(ExperienceMaker):
    """The best reply of a group against its worst, for training.loss dpo (SRLM, arXiv:2401.10020, and section 4.1.2
    of the CoMAS paper, arXiv:2510.08529, whose section 4.1.1 has REINFORCE++ instead: reinforce_pp).

    A group is one agent's rewarded replies to one task in one part and round, over the copies of the task
    (rollout.copies_per_task: 4 in SRLM). Among equals the first copy stands for all; where best and worst are equal
    there is no preference, and the group is dropped. Replies of a group must answer one prompt.
    """

    gives_pairs: ClassVar[bool] = True
    drop_truncated: bool = False  # leave out replies that the length limit cut

    def make(self, episodes: Sequence[Episode], reference: ReferenceLogProbs) -> Mapping[str, list[Sample]]:
        samples = samples_from(episodes, drop_truncated=self.drop_truncated)
        return {policy: pairs for policy, rows in samples.items() if (pairs := _pairs(rows))}


def _pairs(rows: Sequence[Sample]) -> list[Sample]:
    """Chosen and rejected rows by turns, their advantages 1 and -1."""
    groups: defaultdict[Group, list[Sample]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    pairs: list[Sample] = []
    for number, (group, members) in enumerate(groups.items()):
        best, worst = max(members, key=lambda row: row.reward), min(members, key=lambda row: row.reward)
        if best.reward == worst.reward:
            continue
        if not np.array_equal(_prompt(best), _prompt(worst)):
            raise UserError(
                f"experience preference_pairs: two replies of group {group} answer different prompts; it is for "
                "workflows that ask each agent the task alone, such as self_judge and vanilla"
            )
        for row, sign in ((best, 1.0), (worst, -1.0)):
            pairs.append(replace(row, pair=number, advantages=np.where(row.action_mask, sign, 0).astype(np.float32)))
    return pairs


def _prompt(row: Sample) -> np.ndarray:
    return row.token_ids[: np.flatnonzero(row.action_mask)[0]]
