"""Plug-ins by name: a built-in one, "package.module:Class", or "path/to/file.py:Class"."""

import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from marti_ext.errors import UserError

BUILT_IN: dict[str, dict[str, str]] = {
    "workflow": {
        "vanilla": "marti_ext.workflows.vanilla:Vanilla",
        "consistency": "marti_ext.workflows.consistency:Consistency",
        "vote": "marti_ext.workflows.vote:Vote",
        "debate": "marti_ext.workflows.debate:Debate",
        "autogen": "marti_ext.workflows.autogen:AutoGen",
        "comas": "marti_ext.workflows.comas:CoMAS",
        "self_judge": "marti_ext.workflows.self_judge:SelfJudge",
    },
    "reward": {
        "zero_sum": "marti_ext.rewards.comas:ZeroSumReward",
        "consensus": "marti_ext.rewards.consensus:ConsensusReward",
        "self_judge": "marti_ext.rewards.self_judge:SelfJudgeReward",
        "verifier": "marti_ext.rewards.verifier:VerifierReward",
        "maporl": "marti_ext.rewards.maporl:MAPoRLReward",
        "ttrl": "marti_ext.rewards.ttrl:TTRLReward",
    },
    "experience": {
        "reinforce_pp": "marti_ext.experience.reinforce_pp:ReinforcePP",
        "preference_pairs": "marti_ext.experience.preference_pairs:PreferencePairs",
    },
}

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"


def build_plugin(slot: str, base: type[T], name: str, options: Mapping[str, Any]) -> T:
    """The plug-in `name` of a slot (workflow, reward, experience), its fields set from `options`.

    Raises UserError for an unknown name, a class of another kind, an unknown option or a value of the wrong type.
    """
    plugin = find_class(slot, name)
    if not (isinstance(plugin, type) and issubclass(plugin, base)):
        raise UserError(f"{slot}.name {name!r} is no {base.__name__}; subclass {base.__module__}.{base.__name__}")
    fields = {f.name for f in dataclasses.fields(plugin)} if dataclasses.is_dataclass(plugin) else set()
    for option in options:
        if option not in fields:
            raise UserError(f"unknown key {slot}.{option}: {nearest(option, fields)}")
    for option, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{slot}.{option} is {value}: give a finite number")
    try:
        built: T = TypeAdapter(plugin).validate_python(dict(options)) if fields else plugin()
        return built
    except TypeError as error:
        raise UserError(f"{slot}.name {name!r} cannot be built: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([slot, *map(str, first["loc"])])
        raise UserError(f"{key}: {first['msg']} (got {first['input']!r})") from error


def find_class(slot: str, name: str) -> Any:
    """What `name` stands for. Raises UserError if there is nothing of the name."""
    place, colon, attribute = BUILT_IN[slot].get(name, name).rpartition(":")
    if not colon:
        raise UserError(
            f"unknown {slot} {name!r}: {nearest(name, BUILT_IN[slot])} Your own is written package.module:Class or "
            "path/to/file.py:Class"
        )
    module = _load_file(slot, Path(place)) if place.endswith(".py") else _import(slot, place)
    if not hasattr(module, attribute):
        raise UserError(f"{slot} {name!r}: {place} has no {attribute}; {nearest(attribute, _classes(module))}")
    return vars(module)[attribute]


def plugin_reference() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """(slot, name, meaning, options with their defaults) of every built-in plug-in."""
    for slot, names in BUILT_IN.items():
        for name in names:
            plugin = find_class(slot, name)
            options = {field.name: field.default for field in dataclasses.fields(plugin)}
            yield slot, name, inspect.cleandoc(plugin.__doc__ or ""), options


def _import(slot: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        raise UserError(f"{slot} module {module!r} cannot be imported: {_in_one_line(error)}") from error


def _load_file(slot: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{slot} file {str(path)!r} does not exist (looked in {Path.cwd()})")
    # Under a name of its own, so that dataclasses and pickles find the module again.
    name = f"marti_ext_plugin_{path.resolve().as_posix().replace('/', '_').removesuffix('.py')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        del sys.modules[name]
        raise UserError(f"{slot} file {str(path)!r} cannot be loaded: {_in_one_line(error)}") from error
    return module


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _classes(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]
