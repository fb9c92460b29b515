"""Programs made wrong by one small change, and which of them plain execution finds wrong.

Nothing here uses the project's sandbox: `first_failing` is what its verdicts are compared with. The programs are a
benchmark's own solutions with one change each, so a process with limits is protection enough.
"""

import ast
import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(source: str, seed: str, after_line: int = 0) -> list[str]:
    """Every program that differs from `source` by one change after a line, in an order drawn with `seed`."""
    found = list(dict.fromkeys(_changed(source, after_line)))
    random.Random(seed).shuffle(found)
    return found


def _changed(source: str, after_line: int) -> Iterator[str]:
    original = ast.parse(source)
    for place, node in enumerate(ast.walk(original)):
        for number in range(_ways(node) if getattr(node, "end_lineno", 0) > after_line else 0):
            tree = copy.deepcopy(original)
            _change(list(ast.walk(tree))[place], number)
            yield ast.unparse(ast.fix_missing_locations(tree))


def _ways(node: ast.AST) -> int:
    """In how many ways `_change` changes the node."""
    if isinstance(node, ast.FunctionDef):
        return len(node.body)
    if isinstance(node, ast.Constant):
        return int(isinstance(node.value, int | float))
    if isinstance(node, ast.Compare):
        return len(node.ops)
    return int(
        (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS) or isinstance(node, ast.If | ast.Return)
    )


def _change(node: ast.AST, number: int) -> None:
    if isinstance(node, ast.FunctionDef):  # drop a statement
        node.body[number] = ast.Pass()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Compare):
        node.ops[number] = _SWAPS.get(type(node.ops[number]), ast.NotEq)()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


_RUNNER = """
import json, os, resource, sys
quiet = os.open(os.devnull, os.O_RDWR)
def outcome(source):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (2, 3))
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        status = 1
        try:
            exec(compile(source, "mutant", "exec", dont_inherit=True), {"__name__": "mutant"})
            status = 0
        except BaseException:
            pass
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
for line in sys.stdin:
    sources = json.loads(line)
    # 1 is an exception; a program that a limit ends is passed over: it would only cost time.
    print(next((n for n, source in enumerate(sources) if outcome(source) == 1), -1), flush=True)
"""


def first_failing(candidates: Mapping[str, Sequence[str]], timeout: float) -> dict[str, int]:
    """For each list of whole programs (with their tests) the first that raises; those without one are left out.

    `timeout` is in seconds, for all of them. Raises subprocess.TimeoutExpired.
    """
    lines = "".join(json.dumps(list(sources)) + "\n" for sources in candidates.values())
    command = [sys.executable, "-I", "-c", _RUNNER]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=timeout, check=True, cwd="/")
    places = map(int, done.stdout.split())
    return {key: place for key, place in zip(candidates, places, strict=True) if place >= 0}
