"""Every baseline and ablation trains from a few lines of YAML, through the same loop."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from marti_ext.config_file import check_config
from marti_ext.records import read_rows
from marti_ext.training.loop import train

METHODS = {
    "ttrl": {"workflow": {"name": "vanilla"}, "reward": {"name": "ttrl"}},
    "maporl": {
        "workflow": {"name": "debate", "debaters": 4, "others": 2, "aggregate": False},
        "reward": {"name": "maporl", "influence": "discounted"},
    },
    "srlm": {"workflow": {"name": "self_judge"}, "reward": {"name": "self_judge"}},
    "srlm with dpo": {
        "workflow": {"name": "self_judge"},
        "reward": {"name": "self_judge"},
        "experience": {"name": "preference_pairs"},
        "training": {"loss": "dpo"},
    },
    "comas without evaluation": {
        "workflow": {"name": "comas", "rounds": 1, "evaluations": 0},
        "reward": {"name": "zero_sum"},
    },
    "comas without scoring": {
        "workflow": {"name": "comas", "rounds": 1, "evaluations": 2, "scoring": False},
        "reward": {"name": "consensus"},
    },
}


@pytest.mark.parametrize("method", METHODS)
def test_every_baseline_and_ablation_is_a_few_lines_of_yaml(tiny_config: dict[str, Any], method: str) -> None:
    tiny_config["data"]["sources"][0]["label"] = "answer"
    config = {**tiny_config, "rollout": {"tasks_per_step": 2, "copies_per_task": 2}, "steps": 1, **METHODS[method]}
    train(check_config(config), Console(file=StringIO()))
    rows = read_rows(Path(tiny_config["run_dir"]) / "metrics.jsonl")
    assert [row["failed_episodes"] for row in rows] == [0, 0]
    # A model of random weights gives no score of its own answer: then there is nothing to train on, and nothing moves.
    assert all(row["skipped"] == ("srlm" in method) for row in rows)
