"""Direct preference optimisation (arXiv:2305.18290) as a policy gradient. Shapes: T = tokens of one row."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from marti_ext.types import Floats, Sample

PREFERENCES = ("preference_margin", "preference_accuracy")


def pairs_of(rows: Sequence[Sample]) -> list[list[int]]:
    """The places of each pair's rows, the chosen first. Raises ValueError for rows that are no pairs."""
    places: defaultdict[int | None, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row.pair].append(place)
    pairs = [sorted(pair, key=lambda place: -float(rows[place].advantages.sum())) for pair in places.values()]
    if None in places or any(len(pair) != 2 for pair in pairs):
        raise ValueError("loss dpo needs rows in pairs, as experience preference_pairs makes them")
    return pairs


def weighted(
    rows: Sequence[Sample], log_probs: Sequence[Floats], reference: Sequence[Floats], beta: float
) -> tuple[list[Sample], dict[str, float]]:
    """The rows with the advantages by which a policy gradient is that of DPO, and the loss, margin and accuracy.

    `rows` alternate, chosen and rejected; `log_probs` and `reference` are (T,) each, by the policy and the initial
    one, at the temperature of the sampling. With x = log pi - log pi_ref of a reply, summed over its tokens, and the
    margin m = beta (x_chosen - x_rejected), a pair's loss is -log sigmoid(m) (nats), and its gradient that of
    -w (log pi(chosen) - log pi(rejected)) with w = beta sigmoid(-m): an advantage of w for each chosen token, -w for
    each rejected one. They are scaled so that a mean over the tokens of all rows is a mean over pairs.
    """
    log_ratios = [
        float((np.asarray(log_prob, np.float64) - ref)[row.action_mask].sum())
        for row, log_prob, ref in zip(rows, log_probs, reference, strict=True)
    ]
    margins = beta * (np.array(log_ratios[::2]) - np.array(log_ratios[1::2]))
    weights = beta * np.exp(-np.logaddexp(0, margins))  # beta sigmoid(-m)
    scale = sum(int(row.action_mask.sum()) for row in rows) / len(margins)
    signed = np.stack([weights, -weights], axis=-1).ravel() * scale
    told = {
        "loss": float(np.logaddexp(0, -margins).mean()),
        "preference_margin": float(margins.mean()),
        "preference_accuracy": float((margins > 0).mean()),
    }
    return [
        replace(row, advantages=(row.action_mask * weight).astype(np.float32))
        for row, weight in zip(rows, signed, strict=True)
    ], told
