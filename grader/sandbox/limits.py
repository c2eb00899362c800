"""What a worker may use, and what it did use.

    limits = Limits(seconds=5.0, memory=512 << 20)
    apply(limits, vm_size=120 << 20, tasks=0)       # in the worker, before student code
    usage.cpu_seconds, usage.output_bytes           # what Sandboxed.close() returns

The limits are the kernel's: student code can lower them, never raise them. Read by the parent
(records only) and by the fork server. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

try:
    import resource
except ImportError:  # Windows, where only the records below are used
    resource = None


class Isolation(IntEnum):
    """How far a worker is kept from the machine; docs/isolation.md says what each stops."""

    RLIMITS = 0  # a process of the same user, under limits
    UID = 1  # a user id of its own, a private temporary folder
    NAMESPACES = 2  # an own root folder, process table and network


@dataclass(frozen=True)
class Limits:
    """Of one worker. Bytes, seconds."""

    seconds: float = 10.0  # wall time from the spawn; also bounds CPU time
    stated: float = 0.0  # the deadline that students are told; 0: `seconds`
    memory: int = 1 << 30  # address space beyond what is preloaded
    processes: int = 1  # 1: no other process; threads are free up to `threads`
    threads: int = 16
    output: int = 64 << 10  # kept of what is printed
    output_kill: int = 8 << 20  # more than this ends the worker
    file_size: int = 16 << 20  # of one file
    files: int = 64  # open descriptors
    temporary: int = 64 << 20  # in the temporary folder; only with NAMESPACES

    @property
    def too_long(self) -> str:
        """What is said of a timeout; the same whether there was a second try with more time."""
        return f"It was ended: it took longer than its {self.stated or self.seconds:g} seconds."


@dataclass(frozen=True)
class Usage:
    """What a worker took, and what it left for us to kill."""

    cpu_seconds: float = 0.0
    waited_seconds: float | None = None  # for a core, while it could have run; None: not known
    peak_bytes: int = 0
    output: str = ""  # the first of what it printed
    output_bytes: int = 0  # all of it
    left_behind: int = 0  # processes that were still alive beside it


def waited(task: str) -> float | None:
    """Seconds that a process or thread (a folder of /proc) was ready, but had no core.

    None where the kernel does not say (`man 5 proc_pid_schedstat`).
    """
    try:
        with open(f"/proc/{task}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def lost() -> float | None:
    """Seconds that this thread waited for a core, or the machine for its host, disk or memory.

    Differences of it say how busy the machine was. None where the kernel does not say.
    """
    mine = waited("thread-self")
    return None if mine is None else mine + _stolen() + _pressure("io") + _pressure("memory")


def _stolen() -> float:
    """Seconds in which the host of a virtual machine ran something else."""
    with suppress(OSError, IndexError, ValueError), open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _pressure(kind: str) -> float:
    """Seconds in which some process waited for that (Linux's pressure stall information)."""
    with suppress(OSError, IndexError, ValueError), open(f"/proc/pressure/{kind}") as file:
        return int(file.readline().rpartition("total=")[2]) / 1e6
    return 0.0


def apply(limits: Limits, vm_size: int, tasks: int) -> None:
    """Set the limits on this process; `tasks` of its user run already and do not count."""
    seconds = math.ceil(limits.seconds) + 1
    wanted = {
        "RLIMIT_AS": vm_size + limits.memory,
        "RLIMIT_CPU": seconds,
        "RLIMIT_NPROC": tasks + limits.processes + limits.threads,
        "RLIMIT_FSIZE": limits.file_size,
        "RLIMIT_NOFILE": limits.files,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_MEMLOCK": 0,
    }
    for name, value in wanted.items():
        kind = getattr(resource, name, None)  # macOS has not all of them, and refuses some
        if resource is not None and kind is not None:
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (value, value))
