"""`python -m grader doctor`: what this machine can hold apart, and whether grading works here.

    ✓ isolation: namespaces
    ✓ worker: answers in 12 ms, ended, nothing left behind

Exits with 1 if submissions cannot be graded here.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from grader.overlay import build_overlay
from grader.sandbox import ForkServer, Isolation, Limits, best

CELLS = [["cell 1.1", "def twice(x):\n    return 2 * x\n"]]


def doctor(out: Console) -> bool:
    """Print one line per check; True if grading works here."""
    return all([_report(out, check) for check in (_system, _isolation, _worker)])


def _report(out: Console, check: Callable[[], tuple[bool, str]]) -> bool:
    try:
        good, text = check()
    except Exception as error:  # whatever is wrong with this machine is what we are here to say
        good, text = False, f"{check.__name__.strip('_')}: {type(error).__name__}: {error}"
    out.print(f"{'✓' if good else '✗'} {text}", markup=False)
    return good


def _system() -> tuple[bool, str]:
    name = platform.system()
    text = f"Python {platform.python_version()} on {name} {platform.release()}"
    fits = name in ("Linux", "Darwin")
    return fits, text if fits else text + ": grade on Linux or macOS; check_here works here"


def _isolation() -> tuple[bool, str]:
    level = best()
    text = f"isolation: {level.name.lower()}"
    if level < Isolation.NAMESPACES:
        text += " (grader/docs/isolation.md says what it does not stop)"
    return True, text


def _worker() -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        overlay = build_overlay((), Path(folder) / "overlay")
        with ForkServer(overlay, best()) as server:
            start = time.perf_counter()
            worker = server.spawn(Limits(seconds=10))
            functions = {"1.1": "twice"}
            request = {"do": "start", "cells": CELLS, "glue": "", "functions": functions}
            worker.request({"message": request}, _nothing)
            call: dict[str, object] = {"do": "call", "task": "1.1", "args": [21], "kwargs": {}}
            reply = worker.request({"message": call}, _nothing)
            milliseconds = 1e3 * (time.perf_counter() - start)
            usage = worker.close()
    right = reply.get("value") == 42 and not usage.left_behind
    ending = "nothing left behind" if not usage.left_behind else "processes were left behind"
    return right, f"worker: answers in {milliseconds:.0f} ms, ended, {ending}"


def _nothing(number: int, args: list[object]) -> object:
    raise AssertionError("nothing is asked")
