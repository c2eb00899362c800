"""Kernels that tests tune: small ones, quickly made."""

from __future__ import annotations

import minidlc as mc
from minidlc import te
from minidlc.expr.types import f32
from minidlc.lower.express import express_node
from minidlc.schedules import Group
from minidlc.target import Target, host
from minidlc.transform import Pipeline
from minidlc.tuning.records import Record
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial


def product(m: int = 24, n: int = 32, k: int = 16, *, constant: bool = False) -> Group:
    """relu(a @ b)."""
    a, b = te.placeholder(f32[m, k], "a"), te.placeholder(f32[k, n], "b")
    axis = te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis), "matmul")
    d = te.compute((m, n), lambda i, j: te.where(c[i, j] < 0.0, 0.0, c[i, j]), "relu")
    return Group((d,), c, frozenset({"b"} if constant else ()))


def task_of(group: Group, kind: str = "matmul", target: Target | None = None) -> Task:
    """A kernel of this machine, on one thread."""
    return Task(group, kind, target or host(), 1)


def tasks_of(graph: mc.Graph, target: Target | None = None) -> list[Task]:
    """Every kernel of a graph that has tensor expressions, after the default passes."""
    machine = target or host()
    optimised, _ = Pipeline.default(3, machine).run(graph)
    found = list[Task]()
    for node in optimised.nodes:
        if not hasattr(type(node.op), "loops") and not node.op.is_view:
            e = express_node(node)
            found.append(Task(e.group, e.kind, machine, 1, node.name))
    return found


def won(task: Task, trial: Trial) -> Record:
    """The record of a final in which a point was twice as fast as the default."""
    slow = tuple(2 * s for s in trial.seconds)
    return Record.of(task, trial, default=task.default, default_seconds=slow)
