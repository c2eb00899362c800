"""The loop around a step: epochs, evaluation, progress, checkpoints, going on after an end.

    trainer = mc.train.Trainer(step, data, evaluate=accuracy, folder="runs/digits", every=100)
    history = trainer.fit(epochs=20, resume=True)   # goes on from the last checkpoint, if any
    history[-1].loss, history[-1].results           # 0.02, {"accuracy": 0.98}

A run that was killed and resumed gives the numbers of one that was not, bit for bit: a checkpoint
has all that the step remembers and where the data stand. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, SupportsFloat, cast

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, OptionError, TrainError
from minidlc.train.checkpoint import Checkpoint, Checkpoints
from minidlc.train.console import ctrl_c, is_terminal, progress
from minidlc.train.data import Dataset


class Step(Protocol):
    """What the trainer asks of a step: `mc.compile_train_step` makes them."""

    learning_rate: float

    @property
    def steps(self) -> int: ...
    def __call__(self, /, *arrays: object) -> list[Array]: ...
    def state(self) -> dict[str, Array]: ...
    def load_state(self, state: Mapping[str, Array]) -> None: ...


@dataclass(frozen=True)
class Epoch:
    """One epoch of the history: the mean of its losses, and what `evaluate` said at its end."""

    epoch: int
    steps: int  # updates made so far
    loss: float
    learning_rate: float
    seconds: float  # those before a kill or an exception are not counted
    results: dict[str, float]


class Trainer:
    """Runs a step over a data set. `history` has one `Epoch` for each epoch that is complete.

    `schedule`: from updates made to the learning rate. `evaluate`: called after each epoch; returns
    numbers by name. `folder`: of the checkpoints, the last `keep` of them, one an epoch, or one
    after `every` calls of the step. `nans_allowed`: so many losses in a row may be NaN or infinite.
    `show`: the progress; None: if somebody looks at it.

    Raises OptionError (MDLC1001) for arguments of another kind, TrainError (MDLC1278) for numbers
    that cannot be meant.
    """

    def __init__(
        self,
        step: Step,
        data: Dataset,
        *,
        schedule: Callable[[int], float] | None = None,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        folder: str | os.PathLike[str] | None = None,
        every: int | None = None,
        keep: int = 3,
        nans_allowed: int = 0,
        show: bool | None = None,
    ) -> None:
        _expect_step(step)
        expect("Trainer", "data", data, Dataset, hint="mc.train.dataset(…) makes one")
        for name, function in (("schedule", schedule), ("evaluate", evaluate)):
            if function is not None:
                expect("Trainer", name, function, Callable)  # pyright: ignore[reportArgumentType]
        expect("Trainer", "folder", folder, str, os.PathLike, type(None))
        expect("Trainer", "show", show, bool, type(None))
        _expect_number("keep", keep, 1)
        _expect_number("nans_allowed", nans_allowed, 0)
        if every is not None:
            _expect_number("every", every, 1)
            if folder is None:
                text = "Trainer: every without a folder makes no checkpoints"
                raise TrainError(text, code="MDLC1278")
        self.step, self.data = step, data
        self.schedule, self.evaluate = schedule, evaluate
        self.checkpoints = None if folder is None else Checkpoints(folder, keep=keep)
        self.every, self.nans_allowed, self.show = every, nans_allowed, show
        self.history: list[Epoch] = []
        self.losses: list[float] = []  # of the epoch that has no record yet
        self.calls = 0  # of the step: updates, unless they accumulate
        self.interrupted = False  # the last fit ended by Ctrl-C
        self._nans = 0  # the last losses were not finite

    def __repr__(self) -> str:
        return f"<Trainer: {len(self.history)} epochs, {self.calls} calls of {self.step!r}>"

    def fit(self, epochs: int, *, resume: bool = False) -> list[Epoch]:
        """Train until the data set has gone through `epochs` epochs; returns the history.

        `resume` goes on from the newest whole checkpoint in the folder, if there is one: what this
        trainer has learnt since is forgotten, such as what led to a loss that is not finite. Ctrl-C
        ends after the running step, with a checkpoint, and sets `interrupted`; a second one ends at
        once, in the middle of a step: go on from a checkpoint then. After an exception, such as one
        of `evaluate`, another `fit` goes on where this one stood: with that batch, or with that
        evaluation.

        Raises TrainError: MDLC1265 the folder cannot be made, MDLC1277 the loss is not finite,
        MDLC1278 `epochs` below 0, MDLC1279 the folder has checkpoints of another run.
        """
        _expect_number("epochs", epochs, 0, "fit")
        expect("fit", "resume", resume, bool)
        self._begin(resume)
        with ctrl_c() as asked, progress(is_terminal() if self.show is None else self.show) as bars:
            bar = bars.add_task("", total=len(self.data), loss=math.nan)
            while (done := self._epochs_done()) < epochs and not asked.is_set():
                bars.update(bar, description=f"epoch {done + 1}/{epochs}")
                for loss in self._epoch():
                    bars.update(bar, completed=self.data.position, loss=loss)
                    if asked.is_set():
                        break
        self.interrupted = asked.is_set()
        if self.interrupted or self.every:
            self.save()
        return self.history

    def _lacks_record(self) -> bool:
        """Is an epoch trained, but not in the history? So it is if `evaluate` raised."""
        return bool(self.losses) and self.data.position == 0

    def _epochs_done(self) -> int:
        return self.data.epoch - self._lacks_record()

    def _epoch(self) -> Generator[float]:
        """The rest of an epoch: a loss after each step, then the record."""
        begin = time.perf_counter()
        if not self._lacks_record():
            with contextlib.closing(iter(self.data)) as batches:
                for batch in batches:
                    self._train(batch)
                    if self.every and self.calls % self.every == 0:
                        self.save()
                    yield self.losses[-1]
        results = _checked_results(self.evaluate()) if self.evaluate else {}
        record = Epoch(
            epoch=self.data.epoch,
            steps=self.step.steps,
            loss=float(np.mean(self.losses)),
            learning_rate=self.step.learning_rate,
            seconds=time.perf_counter() - begin,
            results=results,
        )
        self.history.append(record)
        self.losses = []
        if not self.every:
            self.save()

    def _train(self, batch: Any) -> None:
        try:
            if self.schedule is not None:
                self.step.learning_rate = self.schedule(self.step.steps)
            arrays = cast("tuple[Any, ...]", batch) if isinstance(batch, tuple) else (batch,)
            loss = float(self.step(*arrays)[0])
        except Exception as e:
            self.data.position -= 1  # nothing was learnt of this batch: it comes again
            if isinstance(e, CallError) and self.data.stage.is_rest(
                self.data.epoch, self.data.position
            ):
                e.notes += ("this batch is the last of the epoch, and smaller than the others",)
                e.hint = "batch(size, drop_last=True) leaves it out"
            raise
        self.calls += 1
        self.losses.append(loss)
        self._nans = 0 if math.isfinite(loss) else self._nans + 1
        if self._nans > self.nans_allowed:
            text = f"the loss is {loss} in step {self.calls}, epoch {self.data.epoch + 1}"
            hint = "a lower learning rate, clip_norm=1.0, or loss scaling; is the data finite?"
            before = ", ".join(f"{x:.4g}" for x in self.losses[-6:])
            raise TrainError(text, notes=(f"losses: {before}",), hint=hint, code="MDLC1277")

    def save(self) -> None:
        """Write a checkpoint of this moment, if there is a folder."""
        if self.checkpoints is None:
            return
        meta = {
            "calls": self.calls,
            "data": self.data.state(),
            "learning_rate": self.step.learning_rate,
            "losses": self.losses,
            "history": [asdict(record) for record in self.history],
        }
        self.checkpoints.save(self.calls, self.step.state(), meta)

    def _begin(self, resume: bool) -> None:
        """Go on from a checkpoint, or make sure that none of another run is in the way."""
        if resume and self.checkpoints is None:
            raise TrainError("fit: resume needs the folder of the checkpoints", code="MDLC1278")
        if self.checkpoints is None:
            return
        if resume:
            found = self.checkpoints.latest()
            for text in self.checkpoints.refused:
                warnings.warn(f"passed over: {text}", stacklevel=3)
            if found is not None:
                self._restore(found)
        elif not self.calls and (there := self.checkpoints.paths()):
            text = f"fit: {self.checkpoints.folder} has checkpoints already: {there[-1].name}"
            hint = "fit(…, resume=True) goes on from there; a new run wants a new folder"
            raise TrainError(text, hint=hint, code="MDLC1279")
        self.checkpoints.check(self.calls)

    def _restore(self, found: Checkpoint) -> None:
        """Go on from a checkpoint; one that does not fit changes nothing."""
        meta = found.meta
        try:
            calls, rate = operator.index(meta["calls"]), float(meta["learning_rate"])
            losses = [float(loss) for loss in meta["losses"]]
            history = [Epoch(**record) for record in meta["history"]]
            place = meta["data"]
            if calls < 0:
                raise ValueError(calls)
        except (KeyError, TypeError, ValueError):
            text = f"fit: {found.path} was not written by a Trainer"
            hint = "load(path).state is what step.load_state takes"
            raise TrainError(text, hint=hint, code="MDLC1279") from None
        before = self.data.state(), self.step.learning_rate
        try:
            self.data.load_state(place)
            self.step.learning_rate = rate
            self.step.load_state(found.state)  # last, because it loads all or nothing
        except Exception:
            self.data.load_state(before[0])
            self.step.learning_rate = before[1]
            raise
        self.calls, self.losses, self.history = calls, losses, history
        self._nans = 0


def _expect_step(step: object) -> None:
    """Raise OptionError unless it has what the trainer asks of a step."""
    hint = "mc.compile_train_step makes one"
    expect("Trainer", "step", step, Callable, hint=hint)  # pyright: ignore[reportArgumentType]
    lacking = [n for n in ("learning_rate", "steps", "state", "load_state") if not hasattr(step, n)]
    if lacking:
        text = f"Trainer: step is a {type(step).__name__} without {', '.join(lacking)}"
        raise OptionError(text, hint=hint, code="MDLC1001")


def _expect_number(name: str, value: int, least: int, function: str = "Trainer") -> None:
    expect(function, name, value, int)
    if value < least:
        text = f"{function}: {name} is {value}, expected {least} or more"
        raise TrainError(text, code="MDLC1278")


def _checked_results(results: Mapping[str, Any]) -> dict[str, float]:
    """What `evaluate` returned, as numbers that a checkpoint can hold."""
    expect("Trainer", "what evaluate returns", results, Mapping, hint='{"accuracy": 0.98}')
    numbers: dict[str, float] = {}
    for name, value in results.items():
        what = f"evaluate's {name!r}"
        expect("Trainer", "a name that evaluate returns", name, str)
        expect("Trainer", what, value, SupportsFloat, bool)
        if np.size(value) != 1 or not np.isrealobj(value):
            text = f"Trainer: {what} has shape {np.shape(value)}, expected one real number"
            raise TrainError(text, code="MDLC1278")
        try:
            numbers[name] = float(np.asarray(value).item())
        except OverflowError:  # an integer of hundreds of digits
            text = f"Trainer: {what} is too large for a float"
            raise TrainError(text, code="MDLC1278") from None
    return numbers
