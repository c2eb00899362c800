"""Points of a kernel compiled and run on this machine, in processes that may die.

    with LocalMeasurer(jobs=2, deadline=10.0) as m:
        m.measure(task, [task.default])             # [Trial(gemm(…), ok, …)]

First all points of a call are compiled, by a build worker for each core; then one run worker takes
them one at a time, so that nothing is being compiled while something is timed. A worker that dies,
hangs or is late is replaced, the point that it had is a failed trial with the reason, and the
others go on. What was lost while it was made ready for a kernel is tried again. Threads that ask
one measurer take turns. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar, cast

import numpy as np

from minidlc.codegen.crew import jobs as cores
from minidlc.expr.types import Array
from minidlc.support import extension
from minidlc.support.arguments import expect, expect_each
from minidlc.support.child import ChildLost
from minidlc.support.errors import TuneError
from minidlc.target import Target, host
from minidlc.te.tensor import stages
from minidlc.tuning.measure.build import PLAIN, Built, Made, build, build_plain, row
from minidlc.tuning.measure.check import tolerances
from minidlc.tuning.measure.folder import Folder
from minidlc.tuning.measure.processes import WorkerProcess, in_threads
from minidlc.tuning.measure.worker import Setting
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

_PATIENT = 12  # deadlines that the plain loops may take: they are slow
_SLOW = 3.0  # times the best so far: a candidate above needs no repeats
_OURS = {"search", "cost_model"}  # parts of the tuner, which workers do not need

C = TypeVar("C", Config, Config | None)
T = TypeVar("T")


class LocalMeasurer:
    """Compiles and runs on this machine. A context manager: its end is the end of the workers.

    `jobs` build workers (None: MINIDLC_JOBS, or the cores there are); `deadline` seconds for one
    build, and for check and times of one candidate; `repeats` times of each candidate, at least
    5; the inputs come from `seed`; with `flush` caches are emptied before each run that is timed.
    OptionError (MDLC1001) or TuneError (MDLC1324) for arguments that cannot be.
    """

    def __init__(
        self,
        jobs: int | None = None,
        deadline: float = 10.0,
        repeats: int = 5,
        seed: int = 0,
        *,
        flush: bool = False,
    ) -> None:
        check_options("LocalMeasurer", jobs, deadline, repeats, seed)
        self.jobs = cores() if jobs is None else jobs
        self.deadline, self.repeats, self.seed, self.flush = deadline, repeats, seed, flush
        self._builders: list[WorkerProcess] = []
        self._runner = WorkerProcess("run")
        self._kernels: dict[tuple[str, ...], _Kernel] = {}
        self._folder: Folder | None = None  # of what the plain loops gave
        self._lock = threading.RLock()  # whoever asks workers holds it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove what they kept; a later `measure` would start new ones."""
        with self._lock:
            for worker in (*self._builders, self._runner):
                worker.end()
            self._builders.clear()
            self._kernels.clear()
            if self._folder is not None:
                self._folder.close()
                self._folder = None

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        """A trial for each point, in order.

        TuneError if nothing can be measured here: MDLC1320 for a task of another machine, MDLC1322
        where no worker starts.
        """
        return list(self.trials(task, configs))

    def trials(self, task: Task, configs: Sequence[Config]) -> Iterator[Trial]:
        """As `measure`, each trial as soon as it has ended."""
        points = expect_each("measure", "configs", configs, Config)
        with self._lock:
            kernel = self._kernel(task)
            made = self._built(task, points)
            self._runner.check(self.deadline)
        yield from (self._trial(kernel, m) if isinstance(m, Built) else m for m in made)

    def features(self, task: Task, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)] by all build workers; a row of NaN for a point with no loops.

        MDLC1322 as of `measure`. Other machines' points have features too.
        """
        points = expect_each("features", "configs", configs, Config)
        if _is_replaced():
            found: list[Array | None] = [row(task, config) for config in points]
        else:
            found = self._asked("features", task, points, lambda config, lost: None)
        rows = np.full((len(points), len(FEATURES)), np.nan)
        for n, values in enumerate(found):
            if values is not None:
                rows[n] = values
        return rows

    def recheck(
        self, task: Task, configs: Sequence[Config], rounds: int = 15
    ) -> list[tuple[float, ...]]:
        """Seconds of one run of each point in each round, () for one that fails; errors as above.

        All are loaded by one worker and take turns, so that a slow moment of the machine hits all.
        A point whose worker is lost twice in a round fails.
        """
        expect("recheck", "rounds", rounds, int)
        points = expect_each("recheck", "configs", configs, Config)
        with self._lock:
            kernel = self._kernel(task)
            made = self._built(task, points)
            self._runner.check(self.deadline)
            self._forget()
            sound = {n: m for n, m in enumerate(made) if isinstance(m, Built)}
            times: dict[int, list[float]] = {n: [] for n in sound}
            for _ in range(rounds):
                for number in list(times):
                    seconds = self._turn(kernel, number, sound[number])
                    if seconds is None:
                        del times[number]
                    else:
                        times[number].append(seconds)
        return [tuple(times.get(n, ())) for n in range(len(made))]

    def _forget(self) -> None:
        """Have the run worker let go of the finalists of an earlier call."""
        if self._runner.holds:
            with suppress(ChildLost):
                self._runner.ask(self.deadline, "forget")
            self._runner.holds = set()

    def _kernel(self, task: Task) -> _Kernel:
        """What is known of a task; it is set up when it is first met."""
        outputs = tuple(t.name for t in task.group.outputs)
        key = (task.workload.key, *task.placeholders, *outputs)  # a key does not tell names apart
        if key not in self._kernels:
            check_runs_here(task)
            (plain,) = self._made(task, [None])
            if isinstance(plain, Trial) and plain.fate in (Fate.CRASHED, Fate.TIMEOUT):
                (plain,) = self._made(task, [None])  # the worker may have been lost by chance
            number, folder = len(self._kernels), self._new_folder()
            setting = setting_of(task, number, folder, self.seed, self.flush)
            self._kernels[key] = _Kernel(setting, plain)
        return self._kernels[key]

    def _new_folder(self) -> Path | None:
        """A folder of one task; None where there is no room for it."""
        self._folder = self._folder or Folder()
        if self._folder.path is None:
            return None
        path = self._folder.path / str(len(self._kernels))
        try:
            path.mkdir()
        except OSError:
            return None
        return path

    def _built(self, task: Task, configs: Sequence[Config]) -> list[Made]:
        """The machine code of all points, before any of them runs."""
        return self._made(task, list(configs))

    def _made(self, task: Task, configs: Sequence[Config | None]) -> list[Made]:
        if _is_replaced():  # a reader's part is to be called, and it is here
            return [build_plain(task) if c is None else build(task, c) for c in configs]
        return self._asked("build", task, configs, _lost_build)

    def _asked(
        self,
        question: str,
        task: Task,
        configs: Sequence[C],
        lost: Callable[[C, ChildLost], T],
    ) -> list[T]:
        """What the build workers answer about each point; `lost` gives it where none came."""
        data = pickle.dumps(replace(task))  # without what it found out of itself
        idle: SimpleQueue[WorkerProcess] = SimpleQueue()

        def one(config: C) -> T:
            worker = idle.get()
            try:
                return cast(T, worker.ask(self.deadline, question, data, config))
            except ChildLost as error:
                return lost(config, error)
            finally:
                idle.put(worker)

        with self._lock:
            while len(self._builders) < min(self.jobs, len(configs)):
                self._builders.append(WorkerProcess("build"))
            for worker in self._builders:
                worker.check(self.deadline)
                idle.put(worker)
            return in_threads(one, configs, self._builders)

    def _trial(self, kernel: _Kernel, built: Built) -> Trial:
        """Check and time one candidate."""
        with self._lock:
            failed = self._prepared(kernel)
            if failed is not None:
                return replace(failed, config=built.config)
            try:
                limit = _SLOW * kernel.best
                found = self._runner.ask(self.deadline, "trial", built, self.repeats, limit)
            except ChildLost as lost:
                return Trial(built.config, _fate(lost), reason=_of_run(lost), figures=built.figures)
            trial = cast(Trial, found)
            if trial.fate is Fate.WRONG:
                self._runner.end()  # who writes beside an array may have written elsewhere too
            kernel.best = min(kernel.best, trial.cost)
            return trial

    def _prepared(self, kernel: _Kernel) -> Trial | None:
        """Have the run worker ready for a task; else the trial that all points are.

        A worker that is lost is tried again: it may have been ended for want of memory elsewhere.
        """
        if isinstance(kernel.plain, Trial):
            return _no_reference(kernel.plain)
        if self._runner.is_alive and self._runner.ready_for == kernel.setting:
            return None
        failed = self._prepare(kernel.setting, kernel.plain)
        if failed is not None and not self._runner.is_alive:
            failed = self._prepare(kernel.setting, kernel.plain)
        if failed is not None:
            kernel.plain = failed
            return _no_reference(failed)
        self._runner.ready_for, self._runner.holds = kernel.setting, set()
        return None

    def _prepare(self, setting: Setting, plain: Built) -> Trial | None:
        """The trial of the plain loops if they fail."""
        seconds = self.deadline * _PATIENT
        try:
            return cast(Trial | None, self._runner.ask(seconds, "prepare", setting, plain))
        except ChildLost as lost:
            return Trial(PLAIN, _fate(lost), reason=_of_run(lost))

    def _turn(self, kernel: _Kernel, number: int, built: Built) -> float | None:
        """Time one finalist; None if it is no good, or its worker is lost twice."""
        for _ in range(2):
            with suppress(ChildLost):
                return self._timed(kernel, number, built)
        return None

    def _timed(self, kernel: _Kernel, number: int, built: Built) -> float | None:
        """A new worker loads a finalist first."""
        runner = self._runner
        if self._prepared(kernel) is not None:
            return None
        if number not in runner.holds:
            if not runner.ask(self.deadline, "load", number, built):
                runner.end()
                return None
            runner.holds.add(number)
        return cast(float, runner.ask(self.deadline, "turn", number))


@dataclass
class _Kernel:
    """A task as its candidates are measured: `best` seconds so far."""

    setting: Setting
    plain: Made
    best: float = math.inf


def check_options(who: str, jobs: int | None, deadline: float, repeats: int, seed: int) -> None:
    """OptionError (MDLC1001) or TuneError (MDLC1324) for what no measurer can be given."""
    if jobs is not None:
        expect(who, "jobs", jobs, int)
    expect(who, "deadline", deadline, int, float)
    expect(who, "repeats", repeats, int)
    expect(who, "seed", seed, int)
    for name, value, least in (("jobs", jobs, 1), ("repeats", repeats, 5), ("seed", seed, 0)):
        if value is not None and value < least:
            text = f"{who}: {name} is {value}, expected at least {least}"
            raise TuneError(text, code="MDLC1324")
    if not 0 < deadline < math.inf:
        text = f"{who}: deadline is {deadline}, expected a number of seconds above 0"
        raise TuneError(text, code="MDLC1324")


def setting_of(task: Task, number: int, folder: Path | None, seed: int, flush: bool) -> Setting:
    """A task as the run worker needs it."""
    types = {t.name: t.type for t in stages(task.group.outputs) if t.body is None}
    allowed = tolerances(task.group)
    return Setting(number, folder, types, allowed, task.threads, seed, flush)


def check_runs_here(task: Task) -> None:
    """TuneError (MDLC1320) unless this machine runs the code of the task."""
    if why := foreign(task.target):
        hint = "tune on the machine that will run it, or with workers there (DaskMeasurer)"
        raise TuneError(f"{task.name}: {why}", hint=hint, code="MDLC1320")


def foreign(target: Target) -> str:
    """Why this machine does not run code for `target`; '' if it does."""
    here = host()
    if target.triple != here.triple:
        return f"the code is for {target.triple}, this machine is {here.triple}"
    if target.cpu != here.cpu:
        return f"the code is for a {target.cpu}, this machine is a {here.cpu}"
    wanted = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    if missing := sorted(f for f in wanted if not here.has(f)):
        return f"the code uses {', '.join(missing)}, which this machine has not"
    return ""


def _lost_build(config: Config | None, lost: ChildLost) -> Made:
    return Trial(config or PLAIN, _fate(lost), reason=f"the build worker: {lost}")


def _no_reference(plain: Trial) -> Trial:
    text = "there is nothing to check results against, as the plain loops failed"
    return Trial(PLAIN, plain.fate, reason=f"{text}: {plain.reason}")


def _fate(lost: ChildLost) -> Fate:
    return Fate.TIMEOUT if lost.late else Fate.CRASHED


def _of_run(lost: ChildLost) -> str:
    beside = " (it used memory that is not its own)" if "SIGSEGV" in str(lost) else ""
    return f"the run worker: {lost}{beside}"


def _is_replaced() -> bool:
    """True if a part of the compiler is replaced, here and now: workers would not know it."""
    return extension.active() and any(map(extension.overridden, {*extension.known()} - _OURS))
