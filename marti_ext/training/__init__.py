"""Stage 3, agent training."""
