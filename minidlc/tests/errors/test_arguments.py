"""Arguments of the wrong type are refused where they are given, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import CompileError, OptionError, VerifyError

x = mc.Input("x", mc.f32[4])
G = mc.Graph.of("g", [x], [mc.relu(x)])
WRONG = (None, 3.5, object(), {1}, lambda: 0, np.zeros(3))

ARGUMENTS: dict[str, Callable[[Any], object]] = {
    "load_onnx: model": lambda wrong: mc.load_onnx(wrong),
    "parse: text": lambda wrong: mc.parse(wrong),
    "interpret: graph": lambda wrong: mc.interpret(wrong, []),
    "interpret: inputs": lambda wrong: mc.interpret(G, wrong),
    "to_onnx: graph": lambda wrong: mc.to_onnx(wrong),
    "verify: graph": lambda wrong: mc.verify(wrong),
    "viz.graph: g": lambda wrong: mc.viz.graph(wrong),
    "viz.loops: a nest": lambda wrong: mc.viz.loops(wrong),
    "viz.memory: plan": lambda wrong: mc.viz.memory(wrong),
    "viz.passes: records": lambda wrong: mc.viz.passes(wrong),
    "Graph.of: name": lambda wrong: mc.Graph.of(wrong, [x], [x]),
    "Pipeline: a pass": lambda wrong: mc.Pipeline((wrong,)),
}


@pytest.mark.parametrize("what", ARGUMENTS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: type(w).__name__)
def test_an_argument_of_the_wrong_type(what: str, wrong: object) -> None:
    with pytest.raises(OptionError) as caught:
        ARGUMENTS[what](wrong)
    got = "None" if wrong is None else f"a {type(wrong).__name__}"
    assert caught.value.message.startswith(f"{what} is {got}, expected ")
    assert caught.value.code == "MDLC1001"
    assert "test_arguments.py:" in str(caught.value)


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["threads", "opt_level", "target", "pipeline", "max_bytes"])
@pytest.mark.parametrize("wrong", [True, "", b"", [], 2.0, object(), np.zeros(3)])
def test_an_option_of_the_wrong_type(name: str, wrong: object) -> None:
    if name == "pipeline" and isinstance(wrong, str):
        return  # the text of a pipeline without passes
    with pytest.raises(OptionError) as caught:
        mc.compile(G, **{name: wrong})
    assert name in caught.value.message


@pytest.mark.llvm
def test_shapes_are_for_onnx_models() -> None:
    with pytest.raises(OptionError, match="all sizes of this graph are known"):
        mc.compile(G, shapes={"N": 1})


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (partial(mc.Graph.of, "g", ["x"], [x]), "input 'x' is a str, no Input"),
        (partial(mc.Graph.of, "g", [x], [None]), "output None is a NoneType, no value"),
        (partial(mc.Graph, "g", (x,), (x,), ()), "is a Input, no Node"),
        (lambda: mc.Graph.of("g", [mc.Input(3, mc.f32[4])], []), "name 3 is a int, no str"),
        (lambda: mc.Graph.of("g", [mc.Input("x", "f32")], []), "input type 'f32' is a str"),
        (lambda: mc.Graph.of("g", [mc.Input("x", mc.f32[-1])], []), "is no size and no symbol"),
        (lambda: mc.Graph.of("g", [mc.Input("x", mc.f32[None, 8])], []), "no size and no symbol"),
    ],
)
def test_what_does_not_belong_into_a_graph(graph: Callable[[], mc.Graph], message: str) -> None:
    with pytest.raises(VerifyError, match=message) as caught:
        mc.verify(graph())
    assert caught.value.code == "MDLC0416"


def test_a_value_where_a_list_is_meant() -> None:
    with pytest.raises(CompileError, match="outputs is a Node, expected Iterable"):
        mc.Graph.of("g", [x], mc.relu(x))


def test_a_pass_may_be_any_function() -> None:
    def same(graph: mc.Graph, times: int) -> mc.Graph:
        return graph

    pipeline = mc.Pipeline.default().replace("cse", partial(same, times=2))
    assert pipeline.run(G)[0] == G


@pytest.mark.llvm
def test_the_schedule_kind_of_a_group_is_checked() -> None:
    a, b = mc.Input("a", mc.f32[4, 8]), mc.Input("b", mc.f32[8, 4])
    text = str(mc.Pipeline.default().run(mc.Graph.of("g", [a, b], [mc.relu(a @ b)]))[0])
    assert 'anchor="matmul"' in text
    graph = mc.parse(text.replace('anchor="matmul"', 'anchor="matmull"'))
    with pytest.raises(CompileError, match="no schedule of the kind 'matmull'") as caught:
        mc.compile(graph)
    assert "did you mean 'matmul'" in str(caught.value)
