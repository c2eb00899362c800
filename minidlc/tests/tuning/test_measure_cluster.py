"""Points measured by the workers of a Dask cluster, here one of two processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.hostile import hostile, killer, point
from minidlc.tuning.measure import DaskMeasurer, Measurer, cluster
from minidlc.tuning.trial import Fate

pytestmark = [pytest.mark.ch06, pytest.mark.llvm]


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    """A client of two worker processes; a point that a worker died of is not tried again."""
    distributed = pytest.importorskip("distributed", reason='needs "minidlc[cluster]"')
    import dask

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        local = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        )
        with local, distributed.Client(local) as client:
            yield client


def test_two_workers_measure_as_one_machine_does(dask: Any) -> None:
    ways = ("right", "wrong", "slow", "reads far behind", "refused", "no code", "right")
    with DaskMeasurer(dask.scheduler.address) as m:
        trials = m.measure(hostile(), [point(w) for w in ways])
        rounds = m.recheck(hostile(), [point(w) for w in ways[:3]], rounds=3)
        measured = dask.run(lambda: len(cluster._measurers))
    assert [t.config for t in trials] == [point(w) for w in ways]
    assert [str(t.fate) for t in trials] == [
        "ok",
        "wrong result",
        "ok",
        "crashed",
        "refused",
        "not compiled",
        "ok",
    ]
    assert trials[3].reason.startswith("the run worker: it died of SIGSEGV")
    assert [len(r) for r in rounds] == [3, 0, 3]
    assert list(measured.values()) == [1, 1]
    assert list(dask.run(lambda: len(cluster._measurers)).values()) == [0, 0]


def test_a_worker_that_dies_costs_its_point_only(dask: Any, tmp_path: Path) -> None:
    ways = ("right", "wrong", "right")
    with DaskMeasurer(dask) as m:
        trials = m.measure(killer(tmp_path), [point(w) for w in ways])
        assert [t.fate for t in trials] == [Fate.OK, Fate.CRASHED, Fate.OK]
        assert trials[1].reason.startswith("the Dask worker: KilledWorker: ")
        assert "\n" not in trials[1].reason
        again = m.measure(killer(tmp_path), [point(w) for w in ways])
    assert [t.fate for t in again] == [Fate.OK, Fate.WRONG, Fate.OK]


def test_a_worker_of_another_machine_or_version_is_refused(dask: Any) -> None:
    with DaskMeasurer(dask) as m:
        foreign = replace(hostile(), target=replace(hostile().target, cpu="z80"))
        (trial,) = m.measure(foreign, [point("right")])
        assert trial.fate is Fate.REFUSED
        assert "the code is for a z80" in trial.reason
        assert m.recheck(foreign, [point("right"), point("slow")]) == [(), ()]
        m._options = replace(m._options, source="older")
        (trial,) = m.measure(hostile(), [point("right")])
        assert trial.fate is Fate.REFUSED
        assert "another version of minidlc" in trial.reason


def test_it_is_a_measurer_like_the_other(dask: Any) -> None:
    with DaskMeasurer(dask) as m:
        same: Measurer = m
        assert same.measure(hostile(), []) == []


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "_CONNECT", "1s")
    with pytest.raises(TuneError, match="MDLC1323"):
        DaskMeasurer("tcp://127.0.0.1:9")
    with pytest.raises(OptionError, match="MDLC1001"):
        DaskMeasurer(8786)
    with pytest.raises(TuneError, match="MDLC1324"):
        DaskMeasurer("tcp://127.0.0.1:9", repeats=1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TuneError, match="MDLC1325") as caught:
        DaskMeasurer("tcp://127.0.0.1:9")
    assert "minidlc[cluster]" in str(caught.value)


def test_a_cluster_without_workers(dask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "nthreads", dict)
    with DaskMeasurer(dask) as m, pytest.raises(TuneError, match="MDLC1323"):
        m.measure(hostile(), [point("right")])
