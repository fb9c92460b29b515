"""A filter of system calls: no process, no network, no signal to others, nothing that administers the machine."""

import ctypes
import errno
import os
import platform
import struct

from marti_ext.verifiers.sandbox.kernel import prctl

# (x86_64, aarch64); -1 where the architecture has no such call.
_FORBIDDEN = {
    "socket": (41, 198), "bind": (49, 200), "connect": (42, 203), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "setsid": (112, 157),
    "setpgid": (109, 154), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "personality": (135, 92),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "swapon": (167, 224), "reboot": (169, 142),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "quotactl": (179, 60), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "syslog": (103, 116), "vhangup": (153, 58),
    "sethostname": (170, 161), "setdomainname": (171, 162), "swapoff": (168, 225), "kexec_file_load": (320, 294),
    "iopl": (172, -1), "ioperm": (173, -1), "fsconfig": (431, 431), "fspick": (433, 433),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "kcmp": (312, 272), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
}  # fmt: skip
# The first argument is a process or thread: only the program's own, where 0 also stands for it in the second group.
_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
            "rt_tgsigqueueinfo": (297, 240)}  # fmt: skip
_SETTINGS = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
             "sched_setparam": (142, 118), "sched_setattr": (314, 274)}  # fmt: skip
_PRCTL, _PR_SET_PDEATHSIG = (157, 167), 1  # it is to die with the judge
_SOCKETPAIR, _DATAGRAM_BIT = (53, 199), 2  # in the type: a datagram socket can send to any other by name
_CLONE, _CLONE3 = (56, 220), (435, 435)
_CLONE_THREAD = 0x00010000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
_X32 = 0x40000000  # calls of another numbering begin here on x86_64

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the data that the filter sees
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_Line = tuple[int, int, int, int]


def supported() -> str:
    """ "yes", or raises OSError."""
    if platform.machine() not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {platform.machine()}")
    return "yes"


def forbid() -> None:
    """Filter the calls of this process from now on; it must not be able to gain privileges. Raises OSError."""
    program = _filter(os.getpid())
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(instructions))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(header, len(header)))


def _filter(pid: int) -> list[_Line]:
    """Classic BPF: (code, steps if true, steps if false, operand) a line."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    lines = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), refuse, (_LOAD, 0, 0, _NUMBER)]
    if column == 0:
        lines += [(_AT_LEAST, 0, 1, _X32), refuse]
    for numbers in _FORBIDDEN.values():
        if numbers[column] >= 0:
            lines += [(_EQUAL, 0, 1, numbers[column]), refuse]
    # The C library falls back on clone, whose flags can be looked at.
    lines += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += _with_argument(_CLONE[column], 0, (_ANY_BIT, 0, 1, _CLONE_THREAD), allow, refuse)
    lines += _with_argument(_SOCKETPAIR[column], 1, (_ANY_BIT, 0, 1, _DATAGRAM_BIT), refuse, allow)
    lines += _with_argument(_PRCTL[column], 0, (_EQUAL, 0, 1, _PR_SET_PDEATHSIG), refuse, allow)
    for numbers in _SIGNALS.values():
        lines += _with_argument(numbers[column], 0, (_EQUAL, 0, 1, pid), allow, refuse)
    for numbers in _SETTINGS.values():
        lines += [(_EQUAL, 0, 5, numbers[column]), (_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, pid)]
        lines += [allow, refuse]
    return [*lines, allow]


def _with_argument(number: int, argument: int, test: _Line, if_true: _Line, if_false: _Line) -> list[_Line]:
    """For one call: what follows from a test, (code, 0, 1, operand), of the lower half of an argument."""
    return [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENTS + 8 * argument), test, if_true, if_false]
