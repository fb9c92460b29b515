"""Samples as OpenRLHF's Experience: one row each, filled up to whole optimiser updates.

Shapes: T = tokens of a row. OpenRLHF's per-step fields are shifted, (1, T-1): place t-1 describes token t.
"""

from collections.abc import Sequence
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from marti_ext.types import Sample


def experiences(
    samples: Sequence[Sample], *, batch_size: int, ranks: int, end_token: int
) -> tuple[list[Experience], int]:
    """The rows, and how many of them are fillers: rows without an action token, up to a multiple of `batch_size`.

    So every update is whole and every rank works equally long, however few rows there are, and none is dropped. A
    filler adds nothing: a loss is divided by the action tokens of its whole update. There are fewer fillers than rows
    of an update, so that none consists of fillers alone. In an order of their own, whatever the samples', dealt to
    the ranks in turn: OpenRLHF hands out consecutive chunks.
    """
    ordered = sorted(samples, key=lambda s: (s.group, s.token_ids.tobytes(), s.advantages.tobytes()))
    rows = [_row(sample) for sample in ordered]
    fillers = -len(rows) % batch_size
    rows += [_filler(end_token) for _ in range(fillers)]
    return [row for rank in range(ranks) for row in rows[rank::ranks]], fillers


def _row(sample: Sample) -> Experience:
    tokens = int(sample.action_mask.sum())
    return _experience(
        torch.from_numpy(sample.token_ids)[None],
        torch.from_numpy(sample.action_mask)[None, 1:],
        torch.from_numpy(sample.rollout_log_probs)[None, 1:],
        torch.from_numpy(sample.advantages)[None, 1:],
        reward=sample.reward,
        response_length=tokens,
        truncated=sample.truncated,
    )


def _filler(end_token: int) -> Experience:
    nothing = torch.zeros(1, 1)
    return _experience(
        torch.tensor([[end_token, end_token]]), nothing.bool(), nothing, nothing.clone(),
        reward=0.0, response_length=0, truncated=False,
    )  # fmt: skip


def _experience(
    sequences: torch.Tensor,
    action_mask: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    reward: float,
    response_length: int,
    truncated: bool,
) -> Experience:
    rewards = torch.tensor([reward], dtype=torch.float32)
    return Experience(
        sequences=sequences,
        attention_mask=torch.ones_like(sequences),
        action_mask=action_mask,
        rollout_log_probs=log_probs,
        advantages=advantages,
        returns=advantages.clone(),
        rewards=rewards,
        response_length=torch.tensor([response_length], dtype=torch.float32),
        truncated=torch.tensor([float(truncated)]),
        total_length=torch.tensor([float(sequences.shape[1])]),
        prompts=[""],
        labels=[""],
        images=[None],
        info={"reward": rewards.clone()},
    )


class GivenAdvantages(RemoteExperienceMaker):  # type: ignore[misc]
    """OpenRLHF's experience maker, but for the advantages: those are given by ours, once for both trainers."""

    ratio_deviation = 0.0  # of the last batch: max |ratio - 1| of the actors' to the engines' probability of a token

    def compute_advantages_and_returns(self, batches: list[Any]) -> list[Any]:
        """The batches with what OpenRLHF's logging wants beside the advantages."""
        self.ratio_deviation = 0.0
        for batch in batches:
            ratio = (batch.action_log_probs.float() - batch.rollout_log_probs).exp()
            deviation = torch.where(batch.action_mask.bool(), (ratio - 1).abs(), 0.0)
            self.ratio_deviation = max(self.ratio_deviation, float(deviation.max()))
            batch.info["return"] = batch.rewards.clone()
            batch.kl = None
        return batches
