"""Whether a training problem is one of a benchmark's."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marti_ext.types import Task

NGRAM = 13  # words; shorter runs are shared by problems that have nothing else in common

_WORD = re.compile(r"\w+")


class BenchmarkIndex:
    """The problems of benchmarks, {name: tasks}, by their words: case, punctuation and layout do not count."""

    def __init__(self, benchmarks: Mapping[str, Sequence[Task]], ngram: int = NGRAM) -> None:
        self.ngram = ngram
        self._whole: dict[tuple[str, ...], str] = {}
        self._ngrams: dict[str, NDArray[np.int64]] = {}
        for name, tasks in benchmarks.items():
            for task in tasks:
                self._whole |= dict.fromkeys(_openings(task.prompt), f"{name} {task.id}")
            hashes = (hash(gram) for task in tasks for gram in self._grams(_words(task.prompt)))
            self._ngrams[name] = np.unique(np.fromiter(hashes, np.int64))

    def found(self, problem: str) -> str:
        """Why a problem may not be trained on: what it equals, or shares `ngram` words in a row with; else ""."""
        words = _words(problem)
        if words in self._whole:
            return f"the same as {self._whole[words]}"
        grams = list(self._grams(words))
        hashes = np.array([hash(gram) for gram in grams], np.int64)
        for name, known in self._ngrams.items():
            shared = np.flatnonzero(np.isin(hashes, known))
            if len(shared):
                return f"shares with {name}: {' '.join(grams[shared[0]])}"
        return ""

    def _grams(self, words: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
        return (words[start : start + self.ngram] for start in range(len(words) - self.ngram + 1))


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _openings(prompt: str) -> list[tuple[str, ...]]:
    """A prompt up to each of its blank lines: one of them ends with the problem, before it is said how to answer."""
    parts = prompt.split("\n\n")
    return [words for end in range(1, len(parts) + 1) if (words := _words("\n\n".join(parts[:end])))]
