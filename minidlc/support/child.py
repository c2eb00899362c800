"""A Python process beside this one that answers questions: for work that may die, hang or be slow.

    child = Child.start("import sys; sys.path[:] = {path!r}; from m import serve; serve()")
    child.ask(question, seconds=2.0)                # what m.serve wrote, or ChildLost: why not
    child.end()                                     # at once, whatever it does

Questions and answers are pickles, through pipes. The child runs none of the parent's memory, so
that whatever kills it leaves the parent alone. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO


class ChildLost(Exception):
    """The child gave no answer; the text says how it ended. `late`: it took too long."""

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


class Child:
    """A process that was started by `start`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @staticmethod
    def start(code: str) -> Child | None:
        """Run `code`, with this process' module path for `{path!r}`.

        None where this program is no plain Python, or may start no processes.
        """
        program = Path(sys.executable or "")
        if not program.name.startswith("python") or getattr(sys, "frozen", False):
            return None
        command = [str(program), "-E", "-s", "-c", code.format(path=sys.path)]
        pipe = subprocess.PIPE
        try:
            return Child(
                subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            )
        except (OSError, ValueError):
            return None

    def ask(self, question: object, seconds: float | None = None) -> object:
        """Its answer; ChildLost if it ended, or had to be ended after `seconds`.

        Raises what pickling the question raises, before anything is sent.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        data = pickle.dumps(question)
        late = threading.Event()
        watch = None
        if seconds is not None:
            watch = threading.Timer(seconds, lambda: (late.set(), self.process.kill()))
            watch.daemon = True
            watch.start()
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)  # from our own child
        except (OSError, ValueError, EOFError, pickle.PickleError):
            text = f"no answer within {seconds:g} s" if late.is_set() else self._how_it_ended()
            raise ChildLost(text, late.is_set()) from None
        finally:
            if watch is not None:
                watch.cancel()

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        status = self.process.poll()
        if status is None:
            return "it said something that is no answer"
        if status < 0 and -status in set(signal.Signals):
            return f"it died of {signal.Signals(-status).name}"
        return f"it ended with status {status}"

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)

    def close(self) -> None:
        """Close the pipes: by the thread that uses them, or it might be waited for."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def streams() -> tuple[IO[bytes], IO[bytes]]:
    """In the child: where questions come from and answers go to; its input ends with the parent.

    Ctrl-C is for the parent, who then ends us; what a library prints is no answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers
