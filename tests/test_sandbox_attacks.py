"""Programs that want to pass, to get out or to stay; with every layer, and with one layer left out.

Where `namespaces` is left out `seccomp` is in force and the other way round: never run these without both.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marti_ext.verifiers.sandbox import ALL_LAYERS, Limits, Sandbox, Verdict

LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_bytes=256 << 20, folder_bytes=8 << 20)
TESTS = "def check(f):\n    assert f(2) == 4\n    assert f(3) == 9\n\ncheck(f)\n"
RIGHT = "def f(x):\n    return x * x\n"
REPO = Path(__file__).parents[1]


def _without(layer: str) -> Sandbox:
    sandbox = Sandbox(1, ALL_LAYERS - {layer})
    if set(sandbox.missing()) - {layer}:
        sandbox.close()
        pytest.skip(f"not every other layer is to be had here: {sandbox.in_force()}")
    return sandbox


@pytest.fixture(scope="module", params=["", "namespaces", "seccomp"], ids=["all", "no_namespaces", "no_seccomp"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One worker, which has to survive all attacks."""
    sandbox = _without(request.param)
    [pid] = sandbox.pids()
    yield sandbox
    assert sandbox.pids() == [pid], "the server was lost"
    sandbox.close()


@pytest.fixture(scope="module")
def full() -> Iterator[Sandbox]:
    """With every layer, for what is up to the limits and to the judge."""
    sandbox = Sandbox(1)
    yield sandbox
    sandbox.close()


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every attack: no process, no folder, and the next program is graded right."""
    yield
    sandbox: Sandbox = request.getfixturevalue("sandbox" if "sandbox" in request.fixturenames else "full")
    for pid in sandbox.pids():
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
        assert not list(Path(tempfile.gettempdir()).glob(f"marti-sandbox-*-{pid}-*"))
    assert sandbox.run_tests(RIGHT, TESTS) == Verdict(True)
    assert not sandbox.run_tests("def f(x):\n    return False\n", TESTS).passed


def graded(sandbox: Sandbox, program: str, tests: str = TESTS, limits: Limits = LIMITS) -> Verdict:
    verdict = sandbox.run_tests(program, tests, limits=limits)
    assert verdict.graded, verdict.reason
    return verdict


def could(sandbox: Sandbox, program: str) -> str:
    """What `f` of a program, a list of what it could do, comes to: "" for nothing."""
    verdict = graded(sandbox, program, "assert not f(), f()")
    return "" if verdict.passed else verdict.reason


FORGERIES = {
    "exit": "import sys; sys.exit(0)",
    "exit_at_once": "import os; os._exit(0)",
    "exit_in_a_call": "import sys\ndef f(x): sys.exit(0)",
    "exit_at_once_in_a_call": "import os\ndef f(x): os._exit(0)",
    "interrupt": "def f(x): raise KeyboardInterrupt",
    "returns_false": "def f(x): return False",
    "always_equal": "class Any:\n    def __eq__(self, o): return True\ndef f(x): return Any()",
    "int_subclass": "class Any(int):\n    def __eq__(self, o): return True\ndef f(x): return Any(7)",
    "lies_about_its_class": "class Any:\n    __class__ = int\n    __eq__ = lambda *a: True\ndef f(x): return Any()",
    "reflected": "class Any(int):\n    def __req__(self, o): return True\n    def __ne__(self, o): return False\n"
    "    def __eq__(self, o): return True\ndef f(x): return Any()",
    "patched_builtins": "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.__build_class__ = None\n"
    "builtins.all = builtins.any = builtins.abs = builtins.isinstance = lambda *a: True\ndef f(x): return 0",
    "patched_operator": "import operator, unittest\noperator.eq = lambda a, b: True\n"
    "unittest.TestCase.assertEqual = lambda *a: None\ndef f(x): return 0",
    "own_check": "def check(f): pass\ndef f(x): return 0",
    "patches_the_caller": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        frame.f_globals['check'] = frame.f_builtins['abs'] = lambda *a: True\n        frame = frame.f_back",
    "patches_the_sandbox": "import sys\nfor name, module in list(sys.modules.items()):\n    if 'sandbox' in name:\n"
    "        for key, value in list(vars(module).items()):\n            if callable(value):\n"
    "                setattr(module, key, lambda *a, **k: True)\ndef f(x): return 0",
    "patched_codec": "import marti_ext.verifiers.sandbox.program as p\n"
    "p.encode = lambda *a: {'kept': 0}\np.encode_error = lambda e: None\ndef f(x): return 0",
    "raises_what_the_tests_raise": "def f(x): raise AssertionError",
    "exec_trace": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(x): return 0",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_program_cannot_talk_its_way_to_a_pass(sandbox: Sandbox, name: str) -> None:
    assert not graded(sandbox, FORGERIES[name]).passed


SWALLOWING = "for x in 1, 2:\n    try:\n        f(x)\n    except Exception:\n        pass\n"


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise MemoryError"])
@pytest.mark.parametrize("clause", ["except Exception", "except"])
def test_tests_that_expect_an_error_do_not_take_an_end_for_one(sandbox: Sandbox, end: str, clause: str) -> None:
    tests = SWALLOWING.replace("except Exception", clause)
    assert not graded(sandbox, f"def f(x):\n    {end}\n", tests).passed
    assert graded(sandbox, "def f(x):\n    raise ValueError\n", tests).passed


FRAMES = """
import json, os, struct
VERDICT = {"passed": True, "reason": "", "graded": True}
MESSAGES = [VERDICT, {"value": True}, {"value": 4}, {"value": {}}, {"error": ["SystemExit", None, "0"]}]
def forge():
    for descriptor in range(256):
        for message in MESSAGES:
            text = json.dumps(message).encode()
            for data in (text + b"\\n", struct.pack("!I", len(text)) + text):
                try:
                    os.write(descriptor, data)
                except OSError:
                    pass
"""


def test_the_verdict_cannot_be_written(sandbox: Sandbox) -> None:
    assert not graded(sandbox, FRAMES + "forge()\ndef f(x): return 0").passed
    assert not graded(sandbox, FRAMES + "def f(x):\n    forge()\n    return 0").passed
    assert not graded(sandbox, FRAMES + "forge()\nos._exit(0)").passed


def test_the_verdict_on_a_script_cannot_be_written(sandbox: Sandbox) -> None:
    assert not sandbox.run_cases(FRAMES + "forge()", [("", "4")], limits=LIMITS).passed


REPLIES = {
    "garbage": "b'garbage that is no frame at all' * 100",
    "huge_length": "struct.pack('!I', 2**32 - 1) + b'[' * 1000",
    "no_json": "struct.pack('!I', 5) + b'}{}{}'",
    "deep": "struct.pack('!I', 200000) + b'[' * 100000 + b']' * 100000",
    "deep_value": "frame({'value': json.loads('[' * 900 + ']' * 900)})",
    "unknown_tag": "frame({'value': {'exec': 'import os'}})",
    "wrong_parts": "frame({'value': {'Fraction': ['0x1', '0x0']}})",
    "unhashable": "frame({'value': {'set': [[1]]}})",
    "huge_decimal": "frame({'value': {'Decimal': '1e999999999999999999'}})",
    "float_overflow": "frame({'value': {'complex': [10**4000, 1]}})",
    "bad_handle": "frame({'value': {'kept': -1}})",
    "no_error": "frame({'error': ['eval', None, 'x']})",
    "error_of_no_kind": "frame({'error': ['ExceptionGroup', [1], 'x']})",
    "list_for_a_reply": "frame([1, 2, 3])",
    "stops_midway": "struct.pack('!I', 1000) + b'1'",
}
REPLIER = """
import gc, json, os, socket, stat, struct, time
def frame(message):
    data = json.dumps(message).encode()
    return struct.pack('!I', len(data)) + data
sockets = []
for descriptor in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            sockets.append(descriptor)
    except OSError:
        pass
def send(data):
    for descriptor in sockets:
        os.write(descriptor, data)
def f(x):
    send(%s)
    time.sleep(%g)
    os._exit(0)
"""


@pytest.mark.parametrize("name", REPLIES)
def test_hostile_replies_fail_the_program_and_nothing_else(full: Sandbox, name: str) -> None:
    sleep = 60 if name == "stops_midway" else 0
    verdict = full.run_tests(REPLIER % (REPLIES[name], sleep), TESTS, limits=Limits(2, wall_seconds=1))
    assert not verdict.passed
    assert verdict.graded, verdict.reason


def test_endless_replies_come_to_an_end(full: Sandbox) -> None:
    endless = "import itertools\ndef f(x):\n    return itertools.count()"
    verdict = full.run_tests(endless, "list(f(1))", limits=Limits(2, wall_seconds=3, output_bytes=10_000))
    assert not verdict.passed
    assert "more than 10000 bytes" in verdict.reason
    large = "def f(x): return 'x' * 10**6"
    assert "more than" in full.run_tests(large, "for _ in range(100): f(1)").reason


def test_results_that_keep_the_tests_busy_run_out_of_time(full: Sandbox) -> None:
    # Keys that all have one hash: reading them takes quadratic time, on the tests' side.
    sender = REPLIER % (
        "frame({'value': {'set': [{'int': hex((2**61 - 1) * i)} for i in range(400000)]}})",
        60,
    )
    verdict = full.run_tests(sender, TESTS, limits=Limits(0.2, wall_seconds=4))
    assert not verdict.passed
    assert verdict.graded, verdict.reason


EXHAUSTION = {
    "endless_loop": ("def f(x):\n    while True: pass", "over the CPU limit of 1 s"),
    "endless_loop_at_import": ("while True: pass", "over the CPU limit of 1 s"),
    "cannot_be_caught": (
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except Exception: pass\n"
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "over the CPU limit of 1 s",
    ),
    "sleep": ("import time\ndef f(x): time.sleep(100)", "over the wall-clock limit of 3 s"),
    "memory": ("def f(x):\n    a = []\n    while True: a.append(bytearray(10**7))", "over the memory limit"),
    "memory_at_import": ("a = 'x' * 10**12", "over the memory limit"),
    "deep_recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
        "over the memory limit|killed by|over the CPU limit",
    ),
    "deep_c_recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "def f(x):\n    a = []\n    for _ in range(10**6): a = [a]\n    return repr(a)",
        "over the memory limit|killed by|over the CPU limit|Error",
    ),
    "threads": (
        "import threading, time\nthreading.stack_size(1 << 15)\n"
        "def f(x):\n    while True:\n        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
        "Error|over the",
    ),
    "open_files": ("def f(x):\n    a = []\n    while True: a.append(open('/dev/null'))", "OSError"),
}


@pytest.mark.parametrize("name", EXHAUSTION)
def test_a_program_runs_out_of_what_it_may_use(full: Sandbox, name: str) -> None:
    program, reasons = EXHAUSTION[name]
    verdict = graded(full, program)
    assert not verdict.passed
    assert any(reason in verdict.reason for reason in reasons.split("|")), verdict.reason


DISK = """
import os
def f(x):
    for number in range(10**6):
        with open(f"file{number}", "wb") as file:
            for _ in range(1000):
                file.write(bytes(1 << 16))
"""


def test_the_disk_is_not_filled(sandbox: Sandbox) -> None:
    before = _free()
    verdict = graded(sandbox, DISK)
    assert not verdict.passed
    assert "No space" in verdict.reason or "bytes of files" in verdict.reason
    assert before - _free() < 500 << 20


def _free() -> int:
    state = os.statvfs(tempfile.gettempdir())
    return state.f_bavail * state.f_frsize


def test_one_file_has_its_limit(sandbox: Sandbox) -> None:
    limits = Limits(2, file_bytes=1 << 20)
    verdict = sandbox.run_tests("def f(x): open('a', 'wb').write(bytes(2 << 20))", TESTS, limits=limits)
    assert "File too large" in verdict.reason


def test_output_has_its_limit(sandbox: Sandbox) -> None:
    flood = "while True: print('x' * 10**6)"
    verdict = sandbox.run_cases(flood, [("", "x")], limits=LIMITS)
    assert (verdict.passed, verdict.reason) == (False, f"more than {LIMITS.output_bytes} bytes of output in case 1")
    silent = "def f(x):\n    print('x' * 10**6)\n    return x * x"
    assert graded(sandbox, silent).passed


BOMB = """
import os, signal
def f(x):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        os.fork()
"""


def test_a_fork_bomb_does_not_go_off(sandbox: Sandbox) -> None:
    before = len([name for name in os.listdir("/proc") if name.isdecimal()])
    verdict = graded(sandbox, BOMB)
    assert not verdict.passed
    assert len([name for name in os.listdir("/proc") if name.isdecimal()]) < before + 50


DAEMON = """
import os, signal, time
def f(x):
    if os.fork():
        return x * x
    try:
        os.setsid()
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
    finally:
        os._exit(0)
"""


def test_no_daemon_stays(sandbox: Sandbox) -> None:
    verdict = graded(sandbox, DAEMON)
    assert verdict.passed == ("seccomp" in sandbox.missing())  # it may fork there; `_nothing_left` looks for it


READS = f"""
import glob, os
PLACES = ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/environ",
          "/proc/self/maps", "/proc/self/mem", "/proc/version", "/sys/kernel/uevent_seqnum", "/home", "/dev/shm",
          "/", "/root",
          {str(REPO / "README.md")!r}, {str(REPO / "marti_ext")!r}, {str(REPO / ".git/config")!r}, {__file__!r}]
def f():
    done = []
    for place in PLACES:
        try:
            if os.path.isdir(place):
                if set(os.listdir(place)) - {{"usr", "lib", "lib64", "bin", "dev", "tmp", "root", "work", ".pyenv"}}:
                    done.append(place)
            else:
                open(place, "rb").read(1)
                done.append(place)
        except OSError:
            pass
    return done
"""


def test_nothing_outside_can_be_read(sandbox: Sandbox) -> None:
    assert could(sandbox, READS) == ""


def test_nothing_outside_can_be_written(sandbox: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    places = [tmp_path / "a", Path("/etc/a"), Path("/usr/a"), Path("/a"), REPO / "a", Path("/dev/a")]
    program = f"""
import os, sys
def f():
    done = []
    for place in {list(map(str, places))!r} + [os.path.dirname(os.__file__) + "/a", sys.prefix + "/a"]:
        for attempt in (lambda: open(place, "w"), lambda: os.mkdir(place), lambda: os.symlink("/", place),
                        lambda: os.rename("/usr/bin", place), lambda: os.chmod(os.path.dirname(place), 0o700)):
            try:
                attempt()
                done.append(place)
            except OSError:
                pass
    open("inside", "w").write("x")
    return done
"""
    before = os.stat(tmp_path).st_mode
    verdict = could(sandbox, program)
    if "namespaces" not in sandbox.missing():  # Landlock does not forbid chmod of what belongs to this user
        assert verdict == ""
    assert not list(tmp_path.iterdir())
    assert os.stat(tmp_path).st_mode == before or "namespaces" in sandbox.missing()


def test_the_network_and_its_neighbours_are_out_of_reach(sandbox: Sandbox, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as internet, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "local"))
        local.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(str(tmp_path / "datagrams"))
            program = f"""
import socket
def f():
    done = []
    def attempt(name, what):
        try:
            what()
            done.append(name)
        except OSError:
            pass
    attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {internet.getsockname()[1]}), 1))
    attempt("tcp6", lambda: socket.create_connection(("::1", {internet.getsockname()[1]}), 1))
    attempt("bind", lambda: socket.create_server(("8.8.8.8", 0)))
    attempt("unix", lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "local")!r}))
    pair = lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0]
    attempt("datagram", lambda: pair().sendto(b"x", {str(tmp_path / "datagrams")!r}))
    attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
    return done
"""
            assert could(sandbox, program) == ""


def test_no_socket_can_be_made_under_seccomp(sandbox: Sandbox) -> None:
    program = """
import socket
def f():
    done = []
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
        try:
            socket.socket(family, socket.SOCK_DGRAM)
            done.append(family)
        except OSError:
            pass
    return done
"""
    if "seccomp" not in sandbox.missing():
        assert could(sandbox, program) == ""


KILLS = """
import os, signal
def attempt(pid, done):
    try:
        os.kill(pid, signal.SIGKILL)
        done.append(pid)
    except OSError:
        pass
def f():
    done = []
    for pid in [PIDS]:
        attempt(pid, done)
    return done
"""


def test_no_other_process_can_be_killed(sandbox: Sandbox) -> None:
    pids = [os.getpid(), *sandbox.pids()]
    assert could(sandbox, KILLS.replace("PIDS", ", ".join(map(str, pids)))) == ""


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "0", "-os.getpgrp()"])
def test_killing_what_is_near_helps_nobody(sandbox: Sandbox, target: str) -> None:
    graded(sandbox, KILLS.replace("PIDS", target), "f()\nassert False")
    graded(sandbox, f"import os\nos.kill({target}, 9)")


def test_other_programs_cannot_be_run_or_traced(sandbox: Sandbox) -> None:
    program = """
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def f():
    done = []
    def attempt(name, what):
        try:
            what()
            done.append(name)
        except OSError:
            pass
    attempt("subprocess", lambda: subprocess.run(["/bin/true"]))
    if os.system("true") == 0:
        done.append("system")
    attempt("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
    for name, number in (("ptrace", 16), ("attach", 16)):
        if libc.ptrace(number, os.getppid() or 1, 0, 0) == 0:
            done.append(name)
    if libc.unshare(0x10000000) == 0:
        done.append("unshare")
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"") == 0:
        done.append("mount")
    return done
"""
    found = could(sandbox, program)
    if "seccomp" not in sandbox.missing():
        assert found == ""
    else:
        assert "ptrace" not in found
        assert "mount" not in found


def test_execve_under_seccomp(sandbox: Sandbox) -> None:
    verdict = graded(sandbox, "import os\ndef f(x): os.execv('/bin/true', ['true'])")
    assert not verdict.passed
    if "seccomp" not in sandbox.missing():
        assert "PermissionError" in verdict.reason


SEARCH = '''
import ctypes, gc, os, sys
TOKEN = "-".join(["xyzzy", "1729", "plugh"])
libc = ctypes.CDLL(None)
def in_memory():
    """Read this process's memory around its objects, through a pipe: what is not mapped gives an error."""
    read, write = os.pipe()
    places = {id(object()), id(sys.modules), id(TOKEN), ctypes.addressof(ctypes.create_string_buffer(10)),
              ctypes.addressof(ctypes.create_string_buffer(10**6)), id(bytearray(10**6))}
    found = 0
    own = {id(TOKEN) >> 12, (id(TOKEN) + 64) >> 12}
    for place in places:
        for step in range(-4000, 4000):
            page = (place & ~4095) + step * 4096
            if page > 0 and page >> 12 not in own and libc.write(write, ctypes.c_void_p(page), 4096) == 4096:
                found += TOKEN.encode() in os.read(read, 4096)
    return found
def in_objects():
    seen = set()
    def walk(item, depth):
        if id(item) in seen or depth > 6:
            return 0
        seen.add(id(item))
        if isinstance(item, (str, bytes)) and item is not TOKEN:
            return (TOKEN in item) if isinstance(item, str) else (TOKEN.encode() in item)
        return sum(walk(child, depth + 1) for child in gc.get_referents(item))
    frame, found = sys._getframe(), 0
    while frame:
        found += walk(dict(frame.f_locals), 0)
        frame = frame.f_back
    return found + sum(walk(item, 4) for item in gc.get_objects())
'''


def test_the_tests_are_not_in_the_programs_memory(sandbox: Sandbox) -> None:
    token = "-".join(["xyzzy", "1729", "plugh"])
    searched = SEARCH + "FOUND = [in_objects(), in_memory()]\ndef f(): return FOUND"
    verdict = graded(sandbox, searched, f"expected = {token!r}\nassert f() == [0, 0], f()", Limits())
    assert verdict.passed, verdict.reason
    honest = SEARCH + f"COPY = {token!r}\n" + "FOUND = [in_objects(), 0]\ndef f(): return FOUND"
    assert (
        "AssertionError" in graded(sandbox, honest, "assert f() == [0, 0], f()", Limits()).reason
    )  # the search finds things


def test_the_expected_output_is_not_in_the_programs_memory(sandbox: Sandbox) -> None:
    token = "-".join(["xyzzy", "1729", "plugh"])
    cheat = SEARCH + "print(TOKEN if in_objects() + in_memory() else 'not found')"
    verdict = sandbox.run_cases(cheat, [("", "not found"), ("", token)])
    assert verdict == Verdict(False, "wrong output in case 2")


def test_the_judges_memory_is_not_read_through_an_array_interface(sandbox: Sandbox) -> None:
    program = """
class Array:
    __array_interface__ = {"data": (1, 0)}
    __index__ = __len__ = lambda self: 4
def f(x):
    return Array()
"""
    assert graded(sandbox, program, "assert len(f(2)) == 4 and not hasattr(f(2), '__array_interface__')").passed
    assert not graded(sandbox, program, "import operator\nassert operator.index(f(2)) == 4").passed


def test_cpu_and_wall_clock_are_limited_whatever_layer_is_missing(sandbox: Sandbox) -> None:
    for name in ("cannot_be_caught", "sleep", "memory", "threads"):
        program, reasons = EXHAUSTION[name]
        verdict = sandbox.run_tests(program, TESTS, limits=replace(LIMITS, wall_seconds=1))
        assert not verdict.passed
        assert "over the" in verdict.reason or "Error" in verdict.reason, (reasons, verdict.reason)


def test_it_stays_with_the_program_that_misbehaves(sandbox: Sandbox) -> None:
    """Others that wait for the one worker get their verdicts."""
    verdicts: list[Verdict] = []
    attack = threading.Thread(target=lambda: verdicts.append(sandbox.run_tests(BOMB, TESTS, limits=LIMITS)))
    attack.start()
    time.sleep(0.1)
    assert sandbox.run_tests(RIGHT, TESTS).passed
    attack.join()
    assert not verdicts[0].passed
