"""The interpreter: values, checks of inputs, checks of references, memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32
from minidlc.graph import Constant, Graph, Input, apply, interpret, op_class, parse
from minidlc.support import extension
from minidlc.support.errors import CallError, VerifyError

pytestmark = pytest.mark.ch01

G = parse("""\
def f(x: f32[2, 3], w: f32[3]):
    y: f32[2, 3] = mul(x, w)
    z: f32[2, 3] = relu(y)
    return z, x
""")
X = np.float32([[1, -2, 3], [-4, 5, -6]])
W = np.float32([2, 2, 3])


def test_values_in_order_or_by_name() -> None:
    for inputs in ([X, W], (X, W), {"w": W, "x": X}):
        z, x = interpret(G, inputs)
        assert z.tolist() == [[2, 0, 9], [0, 10, 0]]
        assert x.tolist() == X.tolist()


def test_outputs_are_fresh_arrays() -> None:
    c = Constant("c", np.ones(3, np.float32))
    x = Input("x", f32[3])
    g = Graph.of("f", [x], [x, x, c, apply("reshape", x, shape=(1, 3))])
    array = np.zeros(3, np.float32)
    outputs = interpret(g, [array])
    for output in outputs:
        output[...] = 9
    assert array.sum() == 0
    assert c.array.sum() == 3
    assert len({o.ctypes.data for o in outputs}) == 4


@pytest.mark.parametrize(
    ("inputs", "code", "part"),
    [
        ([X], "0911", "takes 2 inputs, got 1"),
        ([X, W, W], "0911", "takes 2 inputs, got 3"),
        ({"x": X}, "0911", "input 'w' is missing"),
        ({"x": X, "w": W, "v": W}, "0911", "no input 'v'"),
        ({"x": X, "W": W}, "0911", "known: w, x"),
        ([X.astype(np.float64), W], "0912", "must be f32[2, 3], got elements of float64"),
        ([[[1.0, 2.0, 3.0]] * 2, W], "0912", "x.astype('float32')"),
        ([X.astype(">f4"), W], "0912", "must be f32[2, 3]"),
        ([X.T, W], "0913", "must be f32[2, 3], got shape (3, 2)"),
        ([X[0], W], "0913", "got shape (3,)"),
        ([np.array(["a"]), W], "0912", "got elements of <U1"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, code: str, part: str) -> None:
    with pytest.raises(CallError) as caught:
        interpret(G, inputs)
    assert caught.value.code == f"MDLC{code}"
    assert part in str(caught.value)


def test_symbolic_sizes_agree() -> None:
    g = parse("""\
def f(x: f32["N", 2], y: f32["N"], z: f32["2*N + 1"]):
    r: f32["N", 2] = relu(x)
    return r
""")
    ok = [np.zeros(s, np.float32) for s in ((3, 2), (3,), (7,))]
    assert interpret(g, ok)[0].shape == (3, 2)
    with pytest.raises(CallError, match=r"input 'y' must be .* got shape .4,.: N is 3"):
        interpret(g, [ok[0], np.zeros(4, np.float32), ok[2]])
    with pytest.raises(CallError, match=r"2\*N \+ 1 is 7"):
        interpret(g, [ok[0], ok[1], np.zeros(8, np.float32)])


def test_a_reference_of_another_type_is_found() -> None:
    for wrong in (lambda op, x: x.astype(np.float64), lambda op, x: x[:1], lambda op, x: (x, x)):
        with (
            extension.use(**{"reference.relu": wrong}),
            pytest.raises(VerifyError, match="reference of 'z' returned") as caught,
        ):
            interpret(G, [X, W])
        assert caught.value.code == "MDLC0415"


def test_a_reference_that_raises_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(op: object, x: object) -> object:
        raise IndexError("index 7 is out of bounds")

    monkeypatch.setattr(op_class("relu"), "reference", fails)
    message = r"relu: the reference of 'z' failed: index 7"
    with pytest.raises(CallError, match=message) as caught:
        interpret(G, [X, W])
    assert caught.value.code == "MDLC0914"
    assert "<text>:3:" in str(caught.value)


def test_values_are_freed_after_their_last_use() -> None:
    refs: list[Any] = []
    alive: list[int] = []

    def watched(op: object, x: Any) -> Any:
        alive.append(sum(r() is not None for r in refs))
        y = x + 1
        refs.append(weakref.ref(y))
        return y

    x = Input("x", f32[3])
    y = x
    for _ in range(10):
        y = apply("relu", y)
    with extension.use(**{"reference.relu": watched}):
        interpret(Graph.of("f", [x], [y]), [np.zeros(3, np.float32)])
    assert max(alive) <= 2


def test_dead_nodes_and_deep_graphs() -> None:
    x = Input("x", f32[3])
    y = x
    for _ in range(3000):
        y = apply("neg", y)
    dead = apply("exp", x)
    g = Graph("f", (x,), (dead, *Graph.of("f", [x], [y]).nodes), (y,))
    assert interpret(g, [np.float32([1, 2, 3])])[0].tolist() == [1, 2, 3]


def test_interpret_is_an_extension_point() -> None:
    mine = [np.ones(t.dims, np.float32) for t in G.output_types()]
    with extension.use(interpret=lambda g, inputs: mine):
        assert interpret(G, [X, W]) is mine
    for wrong in (["mine", "too"], mine[:1], [m.astype(np.float64) for m in mine]):
        with (
            extension.use(interpret=lambda g, inputs, wrong=wrong: wrong),
            pytest.raises(VerifyError, match="the override of 'interpret' returned"),
        ):
            interpret(G, [X, W])
