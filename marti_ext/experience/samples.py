"""Turns to rows: exactly the ids that were sampled, with the log-probs of that sampling."""

from collections.abc import Sequence

import numpy as np

from marti_ext.types import Completion, Episode, Sample, Turn


def samples_from(episodes: Sequence[Episode], *, drop_truncated: bool = False) -> dict[str, list[Sample]]:
    """{policy: its rows, in episode and turn order}.

    Left out: turns without a reward or not trainable, replies without a token (no room, an error), and with
    `drop_truncated` those cut by the length limit. Raises ValueError for a trainable reply without token ids.
    """
    samples: dict[str, list[Sample]] = {}
    for episode in episodes:
        for turn in episode.turns:
            reply = turn.completion
            if turn.reward is None or not turn.trainable or reply.silent:
                continue
            if drop_truncated and reply.finish_reason == "length":
                continue
            sample = _sample(episode, turn, reply, turn.reward)
            if sample.action_mask.any():
                samples.setdefault(turn.policy, []).append(sample)
    return samples


def _sample(episode: Episode, turn: Turn, reply: Completion, reward: float) -> Sample:
    if reply.prompt_ids is None or reply.token_ids is None or reply.log_probs is None:
        raise ValueError(f"agent {turn.agent!r} is trainable but its reply carries no token ids and log-probs")
    zeros = np.zeros(len(reply.prompt_ids), np.float32)
    return Sample(
        policy=turn.policy,
        group=(episode.task.id, turn.agent, turn.interaction, turn.round),
        token_ids=np.concatenate([reply.prompt_ids, reply.token_ids]),
        action_mask=np.concatenate([zeros > 0, np.ones(len(reply.token_ids), np.bool_)]),
        rollout_log_probs=np.concatenate([zeros, reply.log_probs]),
        reward=reward,
        temperature=reply.temperature,
        truncated=reply.finish_reason == "length",
    )
