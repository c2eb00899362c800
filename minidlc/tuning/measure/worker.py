"""The worker processes of a measurer: one kind builds, the other runs.

    python -c "from minidlc.tuning.measure.worker import serve; serve()"

Reads pickles of (what to do, its arguments) from standard input and answers each on standard
output. A worker ends with its input, in the middle of whatever it does: a thread listens.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import numpy as np

from minidlc.expr.types import Array, TensorType
from minidlc.support.child import streams
from minidlc.tuning.measure import check, run
from minidlc.tuning.measure.build import PLAIN, Built, Made, build, build_plain, reason, row
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

_SHARE = 0.75  # of the machine's memory that one worker may have
# Floats of inputs, in eighths, tried in this order: of negative ones a root or a logarithm is NaN,
# of those below 1 an acosh.
_RANGES = ((-8, 8), (1, 8), (8, 16))


@dataclass(frozen=True)
class Setting:
    """A task as the run worker needs it; `folder` keeps what the plain loops gave, if there is one.

    `number` tells the tasks of a measurer apart. `inputs` are the types of what the kernel is given
    before constants are packed, `tolerances` how far its results may be away (check.py).
    """

    number: int
    folder: Path | None
    inputs: Mapping[str, TensorType]
    tolerances: Mapping[str, float]
    threads: int
    seed: int
    flush: bool


def serve() -> None:
    """Answer until nobody asks any more."""
    questions, answers = streams()
    _limit_memory()
    waiting: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
    threading.Thread(target=_listen, args=(questions, waiting), daemon=True).start()
    worker = Worker()
    gc.freeze()  # the modules stay: no need to look through them again and again
    while True:
        name, args = waiting.get()
        pickle.dump(getattr(worker, name)(*args), answers)
        answers.flush()


def _listen(questions: IO[bytes], waiting: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    """A candidate in an endless loop does not notice that the parent is gone: this thread does."""
    while True:
        try:
            waiting.put(pickle.load(questions))
        except (EOFError, OSError):
            os._exit(0)


def _limit_memory() -> None:
    """One candidate must not make the whole machine swap; no core dumps. On Unix."""
    try:
        resource: Any = import_module("resource")
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = int(whole * _SHARE)
        if most == resource.RLIM_INFINITY or wanted < most:
            resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, AttributeError, ValueError, OSError):
        pass  # a machine without such limits


class Worker:
    """What a worker can be asked; it keeps the bench of one task, and loaded candidates."""

    def __init__(self) -> None:
        self.bench: run.Bench | None = None
        self.loaded: dict[int, run.Loaded] = {}

    def greet(self) -> str:
        """That it is there."""
        return "ready"

    def build(self, data: bytes, config: Config | None) -> Made:
        """A point of a pickled task, compiled; None asks for the plain loops."""
        try:
            task = _task(data)
        except Exception as error:  # a class that only the parent has, such as one of a notebook
            wanted = config or PLAIN
            text = f"the build worker cannot read the task: {type(error).__name__}: {error}"
            return Trial(wanted, Fate.NOT_COMPILED, reason=text)
        return build_plain(task) if config is None else build(task, config)

    def features(self, data: bytes, config: Config) -> Array | None:
        """The row of a point of a pickled task; None where the task cannot be read."""
        try:
            return row(_task(data), config)
        except Exception:
            return None

    def prepare(self, setting: Setting, plain: Built) -> Trial | None:
        """Set up the bench of a task: None, or the trial of plain loops that are no reference."""
        self.bench, self.loaded = None, {}
        try:
            values, expected = _expected(setting, plain)
            if name := check.unknown(expected):
                text = f"{name} is NaN everywhere, for all inputs that were tried"
                return Trial(PLAIN, Fate.REFUSED, reason=text)
            threads, flush = setting.threads, setting.flush
            self.bench = run.Bench(values, expected, setting.tolerances, threads, flush)
        except Exception as error:
            return Trial(PLAIN, Fate.CRASHED, reason=reason(error))
        return None

    def forget(self) -> None:
        """Let go of the candidates that it keeps."""
        self.loaded.clear()

    def trial(self, built: Built, repeats: int, limit: float) -> Trial:
        """Check and time a candidate, then check again."""
        assert self.bench is not None
        try:
            seconds = self.bench.time(self.bench.load(built), repeats, limit)
            self.bench.confirm()
        except run.Wrong as wrong:
            return Trial(built.config, Fate.WRONG, reason=str(wrong), figures=built.figures)
        except Exception as error:
            return Trial(built.config, Fate.CRASHED, reason=reason(error), figures=built.figures)
        return Trial(built.config, Fate.OK, seconds, figures=built.figures)

    def load(self, number: int, built: Built) -> bool:
        """Check a candidate and keep it under a number; False if it is no good."""
        assert self.bench is not None
        try:
            self.loaded[number] = self.bench.load(built)
        except Exception:  # the caller has no use for the reason: it measured the same before
            return False
        return True

    def turn(self, number: int) -> float:
        """Seconds of one run of a loaded candidate."""
        assert self.bench is not None
        return self.bench.time(self.loaded[number], 1)[0]


@lru_cache(maxsize=2)
def _task(data: bytes) -> Task:
    """A task is read once: what it finds out of itself, it keeps."""
    return pickle.loads(data)  # from our own parent


def _expected(setting: Setting, plain: Built) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs and results; from the folder, if a worker before this one has put them there."""
    kept = setting.folder and setting.folder / "expected.npz"
    types = dict(plain.main.params)
    if kept and kept.exists():
        with np.load(kept) as file:
            raw = {name: np.asarray(file[f"of_{name}"]) for name in types}
        found = {n: raw[n].view(t.dtype.numpy).reshape(t.dims) for n, t in types.items()}
        return {n: found[n] for n in setting.inputs}, _without(found, setting.inputs)
    values, expected = _most_finite(setting, plain)
    if kept:
        _keep(kept, values | expected)
    return values, expected


def _most_finite(setting: Setting, plain: Built) -> tuple[dict[str, Array], dict[str, Array]]:
    """The first inputs of finite results, else those of the most: NaN would prove nothing."""
    best, most = None, -1.0
    for low, high in _RANGES:
        values = check.inputs(setting.inputs, setting.seed, low, high)
        expected = run.reference(plain, values)
        part = check.finite(expected)
        if part > most:
            best, most = (values, expected), part
        if part == 1.0:
            break
    assert best is not None
    return best


def _keep(path: Path, values: Mapping[str, Array]) -> None:
    """Write a file whole or not at all; as bytes, since NumPy's files know no bf16.

    It saves time only: where it cannot be written, the next worker computes the same.
    """
    data: dict[str, Any] = {f"of_{n}": x.reshape(-1).view(np.uint8) for n, x in values.items()}
    written = path.with_suffix(".part.npz")
    try:
        np.savez(written, **data)
        written.replace(path)
    except OSError:  # a full disk, a folder that was removed
        with suppress(OSError):
            written.unlink()


def _without(values: Mapping[str, Array], names: Mapping[str, TensorType]) -> dict[str, Array]:
    return {name: x for name, x in values.items() if name not in names}
