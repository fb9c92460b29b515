"""What a program may use, and what became of it."""

from dataclasses import dataclass

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Limits:
    """For one run of a program: its tests together, or one case of standard input. It may start no other process.

    CPU time is what an endless loop runs out of. The wall clock catches a program that sleeps; time that it spends
    waiting for a CPU does not count where the kernel tells it, so that a busy machine changes no verdict.
    """

    cpu_seconds: float = 5.0
    wall_seconds: float = 20.0
    memory_bytes: int = 1024 * MIB
    folder_bytes: int = 64 * MIB
    open_files: int = 64
    output_bytes: int = 16 * MIB
    """Standard output, or all results of one call."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says in one line why a program did not pass. Not `graded`: the sandbox failed, not the program."""

    passed: bool
    reason: str = ""
    graded: bool = True
