"""Who deserves what for an episode."""
