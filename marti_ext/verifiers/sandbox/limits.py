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
    """Rounded up to whole seconds. The tests' own code has twice that and five seconds more."""
    wall_seconds: float = 20.0
    memory_bytes: int = 1024 * MIB
    """Address space."""
    folder_bytes: int = 64 * MIB
    """All files together. The only folder that it may write to is empty at the start and gone afterwards."""
    file_bytes: int = 64 * MIB
    open_files: int = 64
    output_bytes: int = 16 * MIB
    """Standard output, or the results of all calls together."""

    @property
    def judge_cpu_seconds(self) -> int:
        """Of the process that runs the tests: what a program returns must not keep it busy for ever."""
        return int(self.cpu_seconds * 2) + 5

    @property
    def patience(self) -> float:
        """Seconds after which a run without a verdict is given up, by whoever waits for it, on a busy machine too."""
        return self.wall_seconds * 4 + self.judge_cpu_seconds * 4 + 30


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says in one line why a program did not pass. Not `graded`: the sandbox failed, not the program."""

    passed: bool
    reason: str = ""
    graded: bool = True


class ProgramFailure(BaseException):
    """No verdict but "not passed" is possible any more. No Exception, so that no test takes it for an expected one.

    Not `graded` where it is not the program's fault.
    """

    def __init__(self, reason: str, graded: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.graded = reason, graded
