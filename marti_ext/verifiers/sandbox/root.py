"""The root folder that programs see: what Python needs, read-only, and one folder in memory to write to."""

import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence

import marti_ext.verifiers.sandbox.kernel as kernel
from marti_ext.verifiers.sandbox.limits import MIB

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_OPEN = 0o005  # others may list and enter a folder
_DEPTH = 4  # below Python's folders, how deep closed ones are looked for: as deep as packages lie


def readable() -> tuple[str, ...]:
    """Where Python and its packages are, and the libraries below them; nothing that lies within another of them."""
    paths = {"/usr", "/lib", "/lib64", "/bin", sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    real = {os.path.realpath(path) for path in paths if os.path.exists(path)} | {"/lib", "/lib64"}
    return tuple(sorted(p for p in real if os.path.exists(p) and not any(p.startswith(q + "/") for q in real)))


def open_to_others(path: str) -> bool:
    """Whether any user can get there, and to what is below."""
    parts = path.split("/")
    way = ["/".join(parts[:end]) or "/" for end in range(1, len(parts))]
    return all(os.stat(folder).st_mode & 0o001 for folder in way) and not any(closed_folders(path))


def closed_folders(tree: str) -> Iterator[str]:
    """The folders of a tree, itself included, that only their owner can read."""
    if os.stat(tree).st_mode & _OPEN != _OPEN:
        yield tree
    base = tree.count("/")
    for folder, names, _ in os.walk(tree):
        if folder.count("/") - base >= _DEPTH or tree in ("/usr", "/lib", "/bin"):
            names.clear()
        yield from (path for name in names if os.lstat(path := f"{folder}/{name}").st_mode & _OPEN != _OPEN)


def build_root(trees: Sequence[str], *, for_others: bool) -> tuple[str, str]:
    """Build it where the folder for temporary files was, in a mount namespace that is this process's own.

    Folders that only root may read are opened, `for_others`. Gives the new root, whose "tmp" is a place for a writable
    folder, and such a place beside it. Raises OSError.
    """
    wanted = [path for path in (*trees, *DEVICES) if os.path.exists(path)]
    folders = {path for path in wanted if os.path.isdir(path)}
    closed = {path: list(closed_folders(path)) for path in trees} if for_others else {}
    sources = {path: os.open(path, os.O_PATH) for path in wanted}
    base = tempfile.gettempdir()
    kernel.make_mounts_private()
    kernel.mount_tmpfs(base, 4 * MIB, "755")
    os.umask(0o022)
    root, beside = f"{base}/root", f"{base}/beside"
    os.makedirs(f"{root}/tmp")
    os.mkdir(beside, 0o700)
    place = os.open(root, os.O_PATH)
    kernel.bind(place, root)
    os.close(place)
    for path, source in sources.items():
        target = root + path
        if path in folders:
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        if closed.get(path):
            _bind_opened(source, target, path, closed[path], f"{base}/opened{source}")
        else:
            kernel.bind(source, target)
        if path not in DEVICES:
            kernel.make_read_only(target, recursive=True)
        os.close(source)
    kernel.make_read_only(root, recursive=False)
    return root, beside


def _bind_opened(source: int, target: str, tree: str, closed: Sequence[str], layer: str) -> None:
    """Make a tree appear with these folders open: who may read a folder, the upper of its layers says."""
    for folder in closed:
        os.makedirs(layer + folder.removeprefix(tree), exist_ok=True)
    kernel.mount_layers([layer, f"/proc/self/fd/{source}"], target)
