"""The order of nodes, with subgraphs that read values of the graph around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from minidlc.frontend.onnx.order import captured_names, names_read, needed_nodes
from minidlc.tests.frontend.helpers import F, model, node


def branch(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, "branch", [], [info])


INNER = branch([node("Add", "a b", "t"), node("Mul", "t t", "u")], "u")
NESTED = branch(
    [node("Relu", "c", "v"), node("If", "p", "w", then_branch=INNER, else_branch=INNER)], "w"
)


def test_names_that_a_subgraph_takes_from_outside() -> None:
    assert captured_names(INNER) == ["a", "b"]
    assert captured_names(NESTED) == ["c", "p", "a", "b"]
    node_if = node("If", "q", "y", then_branch=NESTED, else_branch=INNER)
    assert names_read(node_if) == ["q", "a", "b", "c", "p"]  # attributes stand sorted


def test_what_a_subgraph_reads_is_needed_and_comes_first() -> None:
    nodes = [
        node("If", "q", "y", then_branch=INNER, else_branch=INNER),
        node("Exp", "x", "a"),
        node("Neg", "x", "unused"),
        node("Relu", "a", "b"),
    ]
    graph = model(nodes, {"x": np.zeros(3, F), "q": np.array(True)}).graph
    order = [n.output[0] for n in needed_nodes(graph, "m", {"x", "q"})]
    assert order == ["a", "b", "y"]
