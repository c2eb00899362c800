"""The keeper: one process beside each worker, which forks it, ends it, and ends all it started.

    keep(server, limits, nonce, channel, output, life)      # in a fork of the fork server

It ends the worker when the parent closes `life` or dies, and when the deadline is over; then it
ends what the worker left running, and writes one JSON report to `life`. Where there are namespaces
it is process 1 of the worker's process table, so that nothing can escape it; elsewhere orphans are
handed to it (subreaper), and a user id of its own ends with all its processes.
Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox import kernel, limits, room, worker
from grader.sandbox.limits import Isolation, Limits
from grader.sandbox.locks import Place

_GRACE = 0.3  # seconds after the deadline, in which the parent should have said it first
_SLOTS = 500  # user ids for workers: 60600 and up, which Linux distributions leave free


@dataclass(frozen=True)
class Server:
    """What keepers inherit of their fork server."""

    isolation: Isolation
    slots: int | None  # folder of lock files, one for each user id
    temporary: str  # where private folders are made
    vm_size: int
    tasks: int  # of this user before the worker
    serving: str  # the module whose serve() answers
    locks: tuple[str, ...]  # of this kernel
    readable: tuple[Place, ...]  # what a worker may read


def keep(server: Server, bounds: Limits, nonce: str, channel: int, output: int, life: int) -> None:
    """Run one worker to its end."""
    os.setsid()
    isolated = server.isolation == Isolation.NAMESPACES
    user = _take_user(server)
    if isolated:
        room.furnish(bounds)
        folder = f"/{room.SCRATCH}"
    else:
        folder = tempfile.mkdtemp(prefix="minidlc-worker-", dir=server.temporary)
        if user is not None:
            os.chown(folder, user, user)
    if kernel.available():
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    pid = os.fork()
    if pid == 0:
        worker.run(server, bounds, nonce, channel, output, user, folder)
    os.close(channel)
    os.close(output)
    ended = _wait([life], pid, bounds.seconds + _GRACE)
    if ended is None and _said(life) == b"closed":  # it may be about to end, and then says how
        ended = _wait([], pid, _GRACE)
    report = _end(pid, ended, isolated, user)
    if not isolated:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.write(life, json.dumps(report).encode())


def open_slots() -> int:
    """The folder of lock files, only root's."""
    folder = Path(tempfile.gettempdir(), "minidlc-grader-users")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != 0:
        raise PermissionError(f"{folder} is not root's")
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _take_user(server: Server) -> int | None:
    """A user id that no other worker of this machine has; free again when the keeper ends."""
    if server.slots is None:
        return None
    for slot in range(_SLOTS):
        lock = os.open(str(slot), os.O_CREAT | os.O_RDWR, 0o600, dir_fd=server.slots)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return room.INSIDE + slot
        except BlockingIOError:
            os.close(lock)
    raise OSError(errno.EAGAIN, f"{_SLOTS} workers run already")


_Ended = tuple[int, resource.struct_rusage]  # wait status, what it used


def _wait(watched: list[int], pid: int, seconds: float) -> _Ended | None:
    """Until the worker ends (how), something can be read, or the time is over (None)."""
    end = time.monotonic() + seconds
    step = 0.01
    with suppress(OSError, AttributeError):  # not on macOS: looked at every hundredth second
        watched = [*watched, os.pidfd_open(pid)]
        step = seconds
    while True:
        left = end - time.monotonic()
        ready, _, _ = select.select(watched, [], [], max(0.0, min(left, step)))
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return status, used
        if ready or left <= 0:
            return None


def _said(life: int) -> bytes:
    """What the parent said: b"closed", or nothing."""
    ready, _, _ = select.select([life], [], [], 0)
    return os.read(life, 16) if ready else b""


def _end(pid: int, ended: _Ended | None, isolated: bool, user: int | None) -> dict[str, object]:
    """Kill the worker and all it started. Its exit code tells only how it ended, never a score."""
    waited = limits.waited(str(pid)) if ended is None else None
    if ended is None:
        os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
    else:
        status, used = ended
    left = _kill_all() if isolated else kill_descendants(spare=set())
    if user is not None and not isolated:
        left += _kill_user(user)
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return {
        "by_itself": ended is not None,
        "exit": os.waitstatus_to_exitcode(status),
        "cpu": used.ru_utime + used.ru_stime,
        "waited": waited,
        "peak": used.ru_maxrss * scale,
        "left": left,
    }


def _kill_all() -> int:
    """Everything in the process table of which this is process 1."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    return _collect(block=True)


def _collect(block: bool) -> int:
    """Reap children; how many."""
    count = 0
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0 if block else os.WNOHANG)[0]:
            count += 1
    return count


def kill_descendants(spare: set[int]) -> int:
    """Kill all below this process, again and again until none is left; how many there were."""
    killed = 0
    for _ in range(200):
        found = _descendants(spare)
        if not found:
            break
        for pid in found:  # stopped first: a stopped process does not fork
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        for pid in _descendants(spare):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
        killed += _collect(block=False)
    return killed


def _descendants(spare: set[int]) -> list[int]:
    """Processes below this one, from /proc; none where there is no /proc."""
    found: list[int] = []
    todo = [pid for pid in _children(os.getpid()) if pid not in spare]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{t}/children").read_text() for t in threads]
    except OSError:  # gone meanwhile, or a kernel that does not list children
        return [child for child, parent in _table() if parent == pid]
    return [int(child) for text in texts for child in text.split()]


def _table() -> list[tuple[int, int]]:
    """(process, parent) of all processes that /proc shows."""
    rows: list[tuple[int, int]] = []
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with suppress(OSError):
                    stat = Path("/proc", name, "stat").read_text(errors="replace")
                    rows.append((int(name), int(stat.rpartition(")")[2].split()[1])))
    return rows


def _kill_user(user: int) -> int:
    """All processes of a user id; who is it at that moment can kill them all at once."""
    count = sum(1 for pid, _ in _table() if _owner(pid) == user)
    pid = os.fork()
    if pid == 0:
        with suppress(OSError):
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(pid, 0)
    return count


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def tasks_of_user() -> int:
    """Threads of this user's processes: RLIMIT_NPROC counts them all."""
    count = 0
    for pid, _ in _table():
        if _owner(pid) == os.geteuid():
            with suppress(OSError):
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count
