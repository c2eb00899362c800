"""The trainer, on a step of NumPy: history, checkpoints, resume, Ctrl-C, NaN."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minidlc.support.errors import CallError, CompileError, TrainError
from minidlc.train.checkpoint import Checkpoints
from minidlc.train.data import Dataset, dataset
from minidlc.train.trainer import Trainer

pytestmark = pytest.mark.ch03

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3)).astype(np.float32)
Y = X @ np.array([1, -2, 3], np.float32)


class LineStep:
    """Least squares by descent; momentum makes the state more than the parameters."""

    def __init__(self, rate: float = 0.05) -> None:
        self.learning_rate = rate
        self.w, self.m = np.zeros(3, np.float32), np.zeros(3, np.float32)
        self.steps = 0
        self.rates: list[float] = []

    def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        error = batch["x"] @ self.w - batch["y"]
        self.m = np.float32(0.9) * self.m + batch["x"].T @ error / np.float32(len(error))
        self.w = self.w - np.float32(self.learning_rate) * self.m
        self.steps += 1
        self.rates.append(self.learning_rate)
        return [np.mean(error * error)]

    def state(self) -> dict[str, np.ndarray]:
        return {"w": self.w.copy(), "m": self.m.copy(), "steps": np.asarray(self.steps)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.w, self.m, self.steps = state["w"], state["m"], int(state["steps"])


def lines(seed: int = 0) -> Dataset:
    return dataset({"x": X, "y": Y}).shuffle(seed).batch(10)


def error_of(step: LineStep) -> Callable[[], dict[str, float]]:
    return lambda: {"error": float(np.abs(X @ step.w - Y).max())}


def says(results: object) -> object:
    return Trainer(LineStep(), lines(), evaluate=lambda: results).fit(1)  # pyright: ignore[reportArgumentType]


def without_seconds(trainer: Trainer) -> list[dict[str, Any]]:
    return [vars(record) | {"seconds": 0} for record in trainer.history]


def test_the_loss_falls_and_the_history_says_so() -> None:
    step = LineStep()
    history = Trainer(step, lines(), evaluate=error_of(step)).fit(epochs=12)
    assert [r.epoch for r in history] == list(range(1, 13))
    assert [r.steps for r in history] == [7 * n for n in range(1, 13)]
    assert history[-1].loss < 1e-3 * history[0].loss
    assert history[-1].results["error"] == error_of(step)()["error"] < 0.1


def test_fit_goes_on_to_more_epochs(tmp_path: Path) -> None:
    first, second = LineStep(), LineStep()
    trainer = Trainer(first, lines(), folder=tmp_path)
    trainer.fit(2)
    assert len(trainer.fit(5)) == 5
    Trainer(second, lines()).fit(5)
    np.testing.assert_array_equal(first.w, second.w)


def test_the_schedule_sets_the_rate_of_each_update() -> None:
    step = LineStep()
    Trainer(step, lines(), schedule=lambda n: 0.1 / (n + 1)).fit(2)
    assert step.rates == [0.1 / (n + 1) for n in range(14)]


@pytest.mark.long
@pytest.mark.parametrize("every", [None, 1, 3, 7])
@pytest.mark.parametrize("killed", [1, 7, 8, 13, 20])
def test_killed_and_resumed_is_the_same_run(tmp_path: Path, killed: int, every: int | None) -> None:
    class Killed(Exception):
        pass

    class Mortal(LineStep):
        def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            if self.steps == killed:
                raise Killed
            return super().__call__(batch)

    whole, mortal, again = LineStep(), Mortal(), LineStep(rate=0.9)
    reference = Trainer(whole, lines(), evaluate=error_of(whole))
    reference.fit(3)
    trainer = Trainer(mortal, lines(), evaluate=error_of(mortal), folder=tmp_path, every=every)
    with pytest.raises(Killed):
        trainer.fit(3, resume=True)
    resumed = Trainer(again, lines(), evaluate=error_of(again), folder=tmp_path, every=every)
    again.learning_rate = 0.9 if resumed.checkpoints.paths() else 0.05
    resumed.fit(3, resume=True)
    np.testing.assert_array_equal(again.w, whole.w)
    assert without_seconds(resumed) == without_seconds(reference)
    assert len(list(tmp_path.iterdir())) <= 3


def test_ctrl_c_ends_after_the_step_with_a_checkpoint(tmp_path: Path) -> None:
    class Interrupted(LineStep):
        def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            if self.steps == 9:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(batch)

    before = signal.getsignal(signal.SIGINT)
    step, again, whole = Interrupted(), LineStep(), LineStep()
    trainer = Trainer(step, lines().prefetch(2, workers=2), folder=tmp_path)
    assert len(trainer.fit(3)) == 1
    assert trainer.interrupted
    assert step.steps == 10
    assert signal.getsignal(signal.SIGINT) is before
    assert not [t for t in threading.enumerate() if t.name.startswith("minidlc-data")]
    resumed = Trainer(again, lines(), folder=tmp_path)
    resumed.fit(3, resume=True)
    Trainer(whole, lines()).fit(3)
    assert not resumed.interrupted
    np.testing.assert_array_equal(again.w, whole.w)


def test_a_second_ctrl_c_ends_at_once() -> None:
    class Hanging(LineStep):
        def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            return super().__call__(batch)

    with pytest.raises(KeyboardInterrupt):
        Trainer(Hanging(), lines()).fit(1)


def test_training_in_a_thread_leaves_signals_alone() -> None:
    step = LineStep()
    thread = threading.Thread(target=lambda: Trainer(step, lines()).fit(2))
    thread.start()
    thread.join()
    assert step.steps == 14


def test_a_loss_that_is_no_number_stops_with_a_reason() -> None:
    with np.errstate(all="ignore"), pytest.raises(TrainError) as raised:
        Trainer(LineStep(rate=1e6), lines()).fit(100)
    assert raised.value.code == "MDLC1277"
    assert "the loss is inf in step" in raised.value.message
    assert raised.value.notes[0].startswith("losses: ")
    assert "lower learning rate" in str(raised.value.hint)


def test_so_many_bad_losses_in_a_row_are_allowed() -> None:
    class Skipping(LineStep):
        def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            (loss,) = super().__call__(batch)
            return [loss * (np.nan if self.steps % 7 in (0, 1) else 1)]

    assert len(Trainer(Skipping(), lines(), nans_allowed=2).fit(3)) == 3
    with pytest.raises(TrainError, match="nan in step 8, epoch 2"):
        Trainer(Skipping(), lines(), nans_allowed=1).fit(3)


def test_a_folder_of_another_run(tmp_path: Path) -> None:
    Trainer(LineStep(), lines(), folder=tmp_path).fit(1)
    with pytest.raises(TrainError) as raised:
        Trainer(LineStep(), lines(), folder=tmp_path).fit(1)
    assert raised.value.code == "MDLC1279"
    with pytest.raises(TrainError) as raised:
        Trainer(LineStep(), lines(seed=1), folder=tmp_path).fit(1, resume=True)
    assert raised.value.code == "MDLC1273"


def test_another_run_has_gone_on_in_the_folder(tmp_path: Path) -> None:
    """The first one cannot go on there, and learns so before it trains."""
    step = LineStep()
    first = Trainer(step, lines(), folder=tmp_path)
    first.fit(1)
    Trainer(LineStep(), lines(), folder=tmp_path).fit(2, resume=True)
    with pytest.raises(TrainError, match="step 7 is behind it") as raised:
        first.fit(3)
    assert raised.value.code == "MDLC1279"
    assert step.steps == 7


def test_resume_goes_back_to_the_checkpoint_of_a_run_that_went_wrong(tmp_path: Path) -> None:
    """In the same trainer: what it learnt since its newest checkpoint is forgotten."""
    step, whole = LineStep(), LineStep()
    trainer = Trainer(step, lines(), folder=tmp_path)
    trainer.fit(2)
    step.w = step.w + np.float32(np.inf)
    with np.errstate(all="ignore"), pytest.raises(TrainError) as raised:
        trainer.fit(4)
    assert raised.value.code == "MDLC1277"
    trainer.fit(4, resume=True)
    reference = Trainer(whole, lines())
    reference.fit(4)
    np.testing.assert_array_equal(step.w, whole.w)
    assert without_seconds(trainer) == without_seconds(reference)


def test_losses_before_a_resume_count_no_more(tmp_path: Path) -> None:
    """One NaN is allowed: the one that ended the run is not the first of two."""
    step = LineStep()
    trainer = Trainer(step, lines(), folder=tmp_path, nans_allowed=1)
    trainer.fit(1)
    step.w = step.w * np.float32(np.nan)
    with pytest.raises(TrainError, match="nan in step 9"):
        trainer.fit(2)
    call = LineStep.__call__
    once = iter([np.nan])
    step.__class__ = type(
        "OnceNan",
        (LineStep,),
        {"__call__": lambda s, batch: [call(s, batch)[0] * next(once, 1.0)]},
    )
    assert len(trainer.fit(2, resume=True)) == 2


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused_before_training(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "file").write_text("mine")
    step = LineStep()
    with pytest.raises(TrainError, match="cannot be written") as raised:
        Trainer(step, lines(), folder=tmp_path / folder).fit(1)
    assert raised.value.code == "MDLC1265"
    assert step.steps == 0
    assert (tmp_path / "file").read_text() == "mine"


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(3, {"w": np.zeros(3)}, {"mine": 1})
    with pytest.raises(TrainError, match="was not written by a Trainer") as raised:
        Trainer(LineStep(), lines(), folder=tmp_path).fit(1, resume=True)
    assert raised.value.code == "MDLC1279"


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    Trainer(LineStep(), lines(), folder=tmp_path).fit(3)
    newest = Checkpoints(tmp_path).paths()[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    step, whole = LineStep(), LineStep()
    with pytest.warns(UserWarning, match=f"passed over: .*{newest.name} is cut off or damaged"):
        Trainer(step, lines(), folder=tmp_path).fit(3, resume=True)
    Trainer(whole, lines()).fit(3)
    np.testing.assert_array_equal(step.w, whole.w)


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (lambda: Trainer(3, lines()), "MDLC1001", "step is a int"),
        (lambda: Trainer(LineStep(), [1]), "MDLC1001", "data is a list, expected Dataset"),
        (lambda: Trainer(LineStep(), lines(), every=5), "MDLC1278", "every without a folder"),
        (lambda: Trainer(LineStep(), lines(), every=0, folder="x"), "MDLC1278", "every is 0"),
        (lambda: Trainer(LineStep(), lines(), keep=0), "MDLC1278", "keep is 0"),
        (lambda: Trainer(LineStep(), lines(), keep="a"), "MDLC1001", "keep is a str"),
        (lambda: Trainer(LineStep(), lines(), nans_allowed=-1), "MDLC1278", "nans_allowed is -1"),
        (lambda: Trainer(LineStep(), lines(), schedule=0.1), "MDLC1001", "schedule is a float"),
        (lambda: Trainer(LineStep(), lines(), evaluate=5), "MDLC1001", "evaluate is a int"),
        (lambda: Trainer(LineStep(), lines(), folder=5), "MDLC1001", "folder is a int"),
        (lambda: Trainer(LineStep(), lines(), show="x"), "MDLC1001", "show is a str"),
        (lambda: Trainer(lambda x: [x], lines()), "MDLC1001", "a function without learning_rate"),
        (lambda: Trainer(LineStep(), lines()).fit(-1), "MDLC1278", "fit: epochs is -1"),
        (lambda: Trainer(LineStep(), lines()).fit(1, resume="x"), "MDLC1001", "resume is a str"),
        (lambda: says({"a": "b"}), "MDLC1001", "evaluate's 'a' is a str"),
        (lambda: says({"a": np.ones(3)}), "MDLC1278", "evaluate's 'a' has shape (3,)"),
        (lambda: says({"a": np.complex64(1)}), "MDLC1278", "expected one real number"),
        (lambda: says({"a": 10**400}), "MDLC1278", "evaluate's 'a' is too large for a float"),
        (lambda: says({1: 2.0}), "MDLC1001", "a name that evaluate returns is a int"),
        (lambda: Trainer(LineStep(), lines()).fit(1, resume=True), "MDLC1278", "needs the folder"),
        (lambda: Trainer(LineStep(), lines()).fit("1"), "MDLC1001", "epochs is a str"),
        (lambda: Trainer(LineStep(), lines(), evaluate=lambda: 1).fit(1), "MDLC1001", "evaluate"),
    ],
)
def test_what_cannot_be_meant(make: Callable[[], object], code: str, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        make()
    assert raised.value.code == code
    assert message in raised.value.message


def test_what_evaluate_may_return() -> None:
    results = {"a": np.float32(0.5), "b": np.asarray(2), "c": 1, "d": True, "e": Fraction(1, 4)}
    (record,) = Trainer(LineStep(), lines(), evaluate=lambda: results).fit(1)
    assert record.results == {"a": 0.5, "b": 2.0, "c": 1.0, "d": 1.0, "e": 0.25}


class Failing:
    """Raises once, in call `n`."""

    def __init__(self, n: int, error: Exception) -> None:
        self.n, self.error = n, error

    def __call__(self, *_: object) -> None:
        self.n -= 1
        if self.n == 0:
            raise self.error


@pytest.mark.parametrize("every", [None, 1, 7])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_evaluate_that_raises_is_called_again(tmp_path: Path, n: int, every: int | None) -> None:
    """The next fit goes on with the evaluation, and so does a new process."""
    step, whole, again = LineStep(), LineStep(), LineStep()
    reference = Trainer(whole, lines(), evaluate=error_of(whole), folder=tmp_path / "whole")
    reference.fit(3)
    fail = Failing(n, ValueError("no room"))
    trainer = Trainer(
        step,
        lines(),
        evaluate=lambda: fail() or error_of(step)(),
        folder=tmp_path / "run",
        every=every,
    )
    with pytest.raises(ValueError, match="no room"):
        trainer.fit(3)
    assert [r.epoch for r in trainer.history] == list(range(1, n))
    if every:
        resumed = Trainer(again, lines(), evaluate=error_of(again), folder=tmp_path / "run")
        resumed.fit(3, resume=True)
        assert without_seconds(resumed) == without_seconds(reference)
    else:
        trainer.fit(3)
        assert without_seconds(trainer) == without_seconds(reference)
        np.testing.assert_array_equal(step.w, whole.w)
        assert [p.name for p in (tmp_path / "run").iterdir()] == [
            p.name for p in (tmp_path / "whole").iterdir()
        ]


@pytest.mark.parametrize("n", [1, 4, 7, 8])
def test_a_batch_that_failed_comes_again(n: int) -> None:
    step, whole = LineStep(), LineStep()
    fail = Failing(n, ValueError("once"))
    trainer = Trainer(step, lines(), schedule=lambda _: fail() or 0.05)
    with pytest.raises(ValueError, match="once"):
        trainer.fit(2)
    assert step.steps == n - 1
    trainer.fit(2)
    reference = Trainer(whole, lines())
    reference.fit(2)
    assert without_seconds(trainer) == without_seconds(reference)
    np.testing.assert_array_equal(step.w, whole.w)


@pytest.mark.parametrize("rest", [True, False])
def test_the_smaller_last_batch_is_named(rest: bool) -> None:
    class OneSize(LineStep):
        def __call__(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            if len(batch["y"]) != (20 if rest else 21):
                raise CallError("input 'y' has another shape", hint="other", code="MDLC0913")
            return super().__call__(batch)

    data = dataset({"x": X, "y": Y}).shuffle(0).batch(20).map(lambda batch: batch)
    with pytest.raises(CallError) as raised:
        Trainer(OneSize(), data).fit(1)
    assert ("drop_last=True" in str(raised.value.hint)) is rest
    assert ("the last of the epoch, and smaller" in str(raised.value)) is rest


def test_a_resume_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    class Other(LineStep):
        def load_state(self, state: Mapping[str, np.ndarray]) -> None:
            raise TrainError("another model", code="MDLC1255")

    Trainer(LineStep(), lines(), folder=tmp_path).fit(2)
    step, data = Other(rate=0.01), lines()
    trainer = Trainer(step, data, folder=tmp_path)
    with pytest.raises(TrainError, match="another model"):
        trainer.fit(4, resume=True)
    assert (data.epoch, data.position, step.learning_rate) == (0, 0, 0.01)
    assert (trainer.calls, trainer.losses, trainer.history) == (0, [], [])


@pytest.mark.parametrize(
    "change",
    [
        {"history": [{"z": 1}]},
        {"history": [{}]},
        {"history": 5},
        {"losses": 5},
        {"losses": ["a"]},
        {"calls": "x"},
        {"calls": -1},
        {"learning_rate": "a"},
        {"data": {}},
        {"data": 5},
    ],
)
def test_a_meta_that_no_trainer_writes(tmp_path: Path, change: dict[str, object]) -> None:
    Trainer(LineStep(), lines(), folder=tmp_path, keep=1).fit(1)
    kept = Checkpoints(tmp_path)
    found = kept.latest()
    assert found is not None
    kept.save(8, found.state, found.meta | change)
    trainer = Trainer(LineStep(), lines(), folder=tmp_path)
    with pytest.raises(CompileError) as raised:
        trainer.fit(2, resume=True)
    data = {"{}": "MDLC1273", "5": "MDLC1001"}
    assert raised.value.code == data.get(str(change.get("data")), "MDLC1279")
    assert (trainer.calls, trainer.data.epoch, trainer.step.steps) == (0, 0, 0)


def test_a_trainer_says_where_it_stands() -> None:
    trainer = Trainer(LineStep(), lines())
    trainer.fit(2)
    assert repr(trainer).startswith("<Trainer: 2 epochs, 14 calls of <")


def test_progress_is_drawn_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    Trainer(LineStep(), lines()).fit(1)
    assert capfd.readouterr().err == ""
    Trainer(LineStep(), lines(), show=True).fit(2)
    text = capfd.readouterr().err
    assert "epoch 2/2" in text
    assert "loss" in text
    assert os.linesep in text
