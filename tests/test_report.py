import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console

from marti_ext.episode_metrics import policy_metrics
from marti_ext.errors import UserError
from marti_ext.plots import COLOURS, _policies, _running_mean, _score_colours, _score_shares
from marti_ext.records import append_rows
from marti_ext.report import report
from marti_ext.tracking import JsonlTracker
from marti_ext.types import Completion, Episode, Score, Task, Turn

PLOTS = ["reward.png", "scores.png", "judgements.png", "length.png", "training.png", "speed.png"]


def step_episode(step: int, policies: list[str]) -> Episode:
    """Every policy solves (reward step / 10), objects, and gives a score that is unparsed in the first step."""
    turns = []
    for policy in policies:
        score = Score(0.75, "4") if step > 1 else Score(0.0, "", "unparsed")
        turns += [
            Turn(policy, policy, "solution", 0, (), Completion("x"), reward=step / 10),
            Turn(policy, policy, "evaluation", 0, (), Completion("x"), score=Score(1.0), reward=-0.5),
            Turn(policy, policy, "scoring", 0, (), Completion("x"), score=score),
        ]
    return Episode(Task("t", "p"), turns=turns)


def write_run(folder: Path, policies: list[str], steps: int, kl: float | None = 0.0125) -> None:
    tracker = JsonlTracker(folder)
    for step in range(1, steps + 1):
        training = {"loss": 0.1, "kl": kl, "clip_fraction": 0.02, "grad_norm": 1234.5, "skipped": False}
        rows: list[dict[str, Any]] = [
            {"step": step, "policy": policy, **policy_metrics([step_episode(step, policies)], policy), **training}
            for policy in policies
        ]
        timing = {"rollout_seconds": 20.0, "experience_seconds": 1.0, "training_seconds": 0.0}
        counts = {"rollout_tokens": 3000 * step, "training_tokens": 100}
        tracker.log([*rows, {"step": step, "checkpoint_seconds": 0.5, **timing, **counts}])


def printed(folder: Path) -> tuple[list[list[str]], list[Path]]:
    """The cells of the table, and the paths of the plots."""
    console = Console(width=100, record=True, file=(folder / "terminal.txt").open("w"))
    paths = report(folder, console)
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")], paths


def test_the_table_gives_first_and_last_step_of_every_policy(tmp_path: Path) -> None:
    write_run(tmp_path, ["[a]", "b"], steps=3)
    table, _ = printed(tmp_path)
    assert table[:12] == [
        ["[a]", "reward, evaluation", "-0.5", "-0.5"],
        ["", "reward, scoring", "–", "–"],  # no scoring turn had a reward
        ["", "reward, solution", "0.1", "0.3"],
        ["", "invalid scores (share)", "1", "0"],
        ["", "objections (share)", "1", "1"],
        ["", "judges' accuracy", "–", "–"],
        ["", "response length (tokens)", "–", "–"],  # the backend reported no ids
        ["", "truncated replies (share)", "0", "0"],
        ["", "KL of the step (nats)", "0.0125", "0.0125"],
        ["", "KL to the initial policy (nats)", "–", "–"],
        ["", "clipped tokens (share)", "0.02", "0.02"],
        ["", "gradient norm", "1,234", "1,234"],
    ]
    assert table[12][0] == "b"
    assert table[24:] == [
        ["whole step", "rollout (s)", "20", "20"],
        ["", "experience (s)", "1", "1"],
        ["", "training (s)", "0", "0"],
        ["", "checkpoint (s)", "0.5", "0.5"],
        ["", "rollout (tokens/s)", "150", "450"],  # 3000 / 20, 9000 / 20
        ["", "training (tokens/s)", "–", "–"],  # no time was spent
    ]


@pytest.mark.parametrize(("policies", "steps"), [(1, 1), (3, 5), (8, 60)])
def test_plots_are_drawn_for_one_step_and_for_many_policies(tmp_path: Path, policies: int, steps: int) -> None:
    write_run(tmp_path, [f"policy_{i}" for i in range(policies)], steps)
    _, paths = printed(tmp_path)
    assert [path.name for path in paths] == PLOTS
    for path in paths:
        assert path.parent == tmp_path / "plots"
        image = matplotlib.image.imread(path)
        assert image.shape[1] > 700  # pixels
        assert image.std() > 0.02  # not an empty sheet


def test_a_run_that_recorded_hardly_anything_still_gives_every_plot(tmp_path: Path) -> None:
    append_rows(tmp_path / "metrics.jsonl", [{"step": 1, "policy": "p"}, {"step": 2, "policy": "$p_{"}])
    table, paths = printed(tmp_path)
    assert [path.name for path in paths] == PLOTS
    assert all(path.is_file() for path in paths)
    assert {cell for row in table for cell in row[2:]} == {"–"}


def test_a_folder_that_is_no_run_is_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no metrics\.jsonl: give the folder of a training run"):
        report(tmp_path, Console(quiet=True))
    JsonlTracker(tmp_path).start()
    with pytest.raises(UserError, match=r"metrics\.jsonl has no rows yet: wait for the first step"):
        report(tmp_path, Console(quiet=True))
    assert not (tmp_path / "plots").exists()


def test_a_report_leaves_pyplot_alone(tmp_path: Path) -> None:
    loaded = "matplotlib.pyplot" in sys.modules
    write_run(tmp_path, ["p"], steps=2)
    report(tmp_path, Console(quiet=True))
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_a_policy_has_one_look_and_eight_policies_have_eight() -> None:
    rows = [{"step": 1, "policy": f"p{i}"} for i in range(8)]
    looks = _policies(rows[::-1])  # the order of rows does not matter
    assert [looks[f"p{i}"]["color"] for i in range(8)] == list(COLOURS)
    assert len({look["marker"] for look in looks.values()}) == 8


def test_invalid_scores_lie_lowest_then_scores_by_number_and_rare_ones_together() -> None:
    scores = {"10": 5, "9": 5, "unparsed": 1, "truncated": 1} | {str(i): 3 for i in range(1, 9)} | {"odd": 1}
    colours = _score_colours([{"scores": scores}])
    # nine of the eleven valid names are shown: 9 and 10 (five times each), then 1 to 7 in the order met
    assert list(colours) == ["unparsed", "truncated", "1", "2", "3", "4", "5", "6", "7", "9", "10", "other"]
    shares = _score_shares({"scores": scores}, colours)
    assert shares["other"] == pytest.approx((3 + 1) / 37)  # "8" and "odd" of 5+5+1+1+8*3+1
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_running_mean_passes_over_gaps_and_keeps_them() -> None:
    values = np.array([1.0, 3.0, np.nan, 5.0, 7.0])
    # neighbours one to either side: (1+3)/2, (1+3)/2, gap, (5+7)/2, (5+7)/2
    np.testing.assert_allclose(_running_mean(values, 1), [2.0, 2.0, np.nan, 6.0, 6.0])
