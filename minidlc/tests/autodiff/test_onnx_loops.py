"""Gradients of loops that ONNX models have: Scan, and Loop with an early end."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph
from minidlc.tests.autodiff.test_control_flow import agrees, total
from minidlc.tests.frontend.helpers import model, node
from minidlc.tests.frontend.test_control_flow import graph, loop

pytestmark = pytest.mark.ch03


def test_a_scan_of_an_onnx_model() -> None:
    nodes = [
        node("Mul", "s x", "p"), node("Tanh", "p", "s_out"), node("Identity", "s_out", "row")
    ]  # fmt: skip
    step = graph(nodes, "s x", "s_out row")
    inputs = {"s": np.array([0.5, 0.7]), "x": np.array([[0.3, 0.4], [0.5, 0.6], [0.7, 0.8]])}
    scan = node("Scan", "s x", "t rows", body=step, num_scan_inputs=1)
    g = mc.load_onnx(model([scan], inputs, "t rows"))
    agrees(Graph.of("loss", g.inputs, [total(*g.outputs)]), inputs)


def test_a_loop_of_an_onnx_model_that_may_end_early() -> None:
    nodes = [node("Mul", "x w", "y"), node("ReduceSum", "y", "s", keepdims=0)]
    step = graph([*nodes, node("Less", "s bound", "go")], "i c x", "go y")
    inputs = {"x": np.array([1.0, 1.5]), "w": np.array([1.7, 1.3]), "bound": np.array(20.0)}
    known = {"n": np.array(9), "c": np.array(True)}
    g = mc.load_onnx(model([loop(step, "n c x", "y")], inputs, "y", known))
    agrees(Graph.of("loss", g.inputs, [total(*g.outputs)]), inputs)
