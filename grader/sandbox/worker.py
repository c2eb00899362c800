"""From a fork of the keeper to a worker: gives up every right, then serves requests.

    run(server, limits, nonce, channel, output, user, folder)       # never returns

Afterwards this process has three descriptors (nothing to read, the output pipe twice) and its
channel; a temporary folder; no capability; the kernel's limits. Treated in course chapter
01_graph_ir (assignment a1).
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import random
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from grader.sandbox import kernel, limits, locks
from grader.sandbox.limits import Isolation, Limits

if TYPE_CHECKING:
    from grader.sandbox.keeper import Server

READY = b"+"
_CHANNEL = 3  # the descriptor of the channel


def run(
    server: Server,
    bounds: Limits,
    nonce: str,
    channel: int,
    output: int,
    user: int | None,
    folder: str,
) -> None:
    """Become the worker; the process ends here."""
    try:
        keeper = os.getppid()
        _descriptors(channel, output)
        os.chdir(folder)
        _surroundings(folder)
        _give_up(server, user)
        if os.getppid() != keeper:
            os._exit(1)
        _lock(server, bounds, folder)
        os.closerange(_CHANNEL + 1, 1 << 16)
        limits.apply(bounds, server.vm_size, server.tasks)
        channel_socket = socket.socket(fileno=_CHANNEL)
        channel_socket.sendall(READY)  # until here every fault is ours
        stream = channel_socket.makefile("rwb")
        importlib.import_module(server.serving).serve(stream, stream, bytes.fromhex(nonce))
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def _descriptors(channel: int, output: int) -> None:
    """0 reads nothing, 1 and 2 write to the output pipe, 3 is the channel."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    high = [os.dup(fd) for fd in (nothing, output, output, channel)]
    high = [_above(fd) for fd in high]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=False)


def _above(descriptor: int) -> int:
    """The same, at a number that no target has."""
    while descriptor <= _CHANNEL:
        descriptor = os.dup(descriptor)
    return descriptor


def _surroundings(folder: str) -> None:
    os.environ.clear()
    os.environ.update({"HOME": folder, "TMPDIR": folder, "MINIDLC_CACHE": "off"})
    os.environ.update({"MINIDLC_JOBS": "1", "OPENBLAS_NUM_THREADS": "1"})
    tempfile.tempdir = folder
    random.seed(0)  # what is drawn without a seed is the same in every run
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        text = open(descriptor, "w", 8192, "utf-8", "replace", closefd=False)  # noqa: SIM115
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    faulthandler.enable(2)  # a crash names the line in the output


def _give_up(server: Server, user: int | None) -> None:
    """User, capabilities, and the way back to them."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if kernel.available():
        if server.isolation == Isolation.NAMESPACES or user is not None:
            kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)


def _lock(server: Server, bounds: Limits, folder: str) -> None:
    """Files and calls that no worker needs are out of reach, where the kernel can do that."""
    if "landlock" in server.locks:
        locks.lock_files(server.readable, folder)
    if "seccomp" in server.locks:
        locks.lock_calls(may_fork=bounds.processes > 1)
