"""OpenRLHF's command-line parser and its validation, as functions.

Why: both sit under `if __name__ == "__main__"` of openrlhf.cli.train_ppo_ray, where no import reaches them.
Made for: openrlhf 0.11.2. It reads the installed file; nothing of it is copied.
Can go: once upstream offers a function that builds the parser and one that validates.
"""

import argparse
import ast
import contextlib
import datetime
import importlib.util
import io
import os
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

MODULE = "openrlhf.cli.train_ppo_ray"


def openrlhf_parser() -> argparse.ArgumentParser:
    """OpenRLHF's parser; raises ArgumentError in place of leaving the program."""
    parser, _, _ = _parser_and_scope()
    return parser


def validated(arguments: Sequence[str]) -> tuple[SimpleNamespace, list[str]]:
    """Arguments in OpenRLHF's nested form after its own validation, and the warnings that it printed.

    Raises argparse.ArgumentError or AssertionError with OpenRLHF's words.
    """
    parser, scope, validation = _parser_and_scope()
    scope["args"] = parser.parse_args(list(arguments))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(validation, scope)
    return scope["args"], [line for line in printed.getvalue().splitlines() if line.strip()]


def _nested(arguments: argparse.Namespace) -> Any:
    """OpenRLHF's `hierarchize`, from its file: the package around it imports torch and DeepSpeed, for many seconds."""
    cli = importlib.util.find_spec(MODULE)
    assert cli is not None
    assert cli.origin is not None
    spec = importlib.util.spec_from_file_location(
        "patches_openrlhf_config", Path(cli.origin).parents[1] / "utils/config.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.hierarchize(arguments)


def _parser_and_scope() -> tuple[argparse.ArgumentParser, dict[str, Any], CodeType]:
    construction, validation = _main_block()
    scope: dict[str, Any] = {"argparse": argparse, "os": os, "datetime": datetime.datetime, "hierarchize": _nested}
    exec(construction, scope)
    parser = scope["parser"]
    assert isinstance(parser, argparse.ArgumentParser)
    parser.exit_on_error = False
    return parser, scope, validation


def _main_block() -> tuple[CodeType, CodeType]:
    """The statements before `args = parser.parse_args()`, and those between it and `train(args)`."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {MODULE!r}", name="openrlhf")
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    main = tree.body[-1]
    shown = [ast.unparse(statement) for statement in main.body] if isinstance(main, ast.If) else []
    if shown.count("args = parser.parse_args()") != 1 or shown[-1:] != ["train(args)"]:
        raise RuntimeError(f"{spec.origin} is not shaped as in openrlhf 0.11.2: patches/parser.py must be revised")
    assert isinstance(main, ast.If)
    parse = shown.index("args = parser.parse_args()")
    before = main.body[:parse]
    after = [s for s in main.body[parse + 1 : -1] if ast.unparse(s) != "from openrlhf.utils.config import hierarchize"]
    return (
        compile(ast.Module(before, []), spec.origin, "exec"),
        compile(ast.Module(after, []), spec.origin, "exec"),
    )
