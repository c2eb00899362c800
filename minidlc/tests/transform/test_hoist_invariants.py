"""What goes out of a loop, what has to stay, and that zero runs still raise nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, apply, getitem, interpret, verify
from minidlc.support.locations import steps
from minidlc.transform import Decompose, collecting, parse_pipeline
from minidlc.transform.block.hoist_invariants import HoistInvariants

pytestmark = pytest.mark.ch02


def head() -> tuple[Input, Input]:
    """The first two inputs of a body: the number of the run, and whether it goes on."""
    return Input("i", i64[()]), Input("c", bool_[()])


def looped(make, trips=3, n=None, condition=None, state=f32[4], **captures):
    """A loop that hands `make(s, *captures)` on; captures are inputs of these types."""
    given = {name: Input(name, t) for name, t in captures.items()}
    inner = [Input(name, t) for name, t in captures.items()]
    (i, c), s = head(), Input("s", state)
    made = make(s, *inner)
    body = Graph.of("body", [i, c, s, *inner], [c, *(made if isinstance(made, tuple) else (made,))])
    x = Input("x", state)
    values = [v for v in (n, condition, x, *given.values()) if isinstance(v, Input)]
    counted = trips if n is None and condition is None else None
    loop = apply(
        "loop", n, condition, x, *given.values(), body=body, carried=1, trips=counted
    )  # fmt: skip
    outputs = (
        [loop] if not isinstance(made, tuple) else [getitem(loop, k) for k in range(len(made))]
    )
    return Graph.of("g", values, outputs)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def body_of(graph: Graph) -> Graph:
    (loop,) = (n for n in graph.nodes if n.op.name in ("loop", "scan"))
    return loop.op.body


def hoisted(graph: Graph, **options) -> Graph:
    after = HoistInvariants(**options)(graph)
    verify(after)
    same_answer(graph, after)
    assert HoistInvariants(**options)(after) is after
    return after


def same_answer(before: Graph, after: Graph) -> None:
    for runs in (0, 3):
        rng = np.random.default_rng(3)
        arrays = [
            np.full(i.type.dims, runs if i.type.dtype == i64 else runs > 0).astype(
                i.type.dtype.numpy
            )
            if i.type.dtype in (i64, bool_)
            else rng.uniform(0.5, 1.5, i.type.dims).astype(i.type.dtype.numpy)
            for i in before.inputs
        ]
        for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a, b)


def test_work_on_captures_goes_out():
    g = looped(lambda s, w: s * apply("exp", apply("tanh", w)) + 1.0, w=f32[4])
    after = hoisted(g)
    assert names(after) == ["tanh", "exp", "loop"]
    assert names(body_of(after)) == ["mul", "add"]
    assert [i.name for i in body_of(after).inputs] == ["i", "c", "s", "exp"]  # w is not read now
    assert steps(after.nodes[0].loc)[-1] == "hoist_invariants"


def test_what_depends_on_the_run_stays():
    g = looped(lambda s, w: apply("exp", s) * w, w=f32[4])
    assert HoistInvariants()(g) is g
    (i, c), s = head(), Input("s", i64[()])
    body = Graph.of("body", [i, c, s], [c, s + i * 2])
    x = Input("x", i64[()])
    g = Graph.of("g", [x], [apply("loop", None, None, x, body=body, carried=1, trips=3)])
    assert HoistInvariants()(g) is g


def test_state_that_is_handed_on_as_it_came_is_invariant():
    (i, c), a, b = head(), Input("a", f32[4]), Input("b", f32[4])
    body = Graph.of("body", [i, c, a, b], [c, a + apply("exp", b), b])
    x, y = Input("x", f32[4]), Input("y", f32[4])
    loop = apply("loop", None, None, x, y, body=body, carried=2, trips=3)
    g = Graph.of("g", [x, y], [getitem(loop, 0), getitem(loop, 1)])
    assert names(hoisted(g))[:2] == ["exp", "loop"]
    body = Graph.of("swap", [i, c, a, b], [c, b, a])  # changes places: not the same
    loop = apply("loop", None, None, x, y, body=body, carried=2, trips=3)
    g = Graph.of("g", [x, y], [getitem(loop, 0), getitem(loop, 1)])
    assert HoistInvariants()(g) is g


def test_views_and_expansions_stay_unless_something_needs_them():
    def make(s, w):
        return s + apply("reshape", w, shape=(4, 4)) * apply("expand", w[:4], shape=(4, 4))

    g = looped(lambda s, w: s + apply("reshape", w, shape=(2, 2)), state=f32[2, 2], w=f32[4])
    assert HoistInvariants()(g) is g
    g = looped(lambda s, w: s + apply("expand", w, shape=(2, 2)), state=f32[2, 2], w=f32[2])
    assert HoistInvariants()(g) is g
    g = looped(
        lambda s, w: s + apply("exp", apply("reshape", w, shape=(2, 2))), state=f32[2, 2], w=f32[4]
    )
    assert names(hoisted(g)) == ["reshape", "exp", "loop"]
    g = looped(
        lambda s, w: s + apply("reshape", apply("exp", w), shape=(2, 2)), state=f32[2, 2], w=f32[4]
    )
    after = hoisted(g)
    assert names(after) == ["exp", "loop"]
    assert names(body_of(after)) == ["reshape", "add"]


THREE, NONE = Constant("n", np.array(3)), Constant("n", np.array(0))
N, GO = Input("n", i64[()]), Input("go", bool_[()])


@pytest.mark.parametrize(
    ("n", "condition"),
    [(N, None), (None, GO), (N, GO), (THREE, GO), (NONE, None)],
)  # fmt: skip
def test_a_loop_that_may_not_run_gives_only_what_is_cheap_and_cannot_raise(n, condition):
    """A gather of a wrong place, a large product: done zero times before, so not once after."""

    def make(s, w, m, k):
        product = apply("sum", m @ m, axes=(0,), keepdims=False)
        return s * apply("exp", w) + product + apply("gather", w, k)

    types = {"w": f32[4], "m": f32[4, 4], "k": i64[4]}
    g = looped(make, n=n, condition=condition, **types)
    with collecting() as events:
        after = HoistInvariants()(g)
    assert names(after)[:-1] == ["exp"]
    assert names(body_of(after)).count("matmul") == 1
    reasons = [str(e) for e in events]
    assert any("and matmul is not cheap" in r for r in reasons)
    assert any("and gather may raise" in r for r in reasons)
    verify(after)
    zero = {"n": np.array(0), "go": np.array(False)}
    arrays = [
        zero[i.name] if i.name in zero else np.full(i.type.dims, 77).astype(i.type.dtype.numpy)
        for i in g.inputs
    ]  # k is 77, of four places
    if not (isinstance(n, Constant) and n.array.item() and condition is None):
        np.testing.assert_array_equal(
            interpret(after, arrays)[0], arrays[[i.name for i in g.inputs].index("x")]
        )


def test_a_loop_that_runs_gives_products_too_and_large_results():
    g = looped(lambda s, m: s @ (m @ m), m=f32[4, 4])
    assert names(hoisted(g)) == ["matmul", "loop"]
    start = Constant("n", np.array(3))
    g = looped(lambda s, m: s @ (m @ m), n=start, m=f32[4, 4])
    assert names(hoisted(g)) == ["matmul", "loop"]
    g = looped(lambda s, w: s + apply("exp", w), n=N, w=f32[4])
    assert HoistInvariants(max_bytes=15)(g) is g
    assert names(hoisted(g, max_bytes=16)) == ["exp", "loop"]
    g = looped(lambda s, w: s + apply("exp", w), trips=0, w=f32[4])
    assert names(hoisted(g)) == ["exp", "loop"]  # cheap, and harmless


def test_several_results_go_with_all_their_parts():
    def make(s, w):
        top = apply("topk", w, k=2)
        return s + getitem(top, 0) * apply("cast", getitem(top, 1), to=f32)

    g = looped(make, state=f32[2], w=f32[5])
    after = hoisted(g)
    assert names(after) == ["topk", "getitem", "getitem", "cast", "mul", "loop"]
    for limit in range(1, 6):
        part, (record,) = parse_pipeline(f"hoist_invariants{{limit={limit}}}").run(g)
        same_answer(g, part)
        assert len(record.done) <= limit


def test_out_of_two_loops_and_a_branch_in_one():
    def inner(s, w):
        (i, c), t, v = head(), Input("t", f32[4]), Input("v", f32[4])
        body = Graph.of("inner", [i, c, t, v], [c, t * apply("exp", v)])
        return apply("loop", None, None, s, w, body=body, carried=1, trips=2)

    after = hoisted(looped(inner, w=f32[4]))
    assert names(after) == ["exp", "loop"]
    assert names(body_of(body_of(after))) == ["mul"]

    def branch(s, w):
        a, b = Input("a", f32[4]), Input("b", f32[4])
        yes = Graph.of("yes", [a, b], [a + apply("exp", b)])
        no = Graph.of("no", [a, b], [a])
        some = apply("less", apply("max", s, keepdims=False), 2.0)
        return apply("if_", some, s, w, then_branch=yes, else_branch=no)

    g = looped(branch, w=f32[4])
    assert HoistInvariants()(g) is g  # only one branch computes it


def test_a_whole_branch_whose_condition_does_not_change():
    def make(s, w):
        b = Input("b", f32[4])
        yes, no = Graph.of("yes", [b], [apply("exp", b)]), Graph.of("no", [b], [b])
        some = apply("less", apply("max", w, keepdims=False), 2.0)
        return s + apply("if_", some, w, then_branch=yes, else_branch=no)

    assert names(hoisted(looped(make, w=f32[4]))) == ["max", "less", "if_", "loop"]


def test_scan_before_it_is_decomposed():
    s, x, w = Input("s", f32[3]), Input("x", f32[3]), Input("w", f32[3])
    body = Graph.of("cell", [s, x, w], [s + x * apply("exp", w), apply("tanh", w)])
    xs = Input("xs", f32[5, 3])
    s, w = Input("s0", f32[3]), Input("w", f32[3])
    scan = apply("scan", s, xs, w, body=body, states=1)
    g = Graph.of("g", [s, xs, w], [getitem(scan, 0), getitem(scan, 1)])
    after = hoisted(g)
    assert names(after)[:3] == ["exp", "tanh", "scan"]
    verify(Decompose()(after))


def test_ops_with_another_result_each_time_stay():
    class Noise(mc.graph.Op):
        pass

    g = looped(lambda s, w: s + apply("exp", w), w=f32[4])
    (loop,) = g.nodes
    exp = loop.op.body.nodes[0]
    assert HoistInvariants()._reason_against(exp, True) is None
    assert Noise.pure
    Noise.pure = False
    impure = mc.graph.Node(Noise(), (), f32[4], "noise")
    assert "another result each time" in HoistInvariants()._reason_against(impure, True)


@st.composite
def loops(draw: st.DrawFn) -> Graph:
    """Bodies of random ops on state, captures and the number of the run."""
    (i, c), s, t = head(), Input("s", f32[4]), Input("t", f32[4])
    w, m = Input("w", f32[4]), Input("m", f32[4, 4])
    values = [s, t, w, w]
    for _ in range(draw(st.integers(2, 10))):
        a, b = (draw(st.sampled_from(values)) for _ in "ab")
        match draw(st.integers(0, 6)):
            case 0:
                values.append(a * 0.5 + apply("cast", i, to=f32))
            case 1:
                values.append(apply("tanh", a @ m))
            case 2:
                values.append(apply("reshape", apply("reshape", a, shape=(2, 2)), shape=(4,)))
            case 3:
                top = apply("topk", a, k=4)
                values += [getitem(top, 0), apply("cast", getitem(top, 1), to=f32)]
            case 4:
                values.append(
                    apply("max", apply("expand", a, shape=(3, 4)), axes=(0,), keepdims=False)
                )
            case 5:
                values.append(apply("tanh", a))
            case _:
                values.append(apply("tanh", a - b))
    handed = [draw(st.sampled_from(values)) for _ in "st"]
    body = Graph.of("body", [i, c, s, t, w, m], [c, *handed, draw(st.sampled_from(values))])
    outer = [Input(n, v.type) for n, v in (("a", s), ("b", t), ("w", w), ("m", m))]
    op = apply("loop", None, None, *outer, body=body, carried=2, trips=draw(st.integers(0, 3)))
    return Graph.of("g", outer, [getitem(op, k) for k in range(3)])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(loops())
def test_random_loops_keep_every_bit(graph: Graph):
    after = HoistInvariants()(graph)
    verify(after)
    same_answer(graph, after)
    assert HoistInvariants()(after) is after


@pytest.mark.llvm
@pytest.mark.parametrize("trips", [0, 3])
def test_compiled_it_gives_the_same(trips):
    g = looped(lambda s, w: apply("tanh", s @ apply("exp", w)), trips=trips, w=f32[4, 4])
    after = HoistInvariants()(g)
    arrays = [np.ones(4, np.float32), np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)]
    for h in (g, after):
        np.testing.assert_allclose(mc.compile(h)(*arrays)[0], interpret(g, arrays)[0], rtol=1e-5)
    assert names(after) == ["exp", "loop"]
