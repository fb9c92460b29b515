"""What the README shows is what runs."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from marti_ext.config_file import check_config
from marti_ext.records import read_episodes, read_rows
from marti_ext.training.loop import train

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PLUGINS = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", README, re.DOTALL))
CONFIG = re.findall(r"```yaml\n(workflow:.*?)```", README, re.DOTALL)[0]


def test_the_readme_shows_a_workflow_a_reward_and_an_experience_maker_in_under_40_lines_each() -> None:
    assert sorted(PLUGINS) == ["best_half.py", "brevity.py", "second_opinion.py"]
    assert all(code.count("\n") < 40 for code in PLUGINS.values())


def test_the_plugins_of_the_readme_train_from_yaml_without_touching_the_package(
    tiny_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, code in PLUGINS.items():
        (tmp_path / name).write_text(code)
    train(check_config({**tiny_config, **yaml.safe_load(CONFIG)}), Console(file=StringIO()))
    run = Path(tiny_config["run_dir"])
    kinds = [[(t.agent, t.interaction, t.round) for t in episode.turns] for episode in read_episodes(run)]
    assert all(k == [("ada", "draft", 0), ("bob", "solution", 0), ("bob", "solution", 1)] for k in kinds)
    rows = read_rows(run / "metrics.jsonl")
    # 6 tasks: 6 drafts by a, 12 solutions by b; the better half of each is trained on.
    assert [(row["policy"], row["samples"]) for row in rows[:2]] == [("a", 3), ("b", 6)]


def test_the_smallest_config_of_the_readme_loads() -> None:
    [smallest] = re.findall(r"```yaml\n(run_dir:.*?)```", README, re.DOTALL)
    assert check_config(yaml.safe_load(smallest)).steps == 10


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    assert "@@" not in README


def test_every_file_and_command_that_the_readme_names_is_there() -> None:
    tree = README.split("## Where a thing lives")[1].split("```")[1]
    folder = ""
    for line in tree.splitlines():
        if top := re.match(r"(\w+)/", line):
            folder = top[1]
        elif name := re.match(r"  (\w+(?:/|\.py))", line):
            assert (ROOT / folder / name[1]).exists(), name[1]
    for path in (
        "examples/quickstart.sh",
        "examples/evaluate.sh",
        "tests/run.sh",
        "configs/comas/quickstart.yaml",
        "tests/benchmarks/cluster.py",
        "tests/benchmarks/rollout.py",
        "tests/benchmarks/grading.py",
        "tests/benchmarks/sandbox.py",
    ):
        assert path in README
        assert (ROOT / path).exists()


def test_the_project_names_no_place_of_one_machine() -> None:
    own = Path(__file__)
    for path in ROOT.rglob("*"):
        made = ("runs", "models", "results")
        hidden = any(part.startswith(".") or part in made for part in path.relative_to(ROOT).parts)
        if path.suffix in (".py", ".md", ".sh", ".yaml", ".toml") and not hidden and path != own:
            assert not re.search(r"(?<![\w.])/(home|root|work)/", path.read_text()), path


def test_the_cluster_config_of_the_readme_is_taken_by_openrlhfs_parser() -> None:
    from marti_ext.cluster.flags import policy_arguments

    [smallest] = re.findall(r"```yaml\n(run_dir:.*?)```", README, re.DOTALL)
    [cluster] = re.findall(r"```yaml\n(backend:.*?)```", README, re.DOTALL)
    agents = [{"name": "ada", "policy": "qwen"}, {"name": "bob", "policy": "llama"}]
    arguments = policy_arguments(
        check_config({**yaml.safe_load(smallest), **yaml.safe_load(cluster), "agents": agents})
    )
    assert [args.actor.num_gpus_per_node for args in arguments.values()] == [2, 4]
    assert [args.actor.adam.lr for args in arguments.values()] == [1e-6, 2e-6]
