"""The autograder of the course. `python -m grader --help`.

    import grader
    grader.check_here("1.2")                        # in a notebook: the public tests of a task
    grader.keep("1.2")                              # your part, kept for the next assignment

Importing this costs nothing: its parts are loaded when they are used.
"""

from __future__ import annotations

import importlib
from pathlib import Path


def check_here(task: str, folder: str | Path | None = None) -> None:
    """Run the public tests of a task on what this notebook has defined so far, and show them.

    `folder` is the assignment's; by default the one the notebook stands in. The code runs in a
    process of its own that is ended after the task's time; nothing else is limited.
    """
    importlib.import_module("grader.home").check_here(task, folder)


def keep(task: str, folder: str | Path | None = None) -> None:
    """Write your part of a task into `mystack/`, where later assignments find it."""
    importlib.import_module("grader.home").keep(task, folder)
