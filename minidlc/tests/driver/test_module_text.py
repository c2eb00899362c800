"""`exe.module`: both levels on one page. Its `main` is run, and must give what the model gives."""

from __future__ import annotations
import __future__

import ast
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

import minidlc as mc
import minidlc.ops
from minidlc.benchmarks.models import MODELS
from minidlc.expr.types import TensorType, bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, apply, evaluate, getitem, interpret
from minidlc.graph.graph import make_op
from minidlc.loop.interpret import interpret as run_loops
from minidlc.lower import LoweredKernel
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm
F = np.float32


def as_function(kernel: LoweredKernel) -> Callable[..., Any]:
    """A kernel as a Python function of its inputs, run by the loop interpreter."""

    def call(*inputs: Any) -> Any:
        params = kernel.loops.params
        buffers = {p.name: np.array(a).reshape(p.type.dims) for p, a in zip(params, inputs)}  # noqa: B905
        results = params[len(inputs) :]
        for p in results:
            buffers[p.name] = np.empty(p.type.dims, p.type.dtype.numpy)
        run_loops(kernel.loops, buffers)
        made = tuple(buffers[p.name] for p in results)
        return made[0] if len(made) == 1 else made

    return call


def run_main(exe: mc.Executable, arrays: Sequence[Any]) -> list[Any]:
    """Run the function `main` of the page."""
    constants = {c.name: c.array for c in every_constant(exe.graph)}
    inputs = (v for kernel in exe.kernels for v in kernel.lowered.inputs)
    constants |= {v.name: v.array for v in inputs if isinstance(v, Constant)}  # packed ones too
    flags = __future__.annotations.compiler_flag
    code = compile(exe.module.main, "main", "exec", flags, dont_inherit=True)
    space: dict[str, Any] = {k.name: as_function(k.lowered) for k in exe.kernels}
    space |= {"constant": constants.__getitem__, "count": count, "f32": f32, "i64": i64}
    space |= {"empty": lambda type: np.empty(type.dims, type.dtype.numpy), "raise_if": refuse}
    space |= {"reshape": lambda x, shape: evaluate(make_op("reshape", {"shape": shape}), [x])}
    exec(code, space)
    results = space["main"](*arrays)
    return list(results) if isinstance(results, tuple) else [results]


def refuse(found: Any) -> None:
    if found.item():
        raise IndexError


def every_constant(graph: Graph) -> list[Constant]:
    found = list(graph.constants)
    for one in graph.nodes:
        for body in one.op.attributes().values():
            if isinstance(body, Graph):
                found += every_constant(body)
    return found


def check(graph: Graph, arrays: Sequence[Any], opt_level: int = 3) -> str:
    """The page parses, and running it gives what the model gives; returns the page."""
    exe = mc.compile(graph, threads=1, opt_level=opt_level)
    page = str(exe.module)
    ast.parse(page)
    wanted = interpret(graph, arrays)
    for got, right, native in zip(run_main(exe, arrays), wanted, exe(*arrays), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(native, right, rtol=1e-5, atol=1e-6)
    return page


X = np.arange(6, dtype=F).reshape(2, 3) - 2


def test_a_page_of_two_kernels() -> None:
    x, w = Input("x", f32[2, 3]), Constant("w", np.ones((3, 4), F))
    y = apply("reshape", apply("relu", x @ w), shape=(4, 2))
    graph = Graph.of("g", [x], [y @ Constant("v", np.full((2, 2), 2, F))])
    page = check(graph, [X], opt_level=2)  # schedules may pack the weights
    main, first, second = page.split("\n\n\n")
    lines = main.splitlines()
    assert lines[0] == "def main(x: f32[2, 3]):"
    assert lines[1].strip().startswith("w: f32[3, 4] = constant('w')")
    assert lines[3] == "    relu_1: f32[2, 4] = relu(x, w)"
    assert lines[4] == "    reshape_1: f32[4, 2] = reshape(relu_1, shape=(4, 2))  # the same bytes"
    assert lines[6] == "    return matmul_1"
    assert first.splitlines()[0].startswith("# matmul matmul: f32[2, 4], from ")
    assert first.splitlines()[1].startswith("# relu relu: f32[2, 4], from ")
    assert first.splitlines()[2].startswith("def relu(x: f32[2, 3], w: f32[3, 4], ")
    assert "\ndef matmul(" in second


def test_outputs_that_are_copies() -> None:
    x = Input("x", f32[2, 3])
    y = apply("relu", x)
    c = Constant("c", np.ones(2, F))
    page = check(Graph.of("g", [x], [y, x, y, apply("reshape", y, shape=(6,)), c]), [X])
    assert page.count("# copies ") == 4


@pytest.mark.parametrize("way", [True, False])
def test_a_branch(way: bool) -> None:
    x, c = Input("x", f32[2, 3]), Input("c", bool_[()])
    a, b = Input("a", f32[2, 3]), Input("b", f32[2, 3])
    yes = Graph.of("yes", [a], [apply("exp", apply("relu", a)), a])
    no = Graph.of("no", [b], [b, apply("neg", b)])
    h = apply("if_", c, x, then_branch=yes, else_branch=no)
    page = check(Graph.of("g", [x, c], [getitem(h, 1), getitem(h, 0)]), [X, np.array(way)])
    assert "    if c:\n        " in page
    assert "    else:\n        " in page


def counted(i: Input, c: Input) -> Graph:
    """A body that hands a, b on as b, a + b."""
    a, b = Input("a", f32[3]), Input("b", f32[3])
    return Graph.of("body", [i, c, a, b], [c, b, apply("add", a, b)])


def test_a_loop_whose_values_change_places() -> None:
    n, x, y = Input("n", i64[()]), Input("x", f32[3]), Input("y", f32[3])
    body = counted(Input("i", i64[()]), Input("c", bool_[()]))
    loop = apply("loop", n, None, x, y, body=body, carried=2)
    g = Graph.of("g", [n, x, y], [getitem(loop, 0), getitem(loop, 1)])
    for trips in (0, 1, 5):
        page = check(g, [np.array(trips), X[0], X[1]])
    assert "    for i in range(n):\n        " in page


def test_a_loop_that_stacks_and_one_that_ends_itself() -> None:
    x, go = Input("x", f32[3]), Input("go", bool_[()])
    i, c, a = Input("i", i64[()]), Input("c", bool_[()]), Input("a", f32[3])
    more = apply("add", a, 1.0)
    stacking = Graph.of("stacking", [i, c, a], [c, more, apply("mul", more, 2.0)])
    rows = apply("loop", None, None, x, body=stacking, carried=1, trips=4)
    j, d, b = Input("j", i64[()]), Input("d", bool_[()]), Input("b", f32[3])
    small = apply("less", apply("sum", b, keepdims=False), 20.0)
    ending = Graph.of("ending", [j, d, b], [small, apply("mul", b, 2.0)])
    last = apply("loop", None, go, getitem(rows, 0), body=ending, carried=1)
    g = Graph.of("g", [x, go], [getitem(rows, 1), last])
    for start in (True, False):
        page = check(g, [np.ones(3, F), np.array(start)])
    assert "[i] = mul" in page
    assert "in count():" in page
    assert "if not go_1: break" in page


def test_positions_are_checked_before_they_are_used() -> None:
    x, at = Input("x", f32[4, 3]), Input("at", i64[2])
    g = Graph.of("g", [x, at], [apply("gather", x, at, axis=0)])
    page = check(g, [np.arange(12, dtype=F).reshape(4, 3), np.array([3, -4])])
    assert "raise_if(" in page
    with pytest.raises(IndexError):
        run_main(mc.compile(g, threads=1), [np.zeros((4, 3), F), np.array([0, 4])])


def test_several_results() -> None:
    x = Input("x", f32[2, 3])
    h = apply("topk", x, k=2)
    g = Graph.of("g", [x], [getitem(h, 1), getitem(h, 0)])
    page = check(g, [X])
    assert "    topk_0: f32[2, 2]; topk_1: i64[2, 2]; topk_0, topk_1 = topk(x)\n" in page


@pytest.mark.parametrize("opt_level", [0, 3])
def test_kernels_say_which_onnx_nodes_they_compute(opt_level: int) -> None:
    nodes = [
        node("MatMul", "x w", "t", name="M_0"),
        node("Relu", "t", "u", name="R_1"),
        node("Softmax", "u", "y", name="S_2"),
    ]
    exe = mc.compile(
        model(nodes, {"x": X}, weights={"w": np.ones((3, 4), F)}), threads=1, opt_level=opt_level
    )
    page = str(exe.module)
    ast.parse(page)
    for text in ("MatMul 'M_0' of test", "Relu 'R_1' of test", "Softmax 'S_2' of test"):
        assert f", from {text}" in page
    name = "w" if opt_level == 0 else "w_packed"
    assert f"constant({name!r})  # initializer 'w' of test" in page
    assert len(exe.module.kernels) == len(exe.kernels)


def test_a_whole_model_is_one_page() -> None:
    proto, feeds = MODELS["lenet"]()
    exe = mc.compile(proto, threads=1)
    ast.parse(str(exe.module))
    x = next(iter(feeds.values()))
    types = {i.name: i.type for i in exe.source.inputs}
    assert exe.module.main.splitlines()[0] == f"def main(x: {types['x']}):"
    assert TensorType(types["x"].dtype, x.shape) == types["x"]
