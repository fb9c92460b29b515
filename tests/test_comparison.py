"""Runs beside each other."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from marti_ext.cli import main
from marti_ext.comparison import over_seeds, run_rows, spread
from marti_ext.config_file import check_config
from marti_ext.errors import UserError
from marti_ext.records import read_rows
from marti_ext.training.loop import train


def test_lines_are_drawn_over_the_steps_that_every_seed_has_reached() -> None:
    rows = [
        {"line": "a", "seed": 0, "step": 0, "x": 0.25},
        {"line": "a", "seed": 0, "step": 5, "x": 0.5},
        {"line": "a", "seed": 1, "step": 0, "x": 0.75},
        {"line": "b", "seed": 0, "step": 0, "x": None},
    ]
    assert over_seeds(rows, "a", "x") == {0: [0.25, 0.75]}
    assert over_seeds(rows, "b", "x") == {}
    assert spread([0.25, 0.75]) == "0.5 ± 0.35"
    assert spread([0.25]) == "0.25"


@pytest.fixture
def runs(tiny_config: dict[str, Any], tmp_path: Path) -> list[Path]:
    """Two seeds of one config, and one of another."""
    folders = [tmp_path / "digits-0", tmp_path / "digits-1", tmp_path / "short"]
    for folder, changes in zip(folders, ({"seed": 0}, {"seed": 1}, {"sampling": {"max_tokens": 4}}), strict=True):
        train(check_config(tiny_config | {"run_dir": str(folder)} | changes), Console(file=StringIO()))
    return folders


def test_runs_that_differ_in_their_seed_are_one_line(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run_rows(runs)
    assert [(row["line"], row["seed"], row["step"]) for row in rows] == [
        ("digits", 0, 0), ("digits", 0, 1), ("digits", 1, 0), ("digits", 1, 1), ("short", 0, 0), ("short", 0, 1),
    ]  # fmt: skip
    by_policy = [row["reward"] for row in read_rows(runs[0] / "metrics.jsonl")[:2]]
    assert rows[0]["reward"] == pytest.approx(sum(by_policy) / 2)
    figure = tmp_path / "plots/all.png"
    assert main(["report", *map(str, runs), "--figure", str(figure)]) == 0
    assert figure.stat().st_size > 10_000
    assert "digits" in capsys.readouterr().out


def test_a_folder_without_a_run_is_named(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing holds no metrics\.jsonl"):
        run_rows([runs[0], tmp_path / "nothing"])
