"""Which files a process may touch, by Landlock (Linux 5.13 and later)."""

import os
import struct
from collections.abc import Iterable

from marti_ext.verifiers.sandbox.kernel import syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what makes sense for something that is no folder
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # ABI: how many rights on files it knows


def abi() -> int:
    """The version that the kernel speaks. Raises OSError where it speaks none."""
    return syscall(_CREATE, None, 0, _VERSION_FLAG)


def confine(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Let this process read below some paths, write below others, and do nothing else with files from now on.

    It must not be able to gain privileges. Newer kernels also forbid TCP, and signals to processes outside.
    Raises OSError.
    """
    version = abi()
    every = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    attributes = struct.pack("3Q", every, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = syscall(_CREATE, attributes, size, 0)
    try:
        for paths, rights in ((readable, _READ), (writable, every)):
            for path in paths:
                _allow(rules, path, rights & every)
        syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        syscall(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)
