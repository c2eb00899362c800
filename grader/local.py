"""A Channel without a process: for writing tests, never for grading.

    student = local_student(cells, glue, {"1.2": "order_nodes"}, seed=0)
    test_order(student)

The messages take the same way through encoding and decoding as between processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from socket import socketpair
from typing import Any

import numpy as np

from grader import wire
from grader.serve import serve
from grader.student import Student, StudentRaised


@dataclass
class StreamChannel:
    """A Channel over two streams; deadlines and the end of a process are the owner's matter."""

    source: Any  # binary streams
    sink: Any
    nonce: str = ""

    def request(self, message: dict[str, Any], answer: Callable[[int, list[Any]], Any]) -> Any:
        """Send the request, serve what is asked meanwhile, return the reply."""
        wire.write(self.sink, message["message"], message.get("number"))
        while True:
            try:
                reply = wire.read(self.source)
            except Exception as error:
                raise StudentRaised("UnreadableAnswer", str(error)) from None
            if reply.get("nonce") != self.nonce:
                raise StudentRaised("UnreadableAnswer", "an answer that is not of this call")
            if reply.get("do") != "ask":
                return reply
            wire.write(self.sink, answer(reply["number"], reply["args"]))


def local_channel() -> StreamChannel:
    """A served channel in a thread of this process."""
    here, there = socketpair()
    stream = there.makefile("rwb")
    threading.Thread(target=serve, args=(stream, stream), daemon=True).start()
    mine = here.makefile("rwb")
    return StreamChannel(mine, mine)


def start(
    channel: StreamChannel, cells: list[list[str]], glue: str, functions: dict[str, str]
) -> list[str]:
    """Hand the cells over; returns the ids of the tasks whose function is missing."""
    message = {"do": "start", "cells": cells, "glue": glue, "functions": functions}
    reply = channel.request({"message": message}, lambda n, args: None)
    if "raised" in reply:
        raise StudentRaised(reply["raised"], reply["message"], frames=tuple(reply["frames"]))
    return reply["value"]


def local_student(
    cells: list[list[str]], glue: str, functions: dict[str, str], seed: int = 0
) -> Student:
    """A Student whose code runs in a thread of this process."""
    worker = local_channel()
    start(worker, cells, glue, functions)
    return Student(worker, local_channel(), np.random.default_rng(seed))
