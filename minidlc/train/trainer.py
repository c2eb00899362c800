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
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
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
    seconds: float  # in this process; those before a kill are not counted
    results: dict[str, float]


@dataclass(eq=False)
class Trainer:
    """Runs a step over a data set. `history` has one `Epoch` for each epoch that is complete.

    Raises OptionError (MDLC1001) for arguments of another kind, TrainError (MDLC1278) for numbers
    that cannot be meant.
    """

    step: Step
    data: Dataset
    _: KW_ONLY
    schedule: Callable[[int], float] | None = None  # from updates made to the learning rate
    evaluate: Callable[[], Mapping[str, float]] | None = None  # called after each epoch
    folder: str | os.PathLike[str] | None = None  # of the checkpoints
    every: int | None = None  # calls of the step from one to the next; None: one an epoch
    keep: int = 3  # so many checkpoints stay
    nans_allowed: int = 0  # losses in a row that may be NaN or infinite
    show: bool | None = None  # the progress; None: if somebody looks at it
    history: list[Epoch] = field(init=False, default_factory=list["Epoch"])
    losses: list[float] = field(init=False, default_factory=list[float])  # of the running epoch
    calls: int = field(init=False, default=0)  # of the step: updates, unless they accumulate
    interrupted: bool = field(init=False, default=False)  # the last fit ended by Ctrl-C

    def __post_init__(self) -> None:
        expect("Trainer", "step", self.step, Callable, hint="mc.compile_train_step makes one")  # pyright: ignore[reportArgumentType]
        expect("Trainer", "data", self.data, Dataset, hint="mc.train.dataset(…) makes one")
        expect("Trainer", "every", self.every, int, type(None))
        expect("Trainer", "nans_allowed", self.nans_allowed, int)
        if self.every is not None and (self.every < 1 or self.folder is None):
            what = "without a folder" if self.folder is None else f"= {self.every}"
            raise TrainError(f"Trainer: every {what} makes no checkpoints", code="MDLC1278")
        self.checkpoints = None if self.folder is None else Checkpoints(self.folder, keep=self.keep)
        self._nans = 0  # the last losses were not finite

    def fit(self, epochs: int, *, resume: bool = False) -> list[Epoch]:
        """Train until the data set has gone through `epochs` epochs; returns the history.

        `resume` goes on from the newest whole checkpoint in the folder, if there is one. Ctrl-C
        ends after the running step, with a checkpoint, and sets `interrupted`; a second one ends at
        once. Raises TrainError: MDLC1277 the loss is not finite, MDLC1279 the folder has
        checkpoints of another run.
        """
        expect("fit", "epochs", epochs, int)
        self._begin(resume)
        with ctrl_c() as asked, progress(is_terminal() if self.show is None else self.show) as bars:
            bar = bars.add_task("", total=len(self.data), loss=math.nan)
            while self.data.epoch < epochs and not asked.is_set():
                bars.update(bar, description=f"epoch {self.data.epoch + 1}/{epochs}")
                for loss in self._epoch():
                    bars.update(bar, completed=self.data.position, loss=loss)
                    if asked.is_set():
                        break
        self.interrupted = asked.is_set()
        if self.interrupted or self.every:
            self.save()
        return self.history

    def _epoch(self) -> Generator[float]:
        """The rest of an epoch: a loss after each step."""
        begin = time.perf_counter()
        with contextlib.closing(iter(self.data)) as batches:
            for batch in batches:
                self._train(batch)
                if self.every and self.calls % self.every == 0:
                    self.save()
                yield self.losses[-1]
        results: Mapping[str, float] = self.evaluate() if self.evaluate else {}
        expect("Trainer", "what evaluate returns", results, Mapping, hint='{"accuracy": 0.98}')
        record = Epoch(
            epoch=self.data.epoch,
            steps=self.step.steps,
            loss=float(np.mean(self.losses)),
            learning_rate=self.step.learning_rate,
            seconds=time.perf_counter() - begin,
            results={name: float(value) for name, value in results.items()},
        )
        self.history.append(record)
        self.losses = []
        if not self.every:
            self.save()

    def _train(self, batch: Any) -> None:
        if self.schedule is not None:
            self.step.learning_rate = self.schedule(self.step.steps)
        arrays = cast("tuple[Any, ...]", batch) if isinstance(batch, tuple) else (batch,)
        loss = float(self.step(*arrays)[0])
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
        if self.checkpoints is None or self.calls:
            return
        if resume:
            found = self.checkpoints.latest()
            for text in self.checkpoints.refused:
                warnings.warn(f"passed over: {text}", stacklevel=3)
            if found is not None:
                self._restore(found)
        elif there := self.checkpoints.paths():
            text = f"fit: {self.checkpoints.folder} has checkpoints already: {there[-1].name}"
            hint = "fit(…, resume=True) goes on from there; a new run wants a new folder"
            raise TrainError(text, hint=hint, code="MDLC1279")

    def _restore(self, found: Checkpoint) -> None:
        if not {"calls", "data", "history", "learning_rate", "losses"} <= found.meta.keys():
            text = f"fit: {found.path} was not written by a Trainer"
            hint = "load(path).state is what step.load_state takes"
            raise TrainError(text, hint=hint, code="MDLC1279")
        self.data.load_state(found.meta["data"])
        self.step.load_state(found.state)
        self.step.learning_rate = found.meta["learning_rate"]
        self.calls, self.losses = found.meta["calls"], found.meta["losses"]
        self.history = [Epoch(**record) for record in found.meta["history"]]
