"""The fork server: a process without threads that has everything imported, and forks workers.

    ForkServer (forkserver.py) starts it: server.main(settings), settings as JSON
    spawn request on the control socket + three descriptors: channel, output, life
    one line back: "ready …" once, then "ok" or "error …" for each spawn

For each spawn it forks a keeper (keeper.py), which forks the worker. It holds no test, no expected
value, no submission: what a worker finds in its memory is what every student may read.
Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from grader.sandbox import keeper, kernel, locks, room
from grader.sandbox.limits import Isolation, Limits

_PATIENCE = 3.0  # seconds for keepers to clean up when the parent is gone


def main(text: str) -> None:
    """Serve until the parent closes the control socket."""
    settings = json.loads(text)
    control = socket.socket(fileno=settings["control"])
    try:
        server = _prepare(settings)
    except Exception as error:
        control.sendall(f"error {type(error).__name__}: {error}\n".encode())
        os._exit(1)
    control.sendall(f"ready {' '.join(server.locks)}\n".encode())
    _loop(control, server)


def _prepare(settings: dict[str, Any]) -> keeper.Server:
    isolation = Isolation(settings["isolation"])
    overlay = Path(settings["overlay"])
    if isolation == Isolation.UID:
        _check_readable(overlay)
    slots = keeper.open_slots() if os.geteuid() == 0 and isolation >= Isolation.UID else None
    readable = room.readable(overlay)
    if isolation == Isolation.NAMESPACES and room.enter(overlay):
        slots = None
    for name in settings["preload"]:
        importlib.import_module(name)
    serving: Any = importlib.import_module(settings["serving"])
    if settings["glue"]:
        serving.code_of(settings["glue"], "<glue>")  # it is the same for every worker
    threads = _threads()
    if threads != 1:
        raise RuntimeError(f"{threads} threads after the imports: a fork would not be safe")
    if kernel.available():
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page
    if kernel.available() and (slots is not None or isolation == Isolation.NAMESPACES):
        kernel.drop_bounding_set()
    tasks = keeper.tasks_of_user() if isolation == Isolation.RLIMITS else 0
    return keeper.Server(
        isolation=isolation,
        slots=slots,
        temporary=settings["temporary"],
        vm_size=_vm_size(),
        tasks=tasks,
        serving=settings["serving"],
        locks=tuple(name for name in locks.available() if name in settings["locks"]),
        readable=locks.places(readable) if kernel.available() else (),
    )


def _check_readable(overlay: Path) -> None:
    """A worker with a user id of its own must be able to import."""
    if os.geteuid() != 0 or not kernel.available():
        raise PermissionError("only root can give a worker a user id of its own")
    for path in (overlay, Path(sysconfig.get_path("stdlib"))):
        for folder in (path, *path.parents):
            if not folder.stat().st_mode & 0o001:
                raise PermissionError(f"{path} cannot be read by other users: {folder} is closed")


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def _vm_size() -> int:
    """Bytes of address space in use, which RLIMIT_AS counts; 0 where unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 256 << 20
    return pages * os.sysconf("SC_PAGE_SIZE")


def _loop(control: socket.socket, server: keeper.Server) -> None:
    keepers: set[int] = set()
    while True:
        readable, _, _ = select.select([control], [], [], 1.0 if keepers else None)
        _reap(keepers)
        if not readable:
            continue
        line, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
        if not line:
            return _leave(keepers)
        try:
            request = json.loads(line)
            pid = _fork(server, control, request, descriptors)
            keepers.add(pid)
            control.sendall(b"ok\n")
        except OSError as error:
            control.sendall(f"error {error}\n".encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(
    server: keeper.Server, control: socket.socket, request: dict[str, Any], descriptors: list[int]
) -> int:
    isolated = server.isolation == Isolation.NAMESPACES
    pid = room.fork_into_new_table() if isolated else os.fork()
    if pid == 0:
        try:
            control.close()
            limits = Limits(**request["limits"])
            keeper.keep(server, limits, request["nonce"], *descriptors)
        except BaseException as error:
            with suppress(OSError):
                os.write(descriptors[2], json.dumps({"fault": repr(error)}).encode())
        finally:
            os._exit(0)
    return pid


def _reap(keepers: set[int]) -> None:
    """Collect keepers that have ended; what they could not end themselves ends here."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        keepers.discard(pid)
        if status:
            keeper.kill_descendants(spare=keepers)


def _leave(keepers: set[int]) -> None:
    end = time.monotonic() + _PATIENCE
    while keepers and time.monotonic() < end:
        _reap(keepers)
        time.sleep(0.01)
    for pid in keepers:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    keeper.kill_descendants(spare=set())
    sys.exit(0)
