"""The learning rate as a function of the updates that were really made."""

import math

from marti_ext.training.options import TrainingOptions


def learning_rate_factor(options: TrainingOptions, update: int) -> float:
    """The share of `learning_rate` for the update number `update` (from 0). After its end a cosine stays low."""
    if update < options.warmup_updates:
        return (update + 1) / (options.warmup_updates + 1)
    if options.schedule == "constant" or options.total_updates is None:
        return 1.0
    span = max(1, options.total_updates - options.warmup_updates)
    progress = min(1.0, (update - options.warmup_updates) / span)
    low = options.min_learning_rate_ratio
    return low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2
