"""Every extension point there is can be replaced, is called, is counted, and changes nothing else.

Each row wraps the shipped stage (inside an override its own name means the shipped one) and does
something that must reach it. A point without a row fails `test_every_point_has_a_row`.
"""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
import minidlc.autodiff  # with the driver: all points are declared from here on
import minidlc.driver
from minidlc.codegen.lanes import lane_access
from minidlc.codegen.llvm import emit
from minidlc.expr import index
from minidlc.frontend.onnx.registry import converter
from minidlc.graph import toposort, verify
from minidlc.graph.op import op_class
from minidlc.lower.memory import greedy_by_size
from minidlc.ops.activation import Relu
from minidlc.schedules import SCHEDULES
from minidlc.support import extension
from minidlc.te import lower
from minidlc.te.primitives import Vectorize
from minidlc.tests.driver.conftest import PACKAGED
from minidlc.tests.tuning.landscapes import nearest_model, synthetic
from minidlc.transform import Cse, rules_of
from minidlc.tuning.problem import explore
from minidlc.tuning.search import Evolution
from minidlc.tuning.space import Space
from minidlc.tuning.table import TableProblem
from minidlc.tuning.trial import best

pytestmark = pytest.mark.llvm

MODEL = PACKAGED / "mnist_cntk.onnx"
with np.load(PACKAGED / "mnist_cntk.case0.npz") as _case:
    X, WANTED = _case["in::Input3"], _case["out::Plus214_Output_0"]


def compiled():
    """Import, compile, run; the answer."""
    return mc.compile(MODEL, threads=1)(X)[0]


def compiled_in_blocks():
    """The same for vectors of at most 8 lanes: its 8 channels do not fill a block of 16."""
    target = mc.target.host(vector_width=min(8, mc.target.host().lanes(32)))
    return mc.compile(MODEL, threads=1, target=target)(X)[0]


def interpreted():
    """Import and interpret; the answer."""
    return mc.interpret(mc.load_onnx(MODEL), [X])[0]


def printed_and_parsed():
    """Import, print, parse, interpret; the answer."""
    graph = mc.load_onnx(MODEL)
    weights = {c.name: c.array for c in graph.constants}
    return mc.interpret(mc.parse(str(graph), weights=weights), [X])[0]


def traced():
    """Trace a function and interpret it; the answer, from its half."""
    graph = mc.trace(lambda half: half + half, mc.f32[WANTED.shape])
    return mc.interpret(graph, [WANTED / 2])[0]


def differentiated():
    """Take the gradient of a weighted sum; the answer, which is the weights."""
    graph = mc.trace(lambda x: (mc.relu(x) * WANTED).sum(), mc.f32[WANTED.shape])
    return mc.interpret(mc.grad(graph), [np.ones_like(WANTED)])[0]


def tuned():
    """Find the best point of a small table; the answer, times how far off it is."""
    table = synthetic(Space({"a": {"x": (1, 2, 4, 8), "y": (1, 2, 3), "z": (0, 1)}}))
    trials = explore(TableProblem(table), Evolution(), trials=table.space.size, model=nearest_model)
    return WANTED * (best(trials).cost / table.best)


# member of the family or the point itself → (the shipped stage as a function, what reaches it)
ROWS = {
    "bounds": (index.bounds, compiled),
    "compute.relu": (Relu.compute, compiled),
    "cost_model": (nearest_model, tuned),
    "emit": (emit, compiled),
    "gradient.relu": (Relu.gradient, differentiated),
    "interpret": (mc.interpret, interpreted),
    "lower": (lower, compiled),
    "memory_plan": (greedy_by_size, compiled),
    "onnx.Relu": (lambda node, *values: converter("Relu")(node, *values), compiled),
    "parse": (lambda text, weights, file: mc.parse(text, weights=weights), printed_and_parsed),
    "pass.cse": (Cse(), compiled),
    "primitive.vectorize": (Vectorize.apply, compiled),
    "print": (str, printed_and_parsed),
    "reference.relu": (Relu.reference, interpreted),
    "rules.canonicalize": (lambda: rules_of("canonicalize"), compiled),
    "schedule.conv_nchwc": (SCHEDULES["conv_nchwc"], compiled_in_blocks),
    "search": (Evolution(), tuned),
    "simplify": (index.simplify, compiled),
    "toposort": (toposort, compiled),
    "trace": (lambda fn, types: mc.trace(fn, **types), traced),
    "type_rule.relu": (Relu.type_rule, compiled),
    "vectorize": (lane_access, compiled),
    "verify": (verify, compiled),
}


def test_every_point_has_a_row():
    prefixes = {name.split(".")[0] for name in ROWS}
    assert {p.name.split(".")[0] for p in extension.table()} == prefixes


@pytest.mark.parametrize("name", ROWS)
def test_a_wrapped_stage_is_called_and_the_answer_stays(name):
    stage, act = ROWS[name]

    def mine(*args, **kwargs):
        return stage(*args, **kwargs)

    assert op_class("relu") is Relu
    with mc.use(**{name: mine}), extension.counting() as calls:
        answer = act()
    assert calls[name] > 0
    assert set(calls) == {name}
    np.testing.assert_allclose(answer, WANTED, atol=1e-4 * np.abs(WANTED).max())


@pytest.mark.parametrize("name", [n for n, (_, act) in ROWS.items() if act is compiled])
def test_the_report_counts_it(name):
    with mc.use(**{name: ROWS[name][0]}):
        exe = mc.compile(MODEL, threads=1)
    assert exe.report().overrides[name] > 0
    with mc.use(**{name: ROWS[name][0]}):  # the second time too, though kernels are cached
        exe = mc.compile(MODEL, threads=1)
    assert exe.report().overrides[name] > 0
