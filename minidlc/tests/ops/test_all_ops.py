"""Every op of the registry, every example, every check; then an op registered from a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.graph import Example, op_class, registered_ops, unregister_op
from minidlc.support.errors import OptionError
from minidlc.tests.ops import checks

pytestmark = pytest.mark.ch01

NAMES = [name for name in registered_ops() if name != "getitem"]  # no array is a tuple


SLOWEST = (checks.check_loops, checks.check_onnx)  # half of the time: not in make unit


@pytest.mark.parametrize(
    "check",
    [pytest.param(c, marks=pytest.mark.long) if c in SLOWEST else c for c in checks.CHECKS],
    ids=lambda c: c.__name__.removeprefix("check_"),
)
@pytest.mark.parametrize("name", NAMES)
def test_op(name: str, check: Callable[[Example], None]) -> None:
    checks.check_op(op_class(name), check)


@pytest.mark.llvm
@pytest.mark.parametrize("name", NAMES)
def test_op_as_machine_code(name: str) -> None:
    checks.check_op(op_class(name), checks.check_llvm)


@pytest.mark.parametrize("name", NAMES)
def test_op_in_onnxruntime(name: str) -> None:
    pytest.importorskip("onnxruntime")
    checks.check_op(op_class(name), checks.check_onnxruntime)


def test_every_op_says_what_it_computes() -> None:
    for name, cls in registered_ops().items():
        assert cls.__doc__, name
        assert name in cls.__doc__, f"the docstring of {name} has no equation"


SQUARE = '''
"""An op of a reader's own, in one file."""
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minidlc.expr.nodes import Expr
from minidlc.graph import Example, register_op
from minidlc.ops.elementwise import Unary


@register_op
@dataclass(frozen=True)
class Square(Unary):
    """square(x)[i] = x[i] * x[i]."""

    name = "square"

    def scalar(self, x: Expr) -> Expr:
        return {scalar}

    def numpy(self, x: Any) -> Any:
        return x * x
'''


def register_from(path: Path, source: str) -> None:
    """Write a module and import it."""
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.fixture
def square(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Register `square` with the given formula for its loops."""

    def register(scalar: str) -> None:
        register_from(tmp_path / "square.py", SQUARE.format(scalar=scalar))

    yield register
    unregister_op("square")


def test_an_op_registered_from_a_file_passes_every_check(square: Callable[[str], None]) -> None:
    square("x * x")
    checks.check_all(op_class("square"))


@pytest.mark.llvm
def test_an_op_registered_from_a_file_compiles(square: Callable[[str], None]) -> None:
    square("x * x")
    checks.check_op(op_class("square"), checks.check_llvm)


def test_a_wrong_formula_is_found(square: Callable[[str], None]) -> None:
    square("x * x * 1.001")
    with pytest.raises(AssertionError, match="Not equal to tolerance") as caught:
        checks.check_op(op_class("square"), checks.check_loops)
    assert "example: Square()" in caught.value.__notes__[0]


def test_two_ops_are_not_one_op_of_onnx(tmp_path: Path) -> None:
    source = SQUARE.format(scalar="x * x").replace(
        'name = "square"', 'name = "square"\n    onnx = "Relu"'
    )
    with pytest.raises(OptionError, match="ONNX's Relu, which 'relu' is") as caught:
        register_from(tmp_path / "square.py", source)
    assert caught.value.code == "MDLC1004"
