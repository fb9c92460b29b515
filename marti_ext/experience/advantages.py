"""REINFORCE++ arithmetic, on rows of their own length: there is no padding that could leak into a mean.

Shapes: T = tokens of one row.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marti_ext.types import Bools, Floats, Sample

MIN_VARIANCE = 1e-8  # as in OpenRLHF


def returns(reward: float, action_mask: Bools, kl: Floats, kl_coef: float) -> NDArray[np.float64]:
    """(T,) reward to go: the reward on the last action token, minus kl_coef * kl per token, summed from the end.

    arXiv:2510.08529, eq. 9. 0 off the action mask.
    """
    rewards = np.zeros(len(action_mask))
    if kl_coef:
        rewards -= kl_coef * kl * action_mask
    rewards[np.flatnonzero(action_mask)[-1]] += reward
    return np.cumsum(rewards[::-1])[::-1] * action_mask


def normalised(samples: Sequence[Sample], *, kl_coef: float = 0.0) -> list[Sample]:
    """The rows with advantages: returns, less their mean, over their standard deviation, both over all action tokens.

    arXiv:2510.08529, eq. 10, and OpenRLHF's `reinforce`. Returns that are all equal give exact zeros.
    """
    if not samples:
        return []
    rows = [returns(s.reward, s.action_mask, s.kl, kl_coef) for s in samples]
    actions = np.concatenate([row[s.action_mask] for row, s in zip(rows, samples, strict=True)])
    if np.ptp(actions) == 0:
        centre, scale = actions[0], 0.0
    else:
        centre, scale = actions.mean(), 1 / np.sqrt(max(actions.var(), MIN_VARIANCE))
    return [
        replace(sample, advantages=((row - centre) * scale * sample.action_mask).astype(np.float32))
        for row, sample in zip(rows, samples, strict=True)
    ]
