"""Spaces: points, neighbours, changes; what is no space and no point is refused."""

from __future__ import annotations

from random import Random

import pytest

from minidlc.support.errors import TuneError
from minidlc.tuning.space import Config, Space

pytestmark = pytest.mark.ch06
SPACE = Space({"a": {"x": (2, 1, 4), "y": (0, 1)}, "b": {}})


def test_the_points_of_a_space() -> None:
    assert SPACE.size == 7
    points = list(SPACE)
    assert len(set(points)) == 7
    assert str(points[0]) == "a(x=2, y=0)"
    assert str(points[-1]) == "b()"
    assert all(c in SPACE for c in points)
    assert Config.of("a", {"x": 3, "y": 0}) not in SPACE


def test_points_that_are_not_allowed_are_never_drawn() -> None:
    space = Space(SPACE.ways, lambda c: c.values.get("x") != 1)
    rng = Random(0)
    drawn = {space.random(rng) for _ in range(200)}
    assert drawn == set(space)
    assert len(drawn) == 5
    for config in drawn:
        assert space.mutated(config, rng) in space
        assert all(near in space for near in space.neighbours(config))


def test_neighbours_are_one_step_away_in_the_order_of_numbers() -> None:
    near = SPACE.neighbours(Config.of("a", {"x": 1, "y": 0}))
    assert [str(c) for c in near] == ["a(x=2, y=0)", "a(x=1, y=1)"]


def test_distinct_points_end_with_the_space() -> None:
    rng = Random(1)
    first = SPACE.distinct(4, rng)
    rest = SPACE.distinct(100, rng, known=first)
    assert len(first) == 4
    assert {*first, *rest} == set(SPACE)
    assert len(rest) == 3


def test_crossing_takes_each_knob_from_one_of_two() -> None:
    rng = Random(2)
    a, b = Config.of("a", {"x": 2, "y": 0}), Config.of("a", {"x": 4, "y": 1})
    found = {SPACE.crossed(a, b, rng) for _ in range(50)}
    assert {c.values["x"] for c in found} == {2, 4}
    assert SPACE.crossed(a, Config("b"), rng) == a


@pytest.mark.parametrize("ways", [{}, {"a": {"x": ()}}, {"a": {"x": (1, 1)}}])
def test_what_is_no_space(ways: dict[str, dict[str, tuple[int, ...]]]) -> None:
    with pytest.raises(TuneError, match="MDLC1301"):
        Space(ways)


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        (Config("aa"), "a"),
        (Config.of("a", {"x": 3, "y": 0}), "x is one of"),
        (Config.of("a", {"x": 2}), "the knobs of a are x, y"),
    ],
)
def test_what_is_no_point(config: Config, hint: str) -> None:
    with pytest.raises(TuneError, match="MDLC1302") as caught:
        SPACE.check(config)
    assert hint in str(caught.value)


def test_points_have_numbers() -> None:
    assert [SPACE.at(number) for number in range(SPACE.size)] == list(SPACE)
    with pytest.raises(IndexError):
        SPACE.at(7)


def test_the_last_points_of_a_sparse_space_are_found() -> None:
    """One in 20,000 points is allowed: drawing alone would not meet them."""
    numbers = tuple(range(200))
    kept = ({"x": 3, "y": 4}, {"x": 150, "y": 9})
    space = Space({"a": {"x": numbers, "y": numbers}}, lambda c: c.values in kept)
    found = space.distinct(8, Random(0))
    assert len(found) == 2
    assert space.distinct(8, Random(0), known=found) == []
    assert space.distinct(8, Random(0)) == found
