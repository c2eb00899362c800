"""The fixture `student` of every test: the parent's hand on a student's function.

    def test_order(student):
        "A node stands after what it reads."
        got = student.call("1.2", graph)            # decoded, verified, made anew
        [y] = student.evaluate(got, [x])            # in the evaluator, never here

Runs in the parent. Everything that comes back is data; what the student's code raised comes back
as StudentRaised. Sends requests through a Channel, so that a test does not know whether a worker
is a process of a fork server, a plain child (at home) or this process (while writing tests).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

import minidlc as mc
from grader.model import Status
from minidlc.expr.types import Array


class Channel(Protocol):
    """A live worker or evaluator."""

    def request(self, message: dict[str, Any], answer: Callable[[int, list[Any]], Any]) -> Any:
        """Send; the reply as `exchange.py` checked it; `answer` serves what the worker asks.

        Raises Died if there is none, StudentRaised if it is malformed.
        """
        ...


class Died(Exception):
    """The process is gone: why, and one sentence for the student."""

    def __init__(self, status: Status, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


@dataclass
class StudentRaised(Exception):
    """The student's code raised, or returned what cannot be read."""

    kind: str  # class name
    message: str
    code: str = ""  # MDLC… of a CompileError
    notes: tuple[str, ...] = ()
    hint: str = ""
    place: str = ""
    frames: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass
class Student:
    """One submission, one task."""

    worker: Channel
    evaluator: Channel
    rng: np.random.Generator  # hidden inputs: seeded by student and task
    calls: dict[str, int] = field(default_factory=dict[str, int])  # task id -> calls so far

    def call(self, task: str, *args: Any, **kwargs: Any) -> Any:
        """Call the task's function (through its glue) and return what it gave.

        Functions among the arguments are called here when the student's code calls them.
        Raises StudentRaised, or Died.
        """
        functions: list[Callable[..., Any]] = []

        def number(function: Callable[..., Any]) -> int:
            functions.append(function)
            return len(functions) - 1

        message = {"do": "call", "task": task, "args": list(args), "kwargs": kwargs}
        reply = self.worker.request(
            {"message": message, "number": number},
            lambda n, asked: functions[n](*asked),
        )
        self.calls |= reply["calls"]
        return _value(reply)

    def raises(self, task: str, *args: Any, **kwargs: Any) -> StudentRaised | None:
        """What the call raised, or None if it returned."""
        try:
            self.call(task, *args, **kwargs)
        except StudentRaised as raised:
            return raised
        return None

    def evaluate(self, graph: mc.Graph, inputs: list[Array]) -> list[Array]:
        """What a graph that the student returned computes: run in the evaluator."""
        return self._run("evaluate", graph, inputs)

    def compile(self, graph: mc.Graph, inputs: list[Array]) -> list[Array]:
        """The same, compiled."""
        return self._run("compile", graph, inputs)

    def start(self, cells: list[list[str]], glue: str, functions: dict[str, str]) -> set[str]:
        """Hand over cells (label, source); the ids of the tasks whose function is not there."""
        message = {"do": "start", "cells": cells, "glue": glue, "functions": functions}
        missing = _value(self.worker.request({"message": message}, _nothing))
        return {id for id in functions if isinstance(missing, list) and id in missing}

    def _run(self, how: str, graph: mc.Graph, inputs: list[Array]) -> list[Array]:
        message = {"do": how, "graph": graph, "inputs": inputs}
        return _value(self.evaluator.request({"message": message}, _nothing))


def _nothing(number: int, args: list[Any]) -> Any:
    raise AssertionError("an evaluator asks nothing")


def _value(reply: dict[str, Any]) -> Any:
    """The value, or the exception, of a reply that a Channel has checked."""
    if "raised" not in reply:
        return reply["value"]
    texts = {key: reply[key] for key in ("message", "code", "hint", "place")}
    notes, frames = tuple(reply["notes"]), tuple(reply["frames"])
    raise StudentRaised(reply["raised"], **texts, notes=notes, frames=frames)
