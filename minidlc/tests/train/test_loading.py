"""Elements made ahead: so many, by workers that pass on what they make and what went wrong."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
import time

import numpy as np
import pytest

from minidlc.support.errors import TrainError
from minidlc.train.data import dataset
from minidlc.train.loading import can_fork

pytestmark = pytest.mark.ch03

KINDS = [False, True] if can_fork() else [False]  # workers as threads, as processes


@pytest.mark.skipif(not can_fork(), reason="processes are copies of this one")
def test_processes_do_not_hear_ctrl_c() -> None:
    """A terminal sends it to all; the parent finishes its step, and needs its batches."""

    def hears(y: int) -> int:
        signal.raise_signal(signal.SIGINT)
        return y

    data = dataset(range(4)).map(hears).prefetch(2, workers=1, processes=True)
    assert list(data) == [0, 1, 2, 3]


class Unreadable:
    """It goes away, and does not come back."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("a",)


@pytest.mark.skipif(not can_fork(), reason="processes are copies of this one")
@pytest.mark.parametrize("made", [lambda: 1, threading.Lock(), Unreadable()])
def test_an_element_that_cannot_be_sent(made: object) -> None:
    data = dataset(range(4)).map(lambda _: made)
    assert list(data.prefetch(2, workers=2)) == [made] * 4
    with pytest.raises(TrainError) as raised:
        list(data.prefetch(2, workers=2, processes=True))
    assert raised.value.code == "MDLC1281"
    assert "cannot be sent from a process" in raised.value.message
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("depth", "workers"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_so_many_are_made_ahead(depth: int, workers: int) -> None:
    made: list[int] = []
    data = dataset(range(40)).map(lambda n: made.append(n) or n)
    elements = iter(data.prefetch(depth, workers=workers))
    for n in range(5):
        assert next(elements) == n
        ahead = max(depth, workers)
        until = time.monotonic() + 30
        while len(made) < n + 1 + ahead:
            assert time.monotonic() < until, "too few are made"
            time.sleep(0.001)
        time.sleep(0.005)
        assert len(made) == n + 1 + ahead


@pytest.mark.parametrize("processes", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_place_is_the_line_of_the_loop(workers: int, processes: bool) -> None:
    """A worker has no line of the reader's program; a function of C has none either."""
    batches = dataset([np.zeros(2), np.zeros(3)]).batch(2)
    for data in (batches, dataset([-1, -1]).map(math.sqrt)):
        with pytest.raises(TrainError) as raised:
            list(data.prefetch(2, workers=workers, processes=processes))
        assert str(raised.value.loc).startswith(f"{__file__}:")
