"""Records: what a line holds, that it comes back, that it can be run again, damage."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc as mc
from minidlc.support.errors import TuneError
from minidlc.te import lower
from minidlc.tests.tuning.kernels import product, task_of, tasks_of
from minidlc.tuning.records import Record, canonical_task, digest_of
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

pytestmark = [pytest.mark.ch06, pytest.mark.long]
TASK = task_of(product(constant=True))
OK = Trial(TASK.default, Fate.OK, (1e-4, 3e-4, 2e-4))


def test_a_line_is_one_object_that_any_reader_takes() -> None:
    trial = replace(OK, predicted=math.inf, figures={"bytes": 4096.0, "energy": math.nan})
    line = Record.of(TASK, replace(trial, reason='a "µ"\nline', by="grid\ud800")).line
    assert line.isascii()
    assert "\n" not in line
    row = json.loads(line, parse_constant=lambda token: pytest.fail(token))
    assert row["op"] == "kernel"
    assert row["kind"] == "matmul"
    assert row["inputs"] == ["f32[24, 16]", "f32[16, 32]"]
    assert row["outputs"] == ["f32[24, 32]"]
    assert row["constants"] == ["in1"]
    assert row["target"]["vector_bits"] == TASK.target.vector_bits
    assert row["config"] == {"way": OK.config.way, "knobs": OK.config.values}
    assert row["predicted"] is None
    assert row["figures"] == {"bytes": 4096.0}
    assert row["reason"] == 'a "µ"\nline'


TRIALS = st.builds(
    Trial,
    st.just(TASK.default),
    st.sampled_from([f for f in Fate if f is not Fate.OK]),
    reason=st.text(),
    predicted=st.none() | st.floats(),
    by=st.text(),
    figures=st.dictionaries(st.text(), st.floats()),
) | st.builds(
    Trial,
    st.just(TASK.default),
    st.just(Fate.OK),
    st.lists(st.floats(1e-9, 1e9), min_size=1).map(tuple),
    predicted=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@given(TRIALS, st.integers(0, 1 << 70))
def test_a_record_comes_back_from_its_line(trial: Trial, seed: int) -> None:
    record = Record.of(TASK, trial, seed=seed)
    again = Record.parse(record.line)
    assert again.line == record.line
    assert again.id == record.id
    if trial.fate is Fate.OK:
        assert again == record
        assert Record.parse(record.line.encode()) == record


def test_the_same_content_has_the_same_id_and_no_other() -> None:
    one, other = Record.of(TASK, OK), Record.of(TASK, replace(OK, seconds=(1e-4, 3e-4, 2.5e-4)))
    assert one.id == Record.of(task_of(product(constant=True)), OK).id
    assert len({one.id, other.id, Record.of(TASK, OK, seed=1).id}) == 3
    spaced = json.dumps(json.loads(one.line), sort_keys=True, indent=1).replace("\n", " ")
    assert Record.parse(spaced).id == one.id


def test_a_point_that_is_refused_has_a_record_without_a_trace() -> None:
    trial = Trial(TASK.default, Fate.CRASHED, reason="killed by signal 11")
    assert Record.of(TASK, trial).trace is not None  # it was scheduled, and died later
    record = replace(Record.of(TASK, trial), steps="")
    assert Record.parse(record.line).trace is None
    with pytest.raises(TuneError, match=r"MDLC1347.*crashed: killed by signal 11"):
        record.schedule()


def test_a_point_that_is_none_of_the_kernels_has_no_record() -> None:
    with pytest.raises(TuneError, match="MDLC1303"):
        Record.of(TASK, Trial(Config("gem"), Fate.REFUSED))
    with pytest.raises(TuneError, match="MDLC1302"):
        Record.of(TASK, Trial(Config.of(TASK.default.way, {"no": 1}), Fate.REFUSED))


MODEL = """
def net(x: f32[1, 16, 12, 12], w: f32[16, 16, 3, 3], d: f32[16, 8]):
    c: f32[1, 16, 12, 12] = conv(x, w, pads=(1, 1, 1, 1))
    r: f32[1, 16, 12, 12] = relu(c)
    p: f32[1, 16, 6, 6] = max_pool(r, kernel_shape=(2, 2), strides=(2, 2))
    g: f32[1, 16] = mean(p, axes=(2, 3), keepdims=False)
    y: f32[1, 8] = matmul(g, d)
    s: f32[1, 8] = softmax(y, axis=1)
    return s
"""


def kernels() -> list[Task]:
    return [TASK, *tasks_of(mc.parse(MODEL))]


def test_every_way_of_every_kernel_can_be_run_again_from_its_line() -> None:
    """A record alone gives the loops that its point has, for ways with other expressions too."""
    seen = 0
    for task in kernels():
        own = canonical_task(task.workload)
        for way in own.ways:
            config = next((c for c in own.space if c.way == way), None)
            if config is None:
                continue
            candidate = own.lower(config)
            record = Record.of(task, Trial(config, Fate.OK, (1e-5,)))
            schedule = Record.parse(record.line).schedule()
            assert schedule.trace == candidate.schedule.trace
            params = tuple(p.name for p in candidate.loops.params)
            assert str(lower(schedule, name="kernel", params=params)) == str(candidate.loops)
            seen += 1
    assert seen > len(kernels())


def test_the_trace_is_that_of_the_kernel_but_for_names() -> None:
    config = TASK.space.random(Random(0))
    trace = Record.of(TASK, Trial(config, Fate.OK, (1.0,))).trace
    assert trace is not None
    assert [step.name for step in trace] == [step.name for step in TASK.schedule(config).trace]


def test_a_re_check_knows_its_default() -> None:
    times = (2e-4, 2.2e-4), (1e-4, 1.1e-4)
    winner = next(c for c in TASK.space if c != TASK.default)
    record = Record.checked(TaskResult(TASK, (OK,), winner, *times), seed=3)
    assert record.is_check
    assert record.default == TASK.default
    assert record.ratio == pytest.approx(0.5)
    assert Record.parse(record.line) == record
    assert "0.50 of the default" in str(record)
    assert Record.of(TASK, OK).ratio is None


LINE = json.loads(Record.of(TASK, OK).line)
DAMAGE = {
    "no JSON": b'{"record": 1,',
    "no object": b"[1]",
    "a word of JavaScript": b'{"record": NaN}',
    "no UTF-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "another form": json.dumps({**LINE, "record": 2}).encode(),
    "a number beyond all": json.dumps({**LINE, "trace": [1]}).replace("[1]", "[1e999]").encode(),
    "an edited time": json.dumps({**LINE, "seconds": [1e-9]}).encode(),
    "no id": json.dumps({k: v for k, v in LINE.items() if k != "id"}).encode(),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_line_is_refused(what: str) -> None:
    with pytest.raises(TuneError, match="MDLC1343"):
        Record.parse(DAMAGE[what])


FORGED = {
    "no field 'threads'": ("threads", None),
    "expected int": ("threads", "1"),
    "a bool, expected int": ("threads", True),
    "the fate 'fine'": ("fate", "fine"),
    "the fate 'crashed' and 3 times": ("fate", "crashed"),
    "above 0": ("seconds", [0.0]),
    "too large": ("seconds", [10**400]),
    "a key that is not": ("threads", 2),
    "expected dict": ("config", []),
    "expected list": ("constants", {}),
    "expected str": ("constants", [1]),
    "way": ("config", {"knobs": {}}),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_line_with_a_right_id_and_wrong_fields_is_refused(what: str) -> None:
    name, value = FORGED[what]
    content = {k: v for k, v in LINE.items() if k not in ("record", "id")} | {name: value}
    if value is None:
        del content[name]
    line = json.dumps({"record": 1, "id": digest_of(content), **content})
    with pytest.raises(TuneError, match=r"MDLC1343") as caught:
        Record.parse(line)
    assert what in str(caught.value)
