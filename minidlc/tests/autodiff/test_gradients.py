"""The gradient of every op of the registry is the difference of the op, at all its examples."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply, op_class, registered_ops
from minidlc.support.errors import GradientError
from minidlc.tests.autodiff import cases, checks
from minidlc.tests.ops.checks import graph_of

pytestmark = pytest.mark.ch03

CONSTANT = ("stop_gradient",)  # ops that differentiation takes for constants
NAMES = [
    name
    for name in registered_ops()
    if name != "getitem" and name not in cases.NO_GRADIENT  # of getitem the input is a tuple
]
ANY_SHAPE = [
    n
    for n in sorted({*NAMES} - {*CONSTANT})
    if any(True for _ in cases.random_examples(op_class(n), np.random.default_rng(0)))
]
# ops that neither take nor give real numbers, or do not do both
WITHOUT_REALS = {
    "arg_max", "arg_min", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "conv_integer",
    "equal", "greater", "greater_or_equal", "isinf", "isnan", "less", "less_or_equal",
    "logical_and", "logical_not", "logical_or", "logical_xor", "matmul_integer", "outside_range",
    "philox", "quantize_linear", "random_normal", "random_uniform", "shift_left", "shift_right",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*NAMES} - {*CONSTANT}))
def test_gradient(name: str) -> None:
    """It is the difference of the op, forward mode agrees, and its text reads back."""
    checks.check_cases(cases.cases(op_class(name)), *checks.CHECKS)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_second_derivative(name: str) -> None:
    """The gradient of the gradient is the difference of the gradient."""
    found = cases.cases(op_class(name), jitter=True)
    checks.check_cases(cases.some(found), checks.check_second)


@pytest.mark.parametrize("name", ANY_SHAPE)
def test_gradient_of_random_shapes(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    examples = cases.random_examples(op_class(name), rng)
    found = [cases.case_of(e, jitter=name in cases.JUMPS) for e in examples]
    checks.check_cases((c for c in found if c), checks.check_gradient, checks.check_second)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*NAMES} - {*cases.NOT_IN_F16}))
def test_gradient_in_f16(name: str) -> None:
    found = cases.cases(op_class(name), jitter=True)
    checks.check_cases(cases.some(found), checks.check_narrow)


@pytest.mark.llvm
@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*NAMES} - {*cases.IN_F32}))
def test_gradient_as_machine_code(name: str) -> None:
    found = cases.cases(op_class(name), jitter=True)
    checks.check_cases(cases.some(found, 2), checks.check_compiled)


@pytest.mark.parametrize("name", CONSTANT)
def test_the_gradient_of_what_counts_as_constant_is_zero(name: str) -> None:
    for case in cases.cases(op_class(name)):
        assert not any(dx.any() for dx in case.gradients)


@pytest.mark.parametrize("name", cases.NO_GRADIENT)
def test_an_op_without_a_gradient_says_so(name: str) -> None:
    example = next(iter(op_class(name).examples()))
    with pytest.raises(GradientError, match=f"{name} has no gradient") as caught:
        mc.grad(graph_of(example))
    assert caught.value.code == "MDLC1201"


def test_no_op_of_real_numbers_is_left_out() -> None:
    """Ops without a case are those that neither take nor give real numbers."""
    idle = [name for name in NAMES if not any(True for _ in cases.cases(op_class(name)))]
    assert set(idle) == WITHOUT_REALS


@pytest.mark.parametrize(
    ("name", "check", "wrong"),
    [
        ("tanh", checks.check_gradient, lambda _op, y, dy: (dy * (1.0 - y),)),
        ("matmul", checks.check_gradient, lambda _op, y, dy: (dy @ y.inputs[1].T, None)),
        ("relu", checks.check_gradient, lambda _op, y, dy: (apply("where", y > 0, dy, -dy),)),
        ("exp", checks.check_second, lambda _op, y, dy: (dy * apply("stop_gradient", y),)),
        ("exp", checks.check_forward, lambda _op, y, dy: (dy * y + 1.0,)),
    ],
)
def test_a_wrong_gradient_is_found(name: str, check: Any, wrong: Any) -> None:
    with mc.use(**{f"gradient.{name}": wrong}), pytest.raises(AssertionError) as caught:
        checks.check_cases(cases.cases(op_class(name), jitter=True), check)
    assert "case: " in caught.value.__notes__[0]
