"""Workers that are plain child processes: a deadline, no other limit. For home, on every system.

    workers = PlainWorkers()
    worker = workers.worker(task, seconds=10)       # Process of runner.py: request, close
    worker.close().output                           # what the code printed

What a task withholds is missing here as well, so that nothing works at home and fails later; a
student could undo it, which is why grading uses `sandbox/`. Starts `child.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from grader.exchange import Answer, StreamChannel
from grader.model import Status, Task
from grader.overlay import without
from grader.sandbox.limits import Limits, Usage
from grader.student import Died

KEPT = 64 << 10  # bytes of what the code printed
_PATIENCE = 5.0  # seconds for a process to end by itself


class PlainWorkers:
    """Starts workers and evaluators."""

    def worker(self, task: Task, seconds: float) -> PlainProcess:
        """A fresh process in which the withheld parts of minidlc are missing."""
        return PlainProcess(emptied(task.withheld), seconds)

    def evaluator(self, task: Task, seconds: float) -> PlainProcess:
        """A fresh process with all of minidlc."""
        return PlainProcess({}, seconds)


def emptied(withheld: tuple[str, ...]) -> dict[str, str]:
    """Module → its source without the parts that are withheld."""
    parts: dict[str, list[str]] = {}
    for part in withheld:
        module, _, name = part.partition(":")
        parts.setdefault(module, []).append(name)
    sources: dict[str, str] = {}
    for module, names in parts.items():
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            text = Path(spec.origin).read_text(encoding="utf-8")
            sources[module] = without(text, names, module)
    return sources


class PlainProcess:
    """One child process and the way to talk to it."""

    def __init__(self, sources: dict[str, str], seconds: float) -> None:
        self._seconds, self._late = seconds, False
        self._start = time.monotonic()
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grader.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))},
        )
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        self._source, self._sink = cast(BinaryIO, source), cast(BinaryIO, sink)
        with suppress(OSError):
            sink.write(json.dumps(sources).encode() + b"\n")
            sink.flush()
        if source.read(1) != b"\n":
            said = self.close().output.strip()
            raise RuntimeError(f"the process did not start: {said[-2000:]}")
        self._start = time.monotonic()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def request(self, message: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """Send the request, serve what is asked meanwhile, return the reply. Raises Died."""
        try:
            return StreamChannel(self._source, self._sink).request(message, answer)
        except (EOFError, OSError, ValueError):
            raise self._died() from None

    def close(self) -> Usage:
        """End the process."""
        if hasattr(self, "_timer"):
            self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for stream in (self._source, self._sink):
            with suppress(OSError):
                stream.close()
        if self._printed.closed:
            return Usage()
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(0)
        text = self._printed.read(KEPT).decode("utf-8", "replace")
        self._printed.close()
        seconds = time.monotonic() - self._start  # no system tells the CPU time alike
        return Usage(cpu_seconds=seconds, output=text, output_bytes=size)

    def _end(self) -> None:
        self._late = True
        self._process.kill()

    def _died(self) -> Died:
        """The process is gone: how."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        if self._late:
            return Died(Status.TIMEOUT, Limits(self._seconds).too_long)
        code = self._process.returncode
        if code == 0:
            text = "The process ended by itself, before it had answered."
        else:
            text = f"The process ended by itself, with exit status {code}."
        return Died(Status.CRASHED, text)
