"""Tensor expressions as a line of text: ranges follow from the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32, i8, i64
from minidlc.loop.interpret import interpret
from minidlc.support.errors import LoweringError, OptionError, ParseError
from minidlc.te import Tensor
from minidlc.tests.te.programs import numbers

pytestmark = pytest.mark.ch04


def given(name: str, *shape: int) -> Tensor:
    return te.placeholder(f32[shape], name)


def value(tensor: Tensor, **arrays: Any) -> Any:
    fn = te.create_schedule(tensor).lower()
    out = np.full(tensor.shape, 77, tensor.dtype.numpy)
    interpret(fn, {**arrays, tensor.name: out})
    return out


A, B, X = numbers((4, 5), 1), numbers((5, 3), 2), numbers((9,), 3)
IMAGE, FILTER = numbers((2, 7, 8), 4), numbers((3, 2, 3, 2), 5)
WINDOWS = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 2), (1, 2))
POOLED = np.maximum(X[0:7:2], X[1:8:2])
PRODUCT = "C[i,j] += A[i,k] * B[k,j]"

PROGRAMS: list[tuple[str, dict[str, Any], dict[str, int], Any]] = [
    ("C[i,j] += A[i,k] * B[k,j]", {"A": A, "B": B}, {}, A @ B),
    ("C[i, j] = A[j, i]", {"A": A}, {}, A.T),
    ("s += A[i, j]", {"A": A}, {}, A.sum()),
    ("d[i] = Q[i, i] * 2.0", {"Q": numbers((4, 4), 7)}, {}, numbers((4, 4), 7).diagonal() * 2),
    ("p[i] *= A[i, j]", {"A": A}, {}, A.prod(1)),
    ("m[j] max= A[i, j]", {"A": A}, {}, A.max(0)),
    ("m[i] min=A[i, j] - 1.0", {"A": A}, {}, A.min(1) - 1),
    ("y[n] += x[n + t] * w[t]", {"x": X, "w": X[:4]}, {}, np.correlate(X, X[:4], "valid")),
    ("y[n] = x[2*n + 1]", {"x": X}, {}, X[1::2]),
    ("y[n] = x[8 - n]", {"x": X}, {}, X[::-1]),
    ("y[n] max= x[2*n + u]", {"x": X}, {"u": 3}, np.maximum(POOLED, X[2::2])),
    ("y[n] = x[n] + x[n + 1]", {"x": X}, {"n": 8}, X[:-1] + X[1:]),
    ("y[i, j] = x[j]", {"x": X}, {"i": 2}, np.stack([X, X])),
    ("y[i] = max(x[i], 0.0) + exp(0.0 * x[i])", {"x": X}, {}, np.maximum(X, 0) + 1),
    ("y[i] = x[i]", {"x": X}, {}, X),
    ("y[i] += x[i]", {"x": X}, {}, X),
    (
        "y[o, h, v] += x[c, h + r, v + s] * w[o, c, r, s]",
        {"x": IMAGE, "w": FILTER},
        {},
        np.einsum("chvrs,ocrs->ohv", WINDOWS, FILTER),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "arrays", "extents", "wanted"), PROGRAMS, ids=lambda x: str(x)[:30]
)
def test_it_means_what_numpy_says(
    text: str, arrays: dict[str, Any], extents: dict[str, int], wanted: Any
) -> None:
    tensors = {n: given(n, *a.shape) for n, a in arrays.items()}
    np.testing.assert_array_equal(value(te.einstein(text, extents, **tensors), **arrays), wanted)


def test_it_is_the_tensor_that_compute_makes() -> None:
    a, b = given("A", 4, 5), given("B", 5, 3)
    k = te.reduce_axis(5, "k")
    C = te.compute((4, 3), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    assert str(te.einstein("C[i,j] += A[i,k] * B[k,j]", A=a, B=b)) == str(C)


def test_a_tensor_may_have_another_name_in_the_text() -> None:
    x = given("input_1", 4)
    y = te.einstein("y[i] = x[i] * x[3 - i]", x=x)
    assert "input_1[i] * input_1[3 - i]" in str(y)
    assert y.inputs == (x,)


def test_element_types_are_those_of_the_expression() -> None:
    q = te.placeholder(i8[4, 5], "q")
    y = te.einstein('y[i] += cast("i32", q[i, k]) * 3', q=q)
    assert str(y.type) == "i32[4]"


def test_results_of_computed_tensors_and_lookups() -> None:
    table, ids = given("table", 5, 2), te.placeholder(i64[3], "ids")
    y = te.einstein("y[i, j] = table[at(ids[i], 5), j]", table=table, ids=ids)
    z = te.einstein("z[j] += y[i, j]", y=y)
    rows = np.array([4, 0, 4])
    t = numbers((5, 2), 1)
    np.testing.assert_array_equal(value(z, table=t, ids=rows), t[rows].sum(0))


def make(text: str, extents: Any = None, **shapes: tuple[int, ...]) -> Any:
    return lambda: te.einstein(text, extents, **{n: given(n, *s) for n, s in shapes.items()})


@pytest.mark.parametrize(
    ("code", "message", "wrong"),
    [
        ("MDLC0727", "'k' runs to 5 and to 6", make(PRODUCT, A=(4, 5), B=(6, 3))),
        ("MDLC0727", "reaches 1 to 9", make("y[i] = x[i] + x[i + 1]", x=(9,))),
        ("MDLC0727", "reaches 0 to 10", make("y[i] = x[i + j]", {"i": 8, "j": 4}, x=(9,))),
        ("MDLC0727", "no i fits", make("y[i] += x[i + k] * w[k]", x=(3,), w=(5,))),
        ("MDLC0727", "runs to 8 and to 7", make("y[i] = x[i + 1] + x[i + 2]", x=(9,))),
        ("MDLC0727", "reaches -1 to 7", make("y[i] = x[i - 1]", {"i": 9}, x=(9,))),
        ("MDLC0728", "how far 'i' runs", make("y[i] += x[i + k]", x=(9,))),
        ("MDLC0728", "how far 'j' runs", make("y[i, j] = x[i]", x=(9,))),
        ("MDLC0728", "how far 'i' runs", make("y[i] = x[i // 2]", x=(9,))),
        ("MDLC0301", "not valid syntax", make("y[i] =+= x[i]", x=(9,))),
        ("MDLC0350", "no tensor expression", make("y[i] |= x[i]", x=(9,))),
        ("MDLC0350", "no tensor expression", make("y[i] -= x[i]", x=(9,))),
        ("MDLC0350", "no tensor expression", make("x[i]", x=(9,))),
        ("MDLC0350", "got 2", make("y[i] = x[i]\nz[i] = x[i]", x=(9,))),
        ("MDLC0350", "is a name, got i \\+ 1", make("y[i + 1] = x[i]", x=(9,))),
        ("MDLC0350", "cannot define", make("f(i)[j] = x[i]", x=(9,))),
        ("MDLC0351", "bound twice", make("y[i, i] = x[i]", x=(9,))),
        ("MDLC0352", "'k' stands on the right only", make("y[i] = x[i, k]", x=(9, 2))),
        ("MDLC0352", "x has 2 axes, got 1", make("y[i] = x[i]", x=(9, 2))),
        ("MDLC0321", "unknown buffer 'z'", make("y[i] = z[i]", x=(9,))),
        ("MDLC0321", "nothing reads the tensor 'w'", make("y[i] = x[i]", x=(9,), w=(9,))),
        ("MDLC0321", "no index 'z'", make("y[i] = x[i]", {"z": 3}, x=(9,))),
        ("MDLC0321", "runs to -1", make("y[i] = x[i]", {"i": -1}, x=(9,))),
        ("MDLC0322", "i \\* k", make("y[i] = x[i * k]", x=(9,))),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_sources(code: str, message: str, wrong: Any) -> None:
    with pytest.raises((LoweringError, ParseError), match=message) as caught:
        wrong()
    assert caught.value.code == code


def test_a_contradiction_names_both_sources() -> None:
    with pytest.raises(LoweringError) as caught:
        make("C[i,j] += A[i,k] * B[k,j]", A=(4, 5), B=(6, 3))()
    assert caught.value.notes == ("axis 1 of A (5) at [k]", "axis 0 of B (6) at [k]")


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(OptionError):
        te.einstein("y[i] = x[i]", x=np.zeros(3))  # pyright: ignore[reportArgumentType]
