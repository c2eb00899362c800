"""Cost tables: every point of a kernel's space, built and measured once, for searches to work on.

    python -m minidlc.benchmarks.tables build gemm_1024 --to scratch
    python -m minidlc.benchmarks.tables time gemm_1024 --to scratch --rounds 7
    python -m minidlc.benchmarks.tables write gemm_1024 --to scratch

`build` lowers and compiles all points, on every core, into files that the other two read; it goes
on where it stopped. `time` runs through all points again and again, in another order each round,
one thread, in processor time: a slow moment of the machine hits a point once, not in every round.
`write` keeps the least of the rounds' times and makes the table that the kit ships
(minidlc/tuning/tables). A point that fails has its reason's kind in place of a time. Results are
compared with those of the compiler's own choice before anything is timed.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
from rich.progress import track

import minidlc as mc
from minidlc.benchmarks.raw import RAW, knobs_raw
from minidlc.codegen.compile import Kernel, compile_kernel, kernel_caller, run_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.lower.express import express_node
from minidlc.schedules import Group, Implementation
from minidlc.support.errors import CompileError
from minidlc.target import Target, host
from minidlc.te import stages
from minidlc.transform import Pipeline
from minidlc.tuning.model.features import FEATURES, loop_features
from minidlc.tuning.space import Config
from minidlc.tuning.table import Table
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

REPEAT = 1e-3  # seconds that one measurement takes at least
CHUNK = 50  # points in a file


@dataclass(frozen=True)
class Plan:
    """A kernel of a graph, by kind of schedule, and fewer candidates for some of its raw knobs."""

    graph: mc.Graph
    kind: str
    knobs: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def task(self) -> Task:
        """The kernel, for this machine, on one thread."""
        optimised, _ = Pipeline.default(3, host()).run(self.graph)
        for node in optimised.nodes:
            if not node.op.is_view and not hasattr(type(node.op), "loops"):
                found = express_node(node)
                if found.kind == self.kind:
                    return Task(found.group, found.kind, host(), 1, node.name)
        raise ValueError(f"no kernel of the kind {self.kind}")

    def raw(self) -> RawTask:
        """The same kernel with the space that nobody has pruned."""
        t = self.task()
        return RawTask(t.group, t.kind, t.target, t.threads, t.name, self.knobs)


@dataclass(frozen=True)
class RawTask(Task):
    """A task whose only way is `raw.RAW`, with some of its candidates."""

    fewer: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @cached_property
    def ways(self) -> Mapping[str, Implementation]:
        """The one way."""

        def knobs(group: Group, target: Target) -> Mapping[str, tuple[int, ...]]:
            return {**knobs_raw(group, target), **self.fewer}

        return {RAW.name: replace(RAW, knobs=knobs)}


def product(m: int, n: int, k: int) -> mc.Graph:
    """relu(a @ b)."""
    return mc.trace(lambda a, b: mc.relu(a @ b), mc.f32[m, k], mc.f32[k, n])


def conv(channels: int, size: int, stride: int = 1) -> mc.Graph:
    """relu(conv(x, w)) of 3 x 3, as many channels in as out."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)

    def model(x: mc.Graph) -> mc.Graph:
        return mc.relu(mc.conv(x, weights, pads=(1, 1, 1, 1), strides=(stride, stride)))

    return mc.trace(model, mc.f32[1, channels, size, size])


LINES = {"tile_k": (1, 2, 4), "split_c": (1,), "split_i": (1, 4)}
PLANS = {
    "gemm_384": Plan(product(384, 384, 384), "matmul"),
    "gemm_128x768": Plan(product(128, 768, 768), "matmul"),
    "conv3x3_28": Plan(conv(64, 28), "conv_nchwc", {**LINES, "tile_l": (1, 4, 14)}),
    "conv3x3_14": Plan(conv(128, 14), "conv_nchwc", {**LINES, "tile_l": (1, 4, 7)}),
}


@dataclass(frozen=True)
class Built:
    """A point as machine code, or why there is none."""

    config: Config
    features: Array
    kernel: Kernel | None = None
    init: tuple[Kernel, ...] = ()
    fate: Fate = Fate.OK
    reason: str = ""


def build_point(task: Task, config: Config) -> Built:
    """Lowered and compiled."""
    try:
        c = task.lower(config)
    except CompileError as e:
        nothing = np.full(len(FEATURES), np.nan)
        return Built(config, nothing, None, (), Fate.REFUSED, f"{e.code}: {e.message}")
    features = loop_features(c.loops, task.target, task.threads)
    try:
        kernel = compile_kernel(c.loops, task.target, cache=False)
        init = tuple(compile_kernel(fn, task.target, cache=False) for fn in c.init)
    except CompileError as e:
        return Built(config, features, None, (), Fate.NOT_COMPILED, f"{e.code}: {e.message}")
    return Built(config, features, kernel, init)


def build_chunk(name: str, number: int, configs: list[Config], folder: Path) -> int:
    """Points into a file, which appears when it is complete."""
    path, task = folder / f"{number:04}.pickle", PLANS[name].raw()
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_bytes(pickle.dumps([build_point(task, c) for c in configs]))
        part.rename(path)
    return len(configs)


def build(name: str, folder: Path, most: int, jobs: int) -> None:
    """All points of the plan, or `most` of them at random."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = list(PLANS[name].raw().space)
    print(f"{name}: {len(configs)} points", flush=True)
    if len(configs) > most:
        configs = Random(0).sample(configs, most)
    chunks = [configs[i : i + CHUNK] for i in range(0, len(configs), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        todo = [pool.submit(build_chunk, name, i, c, folder) for i, c in enumerate(chunks)]
        for future in track(todo, f"building {name}"):
            future.result()


class Bench:
    """Arrays of a task, and the result that every point must give."""

    def __init__(self, task: Task) -> None:
        self.task, rng = task, np.random.default_rng(0)
        given = (t for t in stages(task.group.outputs) if t.body is None)
        self.arrays = {t.name: eighths(t.type, rng) for t in given}
        self.packed: dict[str, Array] = {}
        self.outputs = [t.type for t in task.group.outputs]
        self.expected = self.results(build_point(task, task.default))

    def call(self, built: Built) -> tuple[Callable[[], None], list[Array]]:
        """The point bound to the arrays; and what it writes."""
        assert built.kernel is not None
        known = dict(self.arrays)
        for kernel in built.init:
            *read, made = kernel.fn.params
            key = f"{kernel.symbol} {[p.name for p in read]}"
            if key not in self.packed:
                result = np.zeros(made.type.dims, made.type.dtype.numpy)
                run_kernel(kernel, [*(known[p.name] for p in read), result])
                self.packed[key] = result
            known[made.name] = self.packed[key]
        results = [np.zeros(t.dims, t.dtype.numpy) for t in self.outputs]
        count = len(built.kernel.fn.params) - len(results)
        given = [known[p.name] for p in built.kernel.fn.params[:count]]
        return kernel_caller(built.kernel, [*given, *results]), results

    def results(self, built: Built) -> list[Array]:
        """What a point computes."""
        run, results = self.call(built)
        run()
        return results

    def is_right(self, built: Built) -> bool:
        """True if it computes what the compiler's own choice computes."""
        pairs = zip(self.results(built), self.expected, strict=True)
        return all(np.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in pairs)

    def seconds(self, built: Built) -> float:
        """Of one run, in processor time, after one to warm up."""
        run, _ = self.call(built)
        run()
        runs, spent, start = 0, 0.0, time.thread_time()
        while spent < REPEAT:
            run()
            runs += 1
            spent = time.thread_time() - start
        return spent / runs


def eighths(type: TensorType, rng: np.random.Generator) -> Array:
    """Multiples of 1/8 in [-1, 1]: sums of their products are exact, in any order."""
    return (rng.integers(-8, 9, type.dims) / 8).astype(type.dtype.numpy)


def time_points(name: str, folder: Path, rounds: int) -> None:
    """`rounds` more rounds over all points that were built."""
    bench = Bench(PLANS[name].task())
    paths = sorted(folder.glob("*.pickle"))
    for _ in range(rounds):
        known = times_of(folder)
        number = max((len(times) for times in known.values()), default=0)
        order = Random(number).sample(paths, len(paths))
        for path in track(order, f"{name}: round {number + 1}"):
            for built in pickle.loads(path.read_bytes()):
                if built.kernel is None:
                    continue
                if number == 0 and not bench.is_right(built):
                    known[built.config] = [-1.0]
                elif known.get(built.config) != [-1.0]:
                    known.setdefault(built.config, []).append(bench.seconds(built))
        part = folder / "times.part"
        part.write_bytes(pickle.dumps(known))
        part.rename(folder / "times")


def times_of(folder: Path) -> dict[Config, list[float]]:
    """Seconds in each round so far, by point; [-1] for a wrong result."""
    path = folder / "times"
    return pickle.loads(path.read_bytes()) if path.exists() else {}


def points(folder: Path) -> Iterator[tuple[Trial, Array]]:
    """Every point with its trial and features."""
    known = times_of(folder)
    for path in sorted(folder.glob("*.pickle")):
        for built in pickle.loads(path.read_bytes()):
            seconds = known.get(built.config, [])
            if built.kernel is None:
                trial = Trial(built.config, built.fate, reason=built.reason)
            elif seconds == [-1.0]:
                trial = Trial(built.config, Fate.WRONG)
            else:
                trial = Trial(built.config, Fate.OK, (min(seconds),))
            yield trial, built.features


def write(name: str, folder: Path) -> None:
    """The table of the points, with the least time of each."""
    task = PLANS[name].raw()
    found = list(points(folder))
    rounds = max(map(len, times_of(folder).values()))
    how = f"least of {rounds} rounds in processor time, one thread"
    table = Table.of(task, [t for t, _ in found], np.stack([f for _, f in found]), name, how)
    print(table.save())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["build", "time", "write"])
    parser.add_argument("name", choices=list(PLANS))
    parser.add_argument("--to", type=Path, required=True, help="folder for what is built")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--most", type=int, default=6000, help="points, at most")
    parser.add_argument("--jobs", type=int, default=2)
    a = parser.parse_args()
    match a.step:
        case "build":
            build(a.name, a.to / a.name, a.most, a.jobs)
        case "time":
            time_points(a.name, a.to / a.name, a.rounds)
        case _:
            write(a.name, a.to / a.name)
