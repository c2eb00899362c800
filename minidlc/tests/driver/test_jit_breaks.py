"""mc.jit on functions that need elements while they are captured: graph breaks."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import TypeRuleError
from minidlc.tests.driver.test_jit import X, jit

pytestmark = pytest.mark.llvm


def data_dependent(x):
    y = x * 2.0
    if y.sum() > 0.0:
        return y, 1
    return -y, 2


BREAKS = {
    "if": (data_dependent, 2),
    "int": (lambda x: x * int(x.sum()), 0),
    "float": (lambda x: x * float(x.max()), 0),
    "iteration": (lambda x: sum(row * 2.0 for row in x), 0),
    "index": (lambda x: x[0] + 1.0, 0),
    "NumPy": (lambda x: np.exp(x), 0),
    "len": (lambda x: x * len([r for r in x]), 0),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_graph_break_is_an_error_with_its_line(name):
    fn, line = BREAKS[name]
    f = jit(fn)
    with pytest.raises(TypeRuleError, match="graph break in") as e:
        f(X)
    assert e.value.code == "MDLC0222"
    assert e.value.loc.file == __file__
    assert e.value.loc.line == fn.__code__.co_firstlineno + line
    assert "mc.script" in e.value.hint
    assert "mc.where" in e.value.hint
    assert f.graph_breaks[0].loc == e.value.loc


@pytest.mark.parametrize("name", BREAKS)
def test_a_graph_break_can_run_op_by_op(name):
    fn, line = BREAKS[name]
    f = jit(fn, fallback="eager")
    for sign in (1, -1):
        got, want = f(sign * X), fn(sign * X)
        both = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for a, b in both:
            assert isinstance(a, np.ndarray)
            np.testing.assert_allclose(a, b, rtol=1e-5)
    (broken,) = f.graph_breaks
    assert (broken.loc.line, broken.calls) == (fn.__code__.co_firstlineno + line, 2)
    assert "2 calls ran eagerly" in f.explain()


def test_script_as_capture_has_no_break():
    f = jit(data_dependent, capture=mc.script)
    for sign in (1, -1):
        got, want = f(sign * X), data_dependent(sign * X)
        np.testing.assert_allclose(got[0], want[0])
        assert got[1] == want[1]
    assert not f.graph_breaks
    assert len(f.specializations) == 1


def with_try(x):
    try:
        return x * 2.0 if x.sum() > 0.0 else x
    except ValueError:
        return x


def test_what_script_refuses_can_run_op_by_op():
    with pytest.raises(TypeRuleError, match="rule: try"):
        jit(with_try, capture=mc.script)(X)
    f = jit(with_try, capture=mc.script, fallback="eager")
    np.testing.assert_allclose(f(X), with_try(X))
    assert f.graph_breaks[0].loc.line == with_try.__code__.co_firstlineno + 1
