"""Picks before work, common work out of branches; and where neither may happen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.types import bool_, f16, f32, f64, i32, i64
from minidlc.graph import Constant, Graph, Input, apply, getitem, interpret, parse, verify
from minidlc.support.errors import CallError
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import collecting, parse_pipeline
from minidlc.transform.block.hoist import Hoist

pytestmark = pytest.mark.ch02


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def graph_of(make, **types) -> Graph:
    inputs = [Input(n, t) for n, t in types.items()]
    made = make(*inputs)
    return Graph.of("g", inputs, made if isinstance(made, tuple) else (made,))


def arrays_of(graph: Graph, seed: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, i.type.dims).astype(i.type.dtype.numpy) for i in graph.inputs]


def hoisted(make, rtol: float = 0.0, **types) -> Graph:
    g = graph_of(make, **types)
    after = Hoist()(g)
    verify(after)
    for seed in (2, 3):
        arrays = arrays_of(g, seed)
        for a, b in zip(interpret(g, arrays), interpret(after, arrays), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=rtol, equal_nan=True)
    assert Hoist()(after) is after
    return after


def first(x, axis=0, end=2):
    return apply("slice", x, starts=(0,), ends=(end,), axes=(axis,))


UP = {
    "one op": (lambda x: first(apply("exp", x)), ["slice", "exp"]),
    "a chain": (lambda x: first(apply("exp", x * 2.0 + 1.0)), ["slice", "mul", "add", "exp"]),
    "a constant operand": (lambda x: first(x * np.ones((8, 6), np.float32)), ["slice", "mul"]),
    "one row for all": (lambda x: first(x * np.ones(6, np.float32)), ["slice", "mul"]),
    "two operands": (lambda x: first(x + apply("relu", x)), ["slice", "slice", "relu", "add"]),
    "backwards, in steps": (
        lambda x: apply(
            "slice", apply("exp", x), starts=(-1, 5), ends=(-9, 0), axes=(0, 1), steps=(-4, -3)),
        ["slice", "exp"],
    ),
    "a transpose": (lambda x: first(apply("transpose", x)), ["slice", "transpose"]),
    "rows of a product": (lambda x: first(x @ np.ones((6, 6), np.float32)), ["slice", "matmul"]),
    "columns of a product": (lambda x: first(x @ np.ones((6, 60), np.float32), 1), ["matmul"]),
    "a softmax along the other axis": (
        lambda x: first(apply("softmax", x, axis=1)), ["slice", "softmax"]),
    "a gather": (lambda x: apply("gather", apply("exp", x), np.array([5, -1])), ["gather", "exp"]),
    "one row": (lambda x: apply("gather", apply("exp", x), np.array(5)), ["gather", "exp"]),
    "a gather beside a bias": (
        lambda x: apply("gather", x + np.ones(6, np.float32), np.array([5])), ["gather", "add"]),
    "one column beside a bias": (
        lambda x: apply("gather", x + np.arange(6, dtype=np.float32), np.array(5), axis=1),
        ["gather", "add"]),
    "rows of a product, gathered": (
        lambda x: apply("gather", x @ np.ones((6, 6), np.float32), np.array([3])),
        ["gather", "matmul"]),
    "narrower before it moves": (
        lambda x: apply("cast", apply("transpose", x), to=f16), ["cast", "transpose"]),
    "a test before it moves": (
        lambda x: apply("isnan", apply("transpose", x)), ["isnan", "transpose"]),
}  # fmt: skip


@pytest.mark.parametrize("what", UP)
def test_goes_up(what: str):
    make, wanted = UP[what]
    assert names(hoisted(make, x=f32[8, 6])) == wanted


STAY = {
    "other readers": lambda x: (lambda y: (first(y), y + 1.0))(apply("exp", x)),
    "an output": lambda x: (lambda y: (first(y), y))(apply("exp", x)),
    "nothing is dropped": lambda x: first(apply("exp", x), end=8),
    "the axis that is summed": lambda x: first(apply("softmax", x, axis=0)),
    "an op along the axis": lambda x: first(apply("cumsum", x, axis=0)),
    "more than before": lambda x: apply("gather", apply("exp", x), np.zeros(50, np.int64)),
    "indices of two axes": lambda x: apply("gather", apply("exp", x), np.zeros((1, 1), np.int64)),
    "rounding before the work": lambda x: apply("cast", apply("exp", x), to=f16),
    "wider": lambda x: apply("cast", apply("transpose", x), to=f64),
    "a cut that takes little": lambda x: apply(
        "cast", first(apply("concat", x, x, axis=0), end=15), to=f64
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STAY)
def test_stays(what: str):
    g = graph_of(STAY[what], x=f32[8, 6])
    assert Hoist()(g) is g


def test_operands_that_are_the_same_for_all_rows_are_not_cut():
    after = hoisted(
        lambda x, y, z: first(apply("where", x, y, z)), x=bool_[8, 1], y=f32[1, 6], z=f32[()]
    )
    assert names(after) == ["slice", "where"]
    assert str(after.nodes[0].type) == "bool[2, 1]"
    g = graph_of(lambda x, y: first(x + y, end=0), x=f32[1, 6], y=f32[1, 6])
    assert Hoist()(g) is g  # an axis of size 1 may be cut to 0: then it is not the same for all
    g = graph_of(lambda x, y: apply("gather", x + y, np.array(0)), x=f32[1, 60], y=f32[8, 1])
    one = np.array([0])
    after = hoisted(lambda x, y: apply("gather", x + y, one), x=f32[1, 60], y=f32[8, 1])
    assert names(after) == ["gather", "add"]
    with collecting() as events:
        assert Hoist()(g) is g
    assert any("x has an axis of size 1 that would have to go" in str(e) for e in events)


def test_a_wrong_place_is_still_an_error():
    g = graph_of(lambda x, k: apply("gather", apply("exp", x) + 1.0, k), x=f32[8, 6], k=i64[2])
    after = Hoist()(g)
    assert names(after) == ["gather", "exp", "add"]
    for h in (g, after):
        with pytest.raises(CallError, match="8 in input 1 is outside the range -8 to 7"):
            interpret(h, [np.ones((8, 6), np.float32), np.array([0, 8])])


def test_the_last_row_only_of_a_model_head():
    """The next word needs the last row of the logits: one row times the vocabulary."""
    after = hoisted(
        lambda h, w: apply("slice", apply("tanh", h) @ w, starts=(-1,), ends=(99,), axes=(1,)),
        rtol=1e-6, h=f32[1, 16, 8], w=f32[8, 100],
    )  # fmt: skip
    assert names(after) == ["slice", "tanh", "matmul"]
    assert str(after.nodes[-1].type) == "f32[1, 1, 100]"


def test_a_slice_of_a_concatenation_meets_its_part():
    """The slice goes up by this pass, past the concatenation by a rule: half the work is gone."""
    g = graph_of(
        lambda a, b: first(apply("exp", apply("concat", a, b, axis=0)), end=4),
        a=f32[4, 6],
        b=f32[4, 6],
    )
    after, _ = parse_pipeline("hoist,canonicalize,dce").run(g)
    assert names(after) == ["exp"]
    assert after.nodes[0].inputs == (g.inputs[0],)


def test_symbolic_sizes_stay():
    g = parse("""
def f(x: f32["N", 8]):
    e: f32["N", 8] = exp(x)
    y: f32["N", 2] = slice(e, starts=(0,), ends=(2,), axes=(1,))
    return y
""")
    with collecting() as events:
        assert Hoist()(g) is g
    assert [str(e) for e in events] == ["hoist at y: e: sizes are not known"]


def test_limit_and_report():
    g = graph_of(lambda x: first(apply("exp", x * 2.0)), x=f32[8, 6])
    after, (record,) = parse_pipeline("hoist{limit=1}").run(g)
    assert names(after) == ["mul", "slice", "exp"]
    assert [str(r) for r in record.done] == ["hoist over exp at slice: done"]


# ---- branches


def branches(yes, no, **types) -> Graph:
    """if_(c, …) of two functions of the same captures."""
    made = []
    for name, make in (("yes", yes), ("no", no)):
        inner = [Input(n, t) for n, t in types.items()]
        results = make(*inner)
        made.append(Graph.of(name, inner, results if isinstance(results, tuple) else (results,)))
    c, outer = Input("c", bool_[()]), [Input(n, t) for n, t in types.items()]
    node = apply("if_", c, *outer, then_branch=made[0], else_branch=made[1])
    count = len(made[0].outputs)
    outputs = [getitem(node, k) for k in range(count)] if count > 1 else [node]
    return Graph.of("g", [c, *outer], outputs)


def split(graph: Graph) -> Graph:
    after = Hoist()(graph)
    verify(after)
    for go in (True, False):
        arrays = [np.array(go), *arrays_of(graph)[1:]]
        for a, b in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
            np.testing.assert_array_equal(a, b)
    assert Hoist()(after) is after
    return after


def test_what_both_branches_compute_goes_before_them():
    def yes(x, w):
        return apply("exp", x @ w) + 1.0

    def no(x, w):
        return apply("tanh", apply("exp", x @ w))

    after = split(branches(yes, no, x=f32[4, 4], w=f32[4, 4]))
    assert names(after) == ["matmul", "exp", "if_"]
    op = after.nodes[-1].op
    assert (names(op.then_branch), names(op.else_branch)) == (["add"], ["tanh"])
    assert [i.name for i in op.then_branch.inputs] == ["x", "w", "exp"]


def test_equal_branches_leave_nothing_inside():
    after = split(branches(lambda x: apply("exp", x), lambda x: apply("exp", x), x=f32[4]))
    assert names(after) == ["exp", "if_"]
    assert not after.nodes[1].op.then_branch.nodes


def test_captures_count_by_what_they_capture():
    def yes(x, y):
        return apply("exp", x) + y

    def no(x, y):
        return apply("exp", y) + x

    g = branches(yes, no, x=f32[4], y=f32[4])
    assert Hoist()(g) is g
    c, x = Input("c", bool_[()]), Input("x", f32[4])
    same = apply("if_", c, x, x, **g.nodes[0].op.attributes())
    assert names(split(Graph.of("g", [c, x], [same]))) == ["exp", "add", "if_"]


def best(x):
    """One of several results: such nodes stay with what takes a part of them."""
    return getitem(apply("topk", x, k=2), 0)


def test_different_work_constants_and_views_stay():
    for yes, no in (
        (lambda x: apply("exp", x), lambda x: apply("tanh", x)),
        (lambda x: x + 1.0, lambda x: x + 2.0),
        (lambda x: x + 0.0, lambda x: x + -0.0),
        (lambda x: apply("reshape", x, shape=(2, 2)), lambda x: apply("reshape", x, shape=(2, 2))),
        (lambda x: best(x), lambda x: best(x)),
        (lambda x: apply("exp", best(x)), lambda x: apply("exp", best(x))),
    ):
        g = branches(yes, no, x=f32[4])
        assert Hoist()(g) is g


def test_a_view_goes_with_what_reads_it_and_several_results():
    def yes(x):
        y = apply("exp", apply("reshape", x, shape=(2, 2)))
        return y, y * 2.0

    def no(x):
        y = apply("exp", apply("reshape", x, shape=(2, 2)))
        return y * 3.0, y

    g = branches(yes, no, x=f32[4])
    after = split(g)
    assert names(after)[:3] == ["reshape", "exp", "if_"]
    for limit in (1, 2):
        part, (record,) = parse_pipeline(f"hoist{{limit={limit}}}").run(g)
        assert names(part)[:limit] == ["reshape", "exp"][:limit]
        assert len(record.done) == limit


def test_branches_inside_branches():
    def inner(x):
        a = Input("a", f32[4])
        yes, no = (
            Graph.of("yes", [a], [apply("exp", a)]),
            Graph.of("no", [a], [apply("exp", a) * 2.0]),
        )
        some = apply("less", apply("max", x, keepdims=False), 1.0)
        return apply("if_", some, x, then_branch=yes, else_branch=no)

    after = split(branches(inner, lambda x: apply("exp", x), x=f32[4]))
    assert names(after) == ["exp", "if_"]


# ---- answers stay


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(cases())
def test_random_graphs_keep_every_answer(case: Case):
    after = Hoist()(case.graph)
    verify(after)
    case.check(interpret(after, case.arrays), interpret(case.graph, case.arrays))


@st.composite
def picking_graphs(draw: st.DrawFn) -> Graph:
    """Integer work between slices and gathers, so dense that they meet."""
    x, b = Input("x", i32[4, 5]), Input("b", i32[4, 1])
    values = [x, b + x]
    for _ in range(draw(st.integers(3, 10))):
        v = values[-1 - draw(st.integers(0, min(1, len(values) - 1)))]
        rank, dims = v.type.rank, v.type.dims
        axis = draw(st.integers(0, rank - 1)) if rank else 0
        match draw(st.integers(0, 6)):
            case 0 | 1 if rank:
                start, end = draw(st.integers(-6, 5)), draw(st.integers(-6, 9))
                step = draw(st.sampled_from([1, 2, -1]))
                v = apply("slice", v, starts=(start,), ends=(end,), axes=(axis,), steps=(step,))
            case 2 if rank and dims[axis]:
                shape = draw(st.sampled_from([(), (1,), (2,)]))
                k = draw(st.integers(-dims[axis], dims[axis] - 1))
                v = apply("gather", v, np.full(shape, k, np.int64), axis=axis)
            case 3 if rank == 2:
                v = apply("transpose", v)
            case 4 if rank == 2:
                v = v @ np.arange(3 * dims[1], dtype=np.int32).reshape(dims[1], 3)
            case 5 if rank:
                v = v * np.arange(dims[-1], dtype=np.int32)
            case _:
                v = -v + 3
        values.append(v)
    return Graph.of("g", [x, b], values[-1:])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(picking_graphs())
def test_dense_picks_keep_every_bit(graph: Graph):
    after = Hoist()(graph)
    verify(after)
    rng = np.random.default_rng(4)
    arrays = [rng.integers(-9, 9, i.type.dims).astype(np.int32) for i in graph.inputs]
    np.testing.assert_array_equal(interpret(graph, arrays)[0], interpret(after, arrays)[0])
    assert Hoist()(after) is after


def test_a_constant_is_cut_now():
    w = Constant("w", np.arange(48, dtype=np.float32).reshape(8, 6))
    after = hoisted(lambda x: first(x + w), x=f32[8, 6])
    assert [c.array.shape for c in after.constants] == [(2, 6)]


def test_work_that_one_branch_does_twice_goes_out_once() -> None:
    """A tester's find: the second `exp` took the place of the first, which `a` reads."""
    g = parse("""\
def g(x: f32[4], p: bool[()]):
    def yes(x: f32[4]):
        s = exp(x)
        a = abs(s)
        t = exp(x)
        b = add(a, t)
        return b
    def no(x: f32[4]):
        s = exp(x)
        a = abs(s)
        return a
    y = if_(p, x, then_branch=yes, else_branch=no)
    return y
""")
    after, _ = parse_pipeline("hoist").run(g)
    assert [n.op.name for n in after.nodes] == ["exp", "abs", "if_"]
    x = np.array([-1, 0, 1, 2], np.float32)
    for p in (True, False):
        (got,), (want,) = interpret(after, [x, np.array(p)]), interpret(g, [x, np.array(p)])
        np.testing.assert_array_equal(got, want)
