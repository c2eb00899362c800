"""Which results depend on a value, through branches and loops."""

from __future__ import annotations

import pytest

import minidlc as mc
from minidlc.autodiff.dependence import depending

pytestmark = pytest.mark.ch03

TEXT = """
def f(p: bool[()], x: f64[3], w: f64[3]):
    def run(i: i64[()], c: bool[()], s: f64[3], t: f64[3], v: f64[3]):
        a: f64[3] = add(t, v)
        b: f64[3] = sin(v)
        d: f64[3] = exp(s)
        return c, a, t, b, d
    def yes(a: f64[3], b: f64[3]):
        return a, b
    def no(a: f64[3], b: f64[3]):
        return b, b
    l: T = loop(None, None, w, SECOND, w, body=run, carried=2, trips=2)
    l0: f64[3] = getitem(l, index=0)
    l1: f64[3] = getitem(l, index=1)
    l2: f64[2, 3] = getitem(l, index=2)
    l3: f64[2, 3] = getitem(l, index=3)
    k: (f64[3], f64[3]) = if_(p, x, w, then_branch=yes, else_branch=no)
    k0: f64[3] = getitem(k, index=0)
    k1: f64[3] = getitem(k, index=1)
    m: f64[3] = mul(k1, w)
    return l0, l1, l2, l3, k0, k1, m
"""


def with_second(state: str) -> str:
    """The text with this value as the start of the second state."""
    return TEXT.replace("SECOND", state).replace("T =", "(f64[3], f64[3], f64[2, 3], f64[2, 3]) =")


@pytest.mark.parametrize(
    ("second", "names"),
    [("w", {"k0"}), ("x", {"l0", "l1", "l3", "k0"})],
    ids=["not in the loop", "a state, another one after a run"],
)
def test_results_that_depend(second: str, names: set[str]) -> None:
    graph = mc.parse(with_second(second))
    found = depending(graph.nodes, [graph.inputs[1]])
    assert {o.name for o in graph.outputs if any(found.get(o, ()))} == names


def test_on_a_condition_everything_depends() -> None:
    graph = mc.parse(with_second("w"))
    found = depending(graph.nodes, [graph.inputs[0]])
    assert {o.name for o in graph.outputs if any(found.get(o, ()))} == {"k0", "k1", "m"}
