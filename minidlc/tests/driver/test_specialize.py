"""Models of open sizes compiled ahead: `specialize`, what it shows, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import minidlc as mc
from minidlc.support.errors import CallError, MemoryLimitError, OptionError
from minidlc.tests.driver.test_signatures import FLOAT, INT64, RELU, RESHAPE, TWO, compiled, rows
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm


def test_asking_before_the_first_call_says_how_to_specialise() -> None:
    exe = compiled(RELU)
    for what in ("graph", "kernels", "memory_plan", "program"):
        with pytest.raises(OptionError, match="is not compiled yet") as caught:
            getattr(exe, what)
        assert caught.value.code == "MDLC1027"
        assert "sizes by symbol {'N': 4}" in (caught.value.hint or "")
        assert caught.value.notes == ('x: f32["N", 3]',)
    with pytest.raises(OptionError, match="is not compiled yet"):
        exe.report()
    assert not hasattr(exe, "no_such_thing")
    assert not exe.specializations


def test_what_is_shown_is_the_specialisation_used_last() -> None:
    exe = compiled(RELU)
    assert isinstance(exe, mc.Executable)
    four = exe.specialize({"N": 4})
    eight = exe.specialize({"x": (8, 3)})
    assert exe.graph is eight.graph
    exe(rows(4))
    assert exe.graph is four.graph
    assert exe.kernels is four.kernels
    assert exe.memory_plan is four.memory_plan
    assert list(exe.specializations.values()) == [eight, four]
    assert str(exe.report()).endswith("compiled for x: f32[8, 3]\ncompiled for x: f32[4, 3]")


@pytest.mark.parametrize(
    ("shapes", "code", "message"),
    [
        ({"M": 1, "s": np.array([1, 6])}, "MDLC1025", "'M' is no input and no symbol of test"),
        ({"s": np.array([1, 6])}, "MDLC1025", "the size 'N' of input 'x' is not given"),
        ({"N": -1}, "MDLC1025", "expected a size of at least 0, got -1"),
        ({"x": 3}, "MDLC1025", "expected a shape"),
        ({"N": 2}, "MDLC1026", "the value of input 's' decides shapes"),
        (3, "MDLC1001", "specialize: shapes is a int"),
    ],
)
def test_what_specialize_refuses(shapes: Any, code: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        compiled(RESHAPE).specialize(shapes)
    assert caught.value.code == code


def test_shapes_that_contradict_the_model() -> None:
    with pytest.raises(CallError, match="got shape"):
        compiled(RELU).specialize({"x": (2, 4)})
    with pytest.raises(CallError, match="'N' is 3 here and 2 elsewhere"):
        compiled(TWO).specialize({"a": (2, 3), "b": (3, 1)})


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_max_specializations_is_a_count(most: Any) -> None:
    with pytest.raises(OptionError, match="max_specializations: expected at least 1"):
        compiled(RELU, max_specializations=most)


@pytest.mark.parametrize(
    ("nodes", "value"),
    [
        ([node("Tile", "x s", "y")], [1 << 40, 1]),
        ([node("Pad", "x s", "y")], [1 << 62] * 4),
        ([node("ConstantOfShape", "s", "y")], [1 << 40, 1 << 40]),
        ([node("ConstantOfShape", "s", "t"), node("ReduceSum", "t", "y")], [1 << 40]),
    ],
    ids=lambda v: v[0].op_type if isinstance(v[0], onnx.NodeProto) else None,
)
def test_sizes_that_no_memory_holds(nodes: Any, value: list[int]) -> None:
    exe = compiled(model(nodes, {"x": (FLOAT, ["N", 3]), "s": (INT64, [len(value)])}))
    with pytest.raises(MemoryLimitError, match="max_bytes allows"):
        exe(rows(2), np.array(value))


@pytest.mark.parametrize("most", [0, -1])
def test_max_bytes_is_a_count(most: int) -> None:
    with pytest.raises(OptionError, match=f"max_bytes: expected at least 1, got {most}"):
        mc.compile(RELU, max_bytes=most)
