"""A model in each layout of images: compiled by default, timed in turns, its kernels profiled.

    how = Compiling(model, shapes, threads, precision, target)
    found = layouts_of(how, how(), points, inputs, machine, rest=0.0)   # {layout(block=16): …}
    found[point].variant, found[point].found.tasks  # calls and seconds, tasks
    Ready(found[point], exe, inputs).kernels()      # a run, with a clock around each kernel

Reads a model as `compile` does, writes what `mc.tune` (tuned.py) searches on and holds its finals
with. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from minidlc import target as targets
from minidlc.driver import compile
from minidlc.executable import Executable
from minidlc.expr.types import Array
from minidlc.frontend.onnx.inputs import Shapes
from minidlc.graph import print_graph
from minidlc.profiling import Profiler
from minidlc.sources import Model
from minidlc.support.errors import CompileError
from minidlc.support.timing import interleaved
from minidlc.transform import Pipeline
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import layout_of, mixed, with_layout
from minidlc.tuning.model_tasks import Found, model_tasks
from minidlc.tuning.model_tuner import Variant
from minidlc.tuning.neighbours import Timed
from minidlc.tuning.space import Config
from minidlc.tuning.tuner import ROUNDS

_LEAST = 1e-9  # seconds of a call: less is below what the clock can tell
_FIRST_ROUNDS = 5  # of the layouts, before anything is tuned


@dataclass(frozen=True)
class Compiling:
    """How the model is compiled, each time."""

    model: Model
    shapes: Shapes | None
    threads: int
    precision: str
    target: targets.Target | None
    told: Callable[[Config], None] | None = None  # hears which layout is compiled next

    def __call__(
        self, passes: Pipeline | None = None, database: Database | None = None
    ) -> Executable:
        if self.told and passes is not None:
            self.told(layout_of(passes))
        return compile(
            self.model,
            shapes=self.shapes,
            threads=self.threads,
            precision=self.precision,
            target=self.target,
            pipeline=passes,
            database=database,
        )


@dataclass(frozen=True)
class Layout:
    """The model in one layout of images, as the compiler makes it by itself."""

    passes: Pipeline
    exe: Executable
    found: Found
    variant: Variant
    estimates: Mapping[str, float]  # seconds of a call of each task, by key
    seconds: float  # of a run


@dataclass(frozen=True)
class Ready:
    """A compiled model with its inputs, for finals: `Timed`."""

    layout: Layout
    exe: Executable
    inputs: Sequence[Array]

    def __call__(self) -> object:
        """Run it."""
        return self.exe(*self.inputs)

    @cached_property
    def profiler(self) -> Profiler:
        """It with a clock around each kernel."""
        return self.exe.profiler(*self.inputs)

    @property
    def tuned(self) -> frozenset[str]:
        """Tasks whose kernels are compiled from records."""
        kernels = {k.name for k in self.exe.program.kernels if k.source}
        return frozenset(t.key for t in self.layout.found.tasks if kernels & {*t.names})

    def kernels(self) -> dict[str, float]:
        """Run once; seconds of a call of each task that is called at all."""
        run = self.profiler()
        row = {name: number for number, name in enumerate(self.exe.program.kernel_names)}
        found = dict[str, float]()
        for task in self.layout.found.tasks:
            rows = [row[name] for name in task.names if name in row]
            if calls := int(run.calls[rows].sum()):
                found[task.key] = float(run.seconds[rows].sum()) / calls
        return found


def layouts_of(
    compiling: Compiling,
    default: Executable,
    points: Mapping[Config, Pipeline],
    inputs: Sequence[Array],
    target: targets.Target,
    rest: float,
) -> dict[Config, Layout]:
    """The layouts in which the model is another one, profiled; first that of `default`.

    A layout whose passes refuse the model is left out, unless it is the default's. Of several, one
    more is made: each convolution as it is best beside its neighbours, by the times of these.
    """
    compiled, seen = _different(compiling, default, points)
    runs = {str(p): partial(exe, *inputs) for p, exe in compiled.items()}
    times = interleaved(runs, rounds=_FIRST_ROUNDS, seconds=0, rest=rest)
    found = dict[Config, Layout]()
    for point, exe in compiled.items():
        seconds = statistics.median(times[str(point)])
        found[point] = _profiled(point, points[point], exe, inputs, target, seconds)
    if len(found) > 1:
        passes = next(iter(points.values()))
        mix = mixed(default.source, passes, target, _in_turns(compiled, inputs))
        passes = passes if mix is None else with_layout(passes, mix)
        if mix is not None and print_graph(passes.run(default.source)[0]) not in seen:
            exe, first = compiling(passes), next(iter(found.values()))
            seconds = first.seconds * _share(default, exe, inputs, rest)
            found[mix] = _profiled(mix, passes, exe, inputs, target, seconds)
    return found


def _different(
    compiling: Compiling, default: Executable, points: Mapping[Config, Pipeline]
) -> tuple[dict[Config, Executable], set[str]]:
    """The points of which the model is not that of an earlier one, compiled; texts of all."""
    compiled, seen = dict[Config, Executable](), set[str]()
    for point, passes in points.items():
        try:
            text = print_graph(passes.run(default.source)[0])
            if text not in seen:
                compiled[point] = compiling(passes) if seen else default
                seen.add(text)
        except CompileError:
            if not seen:  # the default itself
                raise
    return compiled, seen


def _in_turns(
    compiled: Mapping[Config, Executable], inputs: Sequence[Array]
) -> dict[Config, Timed]:
    """Kernels with seconds of a run, the least of runs in turns.

    Whoever else uses the machine only adds to a kernel's time. With medians the best of many sums
    would be the luckiest.
    """
    profilers = {point: exe.profiler(*inputs) for point, exe in compiled.items()}
    runs = [{p: profiler().seconds for p, profiler in profilers.items()} for _ in range(ROUNDS)]
    seconds = {p: np.min([run[p] for run in runs], axis=0).tolist() for p in compiled}
    return {p: [*zip(exe.program.kernels, seconds[p], strict=True)] for p, exe in compiled.items()}


def _share(default: Executable, exe: Executable, inputs: Sequence[Array], rest: float) -> float:
    """The time of a model over that of the default, in turns."""
    runs = {"default": partial(default, *inputs), "": partial(exe, *inputs)}
    times = interleaved(runs, rounds=_FIRST_ROUNDS, seconds=0, rest=rest)
    return statistics.median(times[""]) / statistics.median(times["default"])


def _profiled(
    point: Config,
    passes: Pipeline,
    exe: Executable,
    inputs: Sequence[Array],
    target: targets.Target,
    seconds: float,
) -> Layout:
    """Calls and times of the kernels as they are by default.

    The profiles of two layouts are of different moments, so their times are brought to the
    `seconds` that the model took in turns with the others.
    """
    profile = exe.profile(*inputs)
    times = {k.kernel: k for k in profile.kernels}
    scale = seconds / profile.seconds
    calls = {name: k.calls for name, k in times.items()}
    found = model_tasks(exe.program.kernels, calls, target, exe.loaded.threads)
    rest = profile.outside + sum(times[name].seconds for name in found.left_out)
    estimates = dict[str, float]()
    for task in found.tasks:
        total = sum(times[n].seconds for n in task.names)
        estimates[task.key] = max(_LEAST, scale * total / task.count)
    counts = {task.key: task.count for task in found.tasks}
    variant = Variant(point, counts, scale * rest)
    return Layout(passes, exe, found, variant, estimates, seconds)
