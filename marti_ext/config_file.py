"""Reading a config: YAML, then `key.path=value` overrides, then checks that name the key."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from marti_ext.config import Config
from marti_ext.errors import UserError
from marti_ext.registry import nearest


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The checked config. Raises UserError in one line naming the file or key, the value seen and the fix."""
    values = _read(path)
    for override in overrides:
        set_value(values, override)
    return check_config(values, str(path))


def _read(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The file's keys over those of the file that it names under `base`, relative to its own folder."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except OSError as error:
        named = f", the base of {extending[-1]}" if extending else ""
        raise UserError(f"cannot read the config {str(path)!r}{named}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of keys to values, found {type(values).__name__}")
    if "base" not in values:
        return values
    base = values.pop("base")
    if not isinstance(base, str):
        raise UserError(f"{path}: base must be the path of a config, not {base!r}")
    if (below := path.parent / base).resolve() in {file.resolve() for file in (*extending, path)}:
        raise UserError(f"{path}: base {base!r} leads back to a config that it is the base of")
    return merged(_read(below, (*extending, path)), values)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, the second over the first; a plug-in with another name takes over none of the options."""
    if "name" in over and over["name"] != base.get("name"):
        return dict(over)
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def check_config(values: dict[str, Any], source: str = "config") -> Config:
    """A config from plain values. Raises UserError for the first wrong key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{source}: {_explain(error.errors()[0])}") from error


def dump_config(config: Config) -> str:
    """The resolved config as YAML, defaults included."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def reference(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, default, meaning) of every key; names and places that a user chooses are written `*`."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        required = field.default is PydanticUndefined and field.default_factory is None
        yield key, "required" if required else _short(field.default), " ".join((field.description or "").split())
        for inner, step in _models_in(field.annotation):
            yield from reference(inner, f"{key}.{step}")


def _short(default: Any) -> str:
    if isinstance(default, BaseModel):
        return default.name if hasattr(default, "name") else ""
    return yaml.safe_dump(default, default_flow_style=True).removesuffix("...\n").strip()


def _models_in(annotation: Any, step: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    """The sections below a field, each with what stands between: nothing, or `*.` in a list or mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, step
        return
    inner_step = "*." if get_origin(annotation) in (list, dict) else step
    for inner in get_args(annotation):
        yield from _models_in(inner, inner_step)


def set_value(values: dict[str, Any], override: str) -> None:
    """Put `key.path=value` into the mapping, the value read as YAML; `*` stands for every entry that is there.

    Raises UserError where there is no such place.
    """
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"override {override!r}: write key.path=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"override {override!r}: the value is not YAML") from error
    *parents, last = key.split(".")
    nodes: list[Any] = [values]
    for depth, part in enumerate(parents):
        try:
            nodes = [_entry(node, place) for node in nodes for place in _places(node, part)]
        except LookupError as error:
            raise UserError(f"override {override!r}: there is nothing at {'.'.join(parents[: depth + 1])}") from error
    for node in nodes:
        try:
            for place in _places(node, last):
                node[place] = value
        except LookupError as error:
            raise UserError(f"override {override!r}: {'.'.join(parents)} has no {last!r}") from error


def _places(node: Any, part: str) -> list[Any]:
    """The keys or indices of a mapping or list that a part of a path means; a key may be new."""
    if isinstance(node, dict):
        return list(node) if part == "*" else [part]
    if isinstance(node, list):
        if part == "*":
            return list(range(len(node)))
        if part.isascii() and part.isdecimal() and int(part) < len(node):
            return [int(part)]
    raise LookupError(part)


def _entry(node: Any, place: Any) -> Any:
    """What stands at a place; a mapping is made where there is nothing yet."""
    if isinstance(node, dict) and node.get(place) is None:
        node[place] = {}
    return node[place]


class _StrictLoader(yaml.SafeLoader):
    """YAML lets a key that stands twice win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _explain(error: ErrorDetails) -> str:
    """One line for one wrong key."""
    loc = [str(part) for part in error["loc"]]
    if loc[:1] == ["policies"] and len(loc) > 2:
        del loc[2]  # the kind of policy, which stands in no key
    key = ".".join(loc)
    if error["type"] == "extra_forbidden":
        pattern = ["*" if p.isdigit() or (i == 1 and loc[0] == "policies") else p for i, p in enumerate(loc)]
        parent = ".".join([*pattern[:-1], ""])
        known = {k.removeprefix(parent).partition(".")[0] for k, _, _ in reference() if k.startswith(parent)}
        return f"unknown key {key}: {nearest(loc[-1], known)}"
    if error["type"] == "missing":
        return f"{key} is missing"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {message} (got {error['input']!r})"
