"""Pictures of tuning: what they say, that they are legible, whatever was tried."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from random import Random

import pytest

from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.results import planted
from minidlc.tests.viz.geometry import (
    Seen,
    check_everything_is_on_the_page,
    check_labels_are_large_enough,
    meet,
    read_svg,
)
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Fate, Trial
from minidlc.viz import tuning
from minidlc.viz.picture import Picture
from minidlc.viz.plot import Axis
from minidlc.viz.tuning_nests import nests_picture
from minidlc.viz.tuning_pareto import objectives, pareto_picture
from minidlc.viz.tuning_progress import thinned
from minidlc.viz.tuning_space import space_picture
from minidlc.viz.tuning_tasks import tasks_picture

pytestmark = pytest.mark.ch06
MANY: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    f"way{n}_{'w' * 90}": {"k" * 200: tuple(range(1, 30)), "x": (1, 10**12)} for n in range(20)
}
ODD: Mapping[str, TaskResult] = {
    "usual": planted(64),
    "nothing tried": planted(0),
    "one trial": planted(1),
    "none ran": planted(12, fails=1.0),
    "no failure": planted(30, fails=0.0),
    "five hundred": planted(490),
    "a long name": planted(20, name="kernel_" * 30),
    "no knobs": planted(1, ways={"plain": {}}),
    "many ways": planted(100, ways=MANY),
    "not checked": dataclasses.replace(
        planted(20), default_seconds=(), best_seconds=(), is_checked=False
    ),
}


def seen(picture: Picture) -> Seen:
    return read_svg(picture.svg)


def texts(picture: Picture) -> list[str]:
    return [w.text for w in seen(picture).all_words]


def check(picture: Picture) -> None:
    found = seen(picture)
    check_labels_are_large_enough(found)
    check_everything_is_on_the_page(found)
    for a, b in itertools.combinations(found.all_words, 2):
        assert "★" in (a.text, b.text) or not meet(a.area, b.area, 1), (a.text, b.text)


@pytest.mark.parametrize("name", ODD)
def test_every_picture_is_legible(name: str) -> None:
    picture = tuning(ODD[name])
    for each in (picture, *picture.parts):
        check(each)
    assert tuning(ODD[name]).svg == picture.svg


def test_the_picture_of_a_model_is_legible() -> None:
    picture = tuning([r for n, r in ODD.items() if n != "many ways"])
    check(picture)
    assert len(picture.parts) == len(ODD) - 1
    check(Picture(tasks_picture([planted(3, seed=n) for n in range(50)])))


def test_the_title_says_what_was_gained() -> None:
    assert tuning(planted()).title == (
        "k0_matmul_relu: 64 trials, 347 µs → 221 µs, 0.64 of the default"
    )
    assert tuning(planted(1)).title == "k0_matmul_relu: 1 trial, nothing faster than the default"
    assert tuning(ODD["none ran"]).title == "k0_matmul_relu: 12 trials, none ran"
    assert tuning(ODD["not checked"]).title.endswith("20 trials, not measured again")
    two = [planted(10, count=2), planted(20, seed=1)]
    assert tuning(two).title.startswith("2 kernels: 30 trials, ")


def test_every_trial_has_its_mark() -> None:
    result = planted(64)
    found = seen(tuning(result))
    ran = sum(t.fate is Fate.OK for t in result.trials)
    assert len(found.areas["ok"]) == ran
    assert len(found.areas["failed"]) == 64 - ran
    assert {"refused 5", "not compiled 2", "wrong result 4", "timeout 2", "crashed 5"} <= set(
        texts(tuning(result))
    )
    letters = {w.text for w in found.words["failed"]}
    assert letters == {"R", "N", "W", "T", "C"}


def test_marks_lie_at_their_trial_and_time() -> None:
    result = planted(30, fails=0.0)
    dots = seen(tuning(result)).areas["ok"]
    lefts = [left for left, _, _, _ in dots]
    assert lefts == sorted(lefts)
    by_height = sorted(range(30), key=lambda n: -dots[n][1])
    costs = [t.cost for t in result.trials]
    assert [costs[n] for n in by_height] == pytest.approx(sorted(costs), rel=1e-3)


def test_of_very_many_trials_some_are_drawn_and_all_gains() -> None:
    result = planted(490, fails=0.0)
    shown = [n for n, _ in thinned(result.trials, 100)]
    assert len(shown) < 120
    assert any("of 490 trials drawn" in text for text in texts(tuning(result)))
    least = min(range(490), key=lambda n: result.trials[n].cost)
    assert least + 1 in shown


def test_the_model_is_drawn_where_it_spoke() -> None:
    assert any(t.startswith("rank correlation 0.60, newer half") for t in texts(tuning(planted())))
    alone = texts(tuning(ODD["one trial"]))
    assert "place by the model" not in alone
    assert "default, final" in alone
    right = [dataclasses.replace(t, predicted=t.cost) for t in planted(30, fails=0.0).trials]
    found = seen(tuning(dataclasses.replace(planted(), trials=tuple(right))))
    middles = [((a + c) / 2, (b + d) / 2) for a, b, c, d in found.areas["belief"]]
    middles.sort()
    heights = [y for _, y in middles]
    assert heights == sorted(heights, reverse=True)  # on the diagonal


def test_the_space_shows_the_values_of_winner_and_default() -> None:
    found = read_svg(Picture(space_picture(planted())).svg)
    words = [w.text for w in found.all_words]
    assert found.words["cell"]
    assert words.count("★") == 3  # rows, columns, depth
    assert words.count("★ d") == 1  # unroll is 1 in both
    assert words.count("d") == 3
    assert "41 %" in words  # rows
    assert "plain: no knobs, 1 tried, best 2.03 ms" in words
    assert words[0] == "k0_matmul_relu: 496 points in 3 ways, 64 tried (13 %)"


def test_knobs_without_a_choice_stand_in_the_line_of_their_way() -> None:
    ways = {"tiled": {"rows": (4, 6), "depth": (64,)}}
    words = texts(Picture(space_picture(planted(2, ways=ways, fails=0.0))))
    assert "depth" not in words
    assert any(w.endswith("; fixed: depth 64") for w in words)


def test_a_value_that_failed_is_told_from_one_that_was_not_tried() -> None:
    words = texts(Picture(space_picture(ODD["none ran"])))
    assert any(w.startswith("none of ") for w in words)
    assert "not tried" in words


def test_the_nests_say_which_steps_differ() -> None:
    picture = Picture(nests_picture(planted()))
    assert picture.title == "k0_matmul_relu: default and winner, 2 steps of the schedule differ"
    words = texts(picture)
    assert words.count("≠") == 2
    assert {"steps of the default", "steps of the winner"} <= set(words)
    assert any(w.startswith("io: ") or w == "io: " for w in words)
    alone = Picture(nests_picture(planted(1)))
    assert alone.title == "k0_matmul_relu: the default is the best known"


def test_the_front_holds_no_dominated_point() -> None:
    rng = Random(0)
    trials = tuple(
        Trial(
            Config.of("a", {"n": n}), Fate.OK, (rng.random() + 1,), figures={"energy": rng.random()}
        )
        for n in range(50)
    )
    result = dataclasses.replace(planted(), trials=trials)
    drawing = pareto_picture(result)
    assert drawing is not None
    corners = sorted(read_svg(Picture(drawing).svg).areas["front"])
    heights = [top for _, top, _, _ in corners]
    assert len(corners) > 1
    assert heights == sorted(heights)  # slower is less: down the page
    assert f"{len(corners)} by energy" in drawing.title


def test_objectives_are_what_all_trials_have_and_that_differs() -> None:
    alike = {"moved_bytes": 1.0, "build_seconds": 3.0}
    figures = [{"energy": 1.0, "peak_bytes": 2.0, **alike}, {"energy": 2.0, **alike}]
    trials = [Trial(Config("w"), Fate.OK, (1.0,), figures=f) for f in figures]
    assert objectives(trials) == ("energy",)
    assert pareto_picture(dataclasses.replace(planted(), trials=tuple(trials[:1]))) is None


def test_a_narrow_range_has_numbers_that_differ() -> None:
    trials = tuple(
        Trial(Config.of("a", {"n": n}), Fate.OK, (n + 1.0,), figures={"peak_bytes": 27_400.0 + n})
        for n in range(4)
    )
    drawing = pareto_picture(dataclasses.replace(planted(), trials=trials))
    assert drawing is not None
    words = texts(Picture(drawing))
    assert "27,401" in words
    assert len([w for w in words if w.startswith("27")]) == len({w for w in words if w[:2] == "27"})


def test_parts_open_in_html() -> None:
    page = tuning([planted(10), planted(10, seed=1, name="second")]).html()
    assert page.count("<details") >= 2 + 2 * 3
    assert 'data-key="many task 0"' in page


def test_themes_and_what_is_no_result() -> None:
    assert tuning(planted(5), "dark").svg != tuning(planted(5)).svg
    with pytest.raises(OptionError, match="MDLC1021"):
        tuning(planted(5), "blue")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TuneError, match="MDLC1360"):
        tuning([])
    with pytest.raises(OptionError, match="MDLC1001"):
        tuning(None)  # pyright: ignore[reportArgumentType]


def test_ticks_are_round_and_few() -> None:
    assert Axis.around([1e-4, 3e-3], 0, 1).log
    for values in ([1e-4, 3e-3], [3.0, 3.0], [0.0], [], [1e-6, 10.0], [0.1, 0.10001]):
        axis = Axis.around(values, 0, 100)
        assert 1 <= len(axis.ticks()) <= 8
        for tick in axis.ticks():
            assert 0 <= axis.at(tick) <= 100
    assert Axis.around([float("inf"), 2.0], 0, 100).at(float("inf")) == 100
