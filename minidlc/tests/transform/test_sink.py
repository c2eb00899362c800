"""Movements go down where they meet others, and stay where they would only meet more bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.expr.types import bf16, bool_, f16, f32, f64, i8, i32, i64, u8, u16
from minidlc.graph import Constant, Graph, Input, apply, getitem, interpret, parse, verify
from minidlc.support.errors import OptionError
from minidlc.support.locations import steps
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Pipeline, collecting, parse_pipeline
from minidlc.transform.block.hoist import Hoist
from minidlc.transform.block.sink import Sink
from minidlc.transform.block.sink_kinds import widens

pytestmark = pytest.mark.ch02

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def nhwc(x):
    return apply("transpose", x, perm=NHWC)


def nchw(x):
    return apply("transpose", x, perm=NCHW)


def image(name="x", c=3, h=5, w=7):
    return Input(name, f32[2, c, h, w])


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def sunk(*outputs, rtol: float = 0.0) -> Graph:
    """The graph of these outputs after the pass: valid, of equal answers, settled."""
    inputs: dict[Input, None] = {}
    stack = list(outputs)
    while stack:
        v = stack.pop()
        if isinstance(v, Input):
            inputs[v] = None
        stack += getattr(v, "inputs", ())
    g = Graph.of("g", reversed(inputs), outputs)
    after = Sink()(g)
    verify(after)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-3, 4, i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs]
    for a, b in zip(interpret(g, arrays), interpret(after, arrays), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol, equal_nan=True)
    assert Sink()(after) is after, "a second run changes something"
    return after


BIAS = Constant("b", np.arange(3, dtype=np.float32))

ONES = np.ones((2, 5, 7, 4), np.float32)

CANCEL = {
    "one op": lambda x: apply("relu", nhwc(x)),
    "a chain": lambda x: apply("exp", apply("tanh", nhwc(x))) * 0.5,
    "a bias for each channel": lambda x: nhwc(x) + BIAS,
    "a full constant": lambda x: nhwc(x) * np.arange(105, dtype=np.float32).reshape(5, 7, 3),
    "both branches of a sum": lambda x: (lambda t: apply("relu", t) + apply("tanh", t))(nhwc(x)),
    "where": lambda x: apply("where", nhwc(x) < 0.0, BIAS, apply("exp", nhwc(x))),
    "softmax over channels": lambda x: apply("softmax", nhwc(x), axis=-1),
    "a mean that keeps axes": lambda x: nhwc(x) - apply("mean", nhwc(x), axes=(1, 2)),
    "a border": lambda x: apply("pad", nhwc(x), pads=(0, 1, 2, 0, 0, 3, 0, 0)),
    "a slice": lambda x: apply(
        "slice", nhwc(x), starts=(1, -1), ends=(4, -9), axes=(1, 3), steps=(1, -2)
    ),
    "a resampled axis": lambda x: apply("resample", nhwc(x), axis=2, size=9, step=7, divisor=9),
    "tiles": lambda x: apply("tile", nhwc(x), repeats=(1, 2, 1, 3)),
    "a cast": lambda x: apply("cast", apply("cast", nhwc(x), to=f16), to=f32),
    "a concatenation": lambda x: apply("concat", nhwc(x), apply("exp", nhwc(x)), axis=3),
    "a constant part": lambda x: apply("concat", nhwc(x), ONES, axis=3),
}  # fmt: skip


@pytest.mark.parametrize("what", CANCEL)
def test_a_pair_of_transposes_cancels_around(what: str):
    after = sunk(nchw(CANCEL[what](image())))
    assert "transpose" not in names(after)
    assert str(Sink()(after)) == str(after)


STAY = {
    "nothing below": lambda x: apply("relu", nhwc(x)),
    "an op that minds": lambda x: nchw(apply("cumsum", nhwc(x), axis=1)),
    "a product": lambda x: nchw(nhwc(x) @ np.ones((3, 3), np.float32)),
    "another order": lambda x: nhwc(x) + apply("transpose", x, perm=(0, 3, 2, 1)),
    "the other operand is large": lambda x: nhwc(x) + Input("z", f32[2, 3, 3, 3]),
    "one axis more": lambda x: nhwc(x) + Input("z", f32[4, 2, 3, 3, 3]),
    "a sum in another order": lambda x: apply(
        "sum", apply("transpose", x, perm=(0, 3, 2, 1)), axes=(1, 2), keepdims=False
    ),
    "several results": lambda x: apply("topk", nhwc(x), k=2, axis=-1),
}  # fmt: skip


@pytest.mark.parametrize("what", STAY)
def test_a_transpose_stays_before(what: str):
    x = image(c=3, h=3, w=3)
    y = STAY[what](x)
    if what == "several results":
        y = getitem(y, 0)
    z = [v for v in getattr(y, "inputs", ()) if isinstance(v, Input)]
    deeper = [v for n in getattr(y, "inputs", ()) for v in getattr(n, "inputs", ())]
    z += [v for v in deeper if isinstance(v, Input) and v is not x]
    g = Graph.of("g", dict.fromkeys([x, *z]), [y])
    assert Sink()(g) is g


def test_a_network_with_channels_last_moves_at_its_ends_only():
    """As TensorFlow exports it: each convolution between two transposes, residual and concat."""
    rng = np.random.default_rng(0)

    def conv(t, channels):
        w = Constant("w", rng.standard_normal((channels, t.type.dims[3], 3, 3)).astype(np.float32))
        return nhwc(apply("conv", nchw(t), w, pads=(1, 1, 1, 1)))

    x = Input("x", f32[1, 6, 8, 3])
    a = apply("relu", conv(x, 4) + np.arange(4, dtype=np.float32))
    b = apply("relu", conv(a, 4) + a)
    squeezed = apply("sigmoid", apply("mean", b, axes=(1, 2)))
    c = apply("pad", b * squeezed, pads=(0, 1, 1, 0, 0, 1, 1, 0))
    d = apply("concat", apply("slice", c, starts=(1, 1), ends=(-1, -1), axes=(1, 2)), a, axis=3)
    e = apply("clip", conv(d, 5), min=0.0, max=6.0)
    y = apply("mean", conv(e, 2), axes=(1, 2), keepdims=False)
    after = sunk(y, rtol=1e-5)
    assert names(after).count("transpose") == 1  # of the input
    assert after.nodes[0].op.name == "transpose"
    z = sunk(conv(e, 2), rtol=1e-5)
    assert names(z).count("transpose") == 2


def test_an_operand_is_turned_the_other_way_where_that_moves_less():
    x, z = image(), Input("z", f32[2, 5, 7, 3])
    after = sunk(nchw(nhwc(x) + z))
    assert names(after) == ["transpose", "add"]
    after = sunk(nchw(nhwc(x) + z), apply("cumsum", nchw(z), axis=2))  # there already
    assert names(after) == ["transpose", "add", "cumsum"]
    after = sunk(apply("cumsum", nchw(z), axis=2), nchw(apply("concat", nhwc(x), z, axis=3)))
    assert names(after) == ["transpose", "cumsum", "concat"]
    small = Input("s", f32[7, 3])
    assert names(sunk(nchw(nhwc(x) + small))) == ["transpose", "add", "transpose"]


def test_a_residual_around_a_convolution_of_the_input():
    """The input is read moved and as it is; what is added to it goes by the one that is there."""
    x = Input("x", f32[1, 6, 8, 3])
    w = Constant("w", np.ones((3, 3, 1, 1), np.float32))
    a = apply("relu", nhwc(apply("conv", nchw(x), w)) + x)
    b = apply("relu", nhwc(apply("conv", nchw(a), w)) + a)
    after = sunk(apply("mean", b, axes=(1, 2), keepdims=False), rtol=1e-6)
    assert names(after) == ["transpose", "conv", "add", "relu", "conv", "add", "relu", "mean"]


def test_one_movement_for_two_readers_that_mind():
    x = image()
    y = apply("relu", nhwc(x))
    after = sunk(nchw(y), apply("cumsum", y, axis=1), apply("cumsum", y, axis=2))
    assert names(after) == ["relu", "transpose", "cumsum", "cumsum"]


def test_a_sum_of_two_moved_is_moved_once():
    a, b = image("a"), image("b")
    after = sunk(nhwc(a) + nhwc(b))
    assert names(after) == ["add", "transpose"]
    assert str(after.nodes[0].type) == "f32[2, 3, 5, 7]"


def test_a_value_that_grows_is_moved_before_it_grows():
    x = Input("x", f32[2, 3, 1, 1])
    wide = nhwc(x) + np.zeros((2, 5, 7, 3), np.float32)
    assert names(sunk(wide)) == ["transpose", "add"]


def test_the_good_part_of_a_region_is_taken_without_the_part_that_grows():
    t = nhwc(image())
    after = sunk(nchw(apply("relu", t)), apply("tile", t, repeats=(1, 8, 1, 1)))
    assert names(after) == ["relu", "transpose", "tile"]


def test_axes_of_size_one_need_no_pass_over_the_bytes():
    x = Input("x", f32[2, 3, 1, 1])
    assert names(sunk(nchw(apply("relu", nhwc(x))))) == ["relu"]
    y = image()
    gate = Input("gate", f32[2, 1, 1, 3])
    after = sunk(nchw(nhwc(y) * gate))
    assert names(after) == ["reshape", "mul"]


def test_symbolic_sizes():
    g = parse("""
def f(x: f32["N", 3, 5, 7]):
    t: f32["N", 5, 7, 3] = transpose(x, perm=(0, 2, 3, 1))
    r: f32["N", 5, 7, 3] = relu(t)
    y: f32["N", 3, 5, 7] = transpose(r, perm=(0, 3, 1, 2))
    return y
""")
    assert names(Sink()(g)) == ["relu"]


@pytest.mark.parametrize(
    ("op", "element"), [("max", f32), ("min", f16), ("sum", i32), ("prod", i8)]
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_whose_order_does_not_matter(op, element, keepdims):
    x = Input("x", element[2, 3, 4, 5])
    t = apply("transpose", x, perm=(3, 0, 2, 1))
    y = apply(op, apply("abs", t), axes=(0, 3), keepdims=keepdims)
    after = sunk(apply("transpose", y, perm=(1, 3, 2, 0)) if keepdims else y)
    assert "transpose" not in names(after)


def test_quantised_per_channel():
    x, scale = image(), Constant("s", np.array([0.5, 1, 2], np.float32))
    q = apply("quantize_linear", nhwc(x), scale, axis=-1)
    y = nchw(apply("dequantize_linear", q, scale, axis=3))
    after = sunk(y)
    assert [n.op.axis for n in after.nodes] == [1, 1]


def test_reshapes_meet():
    x = Input("x", f32[4, 6])
    y = apply("relu", apply("reshape", x, shape=(24,))) * 2.0 + np.arange(24, dtype=np.float32)
    assert names(sunk(apply("reshape", y, shape=(4, 6)))) == ["relu", "mul", "add"]
    after = sunk(apply("reshape", apply("exp", apply("flatten", x, axis=0)), shape=(2, 12)))
    assert names(after) == ["exp", "reshape"]
    other = apply("reshape", x, shape=(24,)) + Input("z", f32[24])
    after = sunk(apply("reshape", other, shape=(4, 6)))
    assert names(after) == ["reshape", "add", "reshape"]  # z would have to be reshaped too
    wider = apply("reshape", x, shape=(24,)) + Input("z", f32[3, 24])
    assert names(sunk(apply("reshape", wider, shape=(72,)))) == ["reshape", "add", "reshape"]


def test_a_reshape_of_one_number_keeps_its_rank():
    x, one = Input("x", f32[3]), Input("one", f32[1, 1])
    y = apply("reshape", x, shape=(1, 3)) * one
    after = sunk(apply("reshape", y, shape=(3,)))
    assert names(after) == ["reshape", "mul", "reshape"]
    c = Constant("c", np.full((1, 1), 2.0, np.float32))
    y = apply("reshape", x, shape=(1, 3)) * c
    assert names(sunk(apply("reshape", y, shape=(3,)))) == ["mul"]


def test_a_widening_cast_goes_behind_what_moves():
    x = Input("x", u8[2, 5, 7, 3])
    t = apply("transpose", apply("cast", x, to=f32), perm=NCHW)
    y = apply("concat", t, apply("slice", t, starts=(0,), ends=(1,), axes=(1,)), axis=1)
    after = sunk(y)
    assert names(after) == ["transpose", "slice", "concat", "cast"]
    assert {str(n.type)[:2] for n in after.nodes[:3]} == {"u8"}
    assert steps(after.nodes[0].loc) == ("sink",)


def test_casts_that_round_or_gain_nothing_stay():
    x = Input("x", f32[2, 5, 7, 3])
    for source, target in ((f32, f16), (f32, bf16), (f32, i32), (i32, f32), (f64, f32)):
        x = Input("x", source[5, 7])
        y = apply("transpose", apply("cast", x, to=target))
        assert names(sunk(y)) == ["cast", "transpose"]
    x = Input("x", f16[5, 7])
    y = apply("relu", apply("cast", x, to=f32))  # arithmetic: f16 rounds
    assert names(sunk(y)) == ["cast", "relu"]
    y = apply("reshape", apply("cast", x, to=f32), shape=(35,))  # moves no bytes
    assert names(sunk(y)) == ["cast", "reshape"]


def values_of(element) -> np.ndarray:
    """All values of a small type, telling ones of a large."""
    if element == bool_:
        return np.array([False, True])
    if element.itemsize <= 2:
        bits = np.arange(2 ** (8 * element.itemsize), dtype=f"u{element.itemsize}")
        return bits.view(element.numpy)
    large = [2**24 + 1, -(2**31)] if element == i32 else [1e-45, 3.4e38, 1 + 2**-23]
    return np.array(large, element.numpy)


@pytest.mark.parametrize("narrow", [bool_, i8, u8, i32, f16, bf16, f32], ids=str)
@pytest.mark.parametrize("wide", [f16, bf16, f32, f64, u16, i64], ids=str)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_which_types_hold_all_of_another(narrow, wide):
    values = values_of(narrow)
    with np.errstate(all="ignore"):
        held = values.astype(wide.numpy)
    if widens(narrow, wide):
        np.testing.assert_array_equal(held.astype(np.float64), values.astype(np.float64))
    known = {(f16, f32), (bf16, f32), (f32, f64), (i32, f64), (u8, f16), (bool_, f32)}
    assert widens(narrow, wide) or (narrow, wide) not in known


def test_it_says_what_it_moved_and_what_it_would_have_cost():
    x = image()
    g = Graph.of("g", [x], [nchw(apply("relu", nhwc(x)))])
    with collecting() as events:
        Sink()(g)
    assert [str(e) for e in events] == [
        "sink 2 x transpose: 3360 -> 0 bytes moved at transpose: done"
    ]
    after, _ = parse_pipeline("sink{kinds=('reshape',)}").run(g)
    assert after is g
    assert parse_pipeline("sink{limit=0}").run(g)[0] is g
    with pytest.raises(OptionError, match="unknown kind 'transposes'") as caught:
        Sink(("transposes",))(g)
    assert caught.value.code == "MDLC1015"
    assert caught.value.hint == "did you mean 'transpose'?"


def test_limit_takes_regions_one_by_one():
    a, b = image("a"), image("b")
    outputs = [nchw(apply("relu", nhwc(a))), nchw(apply("exp", nhwc(b)))]
    g = Graph.of("g", [a, b], outputs)
    after, (record,) = parse_pipeline("sink{limit=1}").run(g)
    assert names(after) == ["relu", "transpose", "exp", "transpose"]
    assert len(record.done) == 1


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(cases())
def test_random_graphs_keep_every_answer(case: Case):
    after = Sink()(case.graph)
    verify(after)
    case.check(interpret(after, case.arrays), interpret(case.graph, case.arrays))


@st.composite
def moving_graphs(draw: st.DrawFn) -> Graph:
    """Transposes, reshapes, slices and what they pass, so dense that they meet."""
    x = Input("x", f32[2, 3, 2, 3])
    values = [x, apply("transpose", x, perm=NHWC)]
    for _ in range(draw(st.integers(3, 12))):
        v = draw(st.sampled_from(values[-4:]))
        rank = v.type.rank
        match draw(st.integers(0, 8)):
            case 0 | 1:
                new = apply("transpose", v, perm=tuple(draw(st.permutations(range(rank)))))
            case 2:
                new = apply("softmax", v, axis=draw(st.integers(-rank, rank - 1)))
            case 3:
                same = [w for w in values if w.type == v.type]
                new = v + draw(st.sampled_from(same))
            case 4:
                same = [w for w in values if w.type == v.type]
                axis = draw(st.integers(0, rank - 1))
                new = apply("concat", v, draw(st.sampled_from(same)), axis=axis)
            case 5:
                axis = draw(st.integers(0, rank - 1))
                cut = {"starts": (0,), "ends": (max(1, v.type.dims[axis] // 2),), "axes": (axis,)}
                new = apply("slice", v, **cut)
            case 6 if rank > 2:
                axes = (draw(st.integers(0, rank - 1)),)
                new = apply("max", v, axes=axes, keepdims=draw(st.booleans()))
            case 7:
                new = apply("reshape", v, shape=v.type.dims[::-1])
            case _:
                new = apply("tanh", v) * np.arange(v.type.dims[-1], dtype=np.float32)
        if new.type.size <= 2000:
            values.append(new)
    return Graph.of("g", [x], [values[-1], values[-2]])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(moving_graphs())
def test_dense_movements_keep_every_bit(graph: Graph):
    after = Sink()(graph)
    verify(after)
    x = np.random.default_rng(3).standard_normal(graph.inputs[0].type.dims).astype(np.float32)
    for a, b in zip(interpret(graph, [x]), interpret(after, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    for _ in range(6):
        again = Hoist()(Sink()(after))
        if again is after:
            break
        after = again
    else:
        pytest.fail("sink and hoist undo each other's work")
    verify(after)
    for a, b in zip(interpret(graph, [x]), interpret(after, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.llvm
def test_compiled_it_gives_the_same_by_fewer_kernels():
    x, rng = Input("x", f32[1, 9, 10, 8]), np.random.default_rng(0)
    w = Constant("w", rng.standard_normal((8, 8, 3, 3)).astype(np.float32))
    a = apply("relu", nhwc(apply("conv", nchw(x), w, pads=(1, 1, 1, 1))) + x)
    b = apply("hard_swish", nhwc(apply("conv", nchw(a), w, pads=(1, 1, 1, 1))) + a)
    g = Graph.of("g", [x], [apply("mean", b, axes=(1, 2))])
    plain = Pipeline.default().without(*({"sink"} & set(Pipeline.default().names)))
    arrays = [rng.standard_normal((1, 9, 10, 8)).astype(np.float32)]
    counts = []
    for pipeline in (plain, plain.insert_before("canonicalize", Sink())):
        exe = mc.compile(g, pipeline=pipeline)
        counts.append(len(exe.kernels))
        np.testing.assert_allclose(exe(*arrays)[0], interpret(g, arrays)[0], rtol=1e-4)
    assert counts[1] < counts[0]
