"""Configs that extend others, and overrides that mean several entries."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from marti_ext.config_file import load_config, merged, set_value
from marti_ext.errors import UserError


def write(path: Path, values: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(values))
    return path


def test_a_config_says_only_what_differs_from_its_base(tiny_config: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "base/common.yaml", tiny_config | {"workflow": {"name": "comas", "rounds": 3}})
    own = {"base": "base/common.yaml", "workflow": {"evaluations": 2}, "training": {"batch_size": 2}}
    config = load_config(write(tmp_path / "own.yaml", own), ["workflow.rounds=4"])
    assert config.workflow.options == {"rounds": 4, "evaluations": 2}
    assert (config.training.batch_size, config.training.learning_rate) == (2, 0.001)
    assert config.policies["a"].training.batch_size == 2  # type: ignore[union-attr]


def test_another_plugin_takes_over_no_options() -> None:
    base = {"workflow": {"name": "comas", "rounds": 3}, "steps": 1}
    assert merged(base, {"workflow": {"name": "vanilla"}}) == {"workflow": {"name": "vanilla"}, "steps": 1}
    assert merged(base, {"workflow": {"name": "comas"}}) == base


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("own.yaml", "base 'own.yaml' leads back to a config that it is the base of"),
        ("../x/own.yaml", "leads back"),
        ("gone.yaml", "gone.yaml', the base of "),
        (3, "base must be the path of a config, not 3"),
    ],
)
def test_a_base_that_is_none_is_named(base: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load_config(write(tmp_path / "x/own.yaml", {"base": base}))
    assert words in str(error.value)


def test_a_star_means_every_entry() -> None:
    values: dict[str, Any] = {"policies": {"a": {"model": "x"}, "b": {}}, "agents": [{"name": "ada"}, {"name": "bob"}]}
    set_value(values, "policies.*.model=y")
    set_value(values, "agents.*.sampling.top_p=0.5")
    assert values["policies"] == {"a": {"model": "y"}, "b": {"model": "y"}}
    assert [agent["sampling"] for agent in values["agents"]] == [{"top_p": 0.5}] * 2
    with pytest.raises(UserError, match=r"override 'steps\.\*=1'"):
        set_value({"steps": 3}, "steps.*=1")
