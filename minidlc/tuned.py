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

import inspect
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType

import numpy as np

from minidlc import target as targets
from minidlc.driver import core_count
from minidlc.expr.types import Array, TensorType
from minidlc.frontend.onnx.inputs import Shapes
from minidlc.graph import Graph
from minidlc.sources import Model
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError, TuneError
from minidlc.support.timing import interleaved
from minidlc.template import Template
from minidlc.transform import Pipeline
from minidlc.tuned_layouts import Compiling, Layout, Ready, layouts_of
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import layout_record, model_workload, variants
from minidlc.tuning.measure import LocalMeasurer, Measurer
from minidlc.tuning.measure.local import foreign
from minidlc.tuning.model_final import TURN, ModelFinal, Seconds, Verdict, verdict
from minidlc.tuning.model_tuner import Ended, ModelTuner, Step
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.problem import CostModel, Search
from minidlc.tuning.search import Evolution
from minidlc.tuning.space import Config
from minidlc.tuning.tuner import ROUNDS, check_count, check_records

TRIALS = 64  # for each kernel, where nothing else is said
_ENOUGH = 10.0  # times that compiling takes: what tuning needs at least to get anywhere
_SHARE = 0.2  # of the time, at most, for compiling the model in other layouts


@dataclass(frozen=True)
class Update:
    """What `progress` hears: the phase, a trial if there was one, seconds left if time is short.

    `note` is what the phase is at by now, such as a layout of images.
    """

    phase: str
    step: Step | None = None
    left: float | None = None
    note: str = ""


def tune(
    model: Model,
    *,
    shapes: Shapes | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    database: str | os.PathLike[str] | Database | None = "tune.jsonl",
    seed: int = 0,
    threads: int | None = 1,
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
    `precision` and `target` are those to compile with later: records serve no other. Mind that
    `compile` takes all cores (None) unless it is told. `search` and `cost_model` take the place of
    evolution and `best_model()`; `measurer` of a `LocalMeasurer()`. `progress` hears of each phase
    and trial. `seed` fixes inputs and every random choice; which kernel is next, and which points
    the search goes on from, follow from measured times, those of a profile of the model among them,
    so two runs on a machine differ. An interrupt (Ctrl-C) while it searches ends the search and
    returns what is known by then.
    Raises TuneError (MDLC1350) for trials or minutes that cannot be, MDLC1353 for a model whose
    sizes are open, MDLC1354 for a database while a part of the compiler is replaced, MDLC1356 where
    compiling takes all the time; TuneError where nothing can be measured; what `compile` and
    `Database` raise, before anything is compiled.
    """
    start = time.monotonic()
    if trials is not None:
        check_count("tune", "trials", trials)
    _check_minutes(minutes)
    expect("tune", "seed", seed, int)
    _check_part("search", search, ("space", "trials", "score", "count", "rng"))
    _check_part("cost_model", cost_model, ("known", "asked"))
    _check_part("progress", progress, ("update",))
    if target is not None:
        expect("tune", "target", target, targets.Target, hint="minidlc.target.host()")
    if measurer is not None and not hasattr(measurer, "measure"):
        expect("tune", "measurer", measurer, LocalMeasurer, hint="or a DaskMeasurer")
    if database is not None:
        check_records("tune")
    opened = database if isinstance(database, Database) else Database(database)
    opened.check_writable()
    end = None if minutes is None else start + 60 * minutes
    how = Compiling(model, shapes, core_count(threads), precision, target)
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


def _check_part(name: str, part: object, arguments: Sequence[str]) -> None:
    """OptionError (MDLC1001) for a part that is given and cannot be called with the arguments."""
    if part is None:
        return
    listed = ", ".join(arguments)
    if not callable(part):
        hint = f"a function ({listed}), or an object to be called so"
        expect("tune", name, part, FunctionType, hint=hint)
    else:
        try:
            taken = inspect.signature(part)
        except ValueError:  # of a function of C
            return
        try:
            taken.bind(*arguments)
        except TypeError as e:
            text = f"tune: {name} cannot be called with ({listed}): {e}"
            raise OptionError(text, hint=f"it is {name}{taken}", code="MDLC1001") from None


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
        self.compiled = replace(compiled, told=self._at_layout)
        self.measurer, self.database = measurer, database
        self.seed, self.end, self.progress = seed, end, progress
        machine = compiled.target or targets.host()
        self.target = replace(machine, precision=compiled.precision)
        self.rest = 0.05 if compiled.threads > 1 else 0.0  # a pool spins for a while
        self.stopped = False
        self.notes: list[str] = []

    def tell(self, phase: str, step: Step | None = None, note: str = "") -> None:
        """Report to whoever watches."""
        self.phase = phase
        if self.progress:
            self.progress(Update(phase, step, None if self.end is None else self._left(), note))

    def _at_layout(self, point: Config) -> None:
        self.tell(self.phase, note=str(point))

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
        self._check_time()
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

    def _check_time(self) -> None:
        """TuneError (MDLC1356) if the time is over, now that the model is compiled."""
        if self._left() <= 0:
            text = f"tune: compiling the model alone takes {self.compiling:.0f} s, "
            text += "which is more than the time there is: nothing was tuned"
            enough = math.ceil(_ENOUGH * self.compiling / 60)
            raise TuneError(text, hint=f"minutes={enough}", code="MDLC1356")

    def search(self, trials: int | None) -> None:
        """Trials and finals; an interrupt ends them and keeps what there is."""
        each = None if self.end is not None and trials is None else trials or TRIALS
        until = None if self.end is None else self.end - self._ending()
        try:
            self.tell("search")
            self.tuner.search(each, until)
            self.notes += self._fewer(each)
            self.tell("finals")
            self.tuner.finish(until)
        except KeyboardInterrupt:
            self.stopped = True
            self.tuner.stop()

    def _fewer(self, each: int | None) -> list[str]:
        """Why there are fewer trials than asked for, or none."""
        ended, tuner = self.tuner.ended, self.tuner
        if tuner.tasks and ended is Ended.TIME and not tuner.trials:
            enough = math.ceil(_ENOUGH * self.compiling / 60)
            text = f"compiling alone takes {self.compiling:.0f} s, and what was found is compiled"
            return [f"{text} again in the end: that left no time for trials; minutes={enough}"]
        if each is None or not tuner.tasks or ended is Ended.TRIALS:
            return []
        why = "time ran out" if ended is Ended.TIME else "all points of the kernels were tried"
        return [f"fewer than {each} trials a kernel: {why}"]

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
        if self.results and not self.stopped:
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
            interrupted=self.stopped,
            notes=tuple(self.notes),
        )

    def _late(self, taken: Layout) -> dict[str, str]:
        """Other layouts for which there was no time, and kernels without a result."""
        late = {} if self.in_time else {"layouts of images": str(Ended.TIME)}
        for task in taken.found.tasks:
            if task.key not in self.results and task.task.name not in self.tuner.failed:
                late |= dict.fromkeys(task.names, str(self.tuner.ended))
        return late

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
