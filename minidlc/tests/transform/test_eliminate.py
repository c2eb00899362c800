"""Nodes that do nothing, nodes of tensors without elements: which go, and which have to stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.types import TensorType, bf16, bool_, dtype, f16, f32, f64, i8, i64
from minidlc.graph import Constant, Graph, Input, apply, build, getitem, interpret, parse, verify
from minidlc.graph.graph import results_of
from minidlc.graph.op import OpKind, registered_ops
from minidlc.support.errors import CallError
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Dce, collecting, parse_pipeline
from minidlc.transform.node.eliminate_noops import EliminateNoops, noop_rules
from minidlc.transform.node.eliminate_zero_size import EliminateZeroSize

pytestmark = pytest.mark.ch02


def graph_of(make, **types) -> Graph:
    inputs = [Input(n, t) for n, t in types.items()]
    made = make(*inputs)
    return Graph.of("g", inputs, made if isinstance(made, tuple) else (made,))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def check(step, graph: Graph) -> Graph:
    after = step(graph)
    verify(after)
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-2, 2, i.type.dims).astype(i.type.dtype.numpy) for i in graph.inputs]
    for a, b in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)
    assert step(after) is after
    return after


# ---- nodes that do nothing

NOOPS = {
    "identity": lambda x: apply("identity", x),
    "cast": lambda x: apply("cast", x, to=x.type.dtype),
    "bit_cast": lambda x: apply("bit_cast", x, to=x.type.dtype),
    "reshape": lambda x: apply("reshape", x, shape=(1, 4, 6, 5)),
    "transpose": lambda x: apply("transpose", x, perm=(0, 1, 2, 3)),
    "expand": lambda x: apply("expand", x, shape=(6, 1)),
    "tile": lambda x: apply("tile", x, repeats=(1, 1, 1, 1)),
    "pad": lambda x: apply("pad", x, pads=(0,) * 8),
    "concat": lambda x: apply("concat", x, axis=2),
    "slice": lambda x: apply("slice", x, starts=(0, -9), ends=(99, 6), axes=(1, 2)),
    "sum": lambda x: apply("sum", x, axes=()),
    "mean": lambda x: apply("mean", x, axes=()),
    "prod": lambda x: apply("prod", x, axes=(), keepdims=False),
    "max": lambda x: apply("max", x, axes=(0,)),
    "min": lambda x: apply("min", x, axes=(-4,)),
    "depth_to_space": lambda x: apply("depth_to_space", x, blocksize=1, mode="CRD"),
    "space_to_depth": lambda x: apply("space_to_depth", x, blocksize=1),
    "max_pool": lambda x: apply("max_pool", x, kernel_shape=(1, 1)),
    "average_pool": lambda x: apply("average_pool", x, kernel_shape=(1, 1)),
}


@pytest.mark.parametrize("element", [f32, f16, bf16, f64, i8], ids=str)
@pytest.mark.parametrize("op", NOOPS)
def test_a_node_that_does_nothing_goes(op, element):
    element = f32 if op == "average_pool" and not element.is_float else element
    g = graph_of(lambda x: NOOPS[op](x), x=element[1, 4, 6, 5])
    assert names(g) == [op]
    after = check(EliminateNoops(), g)
    assert not after.nodes
    assert after.outputs == after.inputs


@pytest.mark.parametrize(
    "make",
    [
        lambda x: apply("cast", x, to=f64),
        lambda x: apply("cast", apply("cast", x, to=f16), to=f32),  # rounds
        lambda x: apply("transpose", x, perm=(0, 1, 3, 2)),
        lambda x: apply("pad", x, pads=(0, 0, 0, 0, 0, 0, 0, 1)),
        lambda x: apply("pad", x, pads=(0, 0, -1, 0, 0, 0, 1, 0)),  # same shape, other elements
        lambda x: apply("slice", x, starts=(-1,), ends=(-9,), axes=(1,), steps=(-1,)),
        lambda x: apply("sum", x, axes=(0,)),  # 0 + -0.0 is 0.0
        lambda x: apply("max", x, axes=(0,), keepdims=False),
        lambda x: apply("max_pool", x, kernel_shape=(1, 1), strides=(2, 2)),
        lambda x: apply("depth_to_space", x, blocksize=2),
        lambda x: x + 0.0,
        lambda x: apply("concat", x, x, axis=0),
    ],
)
def test_a_node_that_does_something_stays(make):
    g = graph_of(make, x=f32[1, 4, 4, 4])
    assert EliminateNoops()(g) is g


def test_symbolic_sizes():
    g = parse("""
def f(x: f32["N", 8]):
    a: f32["N", 8] = transpose(x, perm=(0, 1))
    b: f32["N", 8] = slice(a, starts=(0,), ends=(9223372036854775807,), axes=(0,))
    return b
""")
    assert not EliminateNoops()(g).nodes


def test_every_rule_of_the_set_takes_one_node_away():
    found = {rule.root.op for rule in noop_rules()}
    assert set(NOOPS) <= found
    g = graph_of(lambda x: apply("neg", apply("neg", x)) * 1.0, x=f32[3])
    assert names(EliminateNoops()(g)) == ["neg", "neg"]  # the rest is canonicalize's


# ---- tensors without elements


def test_what_has_no_elements_is_a_constant():
    def make(x, y):
        return apply("exp", x) * 2.0, apply("relu", y), apply("slice", y, starts=(3,), ends=(1,))

    after = check(EliminateZeroSize(), graph_of(make, x=f16[0, 8], y=f32[4]))
    assert names(after) == ["relu"]
    assert [str(o.type) for o in after.outputs] == ["f16[0, 8]", "f32[4]", "f32[0]"]


@pytest.mark.parametrize(
    ("op", "element", "value"),
    [
        ("sum", f32, 0), ("prod", f32, 1), ("max", f32, -np.inf), ("min", f32, np.inf),
        ("mean", f32, np.nan), ("sum", i8, 0), ("prod", i8, 1), ("max", i8, -128), ("min", i8, 127),
        ("mean", i64, 0), ("max", bf16, -np.inf), ("sum", f16, 0), ("prod", f64, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keepdims", [True, False])
def test_a_reduction_of_nothing_is_its_start(op, element, value, keepdims):
    """Row 57: every reduction has a value for no elements, of its own type."""

    def make(x):
        return apply(op, x, axes=(1,), keepdims=keepdims)

    after = check(EliminateZeroSize(), graph_of(make, x=element[3, 0]))
    (constant,) = after.outputs
    assert isinstance(constant, Constant)
    np.testing.assert_array_equal(
        constant.array.astype(np.float64), np.full((3, 1)[: 1 + keepdims], value)
    )


def test_products_of_no_terms_are_zeros():
    after = check(EliminateZeroSize(), graph_of(lambda a, b: a @ b + 1.0, a=f32[4, 0], b=f32[0, 3]))
    assert names(after) == ["add"]
    assert not after.constants[0].array.any()

    def conv(x, w, b):
        return apply("conv", x, w, b)

    g = graph_of(conv, x=f32[1, 0, 5, 5], w=f32[2, 0, 3, 3], b=f32[2])
    assert EliminateZeroSize()(g) is g  # the bias is not known
    after = check(
        EliminateZeroSize(),
        graph_of(lambda x, w: conv(x, w, None), x=f32[1, 0, 5, 5], w=f32[2, 0, 3, 3]),
    )
    assert not after.nodes


def test_parts_without_elements_leave_a_concatenation():
    def make(a, b, x):
        empty = apply("slice", x, starts=(0,), ends=(0,))
        return apply("concat", a, empty, b, axis=0), apply("concat", empty, a, axis=0)

    g = graph_of(make, a=f32[2, 3], b=f32[1, 3], x=f32[5, 3])
    after = Dce()(check(EliminateZeroSize(), g))
    assert names(after) == ["concat"]
    assert after.outputs[1] is after.inputs[0]


def test_scatters_of_nothing_borders_around_nothing():
    def make(x, k, u, e):
        return apply("scatter_elements", x, k, u, axis=0), apply("pad", e, 2.5, pads=(1, 2))

    after = check(EliminateZeroSize(), graph_of(make, x=f32[4], k=i64[0], u=f32[0], e=f32[0]))
    assert not after.nodes
    assert after.outputs[0] is after.inputs[0]


def test_positions_are_still_checked():
    g = graph_of(lambda x, k: apply("gather", x, k, axis=1), x=f32[0, 3], k=i64[2])
    with collecting() as events:
        assert EliminateZeroSize()(g) is g
    assert [str(e) for e in events] == ["eliminate_zero_size at gather: it checks positions"]
    with pytest.raises(CallError, match="outside the range"):
        interpret(g, [np.zeros((0, 3), np.float32), np.array([0, 3])])
    after = check(
        EliminateZeroSize(), graph_of(lambda x, k: apply("gather", x, k), x=f32[5], k=i64[0])
    )
    assert not after.nodes


def test_large_and_symbolic_results_stay():
    g = graph_of(lambda a, b: a @ b, a=f32[64, 0], b=f32[0, 64])
    with collecting() as events:
        assert EliminateZeroSize(max_bytes=1000)(g) is g
    assert "16384 bytes are more than 1000" in str(next(iter(events)))
    g = parse("""
def f(x: f32["N", 3], y: f32["N", 0]):
    a: f32["N", 3] = exp(x)
    b: f32["N", 0] = exp(y)
    c: f32["N", 3] = concat(x, y, axis=1)
    return a, b, c
""")
    after = EliminateZeroSize()(g)  # N may be 0 or not: a stays; y has no columns at any N
    assert names(after) == ["exp", "exp"]
    assert after.outputs[2] is after.inputs[0]


def body(stacks: bool) -> Graph:
    i, c, s = Input("i", i64[()]), Input("c", bool_[()]), Input("s", f32[3])
    out = apply("exp", s)
    return Graph.of("body", [i, c, s], [c, out, s] if stacks else [c, out])


def test_loops_that_do_not_run():
    """Row 88: the state as it came, and stacks of length 0."""
    x = Input("x", f32[3])
    never = apply("loop", None, None, x, body=body(True), carried=1, trips=0)
    g = Graph.of("g", [x], [getitem(never, 0), getitem(never, 1)])
    after = check(EliminateZeroSize(), g)
    assert not after.nodes
    assert str(after.outputs[1].type) == "f32[0, 3]"
    for n, c in ((-1, None), (None, False), (3, False)):
        given = [None if v is None else Constant("k", np.array(v)) for v in (n, c)]
        g = Graph.of("g", [x], [apply("loop", *given, x, body=body(False), carried=1)])
        assert check(EliminateZeroSize(), g).outputs == (x,)
    once = apply("loop", Constant("n", np.array(1)), None, x, body=body(False), carried=1)
    g = Graph.of("g", [x], [once])
    assert EliminateZeroSize()(g) is g


def test_control_flow_of_empty_results_stays_and_bodies_are_done():
    i, c, s = Input("i", i64[()]), Input("c", bool_[()]), Input("s", f32[0])
    inner = Graph.of("body", [i, c, s], [c, apply("exp", s)])
    x, n = Input("x", f32[0]), Input("n", i64[()])
    g = Graph.of("g", [n, x], [apply("loop", n, None, x, body=inner, carried=1)])
    after = EliminateZeroSize()(g)
    assert names(after) == ["loop"]  # it may run for ever, which is not ours to change
    assert not after.nodes[0].op.body.nodes


@pytest.mark.parametrize("step", [EliminateNoops(), EliminateZeroSize()], ids=str)
def test_limit_counts_nodes(step):
    g = graph_of(lambda x: (apply("identity", x), apply("identity", x * 2.0)), x=f32[0])
    after, (record,) = parse_pipeline(f"{step.name}{{limit=1}}").run(g)
    assert len(record.done) == 1
    assert after is not g


def empty_examples():
    """Each example of each op that has an input without elements."""
    for name, cls in registered_ops().items():
        if cls.kind is OpKind.CONTROL or name == "fused":
            continue
        for number, example in enumerate(cls.examples()):
            if any(a is not None and a.size == 0 for a in example.inputs):
                yield pytest.param(example, id=f"{name}-{number}")


@pytest.mark.parametrize("example", list(empty_examples()))
def test_every_op_on_nothing_keeps_its_meaning(example):
    graph = example_graph(example)
    after = EliminateZeroSize()(graph)
    verify(after)
    arrays = [a for a in example.inputs if a is not None]
    for a, b in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def example_graph(example) -> Graph:
    """The graph of one op; several results as several outputs."""
    given = [
        None if a is None else Input(f"x{k}", TensorType(dtype(a.dtype), a.shape))
        for k, a in enumerate(example.inputs)
    ]
    node = build(example.op, given)
    return Graph.of("g", [v for v in given if v is not None], results_of(node))


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([EliminateNoops(), EliminateZeroSize()]))
def test_random_graphs_keep_every_answer(case: Case, step):
    after = step(case.graph)
    verify(after)
    case.check(interpret(after, case.arrays), interpret(case.graph, case.arrays))
