"""Data sets: records shuffled, changed, put into batches, made ahead of time.

    data = mc.train.dataset({"x": x, "y": y}).shuffle(seed=0).batch(64, drop_last=True).prefetch(2)
    for batch in data:                              # one epoch; the next loop is the next epoch
        step(**batch)
    saved = data.state()                            # also in the middle: load_state goes on there

What comes out depends on the seed, the epoch and the number of the batch alone, not on how many
workers make it (`stages` says why). Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Never, TypeGuard

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.train.loading import ahead, can_fork
from minidlc.train.stages import Arrays, Batch, Items, Map, Shuffle, Stage, Windows


class Dataset:
    """Elements in epochs. A loop over it is one epoch, or the rest of the one that was left.

    `epoch` and `position` say which element comes next. Each method below returns a new data set
    that begins at epoch 0; the old one stays as it is.
    """

    def __init__(
        self, stage: Stage, depth: int = 0, workers: int = 0, processes: bool = False
    ) -> None:
        self.stage = stage
        self.epoch = 0
        self.position = 0
        self._depth = depth
        self._workers = workers
        self._processes = processes
        self._loop: object = None  # the loop that moves the position

    def shuffle(self, seed: int) -> Dataset:
        """Every epoch in an order of its own: a random permutation of all elements."""
        return self._with(Shuffle(self.stage, _number("shuffle", "seed", seed, 0)))

    def map(self, function: Callable[..., Any], *, seed: int | None = None) -> Dataset:
        """Apply `function` to each element; with a seed it is called as `function(element, rng)`.

        `rng` is a `numpy.random.Generator` made from the seed, the epoch and the record's index;
        two maps with one seed draw the same numbers.
        Several workers call the function at the same time. What it raises becomes a TrainError
        (MDLC1271) with the index and the line.
        """
        expect("map", "function", function, Callable)  # pyright: ignore[reportArgumentType]
        if seed is not None:
            seed = _number("map", "seed", seed, 0)
        return self._with(Map(self.stage, function, seed))

    def batch(self, size: int, *, drop_last: bool = False) -> Dataset:
        """Stack `size` elements; `drop_last` leaves out a last batch that is smaller.

        A compiled step has one batch size, so training wants `drop_last=True`. Raises TrainError
        (MDLC1270) if no batch is left, and MDLC1272 in the loop for records that do not stack.
        """
        expect("batch", "drop_last", drop_last, bool)
        stage = Batch(self.stage, _number("batch", "size", size, 1), drop_last)
        if not len(stage):
            text = f"batch: {len(self.stage)} elements give no batch of {size}"
            _refuse(text, "a smaller batch, or drop_last=False")
        return self._with(stage)

    def prefetch(self, depth: int = 2, *, workers: int = 1, processes: bool = False) -> Dataset:
        """Let `workers` threads make elements before they are asked for: up to `depth`, or workers.

        The elements are the same, in the same order, for any number of workers; 0 means none.
        `processes` makes them processes, for functions that compute in Python: they are copies of
        this one (fork), started for each epoch. Raises TrainError (MDLC1270) where the system
        cannot do that; in the loop, MDLC1281 for elements that cannot be sent from one.
        """
        depth = _number("prefetch", "depth", depth, 1)
        expect("prefetch", "processes", processes, bool)
        if processes and not can_fork():
            _refuse("prefetch: this system cannot copy processes", "threads: processes=False")
        workers = _number("prefetch", "workers", workers, 0)
        return Dataset(self.stage, depth, workers, processes)

    def _with(self, stage: Stage) -> Dataset:
        return Dataset(stage, self._depth, self._workers, self._processes)

    def __len__(self) -> int:
        return len(self.stage)

    def at(self, epoch: int, n: int) -> Any:
        """Element `n` of an epoch, out of turn: the position stays."""
        n = _number("at", "n", n, 0)
        if n >= len(self):
            _refuse(f"at: there is no element {n}", f"an epoch has {len(self)}")
        return self.stage.at(_number("at", "epoch", epoch, 0), n)

    def __iter__(self) -> Generator[Any]:
        """The rest of the epoch. Raises TrainError (MDLC1274) if another loop has begun since."""
        self._loop = loop = object()
        epoch, numbers = self.epoch, range(self.position, len(self))
        make = functools.partial(self.stage.at, epoch)
        made = ahead(
            make,
            numbers,
            depth=self._depth,
            workers=self._workers,
            processes=self._processes,
        )
        with contextlib.closing(made):
            for n, element in zip(numbers, made, strict=True):
                if self._loop is not loop:
                    text = "this loop over a data set goes on, although the set was moved since"
                    hint = "one loop at a time; for a second one make a second data set"
                    raise TrainError(text, hint=hint, code="MDLC1274")
                self.position = n + 1
                yield element
        self.epoch, self.position = epoch + 1, 0

    def state(self) -> dict[str, int | str]:
        """Where the data set stands, as numbers and text for a checkpoint."""
        return {"epoch": self.epoch, "position": self.position, "of": str(self)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state()` was taken: the next element is the one that came next there.

        Raises TrainError (MDLC1273) for the state of a data set of other stages, sizes or seeds, or
        for a place that it does not have; then nothing has changed.
        """
        expect("load_state", "state", state, Mapping, hint="what state() returned")
        if (of := state.get("of")) != str(self):
            notes = (f"saved: {of}", f"this one: {self}")
            text = "load_state: the state is that of another data set"
            raise TrainError(text, notes=notes, code="MDLC1273")
        epoch, position = state.get("epoch"), state.get("position")
        if not (_is_in(epoch, math.inf) and _is_in(position, len(self))):
            text = f"load_state: there is no epoch {epoch!r} with a position {position!r}"
            hint = f"an epoch has {len(self)} elements; state() gives both numbers"
            raise TrainError(text, hint=hint, code="MDLC1273")
        self.epoch, self.position = int(epoch), int(position)
        self._loop = None

    def __repr__(self) -> str:
        at = f"{len(self)} in an epoch; next: epoch {self.epoch}, position {self.position}"
        return f"<Dataset {self}; {at}>"

    def __str__(self) -> str:
        return str(self.stage)


def dataset(source: Mapping[str, Any] | Sequence[Any]) -> Dataset:
    """The records of a dict of arrays (row n of each), of `Records(path)`, or of a sequence.

    Records are dicts, tuples or single arrays; those of arrays are read-only views, so that no map
    changes the data. Raises TrainError (MDLC1269) for arrays of different lengths, for a source
    without records, and for text, which is no path here.
    """
    expect("dataset", "source", source, Mapping, Sequence, hint='{"x": array, "y": array}')
    if isinstance(source, (str, bytes)):
        hint = "mc.train.Records(path) opens a record file; windows(codes, 64) takes text apart"
        raise TrainError("dataset: text has no records", hint=hint, code="MDLC1269")
    if not isinstance(source, Mapping):
        stage: Stage = Items(source)
    else:
        arrays = {name: _read_only(f"dataset: {name!r}", a) for name, a in source.items()}
        lengths = {name: len(a) if a.ndim else None for name, a in arrays.items()}
        if None in lengths.values() or len(set(lengths.values())) > 1:
            text = f"dataset: the arrays differ in length: {lengths}"
            raise TrainError(text, hint="row n of each is record n", code="MDLC1269")
        stage = Arrays(arrays) if arrays else Items(())
    return _filled(stage)


def windows(array: Any, length: int, *, stride: int = 1) -> Dataset:
    """The pieces of `length` rows of an array, each beginning `stride` behind the one before.

    For sequences: characters, sound. Raises TrainError (MDLC1269) for an array that is too short,
    for rows that differ in length, and for text: it wants codes.
    """
    length = _number("windows", "length", length, 1)
    if isinstance(array, (str, bytes)):
        hint = "np.frombuffer(text.encode(), np.uint8) makes codes of it"
        raise TrainError("windows: text is no array", hint=hint, code="MDLC1269")
    whole = np.atleast_1d(_read_only("windows: this", array))
    return _filled(Windows(whole, length, _number("windows", "stride", stride, 1)))


def _is_in(number: Any, last: float) -> TypeGuard[int]:
    return isinstance(number, (int, np.integer)) and bool(0 <= number <= last)


def _read_only(what: str, array: Any) -> Array:
    try:
        view = np.asarray(array).view()
    except Exception as e:  # of NumPy, or of an `__array__` of somebody's
        hint = "a list of records may have arrays of many sizes: dataset([…])"
        raise TrainError(f"{what} is no array: {e}", hint=hint, code="MDLC1269") from None
    view.flags.writeable = False
    return view


def _filled(stage: Stage) -> Dataset:
    if not len(stage):
        raise TrainError(f"dataset: there is no record: {stage}", code="MDLC1269")
    return Dataset(stage)


def _number(method: str, name: str, value: Any, least: int) -> int:
    expect(method, name, value, int, np.integer)
    if value < least:
        _refuse(f"{method}: {name} is {value}, expected {least} or more")
    return int(value)


def _refuse(text: str, hint: str | None = None) -> Never:
    raise TrainError(text, hint=hint, code="MDLC1270")
