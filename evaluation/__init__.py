"""Benchmarks, set-ups and the tables of the papers: `python -m evaluation --help`."""
