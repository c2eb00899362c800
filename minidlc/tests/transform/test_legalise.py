"""Ops that a back end lacks, in those that it has: each form where it acts, and where not."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc.expr.types import f32, i32, u8
from minidlc.graph import Constant, Graph, Input, apply, interpret, verify
from minidlc.support.errors import PassError
from minidlc.transform.dataflow.dce import Dce
from minidlc.transform.log import Refusal, collecting
from minidlc.transform.partition.backend import (
    BackEnd,
    Form,
    Takes,
    register_backend,
    unregister_backend,
)
from minidlc.transform.partition.legalise import (
    Legalise,
    clip_as_bounds,
    conv1x1_as_matmul,
    illegal,
    integers,
    opened,
    sub_as_add,
)

pytestmark = pytest.mark.ch02
FORMS = (opened("gemm"), sub_as_add, clip_as_bounds, conv1x1_as_matmul, *integers)
RNG = np.random.default_rng(3)


def back_end(*ops, forms=FORMS):
    return register_backend(BackEnd("toy", tuple(Takes(op) for op in ops), forms))


@pytest.fixture(autouse=True)
def forget():
    yield
    unregister_backend("toy")


def legal(graph, **options):
    """The graph after the pass without dead nodes, and what was refused."""
    with collecting() as events:
        result = Legalise(backend="toy", **options)(graph)
    verify(result)
    return Dce()(result), [str(e) for e in events if isinstance(e, Refusal)]


def names(graph):
    return [n.op.name for n in graph.nodes]


def graph_of(value, *inputs):
    return Graph.of("g", inputs, [value])


def same(before, after, *arrays, atol=0.0):
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def numbers(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def test_gemm_is_opened_and_keeps_its_name():
    back_end("matmul", "add", "transpose")
    x = Input("x", f32[2, 3])
    g = graph_of(apply("gemm", x, numbers(4, 3), numbers(4), transB=True), x)
    result, refused = legal(g)
    assert names(result) == ["transpose", "matmul", "add"]
    assert result.outputs[0].name == g.outputs[0].name
    assert not refused
    same(g, result, numbers(2, 3))


@pytest.mark.parametrize("constant", [True, False])
def test_a_difference_is_a_sum(constant):
    back_end("add", "neg")
    x, y = Input("x", f32[2, 3]), Input("y", f32[3])
    inputs = (x,) if constant else (x, y)
    g = graph_of(apply("sub", x, Constant("c", numbers(3)) if constant else y), *inputs)
    result, _ = legal(g)
    assert names(result) == (["add"] if constant else ["neg", "add"])
    same(g, result, *(numbers(*i.type.dims) for i in inputs))


def test_an_unsigned_difference_stays():
    back_end("add", "neg")
    x = Input("x", u8[3])
    g = graph_of(apply("sub", x, x), x)
    result, refused = legal(g)
    assert result is g
    why = "toy has no sub; sub as add: an unsigned number has no negative"
    assert refused == [f"legalise at sub: {why}"]


@pytest.mark.parametrize("bounds", [{"min": 0.0, "max": 6.0}, {"min": 0.0}, {"max": 6.0}])
def test_a_clip_is_two_bounds(bounds):
    back_end("maximum", "minimum")
    x = Input("x", f32[7])
    g = graph_of(apply("clip", x, **bounds), x)
    result, _ = legal(g)
    assert names(result) == [n for b, n in (("min", "maximum"), ("max", "minimum")) if b in bounds]
    same(g, result, np.array([-1, 0, 3, 6, 9, np.nan, np.inf], np.float32))


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_of_one_pixel_is_a_product(bias):
    back_end("matmul", "add", "reshape")
    x = Input("x", f32[2, 3, 4, 5])
    more = (numbers(6),) if bias else ()
    g = graph_of(apply("conv", x, numbers(6, 3, 1, 1), *more), x)
    result, _ = legal(g)
    assert "conv" not in names(result)
    same(g, result, numbers(2, 3, 4, 5), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((6, 3, 3, 3), {}),
        ((6, 3, 1, 1), {"strides": (2, 2)}),
        ((6, 3, 1, 1), {"pads": (1, 1, 1, 1)}),
        ((6, 1, 1, 1), {"group": 3}),
    ],
)
def test_other_convolutions_are_none(shape, attributes):
    back_end("matmul", "add", "reshape", forms=(conv1x1_as_matmul,))
    x = Input("x", f32[2, 3, 4, 5])
    result, refused = legal(graph_of(apply("conv", x, numbers(*shape), **attributes), x))
    assert names(result) == ["conv"]
    assert refused[0].endswith("conv of one pixel as matmul: its window is not one pixel")


def dequantized(stored, scale, zero=None, axis=1):
    given = (np.asarray(scale, np.float32), *(() if zero is None else (zero,)))
    return apply("dequantize_linear", stored, *given, axis=axis)


BYTES = ("add", "mul", "cast", "reshape", "conv_integer", "matmul_integer", "dequantize_linear")


def product(kind, zero=7, weight_zero=0, bias="float", scales="channel", element=np.int8):
    """A convolution or a matmul of dequantized values on a u8 input, and arrays for it."""
    x = Input("x", u8[1, 3, 6, 5] if kind == "conv" else u8[2, 5, 4])
    shape, channel = ((8, 3, 3, 2), 0) if kind == "conv" else ((4, 8), 1)
    w = Constant("w", RNG.integers(0, 100, shape).astype(element))
    scale = RNG.uniform(0.01, 0.02, 8) if scales == "channel" else 0.015
    zeros = np.full(np.shape(scale), weight_zero, element)
    left = dequantized(x, 0.05, np.uint8(zero))
    right = dequantized(w, scale, zeros, axis=channel)
    inputs = [left, right]
    if bias == "float":
        inputs.append(Constant("b", numbers(8)))
    elif bias == "integer":
        counts = Constant("b", RNG.integers(-999, 999, 8).astype(np.int32))
        inputs.append(
            dequantized(counts, np.float32(0.05) * np.float32(scale) * np.ones(8), axis=0)
        )
    if kind == "conv":
        y = apply("conv", *inputs, pads=(1, 1, 1, 0), strides=(2, 1))
    else:
        y = apply("matmul", *inputs[:2])
    return graph_of(y, x), RNG.integers(0, 255, x.type.dims).astype(np.uint8)


@pytest.mark.parametrize("kind", ["conv", "matmul"])
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("weight_zero", [0, 3])
@pytest.mark.parametrize("bias", [None, "float", "integer"])
@pytest.mark.parametrize("scales", ["channel", "one"])
def test_products_of_dequantized_values_are_products_of_integers(
    kind, zero, weight_zero, bias, scales
):
    back_end(*BYTES)
    g, x = product(kind, zero, weight_zero, bias, scales)
    result, refused = legal(g)
    assert kind not in names(result)
    assert f"{kind}_integer" in names(result)
    assert not refused
    if kind == "conv" and bias == "integer":  # added to the sums, before they are floats
        assert names(result)[:3] == ["conv_integer", "add", "cast"]
    same(g, result, x, atol=2e-3)  # sums up to 700, in f32 and exact


def test_scales_go_with_a_transposition_and_through_views():
    back_end(*BYTES, "flatten")
    x = Input("x", u8[2, 1, 4])
    w = Constant("w", RNG.integers(-9, 9, (8, 4)).astype(np.int8))
    right = dequantized(w, RNG.uniform(0.1, 0.2, 8), axis=0)
    left = apply("flatten", dequantized(x, 0.05, np.uint8(9)))
    g = graph_of(apply("gemm", left, right, numbers(8), transB=True), x)
    result, _ = legal(g)
    assert names(result) == ["flatten", "matmul_integer", "cast", "mul", "add"]
    same(g, result, RNG.integers(0, 255, (2, 1, 4)).astype(np.uint8), atol=1e-3)


def refusal(value, *inputs):
    back_end(*BYTES)
    result, refused = legal(graph_of(value, *inputs))
    assert value.op.name in names(result)
    return refused[-1]


def test_what_has_no_integers_behind_it_stays():
    x, q = Input("x", f32[2, 4]), Input("q", u8[2, 4])
    w = dequantized(Constant("w", np.ones((4, 3), np.int8)), 0.1)
    half = dequantized(q, [0.1, 0.2], axis=0)
    assert "its first input is not dequantized by constants" in refusal(x @ w, x)
    assert "its second input is not dequantized" in refusal(dequantized(q, 0.1) @ numbers(4, 3), q)
    assert "its first input has a scale for each index of an axis" in refusal(half @ w, q)
    rows = dequantized(Constant("w", np.ones((4, 3), np.int8)), [0.1] * 4, axis=0)
    assert "the scales of its second input belong to axis 0" in refusal(
        dequantized(q, 0.1) @ rows, q
    )
    wide = dequantized(Input("q", i32[2, 4]), 0.1)
    assert "its integers are i32, not i8 or u8" in refusal(wide @ w, wide.inputs[0])
    s = Input("s", f32[()])
    unknown = apply("dequantize_linear", q, s)
    assert "not dequantized by constants" in refusal(unknown @ w, q, s)


def test_every_illegal_node_is_named_once():
    backend = back_end("relu")
    x = Input("x", f32[4])
    g = graph_of(apply("exp", apply("softmax", apply("relu", x), axis=0)), x)
    assert [(n.name, why) for n, why in illegal(g, backend)] == [
        ("softmax", "toy has no softmax"),
        ("exp", "toy has no exp"),
    ]
    assert legal(g)[1] == [
        "legalise at softmax: toy has no softmax",
        "legalise at exp: toy has no exp",
    ]


def test_limit_and_no_name():
    back_end("add", "neg")
    x = Input("x", f32[4])
    g = graph_of(apply("sub", apply("sub", x, 1.0), 2.0), x)
    result, _ = legal(g, limit=1)
    assert names(result) == ["add", "sub"]
    assert Legalise()(g) is g


def test_a_form_of_another_type_is_refused():
    back_end(forms=(Form("bad", "exp", lambda node: node.inputs[0] < 0.0),))
    x = Input("x", f32[4])
    with pytest.raises(PassError, match=r"form 'bad' gives bool\[4\] for exp: f32\[4\]") as caught:
        legal(graph_of(apply("exp", x), x))
    assert caught.value.code == "MDLC0561"


def test_forms_in_a_circle_are_refused():
    forms = (
        Form("there", "exp", lambda node: apply("tanh", node.inputs[0])),
        Form("back", "tanh", lambda node: apply("exp", node.inputs[0])),
    )
    back_end(forms=forms)
    x = Input("x", f32[4])
    with pytest.raises(PassError, match="forms of toy still apply after 20 rounds") as caught:
        legal(graph_of(apply("exp", x), x))
    assert caught.value.code == "MDLC0560"
    assert "a form leads back to itself" in str(caught.value)
