"""The gradient of every op of the registry is the difference of the op, at all its examples."""

from __future__ import annotations

import pytest

import minidlc as mc
from minidlc.graph import op_class, registered_ops
from minidlc.support.errors import GradientError
from minidlc.tests.autodiff import checks
from minidlc.tests.ops.checks import graph_of

pytestmark = pytest.mark.ch03

NAMES = [
    name
    for name in registered_ops()
    if name != "getitem" and name not in checks.NO_GRADIENT  # of getitem the input is a tuple
]
CONSTANT = ("stop_gradient",)  # ops that differentiation takes for constants


@pytest.mark.parametrize("name", sorted({*NAMES} - {*CONSTANT}))
def test_the_gradient_is_the_difference(name: str) -> None:
    checks.check_cases(checks.cases(op_class(name)), checks.check_gradient)


@pytest.mark.parametrize("name", CONSTANT)
def test_the_gradient_of_what_counts_as_constant_is_zero(name: str) -> None:
    for case in checks.cases(op_class(name)):
        assert not any(dx.any() for dx in checks.gradients(case))


@pytest.mark.parametrize("name", checks.NO_GRADIENT)
def test_an_op_without_a_gradient_says_so(name: str) -> None:
    example = next(iter(op_class(name).examples()))
    with pytest.raises(GradientError, match=f"{name} has no gradient") as caught:
        mc.grad(graph_of(example))
    assert caught.value.code == "MDLC1201"


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_is_the_transpose_of_reverse_mode(name: str) -> None:
    checks.check_cases(checks.cases(op_class(name)), checks.check_forward)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_prints_and_reads_back(name: str) -> None:
    checks.check_cases(checks.cases(op_class(name)), checks.check_text)
