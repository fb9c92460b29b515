"""Which requests share a batch: a matter of the episodes alone, never of time."""

import asyncio
import random
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from marti_ext.agent import Agent
from marti_ext.backends.base import Backend, BatchBackend, Request
from marti_ext.errors import UserError
from marti_ext.rollout import run_episodes
from marti_ext.types import Completion, Episode, Task
from marti_ext.workflows.base import Workflow

T = TypeVar("T")


def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail: a rendezvous that hangs must not hang the tests."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class Echo(BatchBackend):
    """Answers every request with its last message; `batches` keeps what was asked together."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        texts = [request.messages[-1].content for request in requests]
        self.batches.append(texts)
        return [Completion(f"re: {text}") for text in texts]

    async def complete(self, request: Request) -> Completion:
        raise AssertionError("a batch backend was asked for a single reply")


class Elsewhere(Backend):
    """A backend that takes its time over each request."""

    def __init__(self, longest: float) -> None:
        self.longest = longest

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(random.uniform(0, self.longest))  # another time in each run
        return Completion(f"elsewhere: {request.messages[-1].content}")


@dataclass(frozen=True)
class Calls(Workflow):
    """As many calls, one after the other, as the task says."""

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        text = ""
        for number in range(task.metadata["calls"]):
            text = await agents[0].reply(f"{task.id}.{number}", round=number)
        return text


@dataclass(frozen=True)
class Fan(Workflow):
    """Calls side by side, then one more."""

    width: int = 3

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        await asyncio.gather(*(agents[0].reply(f"{task.id}.{branch}") for branch in range(self.width)))
        return await agents[0].reply(f"{task.id}.end", round=1)


@dataclass(frozen=True)
class Tree(Workflow):
    """A gather in a gather, `depth` deep: 2^depth calls, then one more at each fork on the way back."""

    depth: int = 5
    groups: bool = False  # task groups in place of gather

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        await self._branch(agents[0], task.id, self.depth)
        return "done"

    async def _branch(self, agent: Agent, name: str, depth: int) -> None:
        if depth and self.groups:
            async with asyncio.TaskGroup() as group:
                for side in "lr":
                    group.create_task(self._branch(agent, name + side, depth - 1))
        elif depth:
            await asyncio.gather(*(self._branch(agent, name + side, depth - 1) for side in "lr"))
        await agent.reply(name, round=self.depth - depth)


@dataclass(frozen=True)
class Mixed(Workflow):
    """Each round asks a backend elsewhere first, then the one that answers in batches."""

    rounds: int = 3

    async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
        near, far = agents
        for number in range(self.rounds):
            await far.reply(f"{task.id}.{number}", round=number)
            await near.reply(f"{task.id}.{number}", round=number)
        return "done"


def tasks(*calls: int) -> list[Task]:
    return [Task(f"t{place}", "?", metadata={"calls": count}) for place, count in enumerate(calls)]


def agent(backend: Backend, name: str = "ann") -> Agent:
    return Agent(name, backend, trainable=False)


def run(
    workflow: Workflow, problems: Sequence[Task], *backends: Backend, seconds: float = 10, **options: Any
) -> list[Episode]:
    team = [agent(backend, f"agent{place}") for place, backend in enumerate(backends)]
    return within(seconds, run_episodes(workflow, problems, team, **options))


def test_a_batch_waits_for_every_running_episode() -> None:
    echo = Echo()
    episodes = run(Calls(), tasks(1, 2, 4), echo)
    assert echo.sizes == [3, 2, 1, 1]
    assert [episode.status for episode in episodes] == ["ok"] * 3
    assert [episode.answer for episode in episodes] == ["re: t0.0", "re: t1.1", "re: t2.3"]


def test_an_episode_without_a_call_keeps_nobody_waiting() -> None:
    echo = Echo()
    run(Calls(), tasks(0, 2, 0, 2), echo)
    assert echo.sizes == [2, 2]


def test_calls_side_by_side_share_a_batch() -> None:
    echo = Echo()
    episodes = run(Fan(width=3), tasks(0, 0), echo)
    assert echo.sizes == [6, 2]
    assert [turn.text for turn in episodes[0].turns] == ["re: t0.0", "re: t0.1", "re: t0.2", "re: t0.end"]


@pytest.mark.parametrize("groups", [False, True])
def test_calls_five_gathers_deep_share_a_batch(groups: bool) -> None:
    # 32 leaves an episode, then 16, 8, 4, 2, 1 forks; two episodes run side by side.
    echo = Echo()
    run(Tree(groups=groups), tasks(0, 0), echo)
    assert echo.sizes == [64, 32, 16, 8, 4, 2]


def test_a_branch_that_is_done_keeps_nobody_waiting() -> None:
    @dataclass(frozen=True)
    class Uneven(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            async def branch(calls: int) -> None:
                for number in range(calls):
                    await agents[0].reply(f"{task.id}.{calls}.{number}")

            await asyncio.gather(*map(branch, (0, 1, 3)))
            return "done"

    echo = Echo()
    run(Uneven(), tasks(0), echo)
    assert echo.sizes == [2, 1, 1]


def test_turns_stand_in_the_order_in_which_branches_were_opened() -> None:
    @dataclass(frozen=True)
    class Pipelines(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            async def pipeline(branch: int) -> None:
                for stage in range(3):
                    await agents[0].reply(f"{stage}.{branch}", round=stage)

            await asyncio.gather(*map(pipeline, range(4)))
            return "done"

    [episode] = run(Pipelines(), tasks(0), Echo())
    assert [turn.text for turn in episode.turns] == [f"re: {stage}.{b}" for stage in range(3) for b in range(4)]


def test_two_backends_are_answered_in_one_go() -> None:
    events: list[str] = []

    class Noting(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            time.sleep(0.02)
            events.append(f"batch of {len(requests)}")
            return super().complete_batch(requests)

    @dataclass(frozen=True)
    class Both(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            first = agents[int(task.id[1:]) % 2]
            await first.reply("one")
            events.append("woken")
            await asyncio.gather(*(one.reply("two") for one in agents))
            return "done"

    run(Both(), tasks(0, 0, 0), Noting(), Noting())
    assert events == ["batch of 2", "batch of 1", "woken", "woken", "woken", "batch of 3", "batch of 3"]


def test_batches_do_not_depend_on_how_fast_other_backends_are() -> None:
    batches = []
    for _ in range(6):
        echo = Echo()
        episodes = run(Mixed(), tasks(*[0] * 8), echo, Elsewhere(0.01))
        assert [episode.status for episode in episodes] == ["ok"] * 8
        batches.append(echo.batches)
    assert [len(batch) for batch in batches[0]] == [8, 8, 8]
    assert all(other == batches[0] for other in batches)  # also in their order: rows of a batch have places


def test_a_slow_call_beside_a_waiting_one_is_waited_for() -> None:
    @dataclass(frozen=True)
    class Beside(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            near, far = agents

            async def detour() -> None:
                await far.reply("first")
                await near.reply("then")

            await asyncio.gather(near.reply("now"), detour())
            return "done"

    echo = Echo()
    run(Beside(), tasks(0), echo, Elsewhere(0.05))
    assert sorted(echo.batches[0]) == ["now", "then"]
    assert echo.sizes == [2]


def test_a_concurrency_limit_lets_the_next_episode_in_before_a_batch() -> None:
    echo = Echo()
    episodes = run(Calls(), tasks(2, 2, 2, 2, 2, 2, 2), echo, concurrency=3)
    assert echo.sizes == [3, 3, 3, 3, 1, 1]
    assert all(episode.status == "ok" for episode in episodes)
    # As soon as t0 ends t2 takes its place: t0.0 t1.0 | t2.0 t1.1 | t2.1 t3.0
    echo = Echo()
    run(Calls(), tasks(1, 2, 2, 1), echo, concurrency=2)
    assert [sorted(batch) for batch in echo.batches] == [["t0.0", "t1.0"], ["t1.1", "t2.0"], ["t2.1", "t3.0"]]


def test_results_come_in_input_order() -> None:
    problems = tasks(4, 1, 3, 0, 2)
    ended: list[str] = []
    echo = Echo()
    episodes = run(Calls(), problems, echo, copies=2, on_episode=lambda episode: ended.append(episode.task.id))
    assert [(e.task.id, e.copy) for e in episodes] == [(task.id, copy) for task in problems for copy in (0, 1)]
    assert ended == ["t3", "t3", "t1", "t1", "t4", "t4", "t2", "t2", "t0", "t0"]


def test_seeds_are_by_place_in_the_episode() -> None:
    class Seeds(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            return [Completion(str(request.seed)) for request in requests]

    def answers(problems: Sequence[Task], **options: Any) -> dict[str, str]:
        return {episode.task.id: episode.answer for episode in run(Calls(), problems, Seeds(), **options)}

    problems = tasks(1, 2, 3)
    once = answers(problems, seed=5)
    assert len(set(once.values())) == 3
    assert answers(list(reversed(problems)), seed=5, concurrency=1) == once
    assert answers(problems, seed=6) != once


def test_an_error_in_a_batch_is_kept_on_its_episodes() -> None:
    class Breaking(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            if self.batches:
                raise RuntimeError("out of memory")
            return super().complete_batch(requests)

    breaking = Breaking()
    short, *long = run(Calls(), tasks(1, 2, 3), breaking)
    assert (short.status, short.answer, short.error) == ("ok", "re: t0.0", None)
    for episode in long:
        assert episode.status == "failed"
        assert episode.error is not None
        assert episode.error.strip().endswith("RuntimeError: out of memory")
        assert [turn.completion.finish_reason for turn in episode.turns] == ["stop", "error"]
    assert len(long[0].error or "") == len(long[1].error or "")  # one error, told to each alike


def test_an_error_of_one_backend_leaves_the_other_alone() -> None:
    class Broken(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            raise RuntimeError("broken")

    @dataclass(frozen=True)
    class One(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            return await agents[int(task.id[1:]) % 2].reply(task.id)

    episodes = run(One(), tasks(0, 0, 0, 0), Echo(), Broken())
    assert [episode.status for episode in episodes] == ["ok", "failed", "ok", "failed"]


@pytest.mark.parametrize(
    ("problem", "message"), [("one too few", "gave 2 replies to 3 requests"), ("none left", "ran out of replies")]
)
def test_a_batch_that_comes_back_incomplete_fails_its_episodes(problem: str, message: str) -> None:
    replies = iter([Completion("a"), Completion("b")])

    class Scripted(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            if problem == "none left":
                return [next(replies), next(replies), next(replies)]
            return list(replies)

    episodes = run(Calls(), tasks(1, 1, 1), Scripted())
    assert [episode.status for episode in episodes] == ["failed"] * 3
    assert all(message in (episode.error or "") for episode in episodes)


def test_a_deadline_ends_an_episode_that_waits_for_others() -> None:
    @dataclass(frozen=True)
    class Apart(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            near, far = agents
            return await (far if task.id == "t0" else near).reply(task.id)

    class Never(Backend):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(3600)
            raise AssertionError("unreachable")

    echo = Echo()
    episodes = run(Apart(), tasks(0, 0), echo, Never(), timeout=0.1, seconds=5)
    assert [episode.status for episode in episodes] == ["timeout", "timeout"]
    assert [turn.completion.finish_reason for turn in episodes[1].turns] == ["error"]
    assert echo.batches == []


def test_a_reply_that_comes_after_the_deadline_is_dropped_and_the_next_episodes_run() -> None:
    class SlowOnce(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            if not self.batches:
                time.sleep(0.5)
            return super().complete_batch(requests)

    slow = SlowOnce()
    first, *others = run(Calls(), tasks(2, 1, 1), slow, timeout=0.4, concurrency=1)
    assert first.status == "timeout"
    assert first.turns[0].completion.finish_reason == "error"
    # The second episode waits for the first batch to end: it has the time of its own deadline for that.
    assert [episode.status for episode in others] == ["ok", "ok"]


def test_a_call_that_its_workflow_gives_up_does_not_hold_the_others() -> None:
    @dataclass(frozen=True)
    class Impatient(Workflow):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            near, far = agents
            if task.id == "t0":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(near.reply("given up"), 0.02)
                return await near.reply("asked again")
            await far.reply("slow")
            return await near.reply("after")

    class Slow(Backend):
        async def complete(self, request: Request) -> Completion:
            await asyncio.sleep(0.1)
            return Completion("slow")

    echo = Echo()
    episodes = run(Impatient(), tasks(0, 0), echo, Slow())
    assert [episode.status for episode in episodes] == ["ok", "ok"]
    assert [sorted(batch) for batch in echo.batches] == [["after", "asked again"]]


@pytest.mark.parametrize("source", ["workflow", "backend"])
def test_a_user_error_stops_the_run(source: str) -> None:
    class Refusing(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            if source == "backend":
                raise UserError("the model is gone; restore its folder")
            return super().complete_batch(requests)

    @dataclass(frozen=True)
    class Wrong(Calls):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            text = await super().run(task, agents, rng)
            if source == "workflow" and task.id == "t1":
                raise UserError("the model is gone; restore its folder")
            return text

    with pytest.raises(UserError, match="restore its folder"):
        run(Wrong(), tasks(2, 1, 3), Refusing())


def test_a_failing_workflow_keeps_its_turns_and_holds_nobody() -> None:
    @dataclass(frozen=True)
    class Stumbling(Calls):
        async def run(self, task: Task, agents: Sequence[Agent], rng: random.Random) -> str:
            text = await super().run(task, agents, rng)
            if task.id == "t1":
                raise ValueError("no answer in it")
            return text

    echo = Echo()
    episodes = run(Stumbling(), tasks(3, 1, 3), echo)
    assert echo.sizes == [3, 2, 2]
    assert [episode.status for episode in episodes] == ["ok", "failed", "ok"]
    assert "no answer in it" in (episodes[1].error or "")
    assert [turn.text for turn in episodes[1].turns] == ["re: t1.0"]


def test_the_event_loop_stays_free_while_a_batch_is_computed() -> None:
    class Slow(Echo):
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            time.sleep(0.1)
            return super().complete_batch(requests)

    async def both() -> int:
        ticks = 0
        rollout = asyncio.create_task(run_episodes(Calls(), tasks(1), [agent(Slow())]))
        while not rollout.done():
            await asyncio.sleep(0.005)
            ticks += 1
        assert (await rollout)[0].status == "ok"
        return ticks

    assert within(5, both()) >= 3
