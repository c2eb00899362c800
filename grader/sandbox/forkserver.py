"""The parent's side of a fork server: started once, then a fresh worker in milliseconds.

    with ForkServer(overlay, best()) as server:     # RuntimeError if the level cannot be had
        with server.spawn(Limits(seconds=5)) as worker:
            worker.request(…)

The server is a Python of its own (`python -S -P`, an empty environment) that imports from the
overlay only. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from grader.exchange import new_nonce
from grader.overlay import inner_grader
from grader.sandbox.limits import Isolation, Limits
from grader.sandbox.sandboxed import Sandboxed

LLVM = ("minidlc.jitted", "minidlc.driver", "minidlc.executable")  # a fork costs twice as much
PRELOADED = (  # a worker that had to import it would pay each time
    "numpy",
    "numpy.random",
    "onnx",
    "minidlc.ops",
    "minidlc.graph",
    "minidlc.frontend.onnx",
    "minidlc.frontend.script",
    "minidlc.frontend.trace",
    "minidlc.transform",
    "minidlc.overrides",
    "grader.warm",
)
_START_SECONDS = 60.0
_SPAWN_SECONDS = 10.0
_MAIN = """import sys; sys.path.append({overlay!r})
from grader.sandbox.server import main; main({settings!r})"""


class ForkServer:
    """A preloaded process that forks workers; ends with `close()` or with this process."""

    def __init__(
        self,
        overlay: Path,
        isolation: Isolation,
        *,
        preload: tuple[str, ...] = PRELOADED,
        glue: str = "",
        python: str = sys.executable,
        serving: str = "grader.serve",
        locks: tuple[str, ...] = ("landlock", "seccomp"),
    ) -> None:
        self.overlay, self.isolation = overlay.resolve(), isolation
        self._preload, self._glue = preload, glue
        self.python, self._serving = python, serving
        self._wanted = locks  # where the kernel has them
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        settings = {
            "overlay": str(self.overlay),
            "isolation": int(self.isolation),
            "preload": self._preload,
            "glue": self._glue,
            "serving": self._serving,
            "locks": self._wanted,
            "control": theirs.fileno(),
            "temporary": tempfile.gettempdir(),
        }
        program = _MAIN.format(overlay=str(self.overlay), settings=json.dumps(settings))
        self.process = subprocess.Popen(
            [self.python, "-S", "-P", "-B", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
        )
        theirs.close()
        self._control = ours
        self.locks = tuple(self._hear("ready", _START_SECONDS).split())

    def _hear(self, wanted: str, seconds: float) -> str:
        """What follows this word in the server's next line; RuntimeError if it is another line."""
        self._control.settimeout(seconds)
        line = b""
        with suppress(OSError):
            while not line.endswith(b"\n") and (part := self._control.recv(4096)):
                line += part
        if line.startswith(wanted.encode()):
            return line.decode().removeprefix(wanted).strip()
        said = line.decode("utf-8", "replace").strip().removeprefix("error ")
        if not said:
            self.process.kill()
            said = (self.process.communicate()[1] or b"").decode("utf-8", "replace").strip()
        self.close()
        raise RuntimeError(f"the fork server ({self.isolation.name.lower()}): {said or 'silent'}")

    def spawn(self, limits: Limits) -> Sandboxed:
        """A fresh worker; its deadline counts from now. Starts the server again if it is gone."""
        if self.process.poll() is not None:
            self.close()
            self._start()
        nonce = new_nonce()
        channel, worker_channel = socket.socketpair()
        life, keeper_life = socket.socketpair()
        output, worker_output = os.pipe()
        request = {"limits": dataclasses.asdict(limits), "nonce": nonce.hex()}
        theirs = [worker_channel.fileno(), worker_output, keeper_life.fileno()]
        worker = Sandboxed(channel, output, life, nonce, limits)
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], theirs)
            self._hear("ok", _SPAWN_SECONDS)
        except BaseException:
            worker_channel.close()
            keeper_life.close()
            worker.close()
            raise
        finally:
            worker_channel.close()
            keeper_life.close()
            os.close(worker_output)
        return worker

    @property
    def active(self) -> str:
        """What keeps workers in, for the report: "namespaces, landlock, seccomp"."""
        return ", ".join([self.isolation.name.lower(), *self.locks])

    def close(self) -> None:
        """End the server, and with it every worker."""
        self._control.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def best() -> Isolation:
    """The highest level that works on this machine, found by trying."""
    return next(level for level in sorted(Isolation, reverse=True) if not why_not(level))


@functools.cache
def why_not(level: Isolation) -> str:
    """Why a level cannot be had here, found by a worker that imports and answers; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="minidlc-probe-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        inner_grader(folder)
        (folder / "grader/probe.py").write_text(_PROBE)
        try:
            with (
                ForkServer(folder, level, preload=("json",), serving="grader.probe") as server,
                server.spawn(Limits()) as worker,
            ):
                worker.begin()
                return "" if worker.read(2) == b"ok" else worker.close().output or "no answer"
        except (RuntimeError, OSError) as error:
            return str(error)


_PROBE = """
def serve(source, sink, nonce):
    import colorsys
    sink.write(b"ok")
    sink.flush()
"""
