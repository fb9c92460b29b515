"""Our verdicts beside those of other harnesses' own graders, on the same replies."""
