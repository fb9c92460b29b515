"""The system calls that Python has no function for."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Collection, Sequence

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_ATTR_READ_ONLY = 1 | 2 | 4  # read-only, no set-uid, no devices
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442  # the same number on every architecture
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 38, 36
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """A raw system call. Raises OSError."""
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *plain))


def prctl(option: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> None:
    """Raises OSError."""
    plain = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    _checked(_libc.prctl(option, *plain, *[ctypes.c_ulong(0)] * (4 - len(plain))))


def unshare(flags: int) -> None:
    """New namespaces for this process, or (PID) for its children. Raises OSError."""
    _checked(_libc.unshare(flags))


def die_with_parent(signal: int) -> None:
    prctl(_PR_SET_PDEATHSIG, signal)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_all_but(kept: Collection[int]) -> None:
    """Close every other descriptor of this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(int(name))


def forbid_inspection() -> None:
    """No other process of this user may read this one's memory."""
    prctl(_PR_SET_DUMPABLE, 0)


def gain_no_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, struct.pack("6I", *[0] * 6)))


def map_to_root(uid: int, gid: int) -> None:
    """In a new user namespace: be root there, and `uid` outside."""
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{file}", "w") as handle:
            handle.write(text)


def make_mounts_private() -> None:
    """No mount made here from now on is seen outside."""
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)


def mount_tmpfs(path: str, size: int, mode: str) -> None:
    """A folder in memory, of `size` bytes and a proportionate number of files."""
    options = f"size={size},nr_inodes={max(1024, size // 4096)},mode={mode}"
    _mount(b"tmpfs", path.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode())


def bind(source: int, target: str) -> None:
    """Make what the O_PATH descriptor `source` names appear at `target`."""
    _mount(f"/proc/self/fd/{source}".encode(), target.encode(), None, _MS_BIND | _MS_REC, None)


def mount_layers(layers: Sequence[str], target: str) -> None:
    """Make folders appear at `target` as one, read-only; where several have a name, the first one's counts."""
    _mount(b"overlay", target.encode(), b"overlay", 0, f"lowerdir={':'.join(layers)}".encode())


def make_read_only(target: str, *, recursive: bool) -> None:
    """A mount, or it and all below; without set-uid programs and devices, too."""
    attributes = struct.pack("4Q", _ATTR_READ_ONLY, 0, 0, 0)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE if recursive else 0, attributes, len(attributes))


def enter_process_namespace(descriptor: int) -> None:
    """Have the next children in this namespace of process ids. Raises OSError."""
    _checked(_libc.setns(descriptor, CLONE_NEWPID))


def children() -> Sequence[int]:
    """The process ids of this process's children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as handle:
            return [int(pid) for pid in handle.read().split()]
    except FileNotFoundError:  # a kernel built without it
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _parent(name) == os.getpid()]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return int(handle.read().rpartition(")")[2].split()[1])
    except OSError:  # gone meanwhile
        return 0


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
    _checked(_libc.mount(source, target, kind, ctypes.c_ulong(flags), data))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
