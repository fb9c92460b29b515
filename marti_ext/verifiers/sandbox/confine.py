"""The layers between a program and the machine. Each alone stops most of what a program may try.

namespaces  own network, mounts, processes and IPC: a root of read-only binds, one writable folder in memory
landlock    reads Python's files and the folder, writes the folder, by the kernel's access rules
seccomp     no process, no socket, no signal to others
limits      CPU time, memory, file size and number, core dumps; without namespaces also not root, if it is root
"""

import contextlib
import os
import resource
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field

import marti_ext.verifiers.sandbox.kernel as kernel
import marti_ext.verifiers.sandbox.landlock as landlock
import marti_ext.verifiers.sandbox.seccomp as seccomp
from marti_ext.verifiers.sandbox.limits import MIB, Limits

LAYERS = ("namespaces", "landlock", "seccomp", "limits")
NOBODY = 65534
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


@dataclass(slots=True)
class Confinement:
    """What of the layers is in force for the programs of this process; `state` says so, layer by layer."""

    state: dict[str, str] = field(default_factory=dict)
    root: str = ""  # where the namespaces' own root is mounted, "" without one
    changes_user: bool = False

    def has(self, layer: str) -> bool:
        return layer in self.state and not self.state[layer].startswith("missing")


def prepare(wanted: Collection[str]) -> Confinement:
    """Set up, once for a server, what its programs share, and find out what the machine allows."""
    made = Confinement()
    made.changes_user = os.geteuid() == 0 and all(map(_open_to_others, _readable()))
    for layer, start in (("namespaces", _namespaces), ("landlock", _landlock), ("seccomp", _seccomp)):
        if layer not in wanted:
            made.state[layer] = "missing: switched off"
            continue
        try:
            made.state[layer] = start(made)
        except OSError as error:
            made.state[layer] = f"missing: {error.strerror}"
    made.state["limits"] = "CPU, memory, files, output" if "limits" in wanted else "missing: switched off"
    return made


def _namespaces(made: Confinement) -> str:
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        with contextlib.suppress(OSError):
            kernel.unshare(flags)
            return _own_root(made, "mount, pid, network, ipc")
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    kernel.map_to_self(uid, gid)
    made.changes_user = False
    return _own_root(made, "user, mount, pid, network, ipc")


def _own_root(made: Confinement, names: str) -> str:
    """Build a root of what Python needs, read-only, where the folder for temporary files was."""
    sources = {path: os.open(path, os.O_PATH) for path in (*_readable(), *_DEVICES) if os.path.exists(path)}
    root = tempfile.gettempdir()
    kernel.make_mounts_private()
    kernel.mount_tmpfs(root, 4 * MIB, "755")
    for path, source in sources.items():
        target = root + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w"):
                pass
        kernel.bind(source, target, read_only=path not in _DEVICES)
        os.close(source)
    os.makedirs(f"{root}/tmp", exist_ok=True)
    made.root, made.changes_user = root, made.changes_user or os.geteuid() == 0
    return names


def _landlock(made: Confinement) -> str:
    del made
    return f"ABI {landlock.abi()}"


def _seccomp(made: Confinement) -> str:
    del made
    reason = seccomp.supported()
    return f"missing: {reason}" if reason else "yes"


def _readable() -> list[str]:
    """Where Python and its packages are, and the libraries below them; nothing that lies within another of them."""
    paths = {"/usr", "/lib", "/lib64", "/bin", sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    real = {os.path.realpath(path) for path in paths if os.path.exists(path)} | {"/lib", "/lib64"}
    return sorted(p for p in real if os.path.exists(p) and not any(p.startswith(q + "/") for q in real))


def _open_to_others(path: str) -> bool:
    """Whether any user can get there."""
    parts = path.split("/")
    return all(os.stat("/".join(parts[:end]) or "/").st_mode & 0o001 for end in range(1, len(parts) + 1))


def own_namespaces(made: Confinement, limits: Limits) -> None:
    """In the judge: its only child gets process ids, mounts and a folder of its own."""
    if made.root:
        kernel.unshare(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS)
        kernel.mount_tmpfs(f"{made.root}/tmp", limits.folder_bytes, "777")


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
        _limit(limits, alone=made.has("seccomp"))
    if made.changes_user:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.die_with_parent(signal.SIGKILL)  # forgotten when the user changes
    elif os.geteuid() == 0 and (made.root or not made.changes_user):
        with contextlib.suppress(OSError):
            kernel.drop_capabilities()
    kernel.gain_no_privileges()
    if made.has("landlock"):
        landlock.confine([*_readable(), *_DEVICES], [folder, "/dev/null"])
    if made.has("seccomp"):
        seccomp.forbid()


def _limit(limits: Limits, *, alone: bool) -> None:
    cpu = max(1, round(limits.cpu_seconds + 0.499))
    values = {
        resource.RLIMIT_CPU: cpu,  # soft and hard are one, so that no handler can catch it
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.folder_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
    }
    if not alone:
        values[resource.RLIMIT_NPROC] = 64
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
