"""`mc.tune`: measure which schedules are fast for the kernels of a model, and keep them on file.

    t = mc.tune("model.onnx", minutes=5, database="tune.jsonl")     # or trials=64 for each kernel
    print(t)                                        # kernel by kernel, and the whole model
    exe = mc.compile("model.onnx", threads=1, database="tune.jsonl")

Reads a model as `compile` does, writes records and a `Tuning`. In order: compile the model in each
layout of images and profile it; make tasks of its kernels; search, the next trials always where
they promise most; finals; the whole model before and after, in turns. All that was measured is in
the file at once: whoever stops it goes on there later. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import TypeAlias

import numpy as np

from minidlc import target as targets
from minidlc.driver import compile
from minidlc.executable import Executable
from minidlc.expr.types import Array, TensorType
from minidlc.frontend.onnx.inputs import Shapes
from minidlc.graph import Graph, print_graph
from minidlc.sources import Model
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, TuneError
from minidlc.support.timing import interleaved, ratio_interval
from minidlc.template import Template
from minidlc.transform import Pipeline
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import layout_of, layout_record, model_workload, variants
from minidlc.tuning.measure import LocalMeasurer, Measurer
from minidlc.tuning.measure.local import foreign
from minidlc.tuning.model_tasks import Found, model_tasks
from minidlc.tuning.model_tuner import ModelTuner, Step, Variant
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.problem import CostModel, Search
from minidlc.tuning.search import Evolution
from minidlc.tuning.space import Config
from minidlc.tuning.tuner import ROUNDS, check_count

TRIALS = 64  # for each kernel, where nothing else is said
_TURN = 0.02  # seconds of a model's turn, at least one run
_FIRST_ROUNDS = 5  # of the layouts, before anything is tuned
_SHARE = 0.2  # of the time, at most, for compiling the model in other layouts
_LATE = {"layouts of images": "there was too little time"}

Seconds: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Update:
    """What `progress` hears: the phase, a trial if there was one, seconds left if time is short."""

    phase: str
    step: Step | None = None
    left: float | None = None


def tune(
    model: Model,
    *,
    shapes: Shapes | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    database: str | os.PathLike[str] | Database | None = "tune.jsonl",
    seed: int = 0,
    threads: int = 1,
    precision: str = "default",
    target: targets.Target | None = None,
    search: Search | None = None,
    cost_model: CostModel | None = None,
    measurer: Measurer | None = None,
    progress: Callable[[Update], None] | None = None,
) -> Tuning:
    """Tune the kernels of a model for this machine.

    `trials` is the mean for each kernel (default 64), `minutes` bounds the time of everything; with
    both, what comes first ends the search. `database` takes the records and tells what is known
    already (None: in memory only). `threads`, `precision` and `target` are those to compile with
    later. `search` and `cost_model` take the place of evolution and `best_model()`; `measurer` of a
    `LocalMeasurer()`. `progress` hears of each phase and trial. An interrupt (Ctrl-C) ends the
    search and returns what is known by then. Raises TuneError (MDLC1350) for trials or minutes
    that cannot be, MDLC1353 for a model whose sizes are open; TuneError where nothing can be
    measured; what `compile` and `Database` raise.
    """
    start = time.monotonic()
    if trials is not None:
        check_count("tune", "trials", trials)
    _check_minutes(minutes)
    expect("tune", "seed", seed, int)
    _check_parts(search=search, cost_model=cost_model, progress=progress)
    if measurer is not None and not hasattr(measurer, "measure"):
        expect("tune", "measurer", measurer, LocalMeasurer, hint="or a DaskMeasurer")
    opened = database if isinstance(database, Database) else Database(database)
    end = None if minutes is None else start + 60 * minutes
    how = _Compiling(model, shapes, threads, precision, target)
    with ExitStack() as stack, extension.counting() as overrides:
        measure = measurer or stack.enter_context(LocalMeasurer(seed=abs(seed)))
        session = _Session(how, measure, opened, seed, end, progress)
        session.prepare(search, cost_model)
        session.search(trials)
        found = session.outcome()
    return replace(found, spent=time.monotonic() - start, overrides=dict(overrides))


def _check_minutes(minutes: float | None) -> None:
    if minutes is None:
        return
    expect("tune", "minutes", minutes, int, float)
    if not 0 < minutes < math.inf:
        text = f"tune: minutes is {minutes}, expected a number above 0"
        raise TuneError(text, hint="minutes=5", code="MDLC1350")


def _check_parts(**parts: object) -> None:
    """OptionError (MDLC1001) for a part that is given and cannot be called."""
    for name, part in parts.items():
        if part is not None and not callable(part):
            expect("tune", name, part, FunctionType, hint="a function, or an object to be called")


@dataclass(frozen=True)
class _Compiling:
    """How the model is compiled, each time."""

    model: Model
    shapes: Shapes | None
    threads: int
    precision: str
    target: targets.Target | None

    def __call__(
        self, passes: Pipeline | None = None, database: Database | None = None
    ) -> Executable:
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
class _Layout:
    """The model in one layout of images, as the compiler makes it by itself."""

    passes: Pipeline
    exe: Executable
    found: Found
    variant: Variant


class _Session:
    """One run of `tune`, phase by phase."""

    def __init__(
        self,
        compiled: _Compiling,
        measurer: Measurer,
        database: Database,
        seed: int,
        end: float | None,
        progress: Callable[[Update], None] | None,
    ) -> None:
        self.compiled, self.measurer, self.database = compiled, measurer, database
        self.seed, self.end, self.progress = seed, end, progress
        machine = compiled.target or targets.host()
        self.target = replace(machine, precision=compiled.precision)
        self.rest = 0.05 if compiled.threads > 1 else 0.0  # a pool spins for a while
        self.stopped = False

    def tell(self, phase: str, step: Step | None = None) -> None:
        """Report to whoever watches."""
        if self.progress:
            self.progress(Update(phase, step, None if self.end is None else self._left()))

    def prepare(self, search: Search | None, cost_model: CostModel | None) -> None:
        """Compile and profile the model in each layout; make tasks."""
        self.tell("compile")
        if why := foreign(self.target):  # profiling would run the code in this process
            raise TuneError(f"tune: {why}", hint="target=None: this machine", code="MDLC1320")
        started = time.monotonic()
        default = self.compiled()
        if isinstance(default, Template):
            text = f"tune: {default.declared.name} leaves sizes or values open"
            notes = [f"{i.name}: {i}" for i in default.declared.inputs]
            hint = 'shapes={"N": 1}: a schedule is best for certain sizes'
            raise TuneError(text, notes=notes, hint=hint, code="MDLC1353")
        self.inputs = _inputs(default.source, self.seed)
        self.estimates: dict[str, float] = {}
        self.compiling = time.monotonic() - started  # a model, in the mean
        self.layouts = self._layouts(default)
        self.default = next(iter(self.layouts.values()))
        self.compiling = (time.monotonic() - started) / len(self.layouts)
        tasks = {t.key: t for x in self.layouts.values() for t in x.found.tasks}
        self.tuner = ModelTuner(
            list(tasks.values()),
            [x.variant for x in self.layouts.values()],
            self.measurer,
            estimates=self.estimates,
            seed=self.seed,
            search=search or Evolution(population=24, generations=1),
            model=cost_model,
            database=self.database,
            told=partial(self.tell, "search"),
        )

    def _layouts(self, default: Executable) -> dict[Config, _Layout]:
        """The layouts in which the model is another one, profiled; the default first."""
        points = variants(Pipeline.default(3, self.target), self.target)
        self.in_time = self.end is None or len(points) * self.compiling < _SHARE * self._left()
        compiled, seen = dict[Config, Executable](), set[str]()
        for point, passes in points.items() if self.in_time else list(points.items())[:1]:
            try:
                text = print_graph(passes.run(default.source)[0])
                if text not in seen:
                    compiled[point] = self.compiled(passes) if seen else default
                    seen.add(text)
            except CompileError:
                if not seen:  # the default itself
                    raise
        runs = {str(p): partial(exe, *self.inputs) for p, exe in compiled.items()}
        times = interleaved(runs, rounds=_FIRST_ROUNDS, seconds=0, rest=self.rest)
        return {
            p: self._profiled(p, points[p], exe, statistics.median(times[str(p)]))
            for p, exe in compiled.items()
        }

    def _profiled(
        self, point: Config, passes: Pipeline, exe: Executable, seconds: float
    ) -> _Layout:
        """Calls and times of the kernels as they are by default.

        The profiles of two layouts are of different moments, so their times are brought to the
        `seconds` that the model took in turns with the others.
        """
        profile = exe.profile(*self.inputs)
        times = {k.kernel: k for k in profile.kernels}
        scale = seconds / profile.seconds
        calls = {name: k.calls for name, k in times.items()}
        found = model_tasks(exe.program.kernels, calls, self.target, self.compiled.threads)
        rest = profile.outside + sum(times[name].seconds for name in found.left_out)
        for task in found.tasks:
            total = sum(times[n].seconds for n in task.names)
            self.estimates[task.key] = scale * total / max(1, task.count)
        counts = {task.key: task.count for task in found.tasks}
        return _Layout(passes, exe, found, Variant(point, counts, scale * rest))

    def search(self, trials: int | None) -> None:
        """Trials and finals; an interrupt ends them and keeps what there is."""
        total = None if self.end is not None and trials is None else trials or TRIALS
        if total is not None:
            total *= len(self.default.found.tasks)
        until = None if self.end is None else self.end - self._ending()
        try:
            self.tell("search")
            self.tuner.search(total, until)
            self.tell("finals")
            self.tuner.finish(until)
        except KeyboardInterrupt:
            self.stopped = True
            self.tuner.stop()

    def _ending(self) -> float:
        """Seconds that the last phase will take: one or two models compiled, and run in turns."""
        models = 1 + (len(self.layouts) > 1)
        turn = max(_TURN, 2 * self.default.variant.seconds(self.estimates)) + self.rest
        return models * self.compiling + ROUNDS * (1 + models) * turn

    def _left(self) -> float:
        return math.inf if self.end is None else self.end - time.monotonic()

    def outcome(self) -> Tuning:
        """The whole model before and after, in turns; what won is recorded."""
        taken, before, after = self.layouts[layout_of(self.default.passes)], (), ()
        if not self.stopped:
            self.tell("whole model")
            try:
                taken, before, after = self._whole_model()
            except KeyboardInterrupt:
                self.stopped = True
        counts = taken.variant.counts
        results = [r for r in self.tuner.results if r.task.workload.key in counts]
        results = [replace(r, count=counts[r.task.workload.key]) for r in results]
        results.sort(key=lambda r: -r.count * statistics.median(r.default_seconds))
        costs = self.tuner.final_costs()
        return Tuning(
            model=taken.exe.interface.name,
            threads=self.compiled.threads,
            results=tuple(results),
            names={t.key: t.names for t in taken.found.tasks},
            default_seconds=before,
            seconds=after,
            layout=taken.variant.layout,
            layouts={p: x.variant.seconds(costs) for p, x in self.layouts.items()},
            failed=self.tuner.failed,
            left_out=taken.found.left_out | ({} if self.in_time else _LATE),
            trials=self.tuner.trials,
            database="" if self.database.path is None else str(self.database.path),
            spent=0.0,
            stopped=self.stopped or not all(r.is_checked for r in results),
        )

    def _whole_model(self) -> tuple[_Layout, Seconds, Seconds]:
        """The layout that wins end to end, seconds of the default model and of the tuned one."""
        default = self.default.variant.layout
        points = dict.fromkeys((default, self.tuner.layout))
        if len(points) == 1 and not any(r.is_better for r in self.tuner.results):
            exe = partial(self.default.exe, *self.inputs)  # it is the tuned model too
            same = tuple(interleaved({"": exe}, rounds=ROUNDS, seconds=_TURN, rest=self.rest)[""])
            times = {default: same}
            return self._decided(default, times, same)
        tuned = {p: self.compiled(self.layouts[p].passes, self.database) for p in points}
        runs = {"default": partial(self.default.exe, *self.inputs)}
        runs |= {str(p): partial(exe, *self.inputs) for p, exe in tuned.items()}
        found = interleaved(runs, rounds=ROUNDS, seconds=_TURN, rest=self.rest)
        times = {p: tuple(found[str(p)]) for p in points}
        winner = default
        for point in points:
            if ratio_interval(times[point], times[default])[1] < 1.0:
                winner = point
        return self._decided(winner, times, tuple(found["default"]))

    def _decided(
        self, winner: Config, times: Mapping[Config, Seconds], before: Seconds
    ) -> tuple[_Layout, Seconds, Seconds]:
        """Record the layout that won, where there was a choice."""
        default = self.default.variant.layout
        if len(self.layouts) > 1:
            work = model_workload(self.default.exe.source, self.target, self.compiled.threads)
            series = (winner, times[winner]), (default, times[default])
            name = self.default.exe.interface.name
            self.database.append(layout_record(work, name, *series, self.seed))
        return self.layouts[winner], before, times[winner]


def _inputs(graph: Graph, seed: int) -> list[Array]:
    """An array for each input: floats from 0 to 1; whole numbers are 0, a position anywhere."""
    rng, found = np.random.default_rng(abs(seed)), list[Array]()
    for i in graph.inputs:
        assert isinstance(i.type, TensorType)
        values = rng.random(i.type.dims) if i.type.dtype.is_float else np.zeros(i.type.dims)
        found.append(values.astype(i.type.dtype.numpy))
    return found
