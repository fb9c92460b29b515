"""How the team works on a task: a set-up is a workflow with its options as the papers have them."""

from collections.abc import Sequence

from marti_ext.errors import UserError
from marti_ext.registry import build_plugin
from marti_ext.workflows.base import Workflow

PAPER_SETUPS = ("vanilla", "consistency", "autogen", "debate")  # those of the CoMAS paper


def find_setups(names: Sequence[str]) -> list[tuple[str, Workflow]]:
    """(name, workflow) of built-in names and of a user's own, written path/to/file.py:Class or package.module:Class.

    Raises UserError for an unknown one, naming the nearest.
    """
    setups = [(_folder_name(name), build_plugin("workflow", Workflow, name, {})) for name in names]  # type: ignore[type-abstract]
    seen = [name for name, _ in setups]
    for name in seen:
        if seen.count(name) > 1:
            raise UserError(f"--setups names {name!r} twice")
    return setups


def _folder_name(name: str) -> str:
    return name.rpartition(":")[2]
