"""Cost tables: files, spaces of listed points, problems; what is no table is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pytest

from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tests.tuning.landscapes import synthetic
from minidlc.tuning import table as tables
from minidlc.tuning.listed import Listed
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.space import Config, Space
from minidlc.tuning.table import Table, TableProblem
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
SMALL = Space({"a": {"x": (1, 2, 4, 8), "y": (-3, 0, 5)}, "b": {}})


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    made = synthetic(SMALL, 3)
    made.save(tmp_path / "t.npz")
    made.save(tmp_path / "again.npz")
    assert (tmp_path / "t.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    found = Table.load(tmp_path / "t.npz")
    assert found.configs == made.configs
    assert found.fates == made.fates
    np.testing.assert_array_equal(found.costs, made.costs.astype(np.float32))
    np.testing.assert_array_equal(found.features, made.features.astype(np.float32))
    assert (found.name, found.feature_names, found.about) == (
        made.name,
        made.feature_names,
        made.about,
    )
    assert found.best == found.costs.min()


def test_measuring_is_looking_up() -> None:
    made = synthetic(SMALL, 1)
    costs = np.array([np.inf, *range(1, len(made.configs))])
    fates = (Fate.TIMEOUT, *[Fate.OK] * (len(made.configs) - 1))
    problem = TableProblem(replace(made, costs=costs, fates=fates))
    trials = problem.measure(made.configs[:3])
    assert [t.config for t in trials] == list(made.configs[:3])
    assert [t.cost for t in trials] == [float("inf"), 1.0, 2.0]
    assert trials[0].fate is Fate.TIMEOUT
    assert trials[0].reason
    np.testing.assert_array_equal(problem.features(made.configs[2:4]), made.features[2:4])
    with pytest.raises(TuneError, match="MDLC1302"):
        problem.measure([Config.of("a", {"x": 3, "y": 0})])


def test_features_are_found_by_name() -> None:
    made = synthetic(SMALL, 1)
    count = len(made.configs)
    wanted = np.random.default_rng(0).random((count, len(FEATURES)))
    extra = np.column_stack([np.ones(count), wanted[:, ::-1]])
    names = ("another", *FEATURES[::-1])
    problem = TableProblem(replace(made, features=extra, feature_names=names))
    np.testing.assert_array_equal(problem.features(made.configs), wanted)


def test_a_table_of_a_task() -> None:
    task, rng = task_of(product()), Random(0)
    configs = task.space.distinct(5, rng)
    trials = [Trial(c, Fate.OK, (1e-4, 3e-4, 2e-4)) for c in configs[:4]]
    trials.append(Trial(configs[4], Fate.CRASHED, reason="the worker died"))
    rows = np.ones((5, len(FEATURES)))
    made = Table.of(task, trials, rows, "product", "once", date="2026-11-30")
    assert made.about["kernel"] == task.workload.text
    assert made.about["threads"] == "1"
    assert made.about["date"] == "2026-11-30"
    assert made.feature_names == FEATURES
    assert list(made.costs) == [2e-4] * 4 + [np.inf]
    assert set(made.space) == set(configs)


TRIALS = [Trial(Config.of("a", {"x": x}), Fate.OK, (1.0,)) for x in (1, 2)]
NO_TABLE = {
    "expected": (TRIALS, np.ones((3, 1)), {}),
    "that ran": ([Trial(TRIALS[0].config, Fate.WRONG)], np.ones((1, 1)), {}),
    "0 points": ([], np.ones((0, 1)), {}),
    "twice": ([TRIALS[0], TRIALS[0]], np.ones((2, 1)), {}),
    "16 bits": (
        [Trial(Config.of("a", {"x": 1 << 20}), Fate.OK, (1.0,))],
        np.ones((1, 1)),
        {},
    ),
    "name": (TRIALS, np.ones((2, 1)), {"name": "../gemm"}),
    "belong together": (
        [TRIALS[0], replace(TRIALS[1], seconds=(0.0,))],
        np.ones((2, 1)),
        {},
    ),
}


@pytest.mark.parametrize("what", NO_TABLE)
def test_what_makes_no_table(what: str) -> None:
    trials, features, other = NO_TABLE[what]
    given = {"name": "t", "how": "", "feature_names": ("f",), **other}
    with pytest.raises(TuneError, match="MDLC1332") as caught:
        Table.of(task_of(product()), trials, features, **given)
    assert what in str(caught.value)


def test_no_table_of_that_name(tmp_path: Path) -> None:
    with mock.patch.object(tables, "TABLES", tmp_path):
        assert synthetic(SMALL, name="gemm_512").save() == tmp_path / "gemm_512.npz"
        assert tables.names() == ["gemm_512"]
        assert Table.load("gemm_512").configs
        for wrong in ("gemm_51", "../gemm_512", "", str(tmp_path / "none.npz")):
            with pytest.raises(TuneError, match="MDLC1330") as caught:
                Table.load(wrong)
            assert "gemm_512" in str(caught.value)
    with pytest.raises(OptionError, match="MDLC1001"):
        Table.load(3)  # pyright: ignore[reportArgumentType]


def test_a_damaged_file_is_refused_or_is_whole(tmp_path: Path) -> None:
    """Cut anywhere, or with any byte changed: never another table, never another error."""
    made, path = synthetic(SMALL, 2), tmp_path / "t.npz"
    made.save(path)
    whole, refused, rng = path.read_bytes(), 0, Random(0)
    sound = Table.load(path)
    damaged = [whole[: rng.randrange(len(whole))] for _ in range(40)]
    for _ in range(160):
        place = rng.randrange(len(whole))
        changed = whole[place] ^ rng.randrange(1, 256)
        damaged.append(whole[:place] + bytes([changed]) + whole[place + 1 :])
    for data in damaged:
        path.write_bytes(data)
        if found := loaded(path):  # a byte of the zip's own notes, such as a date
            assert found.configs == sound.configs
            np.testing.assert_array_equal(found.costs, sound.costs)
            np.testing.assert_array_equal(found.features, sound.features)
        refused += found is None
    assert refused >= 150


def loaded(path: Path) -> Table | None:
    """None if the file is refused, by the error that is meant for it."""
    found = list[Table]()
    try:
        found.append(Table.load(path))
    except TuneError as e:
        if e.code != "MDLC1331":
            raise
    return found[0] if found else None


CHANGES: dict[str, Callable[[dict[str, object]], object]] = {
    "another format": lambda h: h.update(format=9),
    "no ways": lambda h: h.update(ways=[]),
    "fewer knobs": lambda h: h.update(ways={"a": ["x"], "b": []}),
    "other names of fates": lambda h: h.update(fates=["good"]),
    "fewer features": lambda h: h.update(features=["f0"]),
    "no name": lambda h: h.pop("name"),
    "a number for a name": lambda h: h.update(name=3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_header_that_does_not_fit(change: str, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    synthetic(SMALL).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    CHANGES[change](header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(TuneError, match="MDLC1331"):
        Table.load(path)


def test_listed_points_are_the_space() -> None:
    every = list(SMALL)
    space = Listed.of([every[0], every[5], every[7], every[-1]])
    rng = Random(0)
    assert space.size == 4
    assert list(space) == [space.at(n) for n in range(4)]
    assert space.ways == {"a": {"x": (1, 2, 4), "y": (-3, 0, 5)}, "b": {}}
    assert every[1] not in space
    drawn = {space.random(rng) for _ in range(100)}
    assert drawn == set(space)
    assert set(space.distinct(9, rng)) == set(space)
    assert space.mutated(every[-1], rng) == every[-1]
    moved = {space.mutated(every[0], rng) for _ in range(50)}
    assert moved == {every[5], every[7]}  # both differ in two knobs: none differs in one
    for _ in range(50):
        assert space.crossed(every[0], every[5], rng) in space
    assert space.crossed(every[0], every[-1], rng) == every[0]


def test_a_full_list_moves_as_the_space_does() -> None:
    space, rng = Listed.of(list(SMALL)), Random(1)
    here = Config.of("a", {"x": 2, "y": 0})
    moved = {space.mutated(here, rng) for _ in range(200)}
    assert moved == {SMALL.mutated(here, rng) for _ in range(200)}
    assert len(moved) == 5
    assert space.neighbours(here) == SMALL.neighbours(here)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Config("a"), Config("a")],
        [Config.of("a", {"x": 1}), Config.of("a", {"y": 1})],
    ],
)
def test_what_is_no_list_of_points(points: list[Config]) -> None:
    with pytest.raises(TuneError, match="MDLC1301"):
        Listed.of(points)
