"""Points of a kernel compiled and run on other machines: the workers of a Dask cluster.

    with DaskMeasurer("tcp://scheduler:8786") as m: # or a dask.distributed.Client
        m.measure(task, configs)                    # as LocalMeasurer, each point on some worker

Start one worker with one thread on each machine, so that nothing else runs while something is
timed: `dask worker tcp://scheduler:8786 --nthreads 1`. A worker measures with a LocalMeasurer of
its own: a candidate that crashes takes no Dask worker with it. Dask is the extra `cluster`.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import importlib
import math
import pickle
import platform
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, cast

from minidlc.codegen.cache import source_digest
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import TuneError
from minidlc.tuning.measure.local import LocalMeasurer, check_options, foreign
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

_CONNECT = "10s"
_START = 60.0  # seconds until a worker must have imported the kit and started its own workers
_PLAIN = 12  # deadlines that the plain loops may take on a worker, see local.py
_EACH = 3  # deadlines for a point: build, run, and as much for the way


@dataclass(frozen=True)
class _Options:
    """Of the LocalMeasurer that a Dask worker makes; `source` is the kit that asks."""

    deadline: float
    repeats: int
    seed: int
    flush: bool
    source: str


class DaskMeasurer:
    """Compiles and runs on the workers of a cluster; arguments and errors as of LocalMeasurer.

    TuneError where Dask is not installed (MDLC1325), if no scheduler answers at the address or it
    has no workers (MDLC1323).
    """

    def __init__(
        self,
        cluster: object,
        deadline: float = 10.0,
        repeats: int = 5,
        seed: int = 0,
        *,
        flush: bool = False,
    ) -> None:
        check_options("DaskMeasurer", None, deadline, repeats, seed)
        self._dask = _distributed()
        self._lock = threading.Lock()  # one call at a time: the time to wait is counted for one
        self._owned = isinstance(cluster, str)
        self._options = _Options(deadline, repeats, seed, flush, source_digest())
        self._client = self._connected(cluster) if isinstance(cluster, str) else cluster
        expect("DaskMeasurer", "cluster", self._client, str, self._dask.Client)

    def _connected(self, address: str) -> Any:
        try:
            return self._dask.Client(address, timeout=_CONNECT)
        except (OSError, ValueError) as error:
            text = f"no Dask scheduler answers at {address}: {error}"
            hint = "start one with: dask scheduler; its first lines say the address"
            raise TuneError(text, hint=hint, code="MDLC1323") from None

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
        """End what the Dask workers have started; a client that was given stays open."""
        client: Any = self._client
        with suppress(Exception):  # a cluster that is gone has nothing left to end
            client.run(_end)
        if self._owned:
            client.close()

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        """A trial for each point, in order; refused where the worker is not the task's machine."""
        points = expect_each("measure", "configs", configs, Config)
        calls = [(config,) for config in points]
        found = self._answers(_measured, task, calls, rounds=1)
        return [
            Trial(config, answer.fate, reason=answer.text) if isinstance(answer, _Lost) else answer
            for config, answer in zip(points, cast(list[Trial | _Lost], found), strict=True)
        ]

    def recheck(
        self, task: Task, configs: Sequence[Config], rounds: int = 15
    ) -> list[tuple[float, ...]]:
        """Seconds of one run of each point in each round, in turns, all on one worker.

        () for a point that fails, and for all if the worker is lost or not the task's machine.
        """
        expect("recheck", "rounds", rounds, int)
        points = expect_each("recheck", "configs", configs, Config)
        call = (points, rounds)
        (found,) = self._answers(_rechecked, task, [call], rounds=1 + rounds * len(points))
        return (
            [()] * len(points) if isinstance(found, _Lost) else cast(list[tuple[float, ...]], found)
        )

    def _answers(
        self, function: Any, task: Task, calls: Sequence[tuple[object, ...]], rounds: int
    ) -> list[object]:
        """What `function` gives on some worker for each call; `_Lost` where no answer came."""
        with self._lock:
            return self._answers_now(function, task, calls, rounds)

    def _answers_now(
        self, function: Any, task: Task, calls: Sequence[tuple[object, ...]], rounds: int
    ) -> list[object]:
        client: Any = self._client
        threads = sum(client.nthreads().values())
        if not threads:
            text = "the Dask cluster has no workers"
            hint = "start one on each machine: dask worker ADDRESS --nthreads 1"
            raise TuneError(text, hint=hint, code="MDLC1323")
        data = pickle.dumps(replace(task))  # without what it found out of itself
        futures = [client.submit(function, self._options, data, *c, pure=False) for c in calls]
        each = self._options.deadline * (_PLAIN + _EACH * rounds * math.ceil(len(calls) / threads))
        try:
            with suppress(TimeoutError, self._dask.TimeoutError):
                self._dask.wait(futures, timeout=_START + each)
            return [_answer(future, _START + each) for future in futures]
        finally:
            client.cancel([f for f in futures if not f.done()], force=True)


@dataclass(frozen=True)
class _Lost:
    """No answer: the fate of the trial that it would have been, and why."""

    fate: Fate
    text: str


def _answer(future: Any, seconds: float) -> object:
    if not future.done():
        return _Lost(Fate.TIMEOUT, f"no Dask worker answered within {seconds:g} s")
    error = future.exception()
    if error is None:
        return future.result()
    text = " ".join(str(error).split())
    return _Lost(Fate.CRASHED, f"the Dask worker: {type(error).__name__}: {text}")


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        text = "measuring on a cluster needs Dask, which is not installed"
        hint = 'pip install "minidlc[cluster]"'
        raise TuneError(text, hint=hint, code="MDLC1325") from None


# What follows runs in the processes of the Dask workers.

_lock = threading.Lock()  # a worker with several threads still times one candidate at a time
_measurers: dict[_Options, LocalMeasurer] = {}


def _measured(options: _Options, data: bytes, config: Config) -> Trial | _Lost:
    with _lock:
        found = _local(options, data)
        if isinstance(found, _Lost):
            return found
        measurer, task = found
        (trial,) = measurer.measure(task, [config])
        return trial


def _rechecked(
    options: _Options, data: bytes, configs: Sequence[Config], rounds: int
) -> list[tuple[float, ...]] | _Lost:
    with _lock:
        found = _local(options, data)
        if isinstance(found, _Lost):
            return found
        measurer, task = found
        return measurer.recheck(task, configs, rounds)


def _local(options: _Options, data: bytes) -> tuple[LocalMeasurer, Task] | _Lost:
    """The measurer of this process and the task; refused where it is for another machine or kit."""
    here = f"the Dask worker on {platform.node()}"
    if options.source != source_digest():
        return _Lost(Fate.REFUSED, f"{here} has another version of minidlc")
    task = cast(Task, pickle.loads(data))  # from our own client
    if why := foreign(task.target):
        return _Lost(Fate.REFUSED, f"{here}: {why}")
    if options not in _measurers:
        chosen = options.deadline, options.repeats, options.seed
        _measurers[options] = LocalMeasurer(1, *chosen, flush=options.flush)
    return _measurers[options], task


def _end() -> None:
    with _lock:
        for measurer in _measurers.values():
            measurer.close()
        _measurers.clear()
