"""Printing and parsing: the same text, the same graph."""

from __future__ import annotations

import gc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.expr.index import Index, Var
from minidlc.expr.types import f32, i64
from minidlc.graph import (
    Constant,
    Fused,
    Graph,
    Input,
    TupleType,
    apply,
    build,
    getitem,
    load_text,
    parse,
    print_graph,
    save_text,
    weights_of,
)
from minidlc.support import extension
from minidlc.support.errors import ParseError
from minidlc.tests.graph.graphs import constants, graphs

pytestmark = pytest.mark.ch01

MLP = """\
def mlp(x: f32[4, 8], w: f32[8, 3]):
    h: f32[4, 3] = matmul(x, w)
    p: f32[4, 3] = softmax(h, axis=1)
    return p"""


def test_the_text_of_the_design_is_printed_as_it_is_read() -> None:
    assert str(parse(MLP)) == MLP


@pytest.mark.long
@given(graphs())
def test_random_graphs_round_trip(g: Graph) -> None:
    text = str(g)
    again = parse(text, weights_of(g))
    assert str(again) == text
    assert again == g
    assert hash(again) == hash(g)


@given(constants())
def test_constants_round_trip_to_the_bit(c: Constant) -> None:
    g = Graph("g", (), (), (c,))
    [again] = parse(str(g)).outputs
    assert isinstance(again, Constant)
    assert again.type == c.type
    assert again.array.tobytes() == c.array.tobytes()


def test_constants_are_printed_short() -> None:
    values = np.float32([0.1, -0.0, np.nan, np.inf, -np.inf, 1e-45, 16777217, 1e30])
    g = Graph("g", (), (), (Constant("c", values),))
    assert "const([0.1, -0.0, nan, inf, -inf, 1e-45, 16777216.0, 1e+30])" in str(g)
    odd = np.frombuffer(b"\x01\x00\xc0\xff", np.float32)
    assert "const([nan(0xffc00001)])" in str(Graph("g", (), (), (Constant("c", odd),)))


def test_several_results_are_unpacked_on_one_line() -> None:
    g = parse(two_results())
    assert str(g) == two_results()
    assert parse(str(g)) == g
    assert [n.op.name for n in g.nodes] == ["fused", "getitem", "getitem"]
    assert g.nodes[0].type == TupleType((f32[3], f32[3]))


def two_results() -> str:
    return """\
def f(x: f32[3]):
    def body(x: f32[3]):
        a: f32[3] = relu(x)
        b: f32[3] = exp(x)
        return a, b
    a: f32[3]; b: f32[3]; a, b = fused(x, body=body)
    return b, a"""


def test_results_that_are_not_all_taken_in_order_have_lines_of_their_own() -> None:
    x = Input("x", f32[3])
    body = Graph.of("body", [x], [apply("relu", x), apply("exp", x)])
    t = build(Fused(body), [x], name="t")
    g = Graph.of("f", [x], [getitem(t, 1)])
    assert "    t: (f32[3], f32[3]) = fused(x, body=body)\n" in str(g)
    assert "    getitem_1: f32[3] = getitem(t, index=1)\n" in str(g)
    assert parse(str(g)) == g


def test_nested_functions_have_names_of_their_own() -> None:
    text = """\
def f(x: f32[3]):
    def g(x: f32[3]):
        def h(x: f32[3]):
            y: f32[3] = relu(x)
            return y
        y: f32[3] = fused(x, body=h)
        return y
    y: f32[3] = fused(x, body=g, anchor="matmul")
    return y"""
    assert str(parse(text)) == text
    assert parse(text) == parse(
        text.replace("(x:", "(z:").replace("(x)", "(z)").replace("(x,", "(z,")
    )


def test_one_body_used_twice_is_printed_once() -> None:
    x = Input("x", f32[3])
    body = Graph.of("body", [x], [apply("relu", x)])
    g = Graph.of("f", [x], [build(Fused(body), [build(Fused(body), [x])])])
    assert str(g).count("def body") == 1
    again = parse(str(g))
    assert again == g
    assert again.nodes[0].op.body is again.nodes[1].op.body  # pyright: ignore


def test_names_become_unique_identifiers() -> None:
    x, y = Input("/layer 1/x", f32[3]), Input("class", f32[3])
    a = apply("relu", x)
    g = Graph.of("main graph", [x, y], [a + apply("relu", y), Constant("f32", np.float32(1))])
    assert str(g).splitlines() == [
        "def main_graph(layer_1_x: f32[3], class_: f32[3]):",
        "    relu_1: f32[3] = relu(layer_1_x)",
        "    relu_2: f32[3] = relu(class_)",
        "    add_1: f32[3] = add(relu_1, relu_2)",
        "    f32_1: f32[()] = const(1.0)",
        "    return add_1, f32_1",
    ]
    assert str(parse(str(g))) == str(g)


def test_symbolic_dims() -> None:
    n = Index.of(Var("N"))
    x = Input("x", f32[2 * n + 1, n // 2, 4])
    g = Graph.of("f", [x], [apply("relu", x)])
    assert 'x: f32["2*N + 1", "N//2", 4]' in str(g)
    assert parse(str(g)) == g
    assert parse(str(g)).inputs[0].type == x.type
    assert parse('def f(x: f32["2 + 2"]):\n    return x').inputs[0].type == f32[4]
    assert parse('def f(x: f32["min(N, 8)"]):\n    return x').inputs[0].type.shape[0] != 8


def test_a_type_may_be_left_away() -> None:
    assert parse("def f(x: f32[3]):\n    y = relu(x)\n    return y").nodes[0].type == f32[3]


def test_no_outputs_no_inputs_long_lines_and_omitted_inputs() -> None:
    assert str(parse("def f():\n    return ()")) == "def f():\n    return ()"
    text = "def f(a: f32[2, 2], b: f32[2, 2]):\n    y: f32[2, 2] = gemm(a, b, None)\n    return y"
    assert str(parse(text)) == text
    inputs = [Input(f"input_{i}", i64[1, 2, 3, 4]) for i in range(9)]
    g = Graph.of("f", inputs, inputs)
    assert str(g).splitlines()[1] == "    input_0: i64[1, 2, 3, 4],"
    assert str(parse(str(g))) == str(g)


@pytest.mark.parametrize("element", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_files_hold_text_and_weights(tmp_path: Path, element: type) -> None:
    x = Input("x", f32[5, 8])
    large = Constant("file", np.arange(40).reshape(5, 8).astype(element))  # savez' own keyword
    g = Graph.of("f", [x], [apply("cast", large, to="f32") + x])
    save_text(g, tmp_path / "f.dlc")
    assert 'const("file_1", sha256=' in (tmp_path / "f.dlc").read_text()
    assert load_text(tmp_path / "f.dlc") == g


def test_large_constants_of_bodies_have_names_of_their_own() -> None:
    def relu_of(constant: Constant) -> Graph:
        return Graph.of("body", [], [apply("relu", constant)])

    a, b = (Constant("w", np.full(20, v, np.float32)) for v in (1, 2))
    g = Graph.of("f", [], [build(Fused(relu_of(a)), []), build(Fused(relu_of(b)), [])])
    assert sorted(weights_of(g)) == ["w", "w_1"]
    assert parse(str(g), weights_of(g)) == g


def test_large_constants_are_found_by_checksum_while_the_graph_lives() -> None:
    g = Graph.of("f", [], [apply("relu", Constant("w", np.arange(97, dtype=np.float32)))])
    text = str(g)
    again = parse(text)
    assert again == g
    assert str(again) == text
    del g, again
    gc.collect()
    with pytest.raises(ParseError, match="no weights named 'w'"):
        parse(text)


@pytest.mark.long
def test_a_long_chain_is_no_problem() -> None:
    x = Input("x", f32[3])
    y = x
    for _ in range(5000):
        y = apply("relu", y)
    g = Graph.of("f", [x], [y])
    assert parse(str(g)) == g


def test_print_and_parse_are_extension_points() -> None:
    g = parse(MLP)
    with extension.use(print=lambda g: f"# {g.name}"):
        assert str(g) == "# mlp"
    with (
        extension.counting() as calls,
        extension.use(parse=lambda text, weights, file: parse(text + "\n", weights, file=file)),
    ):
        assert parse(MLP) == g
    assert calls == {"parse": 1}
    assert print_graph(g) == MLP
