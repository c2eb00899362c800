"""The processes of grading: one fork server for each set of withheld parts.

    with Servers(best()) as servers:
        worker = servers.worker(task, seconds=5.0)  # a fresh fork, milliseconds

A server starts when it is first needed and is kept. Overlays lie in one folder.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grader.closing import Closing
from grader.files import glue_of
from grader.model import Assignment, Task
from grader.overlay import build_overlay
from grader.runner import Process
from grader.sandbox import ForkServer, Isolation, Limits
from grader.sandbox.forkserver import LLVM, PRELOADED


@contextmanager
def overlay_folder() -> Generator[Path]:
    """A temporary folder that workers under another user id can read."""
    with tempfile.TemporaryDirectory(prefix="grader-", ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextmanager
def shared(tasks: Iterable[Task]) -> Generator[Path]:
    """A folder with the overlays of these tasks and of evaluators, for many processes."""
    with overlay_folder() as folder:
        for withheld in {(), *(tuple(sorted(task.withheld)) for task in tasks)}:
            build_overlay(withheld, folder)
        yield folder


def servers_for(assignment: Assignment, isolation: Isolation, overlays: Path | None) -> Servers:
    """Those that suit the assignment: its glue is compiled, and LLVM loaded if it needs that."""
    return Servers(isolation, overlays, assignment.llvm, glue_of(assignment.folder))


@dataclass
class Servers(Closing):
    """Starts workers and evaluators in sandboxes."""

    isolation: Isolation
    overlays: Path | None = None  # where overlays lie; None: in a folder that `close` removes
    llvm: bool = False  # loaded before the fork
    glue: str = ""  # compiled before the fork
    _servers: dict[tuple[str, ...], ForkServer] = field(
        default_factory=dict[tuple[str, ...], ForkServer]
    )
    _stack: ExitStack = field(default_factory=ExitStack)

    def worker(self, task: Task, seconds: float) -> Process:
        """A fresh worker whose minidlc lacks what the task withholds."""
        withheld = tuple(sorted(task.withheld))
        return self._server(withheld).spawn(Limits(seconds=seconds, stated=task.seconds))

    def evaluator(self, task: Task, seconds: float) -> Process:
        """A fresh evaluator, with all of minidlc."""
        return self._server(()).spawn(Limits(seconds=seconds, stated=task.seconds))

    def _server(self, withheld: tuple[str, ...]) -> ForkServer:
        if withheld not in self._servers:
            overlay = build_overlay(withheld, self._folder())
            preload = (*PRELOADED, *LLVM) if self.llvm else PRELOADED
            server = ForkServer(overlay, self.isolation, preload=preload, glue=self.glue)
            self._servers[withheld] = self._stack.enter_context(server)
        return self._servers[withheld]

    def _folder(self) -> Path:
        if self.overlays is None:
            self.overlays = self._stack.enter_context(overlay_folder())
        return self.overlays

    def close(self) -> None:
        """End all servers and remove the overlays."""
        self._servers.clear()
        self._stack.close()
