"""The parent's hand on one worker: requests under a deadline, bounded output, one end.

    worker = server.spawn(Limits(seconds=5))
    reply = worker.request({"message": {"do": "call", …}}, answer)      # Died, StudentRaised
    usage = worker.close()                                              # all of it is gone

A Channel (student.py). Reads only the channel, the output pipe and the keeper's report, all of
bounded size; never an exit code for a score. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from grader import wire
from grader.exchange import Answer, exchange
from grader.model import Status
from grader.sandbox.limits import Limits, Usage
from grader.student import Died, StudentRaised

_CHUNK = 1 << 16
_REPORT_SECONDS = 5.0  # for the keeper to end everything


class _TimeOver(Exception):
    pass


class _TooMuchOutput(Exception):
    pass


class Sandboxed:
    """A live worker or evaluator in its sandbox."""

    def __init__(
        self, channel: socket.socket, output: int, life: socket.socket, nonce: bytes, limits: Limits
    ) -> None:
        self._channel, self._output, self._life = channel, output, life
        self._nonce, self._limits = nonce, limits
        self._end = time.monotonic() + limits.seconds
        self._died: Died | None = None
        self._usage: Usage | None = None
        self._printed = b""
        self._printed_bytes = 0
        self._received: bytes = b""  # what has come
        self._taken = 0  # how much of it was read
        self._ready = False
        self._silent = False  # the output pipe is closed
        channel.setblocking(False)
        os.set_blocking(output, False)
        self._poll = select.poll()
        self._poll.register(output, select.POLLIN)

    def request(self, message: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """Send the request, serve what is asked meanwhile, return the reply.

        Raises Died if the worker is gone or has to be ended, StudentRaised for an answer that
        cannot be read.
        """
        if self._died is not None:
            raise self._died
        self.begin()
        try:
            reply = exchange(self._send, self._receive, message, answer)
        except wire.Broken as error:
            sentence = "The process was ended: it sent bytes that are not an answer."
            self._die(Status.CRASHED, sentence)
            raise StudentRaised("UnreadableAnswer", str(error)) from None
        except _TimeOver:
            raise self._die(Status.TIMEOUT, self._limits.too_long) from None
        except _TooMuchOutput:
            text = f"It was ended after printing more than {self._limits.output_kill:,} bytes."
            raise self._die(Status.OUTPUT_LIMIT, text) from None
        except (EOFError, OSError):
            raise self._gone() from None
        if reply.get("raised") == "MemoryError":
            raise self._die(Status.OOM, self._memory_sentence())
        return reply

    def begin(self) -> None:
        """Wait until the worker is ready; RuntimeError if it is not: no student's fault."""
        if self._ready:
            return
        with suppress(OSError, _TimeOver, _TooMuchOutput):
            self._ready = self.read(1) == b"+"
        if not self._ready:
            report = self._finish(closed=True)
            said = report.get("fault") or self.close().output.strip() or "no answer"
            raise RuntimeError(f"a worker could not be started: {said}")

    def close(self) -> Usage:
        """End the worker and all it started; what it took. A second call returns the same."""
        if self._usage is None:
            self._finish()
        assert self._usage is not None
        return self._usage

    def __enter__(self) -> Sandboxed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes of the channel, b"" at its end; empties the output pipe meanwhile."""
        if self._taken == len(self._received):
            self._received, self._taken = self._more(), 0
        part = self._received[self._taken : self._taken + size]
        self._taken += len(part)
        return part

    def _more(self) -> bytes:
        while True:
            self._wait(select.POLLIN)
            with suppress(BlockingIOError):
                return self._channel.recv(_CHUNK)

    def _receive(self) -> Any:
        return wire.read(self, nonce=self._nonce)

    def _send(self, value: object, number: Callable[[Any], int] | None) -> None:
        data = memoryview(wire.pack(value, number, self._nonce))
        while data:
            try:
                data = data[self._channel.send(data[: _CHUNK * 16]) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def _wait(self, event: int) -> None:
        """Until the channel is ready for `event`; _TimeOver, _TooMuchOutput."""
        self._poll.register(self._channel, event)
        while True:
            left = self._end - time.monotonic()
            if left <= 0:
                raise _TimeOver
            ready = dict(self._poll.poll(left * 1000 + 1))
            if self._output in ready:
                self._drain()
            if self._channel.fileno() in ready:
                return

    def _drain(self) -> None:
        """Take what was printed: the first of it is kept, the rest counted."""
        with suppress(BlockingIOError, InterruptedError):
            part = os.read(self._output, _CHUNK)
            if not part and not self._silent:
                self._silent = True
                self._poll.unregister(self._output)
            room = self._limits.output - len(self._printed)
            self._printed += part[: max(room, 0)]
            self._printed_bytes += len(part)
        if self._printed_bytes > self._limits.output_kill:
            raise _TooMuchOutput

    def _die(self, status: Status, sentence: str) -> Died:
        self._died = Died(status, sentence)
        self._finish()
        return self._died

    def _gone(self) -> Died:
        """The worker ended by itself: the keeper knows how."""
        report = self._finish(closed=True)
        code = report.get("exit")
        if report and not report.get("by_itself"):
            self._died = Died(Status.CRASHED, "It closed its connection to the grader.")
            return self._died
        if time.monotonic() >= self._end or code == -signal.SIGXCPU:
            self._died = Died(Status.TIMEOUT, self._limits.too_long)
        elif code == -signal.SIGKILL and report.get("peak", 0) > self._limits.memory / 2:
            self._died = Died(Status.OOM, self._memory_sentence())
        else:
            self._died = Died(Status.CRASHED, _how_it_ended(code))
        return self._died

    def _memory_sentence(self) -> str:
        return f"It needed more than {self._limits.memory >> 20} MiB of memory."

    def _finish(self, closed: bool = False) -> dict[str, Any]:
        """End all, collect the report, close everything."""
        if self._usage is not None:
            return {}
        report = self._report(closed)
        with suppress(OSError, _TooMuchOutput):
            for _ in range(64):  # what is still in the pipe, at most
                before = self._printed_bytes
                self._drain()
                if self._printed_bytes == before:
                    break
        self._usage = Usage(
            cpu_seconds=float(report.get("cpu", 0.0)),
            waited_seconds=report.get("waited"),
            peak_bytes=int(report.get("peak", 0)),
            output=self._printed.decode("utf-8", "replace"),
            output_bytes=self._printed_bytes,
            left_behind=int(report.get("left", 0)),
        )
        self._channel.close()
        self._life.close()
        os.close(self._output)
        return report

    def _report(self, closed: bool) -> dict[str, Any]:
        """Tell the keeper to end the worker, or that its channel is closed; its one line."""
        data = b""
        self._life.settimeout(_REPORT_SECONDS)
        with suppress(OSError):  # it may have reported and gone already
            if closed:
                self._life.send(b"closed")
            self._life.shutdown(socket.SHUT_WR)
        with suppress(OSError):  # a reset, if it did not read what was said to it
            while part := self._life.recv(4096):
                data += part
        with suppress(ValueError):
            return json.loads(data)
        return {}


def _how_it_ended(code: object) -> str:
    if isinstance(code, int) and code < 0:
        with suppress(ValueError):
            return f"The process was ended by signal {signal.Signals(-code).name}."
        return f"The process was ended by signal {-code}."
    return "The process ended by itself, before it had answered."
