"""The shape of the code: imports go one way, and every config loads."""

import ast
import graphlib
from pathlib import Path

import pytest

from marti_ext.config_file import load_config

ROOT = Path(__file__).parents[1]
# Rooms from top to bottom: a module may import from its own row and from those above.
ROOMS = [
    ["__init__", "types", "errors", "seeds", "thinking"],
    ["registry"],
    ["backends"],
    ["agent"],
    ["verifiers"],
    ["workflows"],
    ["rollout"],
    ["rewards"],
    ["experience"],
    ["datasets"],
    ["records", "episode_metrics", "judge_quality", "transcript"],
    ["training"],  # all but its loop
    ["config", "config_file"],
    ["build", "stages", "run_folder", "tracking", "progress", "plots", "report", "comparison", "rollout_command"],
    ["cluster"],
    ["training.openrlhf"],
    ["cluster.launch"],
    ["training.held_out", "training.start", "training.loop"],
    ["cli"],
]
LEVEL = {room: level for level, row in enumerate(ROOMS) for room in row}


def room_of(module: str) -> str:
    name = module.removeprefix("marti_ext").removeprefix(".")
    return name if name in LEVEL else name.partition(".")[0] or "__init__"


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, those inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            # What is imported may itself be a module.
            found.update([node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.partition(".")[0] in ("marti_ext", "evaluation")}


def modules() -> list[Path]:
    return sorted((ROOT / "marti_ext").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    assert own in LEVEL, f"{own} has no room yet: give it one above"
    lower = {name for name in imports(path) if LEVEL.get(room_of(name), 0) > LEVEL[own]}
    assert not lower


def test_workflows_know_no_backend_rewards_no_workflow_and_makers_no_trainer() -> None:
    forbidden = {"workflows": "backends", "rewards": "workflows", "experience": "training"}
    for room, other in forbidden.items():
        for path in (ROOT / "marti_ext" / room).glob("*.py"):
            assert not [name for name in imports(path) if room_of(name) == other], path


def test_the_package_never_imports_the_evaluation() -> None:
    assert not [path for path in modules() if any(name.startswith("evaluation") for name in imports(path))]


def test_no_module_needs_itself() -> None:
    files = [*modules(), *(ROOT / "evaluation").rglob("*.py")]
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in files}
    graph = {name: {used for used in imports(path) if used in names and used != name} for name, path in names.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*/*.yaml")), ids=lambda path: path.name)
def test_every_config_loads(path: Path) -> None:
    load_config(path)


def test_files_and_functions_stay_short() -> None:
    for path in [*modules(), *(ROOT / "evaluation").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        text = path.read_text()
        assert text.count("\n") <= 300, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, (path, node.name)
