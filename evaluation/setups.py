"""How the team works on a task: a set-up is a workflow and its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marti_ext.errors import UserError
from marti_ext.registry import build_plugin
from marti_ext.workflows.base import Workflow

# Those of the CoMAS paper, with the options that they have there.
PAPER_SETUPS: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {},
    "consistency": {},
    "autogen": {"forbid_code": True},
    "debate": {},
}


@dataclass(frozen=True)
class Setup:
    """`name` is that of its results' folder, `description` tells it from every other one."""

    name: str
    workflow: Workflow
    description: str


def find_setups(names: str) -> list[Setup]:
    """Of names divided by commas: built-in ones, or a user's own, written path/to/file.py:Class or module:Class.

    "paper" stands for those of the CoMAS paper. Raises UserError for an unknown one, naming the nearest.
    """
    wanted = PAPER_SETUPS if names == "paper" else {name.strip(): {} for name in names.split(",")}
    setups = [_setup(name, options) for name, options in wanted.items()]
    _refuse_doubles(names, [setup.name for setup in setups])
    return setups


def _setup(reference: str, options: Mapping[str, Any]) -> Setup:
    workflow = build_plugin("workflow", Workflow, reference, options)  # type: ignore[type-abstract]
    own = ":" in reference
    name = reference.rpartition(":")[2]
    return Setup(name, workflow, f"{reference}: {workflow}" if own else str(workflow))


def _refuse_doubles(given: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UserError(f"--setups {given!r} names one twice; results are kept by the class's name")
