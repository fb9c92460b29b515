"""The layers between a program and the machine. Each alone stops most of what a program may try.

namespaces  own processes, network, mounts and IPC: a read-only root, one writable folder in memory
landlock    reads Python's files and the folder, writes the folder, by the kernel's access rules
seccomp     no process, no socket, no signal to others
limits      CPU time, memory, sizes and number of files, no core dumps

Besides, a program has no privileges, and where this process is root it runs as a user that owns nothing, if such a
user can read Python.
"""

import math
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import marti_ext.verifiers.sandbox.kernel as kernel
import marti_ext.verifiers.sandbox.landlock as landlock
import marti_ext.verifiers.sandbox.seccomp as seccomp
from marti_ext.verifiers.sandbox.limits import Limits
from marti_ext.verifiers.sandbox.root import DEVICES, build_root, open_to_others, readable

ALL_LAYERS = frozenset({"namespaces", "landlock", "seccomp", "limits"})
_NOBODY = 65534
_FIRST_USER = 1 << 30  # a server's programs are this user plus the server's process id: nothing else is
_THREADS = 64  # of one program, also what a fork bomb comes to where only this limit holds


@dataclass(slots=True)
class Confinement:
    """What of the layers is in force for the programs of this process; `state` says so, layer by layer."""

    state: dict[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()
    user: int = -1  # to become, -1 to stay the same
    root: str = ""  # the namespaces' own root, "" without one
    desk: str = ""  # with it: where the judge's own folder is mounted
    own_processes: int = -1  # descriptor of this process's own namespace of process ids, if one may come back to it

    def has(self, layer: str) -> bool:
        return not self.state.get(layer, "missing").startswith("missing")

    def leave_namespaces(self) -> None:
        """In the judge, once it has its child: what it starts itself are processes like any others."""
        if self.own_processes >= 0:
            kernel.enter_process_namespace(self.own_processes)


_Start = Callable[[Confinement], str]


def prepare(wanted: Collection[str]) -> Confinement:
    """Set up, once for a server, what its programs share, and find out what the machine allows."""
    made = Confinement(readable=readable())
    if os.geteuid() == 0 and all(map(open_to_others, made.readable)):
        made.user = _spare_user()
    ways: dict[str, Sequence[_Start]] = {  # the first that works
        "namespaces": (_namespaces, lambda made: _namespaces(made, change_user=False)),
        "landlock": (lambda _: f"ABI {landlock.abi()}",),
        "seccomp": (lambda _: seccomp.supported(),),
    }
    for layer, starts in ways.items():
        made.state[layer] = _start(made, layer, starts) if layer in wanted else "missing: switched off"
    user = "another user" if made.user >= 0 else "the same user, without privileges"
    made.state["limits"] = f"CPU, memory, files, {user}" if "limits" in wanted else "missing: switched off"
    return made


def _start(made: Confinement, layer: str, starts: Sequence[_Start]) -> str:
    reasons = []
    for start in starts:
        reasons.append(_trial(made, layer, start))
        if not reasons[-1]:
            return start(made)
    return f"missing: {reasons[0]}"


def _trial(made: Confinement, layer: str, start: _Start) -> str:
    """Why a layer cannot be had here, "" if it can: a child tries it, so that nothing is left half done."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            made.state[layer] = start(made)
            if layer == "landlock":
                kernel.gain_no_privileges()
                landlock.confine(made.readable, [])
            elif layer == "seccomp":
                kernel.gain_no_privileges()
                seccomp.forbid()
            else:
                own_namespaces(made, Limits())
        except BaseException as error:
            os.write(tell, (getattr(error, "strerror", "") or str(error) or type(error).__name__).encode())
        os._exit(0)
    os.close(tell)
    reason = os.read(told, 500).decode()
    os.close(told)
    _, status = os.waitpid(pid, 0)
    return reason or (f"a trial ended with status {status}" if status else "")


def _namespaces(made: Confinement, *, change_user: bool = True) -> str:
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.unshare(flags)
        names, made.own_processes = "mount, pid, network, ipc", own
        made.user = _spare_user() if uid == 0 and change_user else -1
    except OSError:  # not root, or root without its powers
        os.close(own)
        kernel.unshare(flags | kernel.CLONE_NEWUSER)
        kernel.map_to_root(uid, gid)
        names, made.user = "user, mount, pid, network, ipc", -1  # there is one user in there
    made.root, made.desk = build_root(made.readable, for_others=made.user >= 0)
    return names


def _spare_user() -> int:
    """A user that nobody else is, nobody where there is none such, -1 where this user namespace has neither."""
    with open("/proc/self/uid_map") as users, open("/proc/self/gid_map") as groups:
        maps = [[tuple(map(int, line.split())) for line in file] for file in (users, groups)]
    for user in (_FIRST_USER + os.getpid(), _NOBODY):
        if all(any(first <= user < first + count for first, _, count in lines) for lines in maps):
            return user
    return -1


def own_namespaces(made: Confinement, limits: Limits) -> None:
    """In the judge: its next child gets process ids, mounts and a folder of its own. Raises OSError."""
    if not made.root:
        return
    kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
    kernel.mount_tmpfs(f"{made.root}/tmp", limits.folder_bytes, "777")
    kernel.mount_tmpfs(made.desk, limits.folder_bytes, "700")


def confine(made: Confinement, limits: Limits, folder: str) -> None:
    """In the program's process, before its first line: no way back. `folder` is the writable one without namespaces.

    Raises OSError.
    """
    kernel.die_with_parent(signal.SIGKILL)
    os.setsid()
    if made.root:
        os.chroot(made.root)
        folder = "/tmp"
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    tempfile.tempdir = None
    if made.has("limits"):
        _limit(limits, count_processes=made.user >= _FIRST_USER or not made.has("seccomp"))
    if made.user >= 0:
        os.setgroups([])
        os.setresgid(made.user, made.user, made.user)
        os.setresuid(made.user, made.user, made.user)
        kernel.die_with_parent(signal.SIGKILL)  # forgotten when the user changes
    kernel.drop_capabilities()
    kernel.gain_no_privileges()
    if made.has("landlock"):
        landlock.confine([*made.readable, *DEVICES], [folder, "/dev/null"])
    if made.has("seccomp"):
        seccomp.forbid()


def _limit(limits: Limits, *, count_processes: bool) -> None:
    values = {
        resource.RLIMIT_CPU: max(1, math.ceil(limits.cpu_seconds)),  # soft and hard are one: no handler can catch it
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
    }
    if count_processes:  # all of the user's are counted: of a user that others are, too, that says little
        values[resource.RLIMIT_NPROC] = _THREADS
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
