"""A training run on a terminal: its progress, and Ctrl-C between two steps.

    with ctrl_c() as asked, progress(show=True) as bars:
        while not asked.is_set():                   # the first Ctrl-C sets it
            …

Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def ctrl_c() -> Generator[threading.Event]:
    """Let the first Ctrl-C set an event, because within a step parameters are half updated.

    A second one raises KeyboardInterrupt at once, as usual.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals come to the main thread alone
        return

    def handle(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def is_terminal() -> bool:
    """Is there somebody to look at the progress?"""
    return Console(stderr=True).is_terminal


def progress(show: bool) -> Progress:
    """A bar for each epoch, with the loss, on stderr; nothing at all without `show`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not show,
    )
