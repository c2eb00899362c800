"""`mc.tune`: measure which schedules are fast for the kernels of a model, and keep them on file.

    t = mc.tune("model.onnx", minutes=5, database="tune.jsonl")     # or trials=64 for each kernel
    print(t)                                        # kernel by kernel, and the whole model
    exe = mc.compile("model.onnx", threads=1, database="tune.jsonl")

Reads a model as `compile` does, writes records and a `Tuning`. In order: compile the model in each
layout of images and profile it; make tasks of its kernels; search, the next trials always where
they promise most; finals, first of each kernel alone, then inside the model; the whole model before
and after, in turns. All that was measured is in
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

import numpy as np

from minidlc import target as targets
from minidlc.expr.types import Array, TensorType
from minidlc.frontend.onnx.inputs import Shapes
from minidlc.graph import Graph
from minidlc.sources import Model
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import TuneError
from minidlc.support.timing import interleaved
from minidlc.template import Template
from minidlc.transform import Pipeline
from minidlc.tuned_layouts import Compiling, Layout, Ready, layouts_of
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import layout_record, model_workload, variants
from minidlc.tuning.measure import LocalMeasurer, Measurer
from minidlc.tuning.measure.local import foreign
from minidlc.tuning.model_final import TURN, ModelFinal, Seconds, Verdict, verdict
from minidlc.tuning.model_tuner import ModelTuner, Step
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.problem import CostModel, Search
from minidlc.tuning.search import Evolution
from minidlc.tuning.space import Config
from minidlc.tuning.tuner import ROUNDS, check_count, check_records

TRIALS = 64  # for each kernel, where nothing else is said
_SHARE = 0.2  # of the time, at most, for compiling the model in other layouts


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
    already (None: in memory only). What it holds in the end is not slower: a winner must beat the
    default alone and inside the model, and the whole model is compared as well. `threads`,
    `precision` and `target` are those to compile with later. `search` and `cost_model` take the
    place of evolution and `best_model()`; `measurer` of a `LocalMeasurer()`. `progress` hears of
    each phase and trial. An interrupt (Ctrl-C) ends the search and returns what is known by then.
    Raises TuneError (MDLC1350) for trials or minutes that cannot be, MDLC1353 for a model whose
    sizes are open, MDLC1354 for a database while a part of the compiler is replaced; TuneError
    where nothing can be measured; what `compile` and `Database` raise.
    """
    start = time.monotonic()
    if trials is not None:
        check_count("tune", "trials", trials)
    _check_minutes(minutes)
    expect("tune", "seed", seed, int)
    _check_parts(search=search, cost_model=cost_model, progress=progress)
    if measurer is not None and not hasattr(measurer, "measure"):
        expect("tune", "measurer", measurer, LocalMeasurer, hint="or a DaskMeasurer")
    if database is not None:
        check_records("tune")
    opened = database if isinstance(database, Database) else Database(database)
    end = None if minutes is None else start + 60 * minutes
    how = Compiling(model, shapes, threads, precision, target)
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


class _Session:
    """One run of `tune`, phase by phase."""

    def __init__(
        self,
        compiled: Compiling,
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
        self.compiling = time.monotonic() - started  # a model, in the mean
        points = variants(Pipeline.default(3, self.target), self.target)
        wanted = (len(points) + 1) * self.compiling  # one more mixes them
        self.in_time = self.end is None or wanted < _SHARE * self._left()
        if not self.in_time:
            points = dict([*points.items()][:1])
        self.layouts = layouts_of(
            self.compiled, default, points, self.inputs, self.target, self.rest
        )
        self.estimates = {k: s for x in self.layouts.values() for k, s in x.estimates.items()}
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
        """Seconds that the last phases will take: one or two models, each compiled with all
        winners and with those that stayed, and run in turns."""
        models = 1 + (len(self.layouts) > 1)
        turn = max(TURN, 2 * self.default.variant.seconds(self.estimates)) + self.rest
        inside, whole = 2 * models, 1 + models  # turns in a round
        return 2 * models * self.compiling + ROUNDS * (inside + whole) * turn

    def _left(self) -> float:
        return math.inf if self.end is None else self.end - time.monotonic()

    def outcome(self) -> Tuning:
        """Winners inside the model, the whole model before and after, in turns; all recorded."""
        found = Verdict(self.default.variant.layout, (), ())
        self.results = {r.task.workload.key: r for r in self.tuner.results}
        if not self.stopped:
            try:
                found = self._whole_model()
            except KeyboardInterrupt:
                self.stopped = True
        taken = self.layouts[found.layout]
        counts = taken.variant.counts
        results = [replace(r, count=counts[k]) for k, r in self.results.items() if k in counts]
        results.sort(key=lambda r: -r.count * statistics.median(r.default_seconds))
        costs = self.tuner.final_costs()
        return Tuning(
            model=taken.exe.interface.name,
            threads=self.compiled.threads,
            results=tuple(results),
            names={t.key: t.names for t in taken.found.tasks},
            default_seconds=found.default_seconds,
            seconds=found.seconds,
            undone=found.undone,
            layout=taken.variant.layout,
            layouts={p: x.variant.seconds(costs) for p, x in self.layouts.items()},
            failed=self.tuner.failed,
            left_out=taken.found.left_out | self._late(taken),
            trials=self.tuner.trials,
            database="" if self.database.path is None else str(self.database.path),
            spent=0.0,
            stopped=self.stopped or not all(r.is_checked for r in results),
        )

    def _late(self, taken: Layout) -> dict[str, str]:
        """What there was no time for: other layouts, kernels without a trial."""
        late = [] if self.in_time else ["layouts of images"]
        for task in taken.found.tasks:
            if task.key not in self.results and task.task.name not in self.tuner.failed:
                late += task.names
        return dict.fromkeys(late, "there was too little time")

    def _whole_model(self) -> Verdict:
        """The layout that wins end to end, with the winners that are faster inside the model."""
        tasks = (t.task for x in self.layouts.values() for t in x.found.tasks)
        final = ModelFinal(self.results, tasks, self.database, seed=self.seed, rest=self.rest)
        default = self.default.variant.layout
        models = dict[Config, Ready]()
        self.tell("finals in the model")
        for point in dict.fromkeys((default, self.tuner.layout)):
            layout = self.layouts[point]
            plain = Ready(layout, layout.exe, self.inputs)
            models[point] = final.inside(plain, partial(self._tuned, layout))
        self.tell("whole model")
        runs = {str(point): model for point, model in models.items()}
        if models[default].tuned:  # else it is the default model
            runs["default"] = Ready(self.default, self.default.exe, self.inputs)
        times = interleaved(runs, rounds=ROUNDS, seconds=TURN, rest=self.rest)
        series = {point: tuple(times[str(point)]) for point in models}
        found = verdict(tuple(times.get("default", series[default])), series)
        if found.undone:
            ratio = statistics.median(found.undone) / statistics.median(found.seconds)
            final.undo(models[default], ratio)
        self._record_layout(found, series)
        return found

    def _tuned(self, layout: Layout) -> Ready:
        exe = self.compiled(layout.passes, self.database)
        return Ready(layout, exe, self.inputs)

    def _record_layout(self, found: Verdict, series: Mapping[Config, Seconds]) -> None:
        """Record the layout that won, where there was a choice."""
        default = self.default.variant.layout
        if len(self.layouts) > 1:
            work = model_workload(self.default.exe.source, self.target, self.compiled.threads)
            pair = (found.layout, found.seconds), (default, series[default])
            name = self.default.exe.interface.name
            self.database.append(layout_record(work, name, *pair, self.seed))


def _inputs(graph: Graph, seed: int) -> list[Array]:
    """An array for each input: floats from 0 to 1; whole numbers are 0, a position anywhere."""
    rng, found = np.random.default_rng(abs(seed)), list[Array]()
    for i in graph.inputs:
        assert isinstance(i.type, TensorType)
        values = rng.random(i.type.dims) if i.type.dtype.is_float else np.zeros(i.type.dims)
        found.append(values.astype(i.type.dtype.numpy))
    return found
