"""What a tuner did, in words: the five questions are answered, whatever was tried."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from minidlc.support.errors import CompileError, OptionError, TuneError
from minidlc.te.primitive import Trace, parse_trace
from minidlc.tests.tuning.kernels import product
from minidlc.tests.tuning.results import MACHINE, planted, tuning_of
from minidlc.tuning import layouts
from minidlc.tuning.database import Database
from minidlc.tuning.differences import trace_rows
from minidlc.tuning.explain import WIDTH, explain
from minidlc.tuning.gather import Results, results_of
from minidlc.tuning.model.formula import Explanation, Row
from minidlc.tuning.records import Record
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config, Space
from minidlc.tuning.summary import (
    Summary,
    allowed_points,
    axes,
    endpoint_gap,
    failures,
    improvements,
    learning,
    noise,
    percent,
    rank_correlation,
    ranks,
    shares,
    tried_ways,
)
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.workload import Workload

pytestmark = pytest.mark.ch06


def timed(*seconds: float | None, predicted: list[float] | None = None) -> list[Trial]:
    """A trial for each time at a point of its own; None is a failed one."""
    found = list[Trial]()
    for n, s in enumerate(seconds):
        guess = predicted[n] if predicted else None
        config = Config.of("a", {"n": n})
        fate = Fate.TIMEOUT if s is None else Fate.OK
        found.append(Trial(config, fate, () if s is None else (s,), "slow", guess))
    return found


def test_gains_are_the_trials_that_became_the_best() -> None:
    assert improvements(timed(None, 3.0, 4.0, 2.0, 2.0, None, 1.0)) == (2, 4, 7)
    assert improvements(timed(None, None)) == ()


def test_ranks_of_equals_are_the_mean_of_theirs() -> None:
    assert np.array_equal(ranks([3.0, 1.0, 3.0, 0.5]), [3.5, 2.0, 3.5, 1.0])


@pytest.mark.parametrize(
    ("predicted", "wanted"),
    [
        ([1.0, 2.0, 3.0, 4.0], 1.0),
        ([10.0, 1e3, 1e5, 1e9], 1.0),  # any unit
        ([4.0, 3.0, 2.0, 1.0], -1.0),
        ([1.0, 3.0, 2.0, 4.0], 0.8),  # 1 - 6 * 2 / (4 * 15)
        ([1.0, 1.0, 1.0, 1.0], None),
    ],
)
def test_rank_correlation(predicted: list[float], wanted: float | None) -> None:
    found = rank_correlation(timed(1.0, 2.0, 3.0, 4.0, predicted=predicted))
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_failed_and_unbelieved_trials_have_no_part_in_the_correlation() -> None:
    trials = timed(1.0, None, 2.0, 3.0, 4.0, predicted=[1.0, 0.0, 2.0, 3.0, math.inf])
    assert rank_correlation(trials) == pytest.approx(1.0)
    assert rank_correlation(trials[:3]) is None


def test_the_gap_is_that_of_the_two_fastest_points() -> None:
    assert endpoint_gap(timed(4.0, 1.1, None, 1.0)) == pytest.approx(0.1)
    assert endpoint_gap(timed(4.0, 1.0)) is None
    again = timed(4.0, 1.1, 1.0)
    assert endpoint_gap([*again, again[-1]]) == pytest.approx(0.1)  # a point counts once


def test_noise_is_half_the_middle_half() -> None:
    assert noise((1.0, 1.0, 1.0)) == 0
    assert noise((0.9, 0.95, 1.0, 1.05, 9.0)) == pytest.approx(0.05)
    assert noise((1.0, 2.0)) is None


def test_points_are_counted_and_those_of_a_large_space_estimated() -> None:
    small = Space({"a": {"x": (1, 2, 3)}, "b": {}}, lambda c: c.values.get("x") != 2)
    assert allowed_points(small) == ({"a": 2, "b": 1}, frozenset())
    knobs = {f"k{n}": tuple(range(8)) for n in range(6)}
    large = Space({"a": knobs}, lambda c: c.values["k0"] < 4)
    points, estimated = allowed_points(large)
    assert estimated == {"a"}
    assert points["a"] == pytest.approx(large.size / 2, rel=0.1)
    assert allowed_points(large) == (points, estimated)
    assert points["a"] % 10_000 == 0  # two digits of an estimate, no more
    mixed = Space({"a": knobs, "b": {"x": (1, 2, 3)}}, lambda c: c.values.get("x") != 2)
    points, estimated = allowed_points(mixed)
    assert (points["b"], estimated) == (2, {"a"})


def test_axes_say_of_each_candidate_what_was_tried_and_what_ran() -> None:
    space = Space({"a": {"n": (2, 0, 1, 3)}})
    trials = timed(4.0, None, 1.0)
    seen = axes(space, "a", [*trials, trials[0]])["n"]
    assert [v.value for v in seen] == [0, 1, 2, 3]
    assert [(v.tried, v.count) for v in seen] == [(2, 2), (1, 0), (1, 1), (0, 0)]
    assert [v.median for v in seen] == [4.0, None, 1.0, None]


def test_ways_are_listed_with_the_fastest_first() -> None:
    result = planted()
    rows = tried_ways(result.task.space, result.trials)
    assert [way for way, _, _ in rows] == ["tiled", "packed", "plain"]
    assert sum(count for _, count, _ in rows) == 64
    gone = [*result.trials, Trial(Config("no such way"), Fate.OK, (1e-9,))]
    assert tried_ways(result.task.space, gone) == rows


def test_each_kind_of_failure_has_its_first_trial() -> None:
    found = failures(planted(64).trials)
    assert sum(f.count for f in found) == sum(t.fate is not Fate.OK for t in planted(64).trials)
    for f in found:
        assert planted(64).trials[f.number - 1] == f.first
        assert f.first.fate is f.fate
        assert all(t.fate is not f.fate for t in planted(64).trials[: f.number - 1])


def test_whether_it_still_learns() -> None:
    result = planted(1)

    def said(*seconds: float | None) -> str:
        return learning(dataclasses.replace(result, trials=tuple(timed(*seconds))))

    assert said(None, None) == "no trial ran"
    assert "too few" in said(2.0, 1.0)
    assert said(*[2.0] * 7, 1.0) == (
        "last gain at trial 8 of 8: it still learns, the last 2 trials gained 50 %"
    )
    assert said(1.0, *[2.0] * 7) == "last gain at trial 1 of 8: the last 7 trials gained nothing"
    assert said(*[None] * 7, 1.0) == "last gain at trial 8 of 8: it still learns"


def test_percent() -> None:
    shares = (0.0025, 0.086, 0.0996, 0.64, 1.0)
    assert [percent(x) for x in shares] == ["0.25 %", "8.6 %", "10 %", "64 %", "100 %"]


def test_the_traces_differ_where_the_knobs_do() -> None:
    before = parse_trace('split("C", "i", 4, ["a", "b"])\nunroll("C", "b")\nvectorize("C", "j")')
    after = parse_trace('split("C", "i", 6, ["a", "b"])\nunroll("C", "b")\nparallel("C", "a")')
    rows = trace_rows(before, after)
    assert [r.sign for r in rows] == ["≠", "", "−", "+"]
    assert rows[2].right == rows[3].left == ""
    assert [r.sign for r in trace_rows(before, before)] == ["…"]


def test_knobs_are_paired_by_name_and_their_candidates_left_out() -> None:
    def trace(**knobs: int) -> Trace:
        given = (f'knob("{n}", {v}, candidates=[{v}, 64])' for n, v in knobs.items())
        used = (f'split("{n}", "i", knob("{n}"), ["a", "b"])' for n in knobs)
        return parse_trace("\n".join([*given, *used]))

    before, after = trace(rows=4, columns=8, depth=2), trace(panel=3, columns=16, lines=1, depth=2)
    rows = [r for r in trace_rows(before, after) if "knob" in (r.left + r.right)[:4]]
    assert [(r.sign, r.left, r.right) for r in rows] == [
        ("≠", 'knob("columns", 8)', 'knob("columns", 16)'),
        ("", 'knob("depth", 2)', 'knob("depth", 2)'),
    ]
    wider = parse_trace(str(trace(rows=4)).replace("64", "8"))
    assert [r.sign for r in trace_rows(trace(rows=4), wider)] == ["…"]


def said_of(results: Results) -> str:
    """The text as one line."""
    return " ".join(explain(results).split())


def test_the_five_questions_are_answered() -> None:
    text = said_of(planted())
    for said in (
        "64 of 496 points (13 %), ways: 3",  # what is in the space
        "- tiled (480 points; candidates: rows 6, columns 4, unroll 4, depth 5): 49 tried, best",
        "- crashed, first at trial 5, packed(rows=8, panel=16): the worker ended with signal 11",
        "rank correlation 0.60 over 41 predictions",  # what the model believes
        "tiled.rows 41 %",
        'knob("rows", 4) → knob("rows", 6)',
        "not proved: 432 points were not tried",  # is it the best
        "the order of trials depends on",  # tomorrow
        "221 µs, 0.64 of the 347 µs of the default",
    ):
        assert said in text
    assert max(map(len, explain(planted()).splitlines())) <= WIDTH
    assert said_of(planted()) == text


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (900.0, "why, as the analytic model has it: 1,720 → 1,000 cycles of a call: loads"),
        (2345.0, "the analytic model disagrees with the times: it has 1,720 → 2,445 cycles"),
    ],
)
def test_a_model_that_disagrees_with_the_times_is_no_reason(
    after: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([1620.0, after])

    def cycles(*_: object) -> Explanation:
        return Explanation((Row("loads", next(told), 0.9, ""), Row("calls", 100.0, 0.1, "")), False)

    monkeypatch.setattr("minidlc.tuning.explain.cycles_of", cycles)
    text = said_of(planted())
    assert words in text
    assert f"loads 1,620 → {after:,.0f}" in text
    assert "calls" not in text


def test_nothing_that_is_odd_stops_it() -> None:
    none = said_of(planted(12, fails=1.0))
    assert "no trial ran, the default tiled(" in none
    assert "(SIGSEGV)" in none
    assert "0 of 496 points" in said_of(planted(0))
    only = said_of(planted(1, ways={"plain": {}}))
    assert "every point was tried" in only
    long = explain(planted(3, name="x" * 300))
    assert max(map(len, long.splitlines())) <= 2 * WIDTH
    bare = dataclasses.replace(planted(), default_seconds=(), best_seconds=(), is_checked=False)
    assert "not measured again" in said_of(bare)


def test_a_winner_that_no_longer_lowers_is_said() -> None:
    class Gone(Task):
        def lower(self, config: Config) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise CompileError(f"{config} is refused now", code="MDLC0622")

    result = planted()
    task = result.task
    gone = Gone(task.group, task.kind, task.target, 1)
    gone.__dict__["ways"] = dict(task.ways)
    assert "is refused now" in said_of(dataclasses.replace(result, task=gone))


def test_a_knob_of_one_value_has_no_share() -> None:
    ways = {"a": {"rows": (1, 2, 4), "depth": (64,)}, "plain": {}}
    found = shares(planted(4, ways=ways, fails=0.0).trials)
    assert found["way"] > 0.3
    assert "a.rows" in found
    assert "a.depth" not in found


def test_a_gap_below_the_noise_is_no_estimate() -> None:
    result = planted(1)
    points = list(result.task.space)[:3]
    trials = tuple(Trial(c, Fate.OK, (1.0 + n * 1e-4, 1.01, 0.99)) for n, c in enumerate(points))
    text = said_of(dataclasses.replace(result, trials=trials, best=points[0]))
    assert "noise hides what may be left" in text
    assert "an estimate from" not in text


def test_an_interval_over_one_is_not_called_faster() -> None:
    result = planted()
    mixed = tuple(s * (0.9 + 0.02 * n) for n, s in enumerate(result.default_seconds))
    assert "they may be equal" in said_of(dataclasses.replace(result, best_seconds=mixed))


def real() -> Task:
    return Task(product(), "matmul", MACHINE, 1, "k3_matmul")


def test_a_database_tells_the_same(tmp_path: Path) -> None:
    task = real()
    points = list(task.space)[:4]
    trials = tuple(
        Trial(c, Fate.OK, (4e-4 - 1e-5 * n,) * 3, predicted=-float(n), by="Evolution")
        for n, c in enumerate(points)
    )
    result = TaskResult(task, trials, points[3], (4e-4,) * 5, (3.6e-4,) * 5)
    database = Database(tmp_path / "tune.jsonl")
    for trial in trials:
        database.append(Record.of(task, trial))
    (found,) = results_of("explain", database)
    assert (found.best, found.is_checked) == (task.default, False)  # there was no final
    assert "not measured again" in said_of(tmp_path / "tune.jsonl")
    database.append(Record.checked(result))
    (found,) = results_of("explain", str(tmp_path / "tune.jsonl"))
    assert found.trials == trials
    assert (found.default_seconds, found.best_seconds) == ((4e-4,) * 5, (3.6e-4,) * 5)
    assert found.task.name == "k3_matmul"
    assert "0.90 of the 400 µs of the default" in said_of([found])


def test_a_layout_on_record_is_no_kernel() -> None:
    model = Workload("graph 99cf", layouts.KIND, "", (), MACHINE, 1)
    pair = (Config("plain"), (1.0, 1.0, 1.0)), (Config("layout"), (1.1, 1.1, 1.1))
    database = Database()
    database.append(layouts.layout_record(model, "net", *pair))
    task = real()
    database.append(Record.of(task, Trial(task.default, Fate.OK, (1e-4,) * 3)))
    (found,) = results_of("explain", database)
    assert found.task.workload == task.workload


def test_a_default_that_stays_is_read_back_as_that(tmp_path: Path) -> None:
    task = real()
    other = list(task.space)[3]
    database = Database()
    for config, seconds in ((task.default, 4e-4), (other, 5e-4)):
        database.append(Record.of(task, Trial(config, Fate.OK, (seconds,) * 3)))
    slower = TaskResult(task, (), other, (4e-4,) * 5, (5e-4,) * 5)
    database.append(Record.checked(slower))
    (found,) = results_of("explain", database)
    assert not found.is_better
    assert found.best_seconds == found.default_seconds == (4e-4,) * 5


def test_a_winner_that_lost_inside_the_model_is_said_to(tmp_path: Path) -> None:
    task = real()
    database = Database()
    why = "1.02 of the default (95 % up to 1.03) with other()"
    back = Trial(task.default, Fate.OK, (4e-4,) * 5, why, by="in the model")
    pair = {"default": task.default, "default_seconds": (4e-4,) * 5}
    database.append(Record.of(task, back, **pair))
    database.append(Record.of(task, Trial(task.default, Fate.OK, (4e-4,) * 3)))
    (found,) = results_of("explain", database)
    assert (found.is_better, found.is_checked) == (False, True)
    assert found.lost == f"in the model: {why}"
    assert f"stays: 400 µs; what won alone is out, in the model: {why}" in said_of([found])


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="MDLC1001"):
        explain(7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match=r"MDLC1001.*results\[0\]"):
        explain([7])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TuneError, match=r"MDLC1360.*nothing was tuned"):
        explain([])
    with pytest.raises(TuneError, match="MDLC1360"):
        explain(Database())
    with pytest.raises(TuneError, match="MDLC1341"):
        explain(tmp_path / "no.jsonl")


def test_a_tuning_of_a_model_is_its_table_and_its_results() -> None:
    whole = tuning_of(planted(3), planted(4))
    assert results_of("explain", whole) == whole.results
    text = explain(whole)
    assert text.startswith(str(whole))
    assert text.count("k0_matmul_relu: matmul") == 2


def test_a_model_all_of_whose_kernels_failed_says_why() -> None:
    failed = dataclasses.replace(tuning_of(), failed={"k7": "3 timeout; the first, a(x=1): slow"})
    with pytest.raises(TuneError, match="k7: 3 timeout; the first"):
        explain(failed)


def test_a_summary_puts_it_together() -> None:
    s = Summary.of(planted())
    assert (s.points, s.exact, s.tried, s.since) == (496, True, 64, 29)
    assert s.gains[-1] == 35
