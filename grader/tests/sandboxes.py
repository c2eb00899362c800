"""What the tests of the sandbox share: a fork server at each level, and workers of it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.local import start
from grader.overlay import build_overlay
from grader.sandbox import ForkServer, Isolation, Limits, Sandboxed
from grader.student import Died, StudentRaised

LOCKS = ("landlock", "seccomp")
QUICK = Limits(seconds=5.0)


@functools.cache
def whole_overlay() -> Path:
    """Nothing withheld; built once for all tests of this process."""
    folder = Path(tempfile.mkdtemp(prefix="minidlc-test-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_overlay((), folder)


def python_of(level: Isolation) -> str:
    """One that other users can read; the tests may run on a Python in root's home folder."""
    library = Path(sysconfig.get_path("stdlib"))
    closed = any(not folder.stat().st_mode & 1 for folder in (library, *library.parents))
    other = f"/usr/bin/python3.{sys.version_info.minor}"
    return other if level == Isolation.UID and closed else sys.executable


def server_at(level: Isolation, locks: Any = LOCKS) -> ForkServer:
    """A fork server, or a skip with the reason."""
    try:
        return ForkServer(whole_overlay(), level, locks=locks, python=python_of(level))
    except (RuntimeError, OSError) as error:
        pytest.skip(f"no {level.name.lower()} on this machine: {error}")


@pytest.fixture(
    name="server", scope="module", params=list(Isolation), ids=lambda level: level.name.lower()
)
def each_server(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    with server_at(request.param) as server:
        yield server


def started(server: ForkServer, source: str, limits: Limits = QUICK) -> Sandboxed:
    """A worker whose task 1.2 is the function `f` of this source."""
    worker = server.spawn(limits)
    try:
        start(worker, [["cell 1.2", source]], "", {"1.2": "f"})
    except BaseException:
        worker.close()
        raise
    return worker


def call(worker: Sandboxed, *args: Any) -> Any:
    message = {"do": "call", "task": "1.2", "args": list(args), "kwargs": {}}
    reply = worker.request({"message": message}, lambda n, asked: None)
    if "raised" in reply:
        raise StudentRaised(reply["raised"], reply["message"])
    return reply["value"]


def run(server: ForkServer, source: str, *args: Any, limits: Limits = QUICK) -> Any:
    with started(server, source, limits) as worker:
        return call(worker, *args)


def died(server: ForkServer, source: str, limits: Limits = QUICK) -> tuple[Died, Sandboxed]:
    worker = server.spawn(limits)
    with worker:
        try:
            start(worker, [["cell 1.2", source]], "", {"1.2": "f"})
            value = call(worker)
        except Died as error:
            return error, worker
    pytest.fail(f"the worker lived, and answered {value!r:.100}")


def processes(mark: str) -> set[str]:
    """Ids of processes with this text in their command line."""
    found: set[str] = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if mark in Path("/proc", name, "cmdline").read_text(errors="replace"):
                found.add(name)
        except OSError:
            pass
    return found
