"""Two locks that a process puts on itself for good: which files (Landlock), which calls (seccomp).

    names = available()                             # ("landlock", "seccomp"), or fewer
    lock_files(places(readable), folder)            # all else is closed, TCP, signals too
    lock_calls(may_fork=False)                      # no process, socket, ptrace, namespace, keyring

They need no right and no library, work in containers, and come on top of every level of isolation.
Landlock exists since Linux 5.13; the table of calls is written for x86-64 and AArch64. Where one
is missing the levels hold without it, and reports do not name it. Treated in course chapter
01_graph_ir (assignment a1).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from grader.sandbox import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_OF_PATH = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # those that a file has, not a folder
_FILES_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many rights there are; later: as 5
_TCP = 1 << 0 | 1 << 1  # bind, connect; from ABI 4 on
_SCOPES = 1 << 0 | 1 << 1  # abstract sockets, signals: only among ourselves; from ABI 6 on

_CLONE_THREAD = 0x00010000
_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _MACHINE, _ARGUMENT = 0, 4, 16  # where they stand in the record that a filter sees

# call: number on x86-64, on AArch64 (None: there is no such call)
_FORBIDDEN = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "mount_setattr": (442, 442), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180), "personality": (135, 92), "acct": (163, 89),
}  # fmt: skip
_FORKS = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, audit name


def available() -> tuple[str, ...]:
    """The locks that this kernel has."""
    names = ("landlock",) if _landlock_version() else ()
    if kernel.available() and platform.machine() in _MACHINES and sys.maxsize > 1 << 32:
        with suppress(OSError):
            kernel.prctl(kernel.PR_GET_SECCOMP)
            return (*names, "seccomp")
    return names


def _landlock_version() -> int:
    try:
        return kernel.call("syscall", _CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


Place = tuple[int, int]  # descriptor, rights


def places(paths: Iterable[Path]) -> tuple[Place, ...]:
    """What may be read, opened once for all workers."""
    found: list[Place] = []
    for path in paths:
        with suppress(FileNotFoundError):
            opened = os.open(path, _OF_PATH)
            place = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 16)  # a worker reuses the first ones
            os.close(opened)
            found.append((place, _READ if path.is_dir() else _READ & _FILE))
    return tuple(found)


def lock_files(readable: tuple[Place, ...], folder: str) -> None:
    """From now on only these, and all in `folder`, can be opened; no TCP, no signal to others."""
    version = _landlock_version()
    rights = (1 << _FILES_OF_ABI[min(version, 5)]) - 1
    network, scopes = _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, network, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = kernel.call("syscall", _CREATE_RULESET, attributes, size, 0)
    for place, wanted in (*readable, (os.open(folder, _OF_PATH), rights)):
        rule = struct.pack("=Qi", wanted, place)
        kernel.call("syscall", _ADD_RULE, ruleset, 1, rule, 0)
    kernel.call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def lock_calls(may_fork: bool) -> None:
    """From now on these calls fail; a call of another machine's kind ends the process."""
    column, machine = _MACHINES[platform.machine()]
    program = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _KILL)]
    program += [(_LOAD, 0, 0, _NUMBER)]
    if column == 0:  # the second set of numbers of x86-64, x32
        program += [(_BITS, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    for numbers in _FORBIDDEN.values():
        program += _fails(numbers[column], errno.EPERM)
    program += _fails(
        _CLONE3[column], errno.ENOSYS
    )  # its flags lie in memory; libc then uses clone
    program += _unless(_SOCKET[column], (_EQUAL, 0, 1, 1), errno.EACCES)  # AF_UNIX
    if not may_fork:
        for numbers in _FORKS.values():
            program += _fails(numbers[column], errno.EAGAIN)
        program += _unless(_CLONE[column], (_BITS, 0, 1, _CLONE_THREAD), errno.EAGAIN)
    program += [(_RETURN, 0, 0, _ALLOW)]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    record = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    kernel.call("prctl", kernel.PR_SET_SECCOMP, 2, record, 0, 0)


_Step = tuple[int, int, int, int]  # code, steps to skip if true, if false, operand


def _fails(number: int | None, code: int) -> list[_Step]:
    """That call fails with that error."""
    if number is None:
        return []
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | code)]


def _unless(number: int, test: _Step, code: int) -> list[_Step]:
    """That call fails unless its first argument passes the test."""
    passes, _, _, operand = test
    return [
        (_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, _ARGUMENT),
        (passes, 1, 0, operand),
        (_RETURN, 0, 0, _ERROR | code),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER),
    ]
