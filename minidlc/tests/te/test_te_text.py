"""Tensor expressions printed and read back (what is malformed: tests/errors/test_te_text.py)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.types import bool_, f32, i32, i64
from minidlc.loop.interpret import interpret
from minidlc.support.errors import LoweringError
from minidlc.te import parse_te, print_te
from minidlc.tests.te.programs import random_case

pytestmark = pytest.mark.ch04

TEXT = """\
A = placeholder(f32[4, 8])
B = placeholder(f32[8, 3])
C = compute(f32[4, 3], lambda i, j: sum(A[i, k] * B[k, j], k=8))
"""


def test_a_program_is_one_line_a_tensor() -> None:
    A, B = te.placeholder(f32[4, 8], "A"), te.placeholder(f32[8, 3], "B")
    k = te.reduce_axis(8, "k")
    C = te.compute((4, 3), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    assert print_te([C]) == TEXT
    assert str(C) == TEXT.splitlines()[-1]
    program = parse_te(TEXT)
    assert str(program) == TEXT
    assert list(program.tensors) == ["A", "B", "C"]
    assert [t.name for t in program.outputs] == ["C"]
    assert program.outputs[0].inputs == (program.tensors["A"], program.tensors["B"])
    assert program.outputs[0].body == C.body


def test_outputs_are_written_where_they_are_not_obvious() -> None:
    A = te.placeholder(f32[4], "A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="C")
    assert print_te([C]).count("return") == 0
    text = print_te([B, C])
    assert text.endswith("return B, C\n")
    assert str(parse_te(text)) == text
    assert [t.name for t in parse_te(text).outputs] == ["B", "C"]


def test_every_program_reads_back_as_it_was() -> None:
    for seed in range(60):
        case = random_case(random.Random(seed))
        text = print_te(case.outputs)
        program = parse_te(text)
        assert str(program) == text
        fn, again = (te.create_schedule(o).lower() for o in (case.outputs, program.outputs))
        assert str(fn) == str(again)


def test_the_order_of_lines_survives() -> None:
    A, B = te.placeholder(f32[4], "A"), te.placeholder(f32[4], "B")

    def second_first(i: te.Index) -> object:
        b = B[i]
        return A[i] - b

    C = te.compute((4,), second_first, name="C")
    D = te.compute((4,), lambda i: C[i] * A[i], name="D")
    E = te.compute((4,), lambda i: D[i] + B[i] * C[i], name="E")
    assert str(parse_te(print_te([E]))) == print_te([E])
    assert C.inputs == (A, B)


def test_scalars_constants_types_and_conditions() -> None:
    text = """\
x = placeholder(i32[4])
m = placeholder(bool[4])
s = compute(i32[()], lambda: sum(x[k], k=4))
t = compute(i64[4], lambda i: where(m[i], cast("i64", x[i]), index(i) - i64(3)))
u = compute(i32[4], lambda i: select(i - 1 >= 0, x[i - 1], i32(0)) + s[()])
v = compute(bool[4], lambda i: x[i] < u[i])
w = compute(f32[4], lambda i: max(exp(cast("f32", x[3 - i])), f32("-inf")))
"""
    program = parse_te(text)
    assert str(program) == text
    assert [program.tensors[n].dtype for n in "stuvw"] == [i32, i64, i32, bool_, f32]


def test_every_function_of_the_table_can_be_written() -> None:
    A = te.placeholder(f32[3], "A")
    N = te.placeholder(i32[3], "N")
    for name, function in FUNCTIONS.items():
        if function.types:  # see test_tensorize.py
            continue
        write = getattr(te, name)
        source = N if name in ("truncdiv", "invert") else A
        arity = function.arity
        body = (lambda i, f=write, s=source: f(s[i])) if arity == 1 else (
            lambda i, f=write, s=source: f(s[i], 2)
        )  # fmt: skip
        tensor = te.compute((3,), body, name="F")
        assert tensor.dtype == (bool_ if function.result == "bool" else source.dtype)
        assert f"{name}({source.name}[i]" in str(tensor)
        assert str(parse_te(print_te([tensor]))) == print_te([tensor])


def test_functions_compute_what_they_say() -> None:
    A, N = te.placeholder(f32[4], "A"), te.placeholder(i32[4], "N")
    bodies = {
        "a": lambda i: te.maximum(A[i], 0.0) + te.minimum(1.0, A[i]),
        "b": lambda i: te.where(te.equal(N[i], 2), A[i], te.cast("f32", N[i])),
        "c": lambda i: te.cast(f32, te.index(i + 1)) * te.pow(A[i], 2.0),
        "d": lambda i: te.cast("f32", te.bitwise("&", N[i], 3)) - te.abs(A[i]),
        "e": lambda i: te.select((i >= 1) & (i < 3), A[i - 1], -1.0),
    }
    outputs = [te.compute((4,), body, name=name) for name, body in bodies.items()]
    a, n = np.array([-2, -0.5, 0.5, 3], np.float32), np.array([2, 5, 2, -1], np.int32)
    arrays = {"A": a, "N": n, **{name: np.zeros(4, np.float32) for name in bodies}}
    interpret(te.create_schedule(outputs).lower(), arrays)
    np.testing.assert_allclose(arrays["a"], np.maximum(a, 0) + np.minimum(a, 1))
    np.testing.assert_allclose(arrays["b"], np.where(n == 2, a, n))
    np.testing.assert_allclose(arrays["c"], np.arange(1, 5) * a**2)
    np.testing.assert_allclose(arrays["d"], (n & 3) - np.abs(a))
    np.testing.assert_allclose(arrays["e"], [-1, a[0], a[1], -1])


def test_what_a_body_may_not_do() -> None:
    A, N = te.placeholder(f32[4], "A"), te.placeholder(i32[4], "N")
    i = te.Index.of(0)
    for wrong in (
        lambda: te.where(A[i], 1.0, 0.0),
        lambda: te.bitwise("&", A[i], A[i]),
        lambda: te.maximum(A[i], N[i]),
        lambda: A[i] + N[i],
    ):
        with pytest.raises(LoweringError) as caught:
            wrong()
        assert caught.value.code == "MDLC0702"
    with pytest.raises(LoweringError):
        A[i, i]
    with pytest.raises(LoweringError):
        A[1.5]
