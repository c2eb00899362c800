"""Every error has a code, a place and a hint: the list of what users get wrong most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import CompileError
from minidlc.tests.driver.conftest import PACKAGED

pytestmark = pytest.mark.llvm

MODEL = PACKAGED / "mnist_cntk.onnx"
x = mc.Input("x", mc.f32[4, 8])
G = mc.Graph.of("g", [x], [mc.relu(x)])


def cycle() -> mc.Graph:
    a = mc.relu(x)
    b = mc.relu(a)
    object.__setattr__(a, "inputs", (b,))
    return mc.Graph("g", (x,), (a, b), (b,))


WRONG: dict[str, Callable[[], object]] = {
    "truncated": lambda: mc.compile(MODEL.read_bytes()[:9000]),
    "not protobuf": lambda: mc.compile(b"hello, this is text"),
    "no file": lambda: mc.compile("no_such.onnx"),
    "a cycle": lambda: mc.compile(cycle()),
    "wrong rank": lambda: mc.conv(x, x),
    "shapes": lambda: x @ x,
    "element types": lambda: x + mc.Input("y", mc.i32[4, 8]),
    "call: shape": lambda: mc.compile(G)(np.zeros((4, 9), np.float32)),
    "call: dtype": lambda: mc.compile(G)(np.zeros((4, 8))),
    "call: missing": lambda: mc.compile(G)(),
    "interpret: shape": lambda: mc.interpret(G, [np.zeros((4, 9), np.float32)]),
    "interpret: dtype": lambda: mc.interpret(G, [np.zeros((4, 8))]),
    "interpret: missing": lambda: mc.interpret(G, []),
    "unknown op": lambda: mc.parse("def g(x: f32[4]):\n    y: f32[4] = relo(x)\n    return y\n"),
    "not finite": lambda: mc.leaky_relu(x, alpha=float("nan")),
    "max_bytes": lambda: mc.compile(MODEL, max_bytes=10),
    "opt_level": lambda: mc.compile(G, opt_level=9),
    "threads": lambda: mc.compile(G, threads=0),
    "pipeline": lambda: mc.compile(G, pipeline="fsue"),
    "target": lambda: mc.compile(G, target="host"),
    "use": lambda: mc.use(foo=print).__enter__(),
    "use: value": lambda: mc.use(**{"pass.cse": 3}).__enter__(),
    "kernel": lambda: mc.compile(G).kernel("zz"),
    "mandatory": lambda: mc.Pipeline.default().without("decompose"),
    "two of a name": lambda: mc.compile(mc.Graph.of("g", [x, mc.Input("x", mc.f32[1])], [])),
    "symbolic": lambda: (
        mc.compile(mc.Graph.of("g", [y := mc.Input("x", mc.f32["N"])], [y])).kernels
    ),
    "foreign input": lambda: mc.compile(mc.Graph.of("g", [], [mc.relu(x)])),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_says_where_and_what_would_fit(what: str) -> None:
    with pytest.raises(CompileError) as caught:
        WRONG[what]()
    error = caught.value
    assert error.code.startswith("MDLC")
    assert error.code != "MDLC0001"
    assert error.loc is not None
    assert error.hint
    assert f"error[{error.code}]: " in str(error)
    assert "\n  --> " in str(error)
    assert "\n  = hint: " in str(error)


def test_a_line_of_a_notebook_is_named_as_its_reader_knows_it():
    """Jupyter compiles a cell as a temporary file, whose name changes."""
    namespace: dict[str, object] = {}
    source = "import minidlc as mc\n\nmc.relu(mc.Input('x', mc.f32[2]) @ mc.Input('y', mc.f32[3]))"
    code = compile(source, "/tmp/ipykernel_4711/123456.py", "exec")
    with pytest.raises(mc.CompileError) as caught:
        exec(code, namespace)
    assert "--> a notebook cell, line 3\n" in str(caught.value) + "\n"
    assert "4711" not in str(caught.value)
