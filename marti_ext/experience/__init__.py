"""Stage 2, experience making: episodes to training rows."""
