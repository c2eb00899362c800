"""The `fused` op: type, meaning, loops."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32, f64
from minidlc.graph import (
    Constant,
    Fused,
    Graph,
    Input,
    TupleType,
    apply,
    build,
    evaluate,
    getitem,
    infer,
    interpret,
    parse,
)
from minidlc.support.errors import LoweringError, TypeRuleError
from minidlc.te.tensor import placeholder

pytestmark = pytest.mark.ch02

X, W = Input("x", f32[2, 3]), Input("w", f32[3, 4])
BODY = Graph.of("b", [X, W], [apply("relu", apply("add", apply("matmul", X, W), 1.0))])


def test_type_comes_from_the_body() -> None:
    assert infer(Fused(BODY), BODY.input_types()) == f32[2, 4]
    with pytest.raises(TypeRuleError, match=r"takes \(f32\[2, 3\], f32\[3, 4\]\), got \(f64") as e:
        infer(Fused(BODY), (f64[2, 3], f64[3, 4]))
    assert e.value.code == "MDLC0211"
    for inputs in ((f32[2, 3],), (), (*BODY.input_types(), f32[1])):
        with pytest.raises(TypeRuleError):
            infer(Fused(BODY), inputs)
    with pytest.raises(TypeRuleError, match="at least one"):
        infer(Fused(Graph("b", (), (), ())), ())


def test_several_outputs_are_a_tuple() -> None:
    both = Graph.of("b", [X], [apply("relu", X), apply("neg", X)])
    node = build(Fused(both), [X])
    assert node.type == TupleType((f32[2, 3], f32[2, 3]))
    g = Graph.of("f", [X], [getitem(node, 1)])
    array = np.float32([[1, 2, 3], [4, 5, 6]])
    assert interpret(g, [array])[0].tolist() == (-array).tolist()


def test_meaning_is_that_of_the_body() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3), np.float32), rng.standard_normal((3, 4), np.float32)
    got = evaluate(Fused(BODY), [x, w])
    assert isinstance(got, np.ndarray)
    assert np.allclose(got, np.maximum(x @ w + 1, 0))


def test_ops_compare_by_the_structure_of_their_bodies() -> None:
    again = parse(str(BODY))
    assert Fused(again, "matmul") == Fused(BODY, "matmul")
    assert hash(Fused(again)) == hash(Fused(BODY))
    assert Fused(again, "matmul") != Fused(BODY)


def test_loops_are_stages_of_the_body() -> None:
    out = Fused(BODY).compute(placeholder(X.type, "x"), placeholder(W.type, "w"))
    assert out.shape == (2, 4)
    assert Fused(BODY).anchor_node.op.name == "matmul"
    names = [out.name]
    while out.inputs:
        out = out.inputs[0]
        names.append(out.name)
    assert names == ["relu", "add", "matmul", "x"]


def test_several_outputs_are_not_one_expression() -> None:
    both = Graph.of("b", [X], [apply("relu", X), apply("neg", X)])
    with pytest.raises(LoweringError, match="2 outputs"):
        Fused(both).compute(placeholder(X.type))
    assert len(Fused(both).outputs(placeholder(X.type))) == 2


def test_only_numbers_stand_inside() -> None:
    c = Constant("c", np.ones(3, np.float32))
    with pytest.raises(LoweringError, match="has 3 elements") as caught:
        Fused(Graph.of("b", [X], [apply("add", X, c)])).compute(placeholder(X.type))
    assert caught.value.code == "MDLC0721"


def test_examples_run() -> None:
    for example in Fused.examples():
        arrays = [a for a in example.inputs if a is not None]
        result = evaluate(example.op, arrays)
        assert len(result) > 0
