"""A kernel with every kind of bad point: the worker processes of tests are sent these."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.text import parse_function
from minidlc.schedules import Group
from minidlc.support.errors import ScheduleError
from minidlc.target import host
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Candidate, Task

SIZE = 100
ADD = "    for i in serial(0, 100):\n        y[i] = x[i] + 1.0\n"
LOOPS = {
    "right": ADD,
    "slow": "    for r in serial(0, 2000):\n"
    + ADD.replace("    ", "        ", 1).replace("        y", "            y"),
    "endless": "    for r in serial(0, 1000000000000000):\n        y[0] = x[0] + 1.0\n",
    "wrong": ADD.replace("1.0", "1.25"),
    "unwritten": ADD.replace("100", "99"),
    "right once": ADD.replace("x[i] + 1.0", "where(y[i] == y[i], y[i] + 1.0, x[i] + 1.0)"),
    "writes input": ADD.replace("y[i] = x[i]", "x[i] = x[i]") + ADD.replace("+ 1.0", "* 1.0"),
    "writes behind": ADD.replace("(0, 100)", "(0, 104)"),
    "writes before": ADD.replace("(0, 100)", "(-8, 100)"),
    "reads far behind": ADD.replace("x[i]", "x[i + 1000]"),
    "writes far away": ADD + "    y[100000000] = 1.0\n",
    "no code": "    for i in vectorized(0, 3):\n        y[0] = y[0] / x[i]\n",
}
WAYS = ("refused", "sleeps", "dies", "assertion", "memory", *LOOPS)


def point(way: str) -> Config:
    """A point of the space of a `Hostile` task."""
    return Config(way)


@dataclass(frozen=True)
class Hostile(Task):
    """y = x + 1, in the ways of WAYS."""

    @cached_property
    def space(self) -> Space:
        """A way each."""
        ways: Mapping[str, Mapping[str, tuple[int, ...]]] = {way: {} for way in WAYS}
        return Space(ways)

    @property
    def default(self) -> Config:
        """The only one that is good and quick."""
        return point("right")

    def unchecked(self, config: Config) -> Candidate:
        """As `lower`: nothing is checked there."""
        return self.lower(config)

    def lower(self, config: Config) -> Candidate:
        """Loops, or what happens to who asks for them."""
        match config.way:
            case "refused":
                raise ScheduleError("no stage\nof that name", code="MDLC0601")
            case "sleeps":
                time.sleep(100)
            case "dies":
                os.kill(os.getpid(), signal.SIGABRT)
            case "assertion":
                raise AssertionError("unexpected")
            case "memory":
                np.zeros(1 << 50, np.uint8)
            case _:
                pass
        sch = te.create_schedule(self.group.outputs, checked=False)
        text = f"def kernel(x: f32[{SIZE}], y: f32[{SIZE}]):\n" + LOOPS[config.way]
        return Candidate(config, sch, parse_function(text), ())


@dataclass(frozen=True)
class Killer(Hostile):
    """Whoever lowers it kills the process that waits for the answer, once for each file."""

    folder: str = ""

    def lower(self, config: Config) -> Candidate:
        """Kill the parent the first time a point is asked for."""
        seen = Path(self.folder) / config.way
        if config.way != "right" and not seen.exists():
            seen.touch()
            os.kill(os.getppid(), signal.SIGKILL)
        return super().lower(config)


def hostile() -> Hostile:
    """The task, on this machine and one thread."""
    return Hostile(_group(), "injective", host(), 1, "hostile")


def killer(folder: Path) -> Killer:
    """The same, deadly to who asks for another point than 'right'."""
    made = Killer(_group(), "injective", host(), 1, "killer")
    return replace(made, folder=str(folder))


def _group() -> Group:
    x = te.placeholder(f32[SIZE], "x")
    return Group((te.compute((SIZE,), lambda i: x[i] + 1.0, "y"),))
