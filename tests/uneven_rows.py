"""Rows to train on, no two of one length."""

import numpy as np

from marti_ext.experience.advantages import normalised
from marti_ext.types import Sample


def uneven_rows(count: int) -> list[Sample]:
    """Prompts and replies of ids below 90; rewards that do not balance out, so that the loss is no zero."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(count):
        prompt, reply = 3 + 4 * number, 2 + 5 * number
        mask = np.arange(prompt + reply) >= prompt
        ids = rng.integers(3, 90, prompt + reply)
        zeros = np.zeros(prompt + reply, np.float32)
        rows.append(Sample("p", (f"t{number}", "ada", "solution", 0), ids, mask, zeros, float(number)))
    return [
        Sample(s.policy, s.group, s.token_ids, s.action_mask, s.rollout_log_probs, s.reward,
               advantages=(s.advantages + 0.5 * s.action_mask).astype(np.float32))
        for s in normalised(rows)
    ]  # fmt: skip
