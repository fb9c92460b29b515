"""The micro laboratory: its measures and plug-ins by hand, and all of it in a shortened form."""

import asyncio
import json
import random
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from marti_ext.agent import Agent
from marti_ext.backends.scripted import ScriptedBackend
from marti_ext.errors import UserError
from marti_ext.rollout import run_episode
from marti_ext.types import Completion, Episode, Score, Task, Turn

LABORATORY = Path(__file__).parents[1] / "examples/micro_world"
TASK = Task("q", "40+2=", "42", "math", {"family": "addition"})
NO_FLAW, OBJECTION = 0.0, 1.0


@pytest.fixture(autouse=True)
def _laboratory_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(LABORATORY))


def turn(interaction: str, text: str = "", score: Score | None = None, about: tuple[Turn, ...] = ()) -> Turn:
    return Turn("ann", "ann", interaction, 0, (), Completion(text, usage=(9, 4)), about=about, text=text, score=score)


def judged(answer: str, objection: float, score: str | None) -> Episode:
    """A solution, a critique of it and a score, None for one that cannot be read."""
    solution = turn("solution", rf"\boxed{{{answer}}}")
    evaluation = turn("evaluation", score=Score(objection), about=(solution,))
    read = Score((int(score) - 1) / 2, score) if score else Score(0.0, status="unparsed")
    return Episode(TASK, turns=[solution, evaluation, turn("scoring", score=read, about=(solution, evaluation))])


def test_the_measures_of_four_episodes_are_those_worked_out_by_hand() -> None:
    from measures import measure
    from probe import is_right

    episodes = [
        judged("42", NO_FLAW, "3"),  # right: score and truth 1, score and critic 1
        judged("42", OBJECTION, "2"),  # right: 1/2 and 1/2
        judged("43", NO_FLAW, "1"),  # wrong: 1 and 0
        judged("41", OBJECTION, None),  # no score
    ]
    episodes[0].turns[0].reward, episodes[1].turns[0].reward, episodes[1].turns[1].reward = 1.0, 0.5, 0.5
    assert measure(episodes, is_right) == {
        "accuracy": 2 / 4,
        "solver_reward": 0.75,
        "critic_reward": 0.5,
        "scores": {"1": 1 / 4, "2": 1 / 4, "3": 1 / 4, "invalid": 1 / 4},
        "invalid_rate": 1 / 4,
        "objection_rate": 2 / 4,
        "critic_truth": 2 / 4,  # of the first and the last
        "judge_critic": pytest.approx((1 + 0.5 + 0) / 3),
        "judge_truth": pytest.approx((1 + 0.5 + 1) / 3),
        "judge_on_right": 0.75,
        "judge_on_wrong": 1.0,
        "length": {"evaluation": 4.0, "scoring": 4.0, "solution": 4.0},
    }


def test_what_was_not_there_is_measured_as_none() -> None:
    from measures import measure
    from probe import is_right

    row = measure([Episode(TASK, turns=[turn("solution", r"\boxed{42}")])], is_right)
    assert row["accuracy"] == 1.0
    assert row["scores"] == {}
    assert {
        row[key] for key in ("solver_reward", "invalid_rate", "objection_rate", "judge_truth", "judge_critic")
    } == {None}


def test_a_judge_that_always_says_the_same_is_not_competent() -> None:
    from probe import refuse_incompetence

    refuse_incompetence({"exam": 0.91, "exam_on_right": 0.97, "exam_on_wrong": 0.85})
    with pytest.raises(UserError, match=r"agrees with the truth on 1\.00 of right and 0\.00 of wrong"):
        refuse_incompetence({"exam": 0.5, "exam_on_right": 1.0, "exam_on_wrong": 0.0})


def test_an_exam_asks_for_the_same_scores_whoever_solves_meanwhile() -> None:
    from measures import measure
    from probe import Exam, is_right

    team = [Agent("judge", ScriptedBackend(["<score>3</score>"]), "judge", trainable=False)]
    episodes = [asyncio.run(run_episode(Exam(critic=True), TASK, team, copy=copy)) for copy in range(40)]
    row = measure(episodes, is_right)
    assert (row["judge_on_right"], row["judge_on_wrong"]) == (1.0, 0.0)  # it approves of everything
    assert 0.2 < row["judge_truth"] < 0.8
    assert 0.2 < row["judge_critic"] < 0.8
    alone = asyncio.run(run_episode(Exam(critic=False), TASK, team))
    assert len(alone.turns[0].about) == 1
    assert "Critique" not in alone.turns[0].messages[0].content


def run(workflow: Any, **replies: str) -> list[Turn]:
    """The turns of one episode of a team of which each agent says one thing."""
    team = [Agent(name, ScriptedBackend([said]), name, trainable=False) for name, said in replies.items()]
    episode = asyncio.run(run_episode(workflow, TASK, team))
    assert episode.status == "ok", episode.error
    return episode.turns


def test_the_last_agent_is_the_only_judge_and_does_nothing_else() -> None:
    from ablations import CoMASWithJudge

    turns = run(CoMASWithJudge(rounds=4), ann="42", bob="43", judge="<score>1</score>")
    assert [t.agent for t in turns if t.interaction == "scoring"] == ["judge"] * 4
    assert {t.agent for t in turns if t.interaction != "scoring"} == {"ann", "bob"}


def test_only_the_named_interactions_are_trained() -> None:
    from ablations import PartialReward

    episode = judged("42", NO_FLAW, "3")
    PartialReward(trained=("solution", "scoring")).assign([episode])
    assert [t.reward for t in episode.turns] == [1.0, None, 0.0]


def test_questions_have_one_right_answer_and_slips_that_are_wrong() -> None:
    from families import FAMILIES, answer, split
    from probe import is_right

    training, held_out = split(training=30, held_out=10)
    assert not {t.prompt for t in training} & {t.prompt for t in held_out}
    assert [t.metadata["family"] for t in held_out[::10]] == list(FAMILIES)
    rng = random.Random(0)
    for task in held_out:
        assert is_right(task, rf"\boxed{{{answer(task, 0.0, rng)}}}")
        slips = {answer(task, 1.0, rng) for _ in range(60)}
        assert len(slips) >= 3
        assert not any(is_right(task, rf"\boxed{{{slip}}}") for slip in slips)
    labels = {family: next(t for t in held_out if t.metadata["family"] == family) for family in FAMILIES}
    question = {family: task.prompt for family, task in labels.items()}
    a, b = question["addition"].removesuffix("=").split("+")
    assert int(labels["addition"].label) == int(a) + int(b)
    assert int(labels["modular"].label) == int(question["modular"].split("%")[0]) % 5
    assert labels["sorting"].label == "".join(sorted(question["sorting"][5:9]))
    assert labels["comparison"].label == max(question["comparison"][4:8])


def test_fixed_sentences_of_comas_are_single_tokens_and_nothing_is_lost() -> None:
    import language
    from character_model import build_tokenizer

    tokenizer = build_tokenizer(language.words())
    prompt = language.scoring_prompt(TASK, language.solution("42"), language.critique(objects=True))
    tokens = tokenizer.tokenize(prompt)
    # "Problem:\n", 5 characters, "\n\nProposed solution:\n", 4 of the solution, "Critique", "Wrong.", the request
    assert len(tokens) == 1 + 5 + 1 + 4 + 1 + 1 + 1
    assert "".join(tokens) == prompt
    for text, length in (
        (language.solution("42"), 4),
        (language.critique(objects=False), 1),
        (language.verdict(objects=True), 1),
        (language.scoring(3), 3),
    ):
        assert len(tokenizer.tokenize(text)) == length


def share_of_high_scores(given: str, **knobs: float) -> dict[bool, float]:
    """{whether the critic objects: how often the judge is taught to give a 3} for one solution of the task."""
    import lessons

    options = lessons.Curriculum(**knobs, invalid_share=0.0)  # type: ignore[arg-type]
    rng = random.Random(0)
    scores: dict[bool, list[bool]] = {True: [], False: []}
    while sum(map(len, scores.values())) < 400:
        prompt, reply = lessons.lesson("judging", TASK, options, rng)
        if rf"\boxed{{{given}}}" in prompt:
            scores["Wrong." in prompt].append("3" in reply)
    return {objects: sum(high) / len(high) for objects, high in scores.items()}


def test_what_is_taught_is_what_comas_asks_and_reads() -> None:
    import language

    from marti_ext.workflows.comas import CoMAS

    [_, evaluation, scoring] = run(CoMAS(rounds=1), ann=r"\boxed{42}")
    assert evaluation.messages[0].content == language.evaluation_prompt(TASK, r"\boxed{42}")
    assert scoring.messages[0].content == language.scoring_prompt(TASK, r"\boxed{42}", r"\boxed{42}")
    [_, alone] = run(CoMAS(rounds=1, evaluations=0), ann=language.scoring(3))
    assert alone.messages[0].content == language.scoring_prompt(TASK, language.scoring(3), None)
    assert alone.score == Score(1.0, "3")
    for objects in (True, False):
        [_, verdict, _] = run(CoMAS(rounds=1, evaluations=2, scoring=False), ann=language.verdict(objects))
        prompt = language.evaluation_prompt(TASK, language.verdict(objects), with_verdict=True)
        assert verdict.messages[0].content == prompt
        assert verdict.score is not None
        assert verdict.score.value == objects


def test_the_two_knobs_of_the_judge() -> None:
    assert share_of_high_scores("42", judge_skill=1.0) == {True: 1.0, False: 1.0}
    assert share_of_high_scores("43", judge_skill=1.0) == {True: 0.0, False: 0.0}
    assert share_of_high_scores("43", dependence=1.0) == {True: 0.0, False: 1.0}
    assert share_of_high_scores("42", judge_skill=0.7)[True] == pytest.approx(0.7, abs=0.1)  # 3 s.e. of 200 draws


def test_a_team_has_as_many_models_as_policies_and_half_of_them_apart_where_wanted() -> None:
    from teams import Team
    from variants import VARIANTS

    models = {False: Path("one"), True: Path("other")}
    changes = Team(4).changes(VARIANTS["heterogeneous"], models)
    assert [policy["model"] for policy in changes["policies"].values()] == ["one", "other", "one", "other"]
    shared = Team(8, shared=True)
    assert (len(shared.changes(VARIANTS["comas"], models)["agents"]), shared.label("comas")) == (8, "comas_l8_shared")
    assert list(shared.changes(VARIANTS["comas"], models)["policies"]) == ["ann"]
    judged_apart = Team().changes(VARIANTS["comas_frozen_judge"], models)
    assert [agent["name"] for agent in judged_apart["agents"]] == ["ann", "bob", "judge"]
    debate = Team(1).changes(VARIANTS["maporl"], models)
    assert (debate["workflow.debaters"], debate["workflow.others"]) == (2, 1)
    assert Team().label("comas") == "comas"


def test_all_methods_ask_what_was_taught() -> None:
    import language

    from marti_ext.workflows.debate import Debate
    from marti_ext.workflows.self_judge import SelfJudge

    [first, *_, last] = run(Debate(debaters=3, others=None, aggregate=False), ann="4", bob="5", cai="6")
    assert first.messages[0].content == TASK.prompt
    assert "".join(m.content for m in last.messages) == language.revision_prompt(TASK, "6", ["4", "5"])
    [_, judgement] = run(SelfJudge(judgements=1), ann="<score>5</score>")
    assert judgement.score == Score(1.0, "5")
    [_, judgement] = run(SelfJudge(judgements=1), ann="4")
    assert judgement.messages[0].content == language.self_judging_prompt(TASK, "4")


@pytest.mark.slow
def test_the_laboratory_in_short(tmp_path: Path) -> None:
    import torch
    from additions import write_questions
    from families import split
    from laboratory import Laboratory, results, show
    from lessons import Curriculum

    training, held_out = split(training=30, held_out=3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as laboratory.py does
    overrides = ["steps=2", "rollout.tasks_per_step=24"]
    screen = Console(file=StringIO(), width=200)
    laboratory = Laboratory(tmp_path, training, held_out, screen, Curriculum(steps=6), overrides=overrides, every=2)
    write_questions(tmp_path / "questions.jsonl", training)
    try:
        laboratory.run("no_scoring", 0)
        with pytest.raises(UserError, match="the judge is not competent"):  # after six steps of teaching
            laboratory.run("comas", 0)
        before = (tmp_path / "no_scoring/seed-0/measures.json").read_bytes()
        laboratory.run("no_scoring", 0)
    finally:
        torch.set_num_threads(threads)
    assert (tmp_path / "no_scoring/seed-0/measures.json").read_bytes() == before
    show(tmp_path, screen)
    rows = results(tmp_path)
    assert [(row["line"], row["seed"], row["step"]) for row in rows] == [("no_scoring", 0, 0), ("no_scoring", 0, 2)]
    assert json.loads((tmp_path / "results.json").read_text()) == rows
    assert (tmp_path / "laboratory.png").stat().st_size > 10_000
    assert "no_scoring" in screen.file.getvalue()  # type: ignore[attr-defined]
