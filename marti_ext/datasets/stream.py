"""Which tasks each training step gets."""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marti_ext.errors import UserError
from marti_ext.seeds import derive_seed
from marti_ext.types import Task


@dataclass(frozen=True, slots=True)
class Pool:
    """Tasks that are passed over together; only the ratio of the pools' weights counts."""

    name: str
    tasks: Sequence[Task]
    weight: float = 1.0


class TaskStream:
    """An endless stream of tasks, cut into the batches of the steps.

    - `batch(step, size)` depends on the seed, the step and the size alone, never on what was asked before: a run that
      is resumed at any step goes on with the same tasks, and no state has to be kept.
    - With equal weights all tasks are one pool. Every pass over it gives each task once, in a new order drawn by the
      seed (or, without `shuffle`, in the order of the data); a batch may hold the end of one pass and the start of the
      next.
    - With unequal weights each task comes from the pool that is furthest behind its share of all tasks given so far.
      Each pool is passed over as above, in passes of its own length.
    - No task stands twice in a batch that is no larger than the data. A pool with fewer tasks than its share of a
      batch therefore gives all it has, and the others fill up.

    Raises UserError without tasks, or where two tasks have the same id.
    """

    def __init__(self, pools: Sequence[Pool], *, seed: int, shuffle: bool = True) -> None:
        self._named = tuple(pools)
        for pool in pools:
            if not pool.tasks or not pool.weight > 0:
                raise UserError(f"data source {pool.name}: {len(pool.tasks)} tasks, weight {pool.weight}: need some")
        if not pools:
            raise UserError("no data source: name at least one")
        _refuse_shared_ids(pools)
        if len({pool.weight for pool in pools}) == 1:
            pools = [Pool("all", [task for pool in pools for task in pool.tasks])]
        self._pools = tuple(pools)
        self._seed = seed
        self._shuffle = shuffle
        self._at: tuple[int, int, Iterator[list[Task]]] | None = None  # step and size of the batch that comes next

    @property
    def tasks(self) -> list[Task]:
        """All of them, in the order of the data."""
        return [task for pool in self._pools for task in pool.tasks]

    def __len__(self) -> int:
        """How many tasks there are."""
        return sum(len(pool.tasks) for pool in self._pools)

    def describe(self) -> str:
        """The sources with their sizes and shares, in one line."""
        mixed = len(self._pools) > 1
        total = sum(pool.weight for pool in self._named)
        parts = [
            f"{pool.name} ({len(pool.tasks)} tasks{f', share {pool.weight / total:.0%}' if mixed else ''})"
            for pool in self._named
        ]
        return f"{len(self)} tasks: {', '.join(parts)}"

    def batch(self, step: int, size: int) -> list[Task]:
        """The `size` tasks of training step `step`, from 0. Going back or far ahead costs a replay from the start."""
        if step < 0 or size < 1:
            raise ValueError(f"step {step}, size {size}: a step is 0 or more, a batch holds 1 task or more")
        at, batches = 0, self._batches(size)
        if self._at is not None and self._at[1] == size and self._at[0] <= step:
            at, _, batches = self._at  # only saves time: the batches are the same
        for _ in range(step - at):
            next(batches)
        tasks = next(batches)
        self._at = (step + 1, size, batches)
        return tasks

    def _batches(self, size: int) -> Iterator[list[Task]]:
        passes = [_Passes(pool, self._seed, i, self._shuffle) for i, pool in enumerate(self._pools)]
        total = sum(pool.weight for pool in self._pools)
        count = 0  # of tasks given so far
        while True:
            batch: list[Task] = []
            while len(batch) < size:
                if len(batch) % len(self) == 0:  # at the start, and again where the batch is larger than the data
                    for pool in passes:
                        pool.allow_all()
                count += 1
                # max takes the first of equals, so nothing here is left to chance
                furthest_behind = max(
                    (pool for pool in passes if not pool.spent),
                    key=lambda pool: pool.weight / total * count - pool.given,
                )
                batch.append(furthest_behind.take())
            yield batch


class _Passes:
    """One pool, passed over again and again: each pass gives every task once."""

    def __init__(self, pool: Pool, seed: int, place: int, shuffle: bool) -> None:
        self.weight = pool.weight
        self.given = 0
        self._tasks = pool.tasks
        self._origin = (seed, "pass", place)
        self._shuffle = shuffle
        self._passes = 0
        self._ahead: deque[int] = deque()  # what is left of the current pass
        self._barred: set[int] = set()  # what the batch already has

    @property
    def spent(self) -> bool:
        return len(self._barred) == len(self._tasks)

    def allow_all(self) -> None:
        self._barred.clear()

    def take(self) -> Task:
        """The next task that is not barred; those passed by keep their place in front."""
        passed_by = []
        while (index := self._next()) in self._barred:
            passed_by.append(index)
        self._ahead.extendleft(reversed(passed_by))
        self._barred.add(index)
        self.given += 1
        return self._tasks[index]

    def _next(self) -> int:
        if not self._ahead:
            order = list(range(len(self._tasks)))
            if self._shuffle:
                random.Random(derive_seed(*self._origin, self._passes)).shuffle(order)
            self._ahead.extend(order)
            self._passes += 1
        return self._ahead.popleft()


def _refuse_shared_ids(pools: Sequence[Pool]) -> None:
    owner: dict[str, str] = {}
    for pool in pools:
        for task in pool.tasks:
            if task.id in owner:
                raise UserError(
                    f"task id {task.id!r} stands in {owner[task.id]} and in {pool.name}: name an id column, or rename "
                    "a file, so that ids differ"
                )
            owner[task.id] = pool.name
