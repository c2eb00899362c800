"""A Channel without a process: for writing tests, never for grading.

    student = local_student(cells, glue, {"1.2": "order_nodes"}, seed=0)
    test_order(student)

The messages take the same way through encoding and decoding as between processes.
Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import threading
from socket import socketpair

import numpy as np

from grader.exchange import StreamChannel
from grader.serve import serve
from grader.student import Channel, Student, StudentRaised

__all__ = ["StreamChannel", "local_channel", "local_student", "start"]


def local_channel() -> StreamChannel:
    """A served channel in a thread of this process."""
    here, there = socketpair()
    stream = there.makefile("rwb")
    threading.Thread(target=serve, args=(stream, stream), daemon=True).start()
    mine = here.makefile("rwb")
    return StreamChannel(mine, mine)


def start(
    channel: Channel, cells: list[list[str]], glue: str, functions: dict[str, str]
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
