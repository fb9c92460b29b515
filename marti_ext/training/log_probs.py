"""Rows to padded batches, and the log-probs that a model gives their sampled tokens.

Shapes: B = rows, T = tokens of the longest row, K = tokens from the first sampled one to the end, V = vocabulary.
Rows are padded on the left, as they were when they were sampled: all end in the last column.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marti_ext.backends.hf_model import PolicyModel
from marti_ext.types import Floats, Sample


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that share a forward pass."""

    input_ids: Tensor  # (B, T)
    attention_mask: Tensor  # (B, T)
    action_mask: Tensor  # (B, K)
    temperature: Tensor  # (B, 1, 1)

    @property
    def kept(self) -> int:
        """K"""
        return self.action_mask.shape[1]


def collate(samples: Sequence[Sample], device: torch.device) -> Batch:
    """Pads rows into one batch; the padding id is masked out wherever it stands."""
    width = max(len(s.token_ids) for s in samples)
    kept = max(len(s.token_ids) - int(np.flatnonzero(s.action_mask)[0]) for s in samples)
    return Batch(
        input_ids=_left_padded([s.token_ids for s in samples], width, device),
        attention_mask=_left_padded([np.ones_like(s.token_ids) for s in samples], width, device),
        action_mask=tail([s.action_mask for s in samples], kept, device),
        temperature=torch.tensor([s.temperature for s in samples], device=device)[:, None, None],
    )


def tail(rows: Sequence[np.ndarray], kept: int, device: torch.device) -> Tensor:
    """The last K entries of each row's (T,) array, padded on the left with zeros: (B, K)."""
    return _left_padded([row[-kept:] for row in rows], kept, device)


def token_log_probs(model: Any, batch: Batch) -> Tensor:
    """(B, K) log-probs of the last K tokens under softmax(logits / temperature), as when they were sampled.

    In float32 whatever the arithmetic: log-probs in bfloat16 have three digits.
    """
    position_ids = (batch.attention_mask.cumsum(-1) - 1).clamp(min=0)
    output = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=position_ids,
        logits_to_keep=batch.kept + 1,
        use_cache=False,
    )
    logits = output.logits[:, :-1].float()  # (B, K, V): what stands before each of the last K
    if (batch.temperature != 1).any():  # one large tensor less where it is 1
        logits = logits / batch.temperature
    targets = batch.input_ids[:, -batch.kept :, None]
    log_probs: Tensor = logits.gather(-1, targets).squeeze(-1) - logits.logsumexp(-1)
    return log_probs


def by_length(samples: Sequence[Sample], size: int) -> Iterator[list[int]]:
    """Places of `samples` in micro batches of `size` rows of like length, the longest first: what fits then, fits."""
    order = sorted(range(len(samples)), key=lambda place: -len(samples[place].token_ids))
    for start in range(0, len(order), size):
        yield order[start : start + size]


@torch.no_grad()
def row_log_probs(
    activate: Callable[[], Any], policy: PolicyModel, samples: Sequence[Sample], micro_batch_size: int
) -> list[Floats]:
    """For each row (T,): log-probs of its sampled tokens under the model of `activate()`, 0 elsewhere."""
    rows = [np.zeros(len(s.token_ids), np.float32) for s in samples]
    with activate() as model:
        for places in by_length(samples, micro_batch_size):
            batch = collate([samples[p] for p in places], policy.device)
            log_probs = (token_log_probs(model, batch) * batch.action_mask).cpu().numpy()
            for place, values in zip(places, log_probs, strict=True):
                length = min(batch.kept, len(rows[place]))
                rows[place][-length:] = values[-length:]
    return rows


def _left_padded(rows: Sequence[np.ndarray], width: int, device: torch.device) -> Tensor:
    padded = np.zeros((len(rows), width), rows[0].dtype)
    for target, row in zip(padded, rows, strict=True):
        target[width - len(row) :] = row
    return torch.from_numpy(padded).to(device)
