"""Accuracy on held-out tasks while a run goes on, the best weights, and what the scores of judges are worth."""

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file

from marti_ext.config_file import check_config
from marti_ext.errors import UserError
from marti_ext.judge_quality import judge_quality
from marti_ext.records import read_rows
from marti_ext.training.held_out import HeldOut, accuracy
from marti_ext.training.loop import train
from marti_ext.types import Completion, Episode, Score, Task, Turn


@pytest.fixture
def evaluated_config(tiny_config: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    rows = [{"prompt": f"{n} + 0", "answer": str(n)} for n in range(4)]
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = {"sources": [{"path": str(tmp_path / "held-out.jsonl"), "label": "answer"}]}
    return tiny_config | {"steps": 4, "evaluation": {"data": held_out, "every": 2, "copies": 2}}


def run(config: dict[str, Any], **changes: Any) -> Path:
    train(check_config(config | changes), Console(file=StringIO()))
    return Path(config["run_dir"])


def test_every_policy_is_measured_before_between_and_after(evaluated_config: dict[str, Any]) -> None:
    rows = read_rows(run(evaluated_config) / "evaluation.jsonl")
    assert [(row["step"], row["policy"]) for row in rows] == [(s, p) for s in (0, 2, 4) for p in "ab"]
    assert all(row["held_out_answers"] + row["held_out_ungraded"] == 8 for row in rows)  # 4 tasks, 2 copies


def test_evaluating_changes_nothing_of_what_is_trained(evaluated_config: dict[str, Any], tmp_path: Path) -> None:
    with_it = run(evaluated_config)
    without = run(evaluated_config | {"run_dir": str(tmp_path / "without")}, evaluation=None)
    assert (with_it / "metrics.jsonl").read_bytes() == (without / "metrics.jsonl").read_bytes()


def test_a_stop_and_resume_leave_the_same_file_and_measure_nothing_twice(
    evaluated_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = (run(evaluated_config) / "evaluation.jsonl").read_bytes()
    asked: list[int] = []
    measure = HeldOut.measure
    monkeypatch.setattr(
        HeldOut, "measure", lambda self, step, agents: asked.append(step) or measure(self, step, agents)
    )
    broken = evaluated_config | {"run_dir": str(tmp_path / "broken")}
    run(broken, steps=2)
    run(broken)
    assert asked == [0, 2, 4]
    assert (tmp_path / "broken/evaluation.jsonl").read_bytes() == unbroken
    shutil.rmtree(tmp_path / "broken/checkpoints/step-00004")
    run(broken)
    assert asked == [0, 2, 4, 4]
    assert (tmp_path / "broken/evaluation.jsonl").read_bytes() == unbroken


def test_the_weights_that_did_best_are_kept(evaluated_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # Policy a is best after 2 steps, b after 4, and does as well after 6.
    seen = {0: (0.5, 0.0), 2: (0.75, 0.25), 4: (0.5, 0.5), 6: (0.75, 0.5)}

    def measure(self: HeldOut, step: int, agents: Any) -> list[dict[str, Any]]:
        rows = zip("ab", seen[step], strict=True)
        return [{"step": step, "policy": p, "held_out_accuracy": value, "held_out_error": None} for p, value in rows]

    monkeypatch.setattr(HeldOut, "measure", measure)
    folder = run(evaluated_config, steps=6, checkpoint={"keep": 2, "every": 100}) / "checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == ["best-a-00002", "best-b-00004", "step-00004", "step-00006"]
    assert not (folder / "best-b-00004/trainer.pt").exists()
    best, kept = (load_file(folder / f"{place}/model.safetensors") for place in ("best-b-00004", "step-00004/b"))
    assert all(best[name].equal(kept[name]) for name in kept)


def test_held_out_tasks_need_labels_and_a_known_kind(evaluated_config: dict[str, Any]) -> None:
    [source] = evaluated_config["evaluation"]["data"]["sources"]
    source["label"] = None
    with pytest.raises(UserError, match="labels are needed"):
        run(evaluated_config)
    source |= {"label": "answer", "kind": "poetry"}
    with pytest.raises(UserError, match="poetry"):
        run(evaluated_config)


def test_accuracy_is_a_mean_over_tasks_and_what_cannot_be_graded_counts_for_nothing() -> None:
    four, five = Task("4", "2 + 2", "4", "math"), Task("5", "2 + 3", "5", "math")
    right, wrong = r"\boxed{4}", r"\boxed{9}"
    episodes = [Episode(four, answer=right), Episode(four, answer=wrong), Episode(five, answer=wrong)]
    episodes += [Episode(five, answer="no box"), Episode(five, status="error", error="?")]
    row = accuracy(episodes)
    # Means 1/2 and 0: 1/4, with a deviation of sqrt(2) / 4 and an error of 1/4.
    assert row["held_out_accuracy"] == 0.25
    assert row["held_out_error"] == pytest.approx(0.25)
    assert (row["held_out_answers"], row["held_out_ungraded"], row["held_out_unparsed"]) == (4, 1, 1)
    assert accuracy(episodes[-1:])["held_out_accuracy"] is None


def judged(answer: str, score: str | None, label: str = "4") -> Episode:
    solution = Turn("ann", "p", "solution", 0, (), Completion(answer), text=answer)
    read = Score((int(score) - 1) / 2, score) if score else Score(0.0, status="unparsed")
    scoring = Turn("bob", "q", "scoring", 0, (), Completion("?"), about=(solution,), score=read)
    return Episode(Task(answer, "2 + 2", label, "math"), turns=[solution, scoring])


def test_the_highest_score_is_the_verdict_correct() -> None:
    right, wrong = r"\boxed{4}", r"\boxed{9}"
    said = [(right, "3"), (right, "3"), (right, "2"), (wrong, "3"), (wrong, "1"), (wrong, None)]
    episodes = [judged(*one) for one in said] + [judged(right, "3", label="")]
    # 5 that can be read: 2 hits of 3 right ones, 3 called correct; right verdicts: 2 + 1.
    assert judge_quality(episodes) == {
        "q": {"judged": 5, "judge_accuracy": 3 / 5, "judge_precision": 2 / 3, "judge_recall": 2 / 3}
    }
    assert judge_quality([judged(wrong, "1")])["q"] == {
        "judged": 1, "judge_accuracy": 1.0, "judge_precision": None, "judge_recall": None
    }  # fmt: skip
    assert judge_quality([judged(right, None)]) == {}
