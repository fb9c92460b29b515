"""marti_ext: train and evolve teams of language-model agents. Importing it loads no torch, transformers or ray."""

__version__ = "0.1.0"
