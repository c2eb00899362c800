"""Loops that cannot become code are refused with a CodegenError that says why."""

from __future__ import annotations

import pytest

from minidlc import target
from minidlc.codegen import statements
from minidlc.codegen.compile import compile_kernel, compile_text
from minidlc.codegen.llvm import emit
from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Binary, Expr, Load, Reduce
from minidlc.expr.types import f32
from minidlc.loop.nodes import LoopFunction, Param, Store
from minidlc.loop.text import parse_function
from minidlc.support.errors import CodegenError
from minidlc.support.extension import use

pytestmark = pytest.mark.llvm

CASES = {
    "register offset": (
        "MDLC0804",
        "register buffer 't' is accessed at an offset that is no constant: i",
        """
def f(A: f32[8]):
    t = alloc(f32[8], "register")
    for i in serial(0, 8):
        t[i] = A[i]
""",
    ),
    "different values to one element": (
        "MDLC0805",
        "the lanes of 'i' store different values to one element of 'S'",
        """
def f(A: f32[8], S: f32[1]):
    for i in vectorized(0, 8):
        S[0] = A[i]
""",
    ),
    "not a reduction": (
        "MDLC0805",
        "a vectorised reduction has the form S[i] = S[i] + e",
        """
def f(A: f32[8], S: f32[1]):
    for i in vectorized(0, 8):
        S[0] = S[0] * S[0] + 1.0
""",
    ),
    "extent differs between lanes": (
        "MDLC0806",
        "the extent of loop 'j' differs between the lanes of 'i'",
        """
def f(A: f32[8]):
    for i in vectorized(0, 8):
        for j in serial(0, i):
            A[i] = A[i] + 1.0
""",
    ),
    "nested vectorised loops": (
        "MDLC0811",
        "vectorised loop 'j' inside vectorised loop 'i'",
        """
def f(A: f32[8, 8]):
    for i in vectorized(0, 8):
        for j in vectorized(0, 8):
            A[i, j] = 0.0
""",
    ),
    "parallel inside vectorised": (
        "MDLC0811",
        "parallel loop 'j' inside vectorised loop 'i'",
        """
def f(A: f32[8, 8]):
    for i in vectorized(0, 8):
        for j in parallel(0, 8):
            A[j, i] = 0.0
""",
    ),
    "allocation per lane": (
        "MDLC0813",
        "buffer 't' is allocated inside vectorised loop 'i'",
        """
def f(A: f32[8]):
    for i in vectorized(0, 8):
        t = alloc(f32[1], "stack")
        t[0] = A[i]
        A[i] = t[0]
""",
    ),
    "registers shared by threads": (
        "MDLC0814",
        "register buffer 't' is used inside parallel loop 'i'",
        """
def f(A: f32[8]):
    t = alloc(f32[1], "register")
    t[0] = 1.0
    for i in parallel(0, 8):
        A[i] = t[0]
""",
    ),
    "function of a type": (
        "MDLC0807",
        "no function 'exp' on i32",
        """
def f(A: i32[8]):
    for i in serial(0, 8):
        A[i] = exp(A[i])
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    code, message, source = CASES[case]
    with pytest.raises(CodegenError) as error:
        compile_kernel(parse_function(source), target.host(), cache=False)
    assert error.value.code == code
    assert message in str(error.value)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MAX_INSTRUCTIONS", 1000)
    source = """
def f(A: f32[8]):
    for i in unrolled(0, 1000):
        for j in unrolled(0, 1000):
            for k in unrolled(0, 8):
                A[k] = A[k] + 1.0
"""
    with pytest.raises(CodegenError, match="the kernel has more than 1000 instr") as error:
        emit(parse_function(source), target.host(), "k")
    assert error.value.code == "MDLC0810"


def test_too_deep() -> None:
    load = Load("A", (Index.of(0),), f32)
    deep: Expr = load
    for _ in range(5000):
        deep = Binary("+", deep, load)
    fn = LoopFunction("f", (Param("A", f32[4]),), Store("A", (Index.of(0),), deep))
    with pytest.raises(CodegenError, match="f: an expression or loop nest is too deep") as error:
        emit(fn, target.host(), "k")
    assert error.value.code == "MDLC0815"


def test_symbolic_size() -> None:
    fn = parse_function('def f(A: f32["N"]):\n    for i in serial(0, N):\n        A[i] = 0.0\n')
    with pytest.raises(CodegenError) as error:
        emit(fn, target.host(), "k")
    assert error.value.code == "MDLC0802"
    assert "specialise" in str(error.value)


def test_buffer_that_is_not_there_and_reduction_axes() -> None:
    zero = Index.of(0)
    param = Param("A", f32[4])
    unknown = LoopFunction("f", (param,), Store("A", (zero,), Load("AA", (zero,), f32)))
    with pytest.raises(CodegenError, match="buffer 'AA' is not in scope") as error:
        emit(unknown, target.host(), "k")
    assert error.value.hint == "did you mean 'A'?"
    load = Load("A", (zero,), f32)
    reduce = LoopFunction("f", (param,), Store("A", (zero,), Reduce("sum", load, (("r", 4),))))
    with pytest.raises(CodegenError, match="reduction axes") as error:
        emit(reduce, target.host(), "k")
    assert error.value.code == "MDLC0809"
    rank = LoopFunction("f", (param,), Store("A", (zero, zero), load))
    with pytest.raises(CodegenError, match="'A' has 1 dimensions, got 2 indices"):
        emit(rank, target.host(), "k")
    loose = LoopFunction("f", (param,), Store("A", (Index.of(Var("z")),), load))
    with pytest.raises(CodegenError, match="'z' has no value here"):
        emit(loose, target.host(), "k")


@pytest.mark.parametrize(
    "text",
    [
        "define void @k() { ret void",
        "no llvm at all",
        "define void @k(ptr %a) {\n  %x = load float, ptr %b\n  ret void\n}",
        "define void @k(ptr %a) {\nentry:\n  br label %entry2\n}",
        "define void @k() {\na:\n  br label %a\nb:\n  %x = phi i32 [ 0, %b ]\n  ret void\n}",
    ],
)
def test_invalid_llvm_text_is_an_error_not_a_crash(text: str) -> None:
    with pytest.raises(CodegenError, match="LLVM text is not valid") as error:
        compile_text(text, target.host())
    assert error.value.code == "MDLC0820"


FILL = "def f(A: f32[8]):\n    for i in vectorized(0, 8):\n        A[i] = 1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define void @k(", "f: the LLVM text is not valid"),
        (None, "f: emit returned NoneType, expected LLVM text"),
        ("define void @other() {\n  ret void\n}\n", "f: the LLVM text does not define k_"),
    ],
)
def test_a_student_s_emit_that_is_wrong(text: str | None, message: str) -> None:
    with use(emit=lambda fn, target, symbol: text), pytest.raises(CodegenError) as error:
        compile_kernel(parse_function(FILL), target.host())
    assert error.value.code == "MDLC0820"
    assert message in str(error.value)


def test_a_student_s_lane_mapping_that_is_wrong() -> None:
    with use(vectorize=lambda index, lane: "ramp"), pytest.raises(CodegenError) as error:
        compile_kernel(parse_function(FILL), target.host(), cache=False)
    assert error.value.code == "MDLC0803"
    assert "got 'ramp'" in str(error.value)
