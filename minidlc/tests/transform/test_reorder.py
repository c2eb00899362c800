"""The order pass: less alive at once, and never another answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.graph import Graph, interpret, parse, register_op, unregister_op, verify
from minidlc.ops.unary import Exp
from minidlc.support.errors import OptionError
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Refusal, Reorder, collecting, limited, parse_pipeline
from minidlc.transform.dataflow.reorder import Costs

pytestmark = pytest.mark.ch02
LAYERS = parse("""
def layers(x: f32[4]):
    a: f32[400] = tile(x, repeats=(100,))
    b: f32[800] = tile(x, repeats=(200,))
    c: f32[400] = exp(a)
    d: f32[()] = sum(c, axes=(0,), keepdims=False)
    e: f32[()] = sum(b, axes=(0,), keepdims=False)
    y: f32[()] = add(d, e)
    return y
""")
X = np.arange(4, dtype=np.float32)


def peak(g: Graph) -> int:
    return Costs.of(g).peak(range(len(g.nodes)))


def names(g: Graph) -> str:
    return " ".join(n.name for n in g.nodes)


@pytest.mark.parametrize(
    ("style", "order", "bytes"),
    # b lives alone, and e or d while it does: 4 bytes, or with both 8
    [("min_peak", "b e a c d y", 3204), ("dfs", "a c d b e y", 3208)],
)
def test_one_branch_after_the_other(style: str, order: str, bytes: int) -> None:
    assert peak(LAYERS) == 1600 + 3200 + 1600
    with collecting() as events:
        after = Reorder(style=style)(LAYERS)
    verify(after)
    assert (names(after), peak(after)) == (order, bytes)
    (event,) = map(str, events)
    moved = order[0] if style == "min_peak" else "c"
    assert event == f"reorder by {style}: 6400 -> {bytes} bytes alive at once at {moved}: done"
    np.testing.assert_array_equal(interpret(after, [X])[0], interpret(LAYERS, [X])[0])
    assert Reorder(style=style)(after) is after


@st.composite
def costs(draw: st.DrawFn) -> Costs:
    """Up to 6 nodes by numbers alone."""
    n = draw(st.integers(1, 6))
    needs = [tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else () for i in range(n)]
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 10, 50]), min_size=n, max_size=n))
    return Costs(tuple(needs), tuple(sizes), tuple(needs), (n - 1,))


@settings(max_examples=60, deadline=None)
@given(costs())
def test_nothing_is_lower_than_the_lowest_peak(c: Costs) -> None:
    """Against every topological order."""
    everything = range(len(c.needs))
    found = c.lowest_peak(10**9)
    assert sorted(found) == list(everything)
    turn = {i: t for t, i in enumerate(found)}
    assert all(turn[j] < turn[i] for i in everything for j in c.needs[i])
    orders = (
        order
        for order in permutations(everything)
        if all(order.index(j) < order.index(i) for i in everything for j in c.needs[i])
    )
    assert c.peak(found) == min(map(c.peak, orders))


def test_a_search_without_effort_keeps_what_it_has() -> None:
    assert names(Reorder(effort=0)(LAYERS)) == "a c d b e y"  # depth first


@pytest.mark.parametrize("style", ["min_peak", "dfs"])
@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_random_graphs_keep_their_answers(style: str, case: Case) -> None:
    after = Reorder(style=style)(case.graph)
    verify(after)  # inputs come before their readers
    assert set(after.nodes) == set(case.graph.nodes)
    if style == "min_peak":
        assert peak(after) <= peak(case.graph)
    got, want = (interpret(g, case.arrays) for g in (after, case.graph))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bodies_are_ordered_too() -> None:
    flag, x, x2 = mc.Input("flag", mc.bool_[()]), mc.Input("x", mc.f32[4]), mc.Input("x", mc.f32[4])
    no = Graph.of("no", [x2], [mc.sum(x2, axes=(0,), keepdims=False)])
    g = Graph.of("g", [flag, x], [mc.if_(flag, x, then_branch=LAYERS, else_branch=no)])
    after = Reorder()(g)
    assert names(after.nodes[0].op.then_branch) == "b e a c d y"
    for value in (True, False):
        given_ = [np.array(value), X]
        np.testing.assert_array_equal(interpret(after, given_)[0], interpret(g, given_)[0])


@pytest.fixture
def shout() -> Iterator[None]:
    """An op with an effect."""

    @register_op
    @dataclass(frozen=True)
    class Shout(Exp):
        """exp, and somebody hears it."""

        onnx = None
        pure = False

    yield
    unregister_op("shout")


@pytest.mark.usefixtures("shout")
@pytest.mark.parametrize("style", ["min_peak", "dfs"])
def test_effects_keep_their_order(style: str) -> None:
    """FAULTS row 108. Pure nodes around them move."""
    text = str(LAYERS).replace("exp(a)", "shout(a)").replace("add(d, e)", "add(d, s)")
    g = parse(text.replace("    y: ", "    s: f32[()] = shout(e)\n    y: "))
    heard = [n for n in g.nodes if n.op.name == "shout"]
    assert len(heard) == 2
    after = Reorder(style=style)(g)
    assert after is not g
    assert [n for n in after.nodes if n.op.name == "shout"] == heard


def test_symbolic_sizes_are_refused() -> None:
    g = mc.trace(lambda x: mc.exp(x) + mc.tanh(x), mc.f32["n"])
    with collecting() as events:
        assert Reorder()(g) is g
    (refusal,) = events
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "some sizes are symbolic: nobody knows what is alive"


def test_the_options() -> None:
    assert parse_pipeline('reorder{style="dfs"}').passes == (Reorder(style="dfs"),)
    with pytest.raises(OptionError, match="expected one of min_peak, dfs, got 'bfs'") as e:
        Reorder(style="bfs")(LAYERS)
    assert e.value.code == "MDLC1015"
    with limited(0):
        assert Reorder().run(LAYERS) is LAYERS
