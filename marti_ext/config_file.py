"""Reading a config: YAML, then `key.path=value` overrides, then checks that name the key."""

from collections.abc import Iterator, Sequence
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
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except OSError as error:
        raise UserError(f"cannot read the config {str(path)!r}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of keys to values, found {type(values).__name__}")
    for override in overrides:
        set_value(values, override)
    return check_config(values, str(path))


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
    """Put `key.path=value` into the mapping, the value read as YAML. Raises UserError where there is no such place."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"override {override!r}: write key.path=value")
    *parents, last = key.split(".")
    node: Any = values
    for depth, part in enumerate(parents):
        if isinstance(node, dict):
            if node.get(part) is None:
                node[part] = {}
            node = node[part]
        elif isinstance(node, list) and _is_place(part) and int(part) < len(node):
            node = node[int(part)]
        else:
            raise UserError(f"override {override!r}: there is nothing at {'.'.join(parents[: depth + 1])}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"override {override!r}: the value is not YAML") from error
    if isinstance(node, dict):
        node[last] = value
    elif isinstance(node, list) and _is_place(last) and int(last) < len(node):
        node[int(last)] = value
    else:
        raise UserError(f"override {override!r}: {'.'.join(parents)} has no {last!r}")


def _is_place(text: str) -> bool:
    return text.isascii() and text.isdecimal()


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
