import numpy as np
import pytest

import minidlc as mc
from grader import expect
from grader.expect import Mismatch
from grader.student import StudentRaised


def wrong(check, *arguments, **options):
    with pytest.raises(Mismatch) as caught:
        check(*arguments, **options)
    return caught.value


def test_equal_asks_for_the_type_too():
    expect.equal(2, 2, "x")
    assert wrong(expect.equal, 2.0, 2, "the size").sentence == "not as expected: the size"
    assert wrong(expect.equal, True, 1, "the size").got is True


def test_close():
    want = np.array([1.0, 100.0, np.nan, np.inf], np.float32)
    expect.close(want.copy(), want)
    expect.close(want + np.float32(5e-4), want)  # of the largest element
    off = want + np.array([0, 0.5, 0, 0], np.float32)
    mismatch = wrong(expect.close, off, want)
    assert "largest error 0.5 at element (1,)" in mismatch.sentence
    assert mismatch.told == "an element is off by more than the tolerance"
    assert "another type or shape" in wrong(expect.close, want.astype(np.float64), want).sentence
    assert "got a list" in wrong(expect.close, [1.0], want).sentence
    for bad in (0.0, -np.inf, np.nan):
        assert wrong(expect.close, np.array([1, 100, np.nan, bad], np.float32), want)
    assert wrong(expect.close, np.array([1, 100, 0, np.inf], np.float32), want)
    expect.close(np.zeros((0, 3)), np.zeros((0, 3)))
    assert wrong(expect.close, np.array([True]), np.array([False]))


def test_graphs():
    one = mc.trace(lambda x: mc.relu(x), mc.f32[4])
    two = mc.trace(lambda y: mc.exp(y), mc.f32[4])
    expect.same_graph(mc.trace(lambda z: mc.relu(z), mc.f32[4]), one)
    mismatch = wrong(expect.same_graph, two, one, given="g")
    assert (mismatch.want, mismatch.got, mismatch.given) == (one, two, "g")
    assert "relu" in mismatch.sentence
    assert "relu" not in mismatch.told
    assert "got None" in wrong(expect.a_graph, None).told


def test_refused():
    raised = StudentRaised("TypeRuleError", "axis -1 is wrong", code="MDLC0203", hint="use 0")
    assert expect.refused(raised, "MDLC0203", ["axis -1", "use 0"]) is raised
    assert expect.refused(raised, "TypeRuleError") is raised
    assert "accepted" in wrong(expect.refused, None, "TypeRuleError").told
    mismatch = wrong(expect.refused, raised, "MDLC0203", ["axis 7"])
    assert "'axis 7'" in mismatch.sentence
    assert "7" not in mismatch.told
    with pytest.raises(StudentRaised):
        expect.refused(raised, "ValueError")
