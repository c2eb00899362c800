"""mc.eager and mc.tensor: ops at once, on arrays; the same numbers as traced and interpreted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minidlc as mc
import minidlc.ops  # fills the registry
from minidlc.graph import evaluate, infer, registered_ops
from minidlc.graph.eager import Tensor
from minidlc.graph.types import TupleType
from minidlc.support.errors import CallError, TypeRuleError
from minidlc.tests.frontend.random_functions import Writer, function

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
W = np.random.default_rng(1).standard_normal((8, 3), np.float32)


def test_the_block_of_the_docstring():
    with mc.eager():
        y = mc.relu(mc.tensor(X) @ W)
    assert type(y) is Tensor
    assert (y.type, y.shape, len(y), y.dtype) == (mc.f32[4, 3], (4, 3), 4, mc.f32)
    np.testing.assert_allclose(y, np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)
    assert str(y) == str(y.array)
    assert repr(y).startswith("Tensor(f32[4, 3], [[")


def test_plain_arrays_run_inside_the_block_only():
    with mc.eager():
        assert type(mc.relu(X)) is Tensor
        assert type(mc.add(X, X)) is Tensor
    assert type(mc.relu(X)) is mc.graph.Node


def test_elements_are_known():
    t = mc.tensor([[1.0, 2.0], [3.0, 4.0]], "f32")
    assert [float(row.sum()) for row in t] == [3.0, 7.0]
    assert (int(t[1, 0]), float(t[0, 1]), bool(t.sum() > 9.0), t[0, 0].item()) == (3, 2.0, True, 1)
    assert list(range(mc.tensor(3))) == [0, 1, 2]
    assert 4.0 in t
    assert 5.0 not in t
    assert t[mc.tensor([1, 0])].array.tolist() == [[3, 4], [1, 2]]
    assert t[:, -1].array.tolist() == [2, 4]
    assert ((t == 2.0).array.tolist(), (t != 2.0).array.tolist()) == (
        [[False, True], [False, False]],
        [[True, False], [True, True]],
    )
    assert np.exp(t).dtype == np.float32
    assert np.concatenate([t, t], axis=1).shape == (2, 4)
    assert (X.T @ t.reshape(4, 1)).array.shape == (8, 1)
    a, b = mc.tensor([1, 2])
    assert int(a + b) == 3


def test_a_number_takes_the_element_type_of_the_tensor():
    assert (mc.tensor([1, 2], "i8") + 1).dtype == mc.i8
    with pytest.raises(TypeRuleError, match="f32") as e:
        mc.tensor([1, 2], "i8") + np.float32(1)
    assert e.value.loc.file == __file__


def test_nothing_changes_the_elements():
    array = np.ones(3, np.float32)
    t = mc.tensor(array)
    array[0] = 7
    assert t.array.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        t.array[0] = 2
    with pytest.raises(TypeRuleError, match="cannot be changed"):
        t[0] = 2.0
    t.numpy()[0] = 2
    assert t.array.tolist() == [1, 1, 1]


def test_overrides_of_reference_and_type_rule_are_asked():
    with mc.use(**{"reference.relu": lambda op, x: x * 0 + 5}):
        assert mc.relu(mc.tensor(X)).array.max() == 5


@pytest.mark.parametrize("name", [n for n in registered_ops() if n != "getitem"])
def test_every_op_runs_eagerly(name):
    cls = registered_ops()[name]
    for example in itertools.islice(cls.examples(), 3):
        given = [None if a is None else mc.tensor(a) for a in example.inputs]
        with mc.eager():  # for ops without inputs
            result = mc.graph.apply(name, *given, **example.op.attributes())
        want = evaluate(example.op, example.inputs)
        assert result.type == infer(example.op, [None if t is None else t.type for t in given])
        parts = list(result) if isinstance(result.type, TupleType) else [result]
        wanted = want if isinstance(want, tuple) else (want,)
        for got, array in zip(parts, wanted, strict=True):
            np.testing.assert_array_equal(got.array, array)


@pytest.mark.parametrize("seed", range(200, 230))
def test_one_function_four_ways(seed):
    source = Writer(seed, jumps=False).source()
    fn = function(source)
    a, b = np.random.default_rng(seed).integers(-4, 5, (2, 3)).astype("f8")
    want = fn(a, b, 3)
    with mc.eager():
        eager = fn(mc.tensor(a), mc.tensor(b), 3)
    traced = mc.interpret(mc.trace(fn, mc.f64[3], mc.f64[3], 3), [a, b])
    scripted = mc.interpret(mc.script(fn, mc.f64[3], mc.f64[3], 3), [a, b])
    for w, *others in zip(want, eager, traced, scripted, strict=True):
        for other in others:
            np.testing.assert_allclose(np.asarray(other), w, rtol=1e-9, err_msg=source)


def test_beside_values_of_a_graph_a_tensor_is_a_constant():
    t = mc.tensor(W)
    with mc.eager():
        g = mc.trace(lambda x: (mc.relu(x @ t), t, mc.exp(np.ones(2, "f4"))), mc.f32[4, 8])
    assert [n.op.name for n in g.nodes] == ["exp", "matmul", "relu"] or len(g.nodes) == 3
    assert any(np.array_equal(c.array, W) for c in g.constants)
    np.testing.assert_array_equal(mc.interpret(g, [X])[1], W)
    assert mc.trace(lambda x: mc.tensor(x, "f64"), mc.f32[2]).outputs[0].type == mc.f64[2]


@pytest.mark.llvm
def test_compiling_inside_the_block():
    g = mc.trace(lambda x: mc.softmax(x, axis=1) + 1.0 * np.ones(8, "f4"), mc.f32[4, 8])
    with mc.eager():
        exe = mc.compile(g, threads=1)
    np.testing.assert_allclose(exe(X)[0], mc.interpret(g, [X])[0], rtol=1e-5)


T = mc.tensor(X)


@pytest.mark.parametrize(
    ("call", "text", "code"),
    [
        (lambda: bool(T), "32 elements, one is needed", "MDLC0220"),
        (lambda: int(T), "32 elements", "MDLC0220"),
        (lambda: float(T[:0]), "0 elements", "MDLC0220"),
        (lambda: len(T.sum()), "rank 0", "MDLC0212"),
        (lambda: list(T.sum()), "no rows to iterate over", "MDLC0220"),
        (lambda: range(T[0, 0]), "no index", "MDLC0220"),
        (lambda: T[9], "out of bounds", "MDLC0220"),
        (lambda: T["a"], "indexed", "MDLC0220"),
        (lambda: T @ T, "inner dimensions differ", "MDLC0203"),
        (lambda: mc.softmax(T, axis=5), "5", "MDLC0209"),
        (lambda: mc.softmax(T, axes=1), "axes", "MDLC0208"),
        (lambda: mc.tensor("text"), "<U4", "MDLC0221"),
        (lambda: mc.tensor([[1], [1, 2]]), "inhomogeneous", "MDLC0221"),
        (lambda: mc.tensor(300, "u8"), "out of bounds", "MDLC0221"),
        (lambda: mc.tensor(object()), "no element type", "MDLC0221"),
    ],
)
def test_an_error_has_its_line(call, text, code):
    with pytest.raises(TypeRuleError, match=text) as e:
        call()
    assert e.value.code == code
    assert e.value.loc.file == __file__
    assert e.value.loc.line == call.__code__.co_firstlineno


def test_a_reference_that_fails():
    def fails(op, x):
        raise ValueError("no")

    with mc.use(**{"reference.relu": fails}), pytest.raises(Exception, match="no") as e:
        mc.relu(T)
    assert isinstance(e.value, (CallError, mc.CompileError))


def test_a_number_is_formatted_rounded_and_divided():
    with mc.eager():
        x = mc.tensor(np.float32(2.25))
        assert f"{x:.1f}" == "2.2"
        assert (round(x), round(x, 1)) == (2, 2.2)
        n = mc.tensor(np.int64(7))
        assert [int(part) for part in divmod(n, 2)] == [3, 1]
        with pytest.raises(TypeRuleError, match="one is needed"):
            f"{mc.tensor(np.ones(3, np.float32)):.1f}"
