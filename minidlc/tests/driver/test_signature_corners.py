"""Corners of models of open sizes: odd names, copies, pickles."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from onnx import TensorProto

import minidlc as mc
from minidlc.support.errors import OptionError
from minidlc.tests.frontend.helpers import F, model, node

pytestmark = pytest.mark.llvm

X = np.array([[-1, 2, 3]], F)


def relu(name: str, rows: object = "N") -> mc.Executable:
    inputs = {name: (TensorProto.FLOAT, [rows, 3])}
    return mc.compile(model([node("Relu", name, "y")], inputs), threads=1)


@pytest.mark.parametrize("rows", ["N", 1])
@pytest.mark.parametrize("name", ["self", "arrays", "named"])
def test_inputs_may_be_named_like_pythons_parameters(name: str, rows: object) -> None:
    exe = relu(name, rows)
    np.testing.assert_array_equal(exe(**{name: X})[0], [[0, 2, 3]])
    np.testing.assert_array_equal(exe.run_dict(**{name: X})["y"], [[0, 2, 3]])


def test_a_copy_is_the_model_itself() -> None:
    exe = relu("x")
    assert copy.copy(exe) is copy.deepcopy(exe) is exe


def test_only_specialisations_are_pickled() -> None:
    exe = relu("x")
    with pytest.raises(OptionError, match=r"MDLC1027.*leaves sizes or values open"):
        pickle.dumps(exe)
    one = pickle.loads(pickle.dumps(exe.specialize({"N": 1})))
    np.testing.assert_array_equal(one(X)[0], [[0, 2, 3]])


def test_the_graph_of_a_kernel_has_all_that_its_node_takes() -> None:
    """Also an input of which it needs no element: the only row has one possible position."""
    g = mc.trace(lambda x, i: mc.gather(x, i), mc.f32[1, 3], mc.i64[2])
    exe = mc.compile(g, threads=1)
    texts = [kernel.graph for kernel in exe.kernels]
    assert any("gather(x, i)" in text for text in texts)
    assert [str(mc.parse(text)) for text in texts] == texts


def test_what_a_notebook_shows_of_a_model_and_its_kernels() -> None:
    exe = relu("x", 1)
    assert repr(exe) == "<test(x: f32[1, 3]), 1 kernels>"
    assert repr(exe.kernels) == "(<kernel y: f32[1, 3] = relu, schedule injective>,)"


def test_where_from_takes_text() -> None:
    with pytest.raises(OptionError, match=r"MDLC1001.*instruction is a int, expected str"):
        relu("x", 1).where_from(5)  # pyright: ignore[reportArgumentType]
