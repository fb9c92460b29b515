"""The sandbox: right programs pass, wrong ones do not, from wherever it is called."""

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from marti_ext.verifiers.sandbox import ALL_LAYERS, SANDBOX, Limits, Sandbox, Verdict

DATA = Path(__file__).parents[2] / "shared" / "data"
SQUARE = "def f(x):\n    return x * x\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(2)
    yield sandbox
    sandbox.close()


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return [json.loads(line) for line in path.read_text().splitlines()]


def failures(sandbox: Sandbox, jobs: list[tuple[str, str, str, list[str]]]) -> list[tuple[str, str]]:
    def run(job: tuple[str, str, str, list[str]]) -> Verdict:
        program, tests, prelude, entry_points = job
        return sandbox.run_tests(program, tests, prelude=prelude, entry_points=entry_points)

    with ThreadPoolExecutor(2) as threads:
        verdicts = list(threads.map(run, jobs))
    return [(job[1][:80], verdict.reason) for job, verdict in zip(jobs, verdicts, strict=True) if not verdict.passed]


def test_every_canonical_solution_of_humaneval_passes(sandbox: Sandbox) -> None:
    jobs = [
        (
            row["prompt"] + row["canonical_solution"],
            f"{row['test']}\ncheck({row['entry_point']})\n",
            row["prompt"],
            [row["entry_point"]],
        )
        for row in rows("humaneval.jsonl")
    ]
    assert len(jobs) == 164
    assert failures(sandbox, jobs) == []


def test_no_humaneval_problem_is_passed_by_a_body_that_returns_false(sandbox: Sandbox) -> None:
    jobs = [
        (
            f"{row['prompt']}\n    return None\n",
            f"{row['test']}\ncheck({row['entry_point']})\n",
            row["prompt"],
            [row["entry_point"]],
        )
        for row in rows("humaneval.jsonl")[:60]
    ]
    assert len(failures(sandbox, jobs)) == 60


def test_every_canonical_solution_of_mbpp_passes(sandbox: Sandbox) -> None:
    jobs = []
    for row in rows("mbpp.jsonl"):
        tests = "\n".join([row["test_setup_code"], *row["test_list"], *row["challenge_test_list"]])
        # One function is called like a built-in: that one has to be named.
        jobs.append((row["code"], tests, "", ["sum"] if "def sum(" in row["code"] else []))
    assert len(jobs) == 974
    assert failures(sandbox, jobs) == []


VALUES = [
    "None", "True", "0", "-7", "2**62", "2**200", "-(10**1000)", "0.1", "-0.0", "float('inf')", "1e308 + 1j", "'text'",
    "'\\ud800 lone'", "'\\U0001f600\\x00'", "b'\\x00\\xff'", "bytearray(b'ab')", "[]", "[[1, [2.5, 'x']], (1,)]",
    "()", "(1, (2,))",
    "set()", "{1, 'a', (2, 3)}", "frozenset({1})", "{}", "{1: [2], (3, 4): {'5': None}}", "range(2, 20, 3)",
    "collections.Counter('abca')", "collections.OrderedDict([(2, 1), (1, 2)])", "collections.deque([1, 2])",
    "decimal.Decimal('1.10')", "fractions.Fraction(1, 3)", "datetime.datetime(2024, 2, 29, 12, 30, 1, 5)",
    "datetime.date(2024, 2, 29)", "datetime.time(23, 59)", "datetime.timedelta(days=-1, seconds=5, microseconds=7)",
    "int",
    "dict.fromkeys('ab').keys()", "{1: 2}.items()", "[True, 1, 1.0]",
]  # fmt: skip
IMPORTS = "import collections, datetime, decimal, enum, fractions, heapq, re\n"


def test_values_cross_both_ways_as_what_they_are(sandbox: Sandbox) -> None:
    tests = IMPORTS + f"for value in [{', '.join(VALUES)}]:\n    back = f(value)\n"
    tests += "    assert type(back) is type(value) and back == value and repr(back) == repr(value), (value, back)\n"
    tests += "nan = f(float('nan'))\nassert nan != nan\n"
    assert sandbox.run_tests("def f(x): return x", tests) == Verdict(True)


CONVERTED = {
    "True": ("True", "bool"),
    "type('I', (int,), {})(5)": ("5", "int"),
    "enum.IntEnum('E', 'A B').B": ("2", "int"),
    "type('S', (str,), {})('x')": ("'x'", "str"),
    "collections.namedtuple('P', 'x y')(1, 2)": ("(1, 2)", "tuple"),
    "collections.defaultdict(list, {1: [2]})": ("{1: [2]}", "dict"),
    "type('L', (list,), {'__iter__': lambda s: iter([9])})([1])": ("[1]", "list"),
}


@pytest.mark.parametrize("made", CONVERTED)
def test_instances_of_own_classes_cross_as_the_built_in_class_below(sandbox: Sandbox, made: str) -> None:
    value, kind = CONVERTED[made]
    tests = f"back = f()\nassert back == {value} and type(back).__name__ == {kind!r}, back"
    assert sandbox.run_tests(f"{IMPORTS}VALUE = {made}\ndef f(): return VALUE", tests) == Verdict(True)


def test_what_is_no_data_stays_with_the_program_and_can_be_used(sandbox: Sandbox) -> None:
    program = """
class Stack:
    kind = "stack"
    def __init__(self, *items): self.items = list(items)
    def push(self, item): self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, place): return self.items[place]
    def __eq__(self, other): return True
    def __repr__(self): return f"Stack{self.items}"
def size(stack): return len(stack.items)
def count():
    n = 0
    while True:
        yield n
        n += 1
        assert n < 5, "too far"
def once(): yield from "ab"
EMPTY = Stack()
"""
    tests = """
import itertools
stack = Stack(1)
stack.push(2).push(Stack)
assert size(stack) == len(stack) == 3 and stack.kind == "stack" and str(stack).startswith("Stack[1, 2")
assert list(stack)[:2] == [1, 2] and stack[1] == 2 and stack and not EMPTY
stack.items = [7]
assert list(stack) == [7]
assert stack == stack and EMPTY == EMPTY and stack != EMPTY and stack != [7] and not stack == 7
assert list(itertools.islice(count(), 4)) == [0, 1, 2, 3]
letters = once()
assert next(letters) == "a" and list(letters) == ["b"]
assert sorted(map(str, once())) == ["a", "b"]
"""
    assert sandbox.run_tests(program, tests) == Verdict(True)


def test_errors_of_the_program_are_raised_in_the_tests(sandbox: Sandbox) -> None:
    program = """
class Own(KeyError): pass
class Strange(Exception):
    def __str__(self): raise SystemExit
def f(kind):
    if kind == "own": raise Own("k")
    if kind == "strange": raise Strange()
    if kind == "unicode": b"\\xff".decode()
    raise kind("words", 3)
"""
    tests = """
for kind in ValueError, ZeroDivisionError, TypeError, StopIteration, KeyError, AssertionError:
    try:
        f(kind)
    except kind as error:
        assert error.args == ('words', 3), error.args
    else:
        assert False
for name, kind in {"own": KeyError, "strange": Exception, "unicode": UnicodeDecodeError}.items():
    try:
        f(name)
    except kind:
        pass
"""
    assert sandbox.run_tests(program, tests) == Verdict(True)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(x): return x", "AssertionError: f(2) is 2"),
        ("def f(x):\n  retur x", "SyntaxError: "),
        ("def g(x): return x", "NameError: name 'f' is not defined"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nothing_of_the_kind", "ModuleNotFoundError: "),
        ("def f(x): raise ValueError('no\\n\\x1b[31mred')", "ValueError: no ?[31mred"),
        ("import os; os._exit(0)", "exited before its tests were done"),
        ("import os; os._exit(3)", "exit status 3"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import os, signal; signal.raise_signal(signal.SIGSEGV)", ""),
        ("def f(x): raise MemoryError", "over the memory limit"),
        ("\0", ""),
        ("f = '\\ud800'", ""),
        ("", "NameError: "),
    ],
)
def test_the_reason_says_in_one_line_why(sandbox: Sandbox, program: str, reason: str) -> None:
    verdict = sandbox.run_tests(program, "assert f(2) == 4, f'f(2) is {f(2)}'")
    assert (verdict.passed, verdict.graded) == (False, True)
    assert verdict.reason.startswith(reason)
    assert verdict.reason
    assert verdict.reason.isprintable()


def test_what_is_not_the_programs_fault_is_not_graded(sandbox: Sandbox) -> None:
    unused = sandbox.run_tests(SQUARE, "def check(candidate):\n    assert candidate(2) == 5\n")
    assert unused == Verdict(False, "the tests use nothing of the program", graded=False)
    handed = sandbox.run_tests(SQUARE, "f(lambda: 0)")
    assert (handed.passed, handed.graded) == (False, False)
    broken = sandbox.run_tests(SQUARE, "assert f(2) ==")
    assert (broken.graded, broken.reason[:40]) == (False, "the benchmark's own code: SyntaxError: i")
    assert not sandbox.run_tests(SQUARE, "assert f(2) == 4", prelude="1 / 0").graded
    assert not sandbox.run_tests(SQUARE, "import nothing_of_the_kind\nassert f(2) == 4").graded
    assert sandbox.run_tests("def f(x): import nothing_of_the_kind", "assert f(2) == 4").graded
    with pytest.raises(ValueError, match="no tests"):
        sandbox.run_tests(SQUARE, " \n")
    with pytest.raises(ValueError, match="no cases"):
        sandbox.run_cases("print(1)", [])
    with pytest.raises(ValueError, match="layers must be of"):
        Sandbox(layers={"magic"})


def test_names_belong_to_the_prelude_unless_they_are_entry_points(sandbox: Sandbox) -> None:
    prelude = "def double(x): return 2 * x\ndef f(x):\n    '''The square.'''\n"
    program = "def double(x): return 'of the program'\n" + SQUARE
    tests = "assert double(3) == 6 and f(3) == 9"
    assert sandbox.run_tests(program, tests, prelude=prelude, entry_points=["f"]) == Verdict(True)
    assert not sandbox.run_tests(program, tests, prelude=prelude).passed  # f is the prelude's, the square of nothing
    shadow = "def sum(x): return 'mine'\nassert f([1, 2]) == 3"
    assert sandbox.run_tests("def f(x): return sum(x)\ndef sum(x): return 3", "assert f([1]) == sum([1, 2])").passed
    assert sandbox.run_tests("def sum(x): return 3", "assert sum(7) == 3", entry_points=["sum"]).passed
    assert sandbox.run_tests("def f(x): return sum(x)", shadow).passed
    local = "def one():\n    g = 1\n    return g\ndef two():\n    return g(2)\nassert one() == 1 and two() == 4"
    assert sandbox.run_tests("def g(x): return x * x", local) == Verdict(True)


def test_programs_have_what_python_has(sandbox: Sandbox) -> None:
    program = """
from __future__ import annotations
import asyncio, dataclasses, functools, inspect, io, pickle, queue, sys, tempfile, threading, typing
from concurrent.futures import ThreadPoolExecutor
@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: "list[int]" = dataclasses.field(default_factory=list)
async def later(): return 4
@functools.cache
def deep(n): return n and 1 + deep(n - 1)
def f():
    copy = pickle.loads(pickle.dumps(Point(1, [2])))
    assert copy == Point(1, [2]) and typing.get_type_hints(Point)["y"] == list[int]
    assert "return 4" in inspect.getsource(later)
    assert asyncio.run(later()) == 4
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(abs, [-1, 2])) == [1, 2]
    with tempfile.TemporaryFile("w+") as file:
        print("x", file=file)
    open("a.txt", "w").write("b")
    assert open("a.txt").read() == "b"
    sys.setrecursionlimit(10**6)
    assert deep(5000) == 5000
    try:
        input()
    except EOFError:
        return __name__
if __name__ == "__main__":
    raise SystemExit("a module is no script")
"""
    assert sandbox.run_tests(program, "assert f() == 'solution'") == Verdict(True)


def test_tests_have_what_python_has_and_leave_nothing(sandbox: Sandbox) -> None:
    before = set(os.listdir())
    tests = "import tempfile, threading, unittest\nt = threading.Thread(target=lambda: f(2))\nt.start()\nt.join()\n"
    tests += "open('left.txt', 'w').write(tempfile.mkdtemp())\nassert f(2) == 4\n"
    assert sandbox.run_tests(SQUARE, tests) == Verdict(True)
    assert set(os.listdir()) == before


CASES = {
    "the same": ("print(input())", [("a b\n", "a b\n")], True),
    "blanks at the ends of lines": ("print('1 2  \\n3 \\n\\n')", [("", "1 2\n3")], True),
    "no last newline": ("import sys; sys.stdout.write('1\\n2')", [("", "1\n2\n")], True),
    "one a line instead of one line": ("print('1\\n2\\n3')", [("", "1 2 3")], False),
    "blanks within": ("print('1  2')", [("", "1 2")], False),
    "an empty line more": ("print('1\\n\\n2')", [("", "1\n2")], False),
    "another number": ("print(3.1416)", [("", "3.1415926")], False),
    "the second is wrong": ("print(int(input()) ** 2)", [("2", "4"), ("-3", "-9"), ("x", "")], False),
    "raises after the right output": ("print(4)\n1 / 0", [("", "4")], False),
    "raises where nothing is expected": ("1 / 0", [("", "")], False),
    "exits with an error": ("import sys\nprint(4)\nsys.exit(1)", [("", "4")], False),
    "exits with words": ("import sys\nprint(4)\nsys.exit('no')", [("", "4")], False),
    "exits well": ("import sys\nprint(4)\nsys.exit()", [("", "4")], True),
    "main": ("def main(): print(4)\nif __name__ == '__main__': main()", [("", "4")], True),
    "all ways to read": (
        "import sys, os\na = input()\nb = sys.stdin.readline()\nprint(a, b, sys.stdin.read(), end='')",
        [("1\n2\n3\n4", "1 2\n 3\n4")],
        True,
    ),
    "bytes": ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", [("ab", "ba")], True),
    "by descriptor": ("import os\nos.write(1, os.read(0, 100)); print(open(0).read())", [("ab", "ab\n")], True),
    "reads nothing of much": ("print(1)", [("x" * 10**6, "1")], True),
    "much in, much out": (
        "import sys\nfor line in sys.stdin: print(line * 2, end='')", [("a\n" * 10**5, "a\na\n" * 10**5)], True,
    ),
    "at exit": ("import atexit\natexit.register(print, 4)", [("", "4")], True),
    "a thread": ("import threading\nthreading.Timer(0.05, print, [4]).start()", [("", "4")], True),
    "no error output": ("import sys\nprint('5', file=sys.stderr)\nprint(4)", [("", "4")], True),
    "no syntax": ("print(", [("", "")], False),
    "not ascii": ("print(input()[::-1])", [("äß😀", "😀ßä")], True),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_scripts_are_judged_by_output_and_exit_status(sandbox: Sandbox, name: str) -> None:
    program, cases, passes = CASES[name]
    verdict = sandbox.run_cases(program, cases)
    assert (verdict.passed, verdict.graded) == (passes, True), verdict.reason


def test_numbers_may_differ_by_a_tolerance_that_is_stated(sandbox: Sandbox) -> None:
    def passes(printed: str, expected: str, tolerance: float) -> bool:
        return sandbox.run_cases(f"print({printed!r})", [("", expected)], tolerance=tolerance).passed

    assert passes("3.1416", "3.1415926", 1e-3)
    assert passes("1000001", "1000000", 1e-3)  # relative
    assert not passes("3.15", "3.1415926", 1e-3)
    assert not passes("nan", "3.14", 1e-3)
    assert not passes("inf", "3.14", 1e-3)
    assert not passes("3.14", "inf", 1e-3)
    assert passes("inf yes", "inf yes", 1e-3)
    assert not passes("3.1416 no", "3.1416 yes", 1e-3)
    assert not passes("3.1416\n2", "3.1416 2", 1e-3)


def test_a_wrong_case_is_named(sandbox: Sandbox) -> None:
    wrong = sandbox.run_cases("print(4)", [("", "4"), ("", "5")])
    assert wrong == Verdict(False, "wrong output in case 2")
    slow = sandbox.run_cases("while True: pass", [("", "4")], limits=Limits(1))
    assert slow == Verdict(False, "over the CPU limit of 1 s in case 1")


def mixed_jobs(count: int) -> list[tuple[str, str]]:
    """Programs with their tests: right, wrong, raising, sleeping, slow in turn."""
    right = ("def f(x): return x * x", "assert f(3) == 9")
    wrong = ("def f(x): return x", "assert f(3) == 9")
    raising = ("def f(x): return x / 0", "assert f(3) == 9")
    sleeping = ("import time\ndef f(x): time.sleep(0.05); return 9", "assert f(3) == 9")
    slow = ("def f(x): return sum(range(10**6)) * 0 + 9", "assert f(3) == 9")
    return [(right, wrong, raising, sleeping, slow)[number % 5] for number in range(count)]


def test_verdicts_are_the_same_under_load(sandbox: Sandbox) -> None:
    def run(job: tuple[str, str]) -> Verdict:
        return sandbox.run_tests(*job)

    jobs = mixed_jobs(40)
    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, jobs)) == alone
    assert [verdict.passed for verdict in alone[:5]] == [True, False, False, True, True]


def _verdicts() -> list[Verdict]:
    return [SANDBOX.run_tests(*job) for job in mixed_jobs(5)]


def _tell(queue: "multiprocessing.Queue[list[Verdict]]") -> None:
    queue.put(_verdicts())
    queue.close()
    queue.join_thread()


def test_it_works_from_anywhere() -> None:
    here = _verdicts()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(_verdicts).result() == here
    assert asyncio.run(asyncio.to_thread(_verdicts)) == here
    fork = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[list[Verdict]] = fork.Queue()
    child = fork.Process(target=_tell, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == here
    child.join()
    assert _verdicts() == here  # the child ended servers of its own only


SLEEPER = "import time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"
USER = f"""
import sys
from marti_ext.verifiers.sandbox import ALL_LAYERS, Sandbox
sandbox = Sandbox(1, ALL_LAYERS - set(sys.argv[1:]))
sandbox.in_force()
print(sandbox.pids()[0], flush=True)
sandbox.run_tests({SLEEPER!r}, "f()")
"""


@pytest.mark.parametrize("without", [[], ["namespaces"]], ids=["all", "no_namespaces"])
def test_nothing_survives_a_user_that_is_killed(without: list[str]) -> None:
    user = subprocess.Popen([sys.executable, "-c", USER, *without], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    with user.stdout:
        server = int(user.stdout.readline())
        family: set[int] = set()
        wait_until(lambda: len(family.update(_descendants(server)) or family) >= 3)  # server, judge and program
        user.kill()
        user.wait()
    wait_until(lambda: not any(_alive(pid) for pid in family))
    assert not list(Path(tempfile.gettempdir()).glob(f"marti-sandbox-*-{server}-*"))


def _descendants(pid: int) -> set[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return set()
    return {pid}.union(*(_descendants(int(child)) for child in children))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_that_dies_is_replaced_and_what_it_did_not_grade_is_no_mistake() -> None:
    sandbox = Sandbox(1, ALL_LAYERS - {"namespaces"})
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sandbox.run_tests, "import time; time.sleep(60)", "f()")
        wait_until(lambda: sandbox.pids() and len(_descendants(sandbox.pids()[0])) >= 3)
        [first] = sandbox.pids()
        family = _descendants(first)
        os.kill(first, signal.SIGKILL)
        verdict = waiting.result()
    assert (verdict.passed, verdict.graded) == (False, False)
    wait_until(lambda: not any(_alive(pid) for pid in family))
    assert not list(Path(tempfile.gettempdir()).glob(f"marti-sandbox-*-{first}-*"))
    assert sandbox.run_tests(SQUARE, "assert f(2) == 4").passed
    assert sandbox.pids() != [first]
    sandbox.close()
    assert not sandbox.run_tests(SQUARE, "assert f(2) == 4").graded


def test_a_layer_that_is_missing_is_reported() -> None:
    for layer in sorted(ALL_LAYERS):
        sandbox = Sandbox(1, ALL_LAYERS - {layer})
        assert layer in sandbox.missing()
        assert sandbox.in_force()[layer] == "missing: switched off"
        assert sandbox.run_tests(SQUARE, "assert f(2) == 4").passed
        sandbox.close()
    assert set(SANDBOX.in_force()) == ALL_LAYERS


DROP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for capability in range(64):
    if capability not in map(int, sys.argv[1].split(",")):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: of what the next program may have
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2]])
"""
REPORT = """
from marti_ext.verifiers.sandbox import Limits, Sandbox
sandbox = Sandbox(1)
print(sandbox.in_force()["namespaces"])
print(sandbox.run_tests("def f(x): return x * x", "assert f(2) == 4"))
print(sandbox.run_tests("import os\\ndef f(x): os.listdir('/etc/..')\\nos.kill(-1, 9)", "assert f(2) == 4"))
print(sandbox.run_tests("def f(x): return [open(p, 'w') for p in ['/a', '/usr/a']]", "assert f(2) == 4"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no capabilities to drop")
@pytest.mark.parametrize(("kept", "namespaces"), [("31", "user, mount, pid"), ("99", "missing: ")])
def test_without_privileges_there_is_a_user_namespace_or_a_report(kept: str, namespaces: str) -> None:
    """Capability 31 lets root, and root only, map itself into a user namespace; an ordinary user needs none."""
    run = subprocess.run([sys.executable, "-c", DROP, kept, REPORT], capture_output=True, text=True, check=True)
    state, right, kills, writes = run.stdout.splitlines()
    if kept == "31" and state.startswith("missing"):
        pytest.skip(f"no user namespaces here: {state}")
    assert state.startswith(namespaces)
    assert "passed=True" in right
    assert "PermissionError" in kills
    assert "Error" in writes
    assert "passed=False" in writes


def test_the_server_imports_only_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import marti_ext.verifiers.sandbox.server as s\n"
    code += "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['marti_ext']"
    assert ctypes.sizeof(ctypes.c_long) == 8
