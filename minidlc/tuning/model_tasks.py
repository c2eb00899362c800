"""The kernels of a model as tasks: equal ones are one task, however often they stand there.

    found = model_tasks(exe.program.kernels, calls, target, threads=1)
    found.tasks[0].task, found.tasks[0].names, found.tasks[0].count     # 3 kernels, 3 calls a run
    found.left_out                                  # {'k7_concat': 'there is one way, no knobs'}

Reads the lowered kernels of a program, and how often each is called in a run (profiling counts
that: a kernel in a loop is called many times). A task is tuned once and serves all its kernels.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from minidlc.graph import Node
from minidlc.lower import LoweredKernel
from minidlc.lower.express import express_node
from minidlc.target import Target
from minidlc.tuning.task import Task
from minidlc.tuning.workload import is_tunable


@dataclass(frozen=True)
class ModelTask:
    """A task, the kernels of the model that it stands for, and their calls in a run."""

    task: Task
    names: tuple[str, ...]
    count: int

    @property
    def key(self) -> str:
        """Of the workload."""
        return self.task.workload.key


@dataclass(frozen=True)
class Found:
    """What can be tuned in a model, and why the rest cannot, by name of the kernel."""

    tasks: tuple[ModelTask, ...]
    left_out: dict[str, str]


def model_tasks(
    kernels: Iterable[LoweredKernel], calls: Mapping[str, int], target: Target, threads: int
) -> Found:
    """The tasks in the order of their first kernels; `calls` by name, 1 where it says nothing.

    What is never called, such as the other branch of an If, has no weight and is left out.
    """
    tasks, left_out = dict[str, ModelTask](), dict[str, str]()
    for kernel in kernels:
        found = task_of(kernel, target, threads)
        if isinstance(found, str):
            left_out[kernel.name] = found
            continue
        key, count = found.workload.key, calls.get(kernel.name, 1)
        known = tasks.get(key, ModelTask(found, (), 0))
        tasks[key] = replace(known, names=(*known.names, kernel.name), count=known.count + count)
    idle = [name for task in tasks.values() if not task.count for name in task.names]
    left_out |= dict.fromkeys(idle, "it was not called when the model was profiled")
    return Found(tuple(t for t in tasks.values() if t.count), left_out)


def task_of(kernel: LoweredKernel, target: Target, threads: int) -> Task | str:
    """The kernel as a task; if there is nothing to choose, why."""
    if kernel.group is None or not isinstance(kernel.origin, Node):
        return "its op writes the loops itself" if kernel.group is None else "it copies a value"
    if kernel.is_copy:
        return "it copies a value"
    expressed = express_node(kernel.origin)
    if not is_tunable(expressed.group):
        return "it is a recurrence: its steps run in order"
    task = Task(expressed.group, expressed.kind, target, threads, kernel.name)
    if task.space.size < 2:
        return "there is one way to compute it, without knobs"
    return task
