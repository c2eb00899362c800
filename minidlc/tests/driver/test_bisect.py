"""bisect: planted faults in rules, passes and kernels are found to the rewrite, and cut small."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.benchmarks.models import MODELS
from minidlc.graph import Graph, interpret, parse, verify
from minidlc.graph.text import weights_of
from minidlc.support.errors import CallError, OptionError
from minidlc.tests.driver.test_reduce import looped
from minidlc.tests.random_graphs import case_of
from minidlc.transform import Cse, Pipeline, Rule, canonical_rules
from minidlc.transform.rebuild import with_replaced

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]

G = parse(
    """\
def f(x: f32[2, 8], w: f32[8, 8]):
    a = matmul(x, w)
    b = relu(a)
    c = exp(b)
    d = relu(c)
    e = matmul(d, w)
    r = relu(e)
    s = neg(neg_r)
    return s
""".replace("    s = neg(neg_r)\n", "    n = neg(r)\n    s = neg(n)\n")
)


def feeds(g: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs]


def planted(where: str) -> dict[str, Any]:
    """`relu` becomes `abs`, at the node of one name only."""
    rule = Rule(
        "wrong",
        lambda x: mc.relu(x),
        lambda x: mc.abs(x),
        when=lambda root: root.name == where or "elsewhere",
    )
    return {"rules.canonicalize": lambda: (*canonical_rules(), rule)}


@pytest.mark.parametrize("where", ["b", "r"])
def test_a_wrong_rule_is_found_to_the_rewrite(where: str) -> None:
    with mc.use(**planted(where)):
        found = mc.debug.bisect(G, feeds(G))
        _, records = found.pipeline.run(G)
    assert found.guilty == "pass"
    assert found.step.name == "canonicalize"
    assert found.rewrite == records[-1].done[found.number - 1]
    assert (found.rewrite.rule, found.rewrite.node) == ("wrong", where)
    with mc.use(**planted(where)):
        assert found.of == len(Pipeline.default().until("canonicalize").run(G)[1][-1].done)
    assert f"-    {where}: f32[2, 8] = relu(" in found.changed
    assert f"+    {where}: f32[2, 8] = abs(" in found.changed
    assert [n.op.name for n in found.reduced.nodes] == ["relu"]
    text = str(found)
    assert f"'canonicalize': rewrite {found.number} of {found.of} is wrong" in text
    assert f"wrong at {where}: done" in text
    passes = ",".join(Pipeline.default().until("canonicalize").names)
    assert f"passes: {passes}{{limit={found.number}}}" in text
    assert str(found.reduced) in text


def test_the_rewrite_before_is_right() -> None:
    with mc.use(**planted("r")):
        found = mc.debug.bisect(G, feeds(G), reduced=False)
    arrays = feeds(G)
    want = interpret(G, arrays)[0]
    assert np.array_equal(interpret(found.before, arrays)[0], want)
    assert not np.allclose(interpret(found.after, arrays)[0], want)
    assert found.reduced is None


def wrong_cse(g: Graph) -> Graph:
    """Takes two matmuls of equal right sides for the same."""
    g = Cse()(g)
    first, second, *_ = [n for n in g.nodes if n.op.name == "matmul"] + [None, None]
    if first is None or second is None or first.inputs[1] is not second.inputs[1]:
        return g
    return with_replaced(g, {second: first})


def test_a_wrong_pass_is_found_as_a_whole() -> None:
    with mc.use(**{"pass.cse": wrong_cse}):
        found = mc.debug.bisect(G, feeds(G))
    assert found.step.name == "cse"
    assert (found.number, found.of) == (1, 1)
    assert [n.op.name for n in found.reduced.nodes] == ["matmul", "matmul"]
    with mc.use(**{"pass.cse": wrong_cse}):
        after, _ = Pipeline((Cse(),)).run(found.reduced)
    assert len(after.nodes) < 2, "the small graph shows the fault again"


def test_a_pass_that_breaks_the_graph_counts_as_wrong() -> None:
    def breaks(g: Graph) -> Graph:
        relus = [n for n in g.nodes if n.op.name == "relu"]
        nodes = tuple(n for n in g.nodes if n not in relus[:1])
        return Graph(g.name, g.inputs, nodes, g.outputs)

    with mc.use(**{"pass.dce": breaks}):
        found = mc.debug.bisect(G, feeds(G))
    assert found.step.name == "dce"
    assert "which is not in the graph" in found.reason
    assert found.after is None
    assert [n.op.name for n in found.reduced.nodes] == ["relu"], "the one that is lost"


def test_a_fault_in_the_body_of_a_loop() -> None:
    with mc.use(**planted("r")):
        found = mc.debug.bisect(looped(), [-np.ones(4, np.float32)])
    assert (found.step.name, found.rewrite.node) == ("canonicalize", "r")
    assert [n.op.name for n in found.reduced.nodes] == ["relu"]


def test_right_passes_and_right_code() -> None:
    found = mc.debug.bisect(G, feeds(G))
    assert found.guilty == "nobody"
    assert str(found) == "nothing is wrong: every pass keeps the answer, and so does compiled code"


def test_wrong_code_is_not_the_fault_of_a_pass() -> None:
    """A schedule whose loops compute something else: the first such kernel is named."""
    from minidlc.ops.unary import Exp  # the op whose expression is replaced

    def doubled(op: Exp, x: Any) -> Any:
        return mc.te.compute(x.shape, lambda *i: mc.te.exp(x[i]) * 2.0)

    with mc.use(**{"compute.exp": doubled}):
        found = mc.debug.bisect(G, feeds(G))
    assert found.guilty == "code"
    exe = mc.compile(G)
    [kernel] = [k for k in exe.kernels if "exp" in str(k)]
    assert found.kernel == kernel.name
    assert str(found).startswith(
        f"every pass keeps the answer; compiled code differs at kernel {kernel.name!r}"
    )


def test_expected_outputs_from_elsewhere() -> None:
    arrays = feeds(G)
    [want] = interpret(G, arrays)
    assert mc.debug.bisect(G, arrays, expected=[want]).guilty == "nobody"
    found = mc.debug.bisect(G, arrays, expected={"s": want + 1})
    assert found.guilty == "source"
    assert str(found).startswith("the graph is wrong before any pass\n  = output s: 16 of 16")
    assert mc.debug.bisect(G, arrays, expected=[want * 1.001], tolerance=0.01).guilty == "nobody"
    with pytest.raises(OptionError, match="expected outputs: f has s, got t") as caught:
        mc.debug.bisect(G, arrays, expected={"t": want})
    assert caught.value.code == "MDLC1044"
    with pytest.raises(CallError, match="missing input 'w'"):
        mc.debug.bisect(G, arrays[:1])
    with pytest.raises(CallError, match=r"input 'x': expected f32\[2, 8\], got shape \(8, 8\)"):
        mc.debug.bisect(G, [arrays[1], arrays[1]])


def test_expected_outputs_of_one_name_are_told_apart_as_in_run_dict() -> None:
    g = parse("def f(x: f32[2]):\n    y = relu(x)\n    z = neg(x)\n    return y, z")
    g = Graph("f", g.inputs, g.nodes, (g.nodes[0], replace(g.nodes[1], name="y")))
    g = Graph("f", g.inputs, (g.nodes[0], *g.outputs[1:]), g.outputs)
    x = np.array([1, -2], np.float32)
    want = mc.compile(g).run_dict(x)
    assert list(want) == ["y", "y_1"]
    assert mc.debug.bisect(g, [x], expected=want).guilty == "nobody"


def test_open_sizes_and_pipelines_as_text() -> None:
    g = parse("""\
def f(x: f32["N", 4]):
    a = relu(x)
    b = relu(a)
    c = softmax(b)
    return c
""")
    wrong = Rule("wrong", lambda x: mc.relu(mc.relu(x)), lambda x: x)
    with mc.use(**{"rules.canonicalize": lambda: (wrong,)}):
        found = mc.debug.bisect(
            g, {"x": feeds(parse("def f(x: f32[3, 4]):\n    return x"))[0]}, "canonicalize"
        )
    assert str(found.pipeline) == "decompose,canonicalize{limit=1}"
    assert [n.op.name for n in found.reduced.nodes] == ["relu", "relu"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_with_a_planted_fault(seed: int) -> None:
    """The n-th answer that changes is the first: judged by running every prefix."""
    case = case_of(seed)
    names = [n.name for n in case.graph.nodes]

    def wrong(g: Graph) -> Graph:
        for node in g.nodes:
            if node.op.name in ("add", "mul", "maximum") and node.inputs[0].type == node.type:
                return with_replaced(g, {node: node.inputs[0]})
        return g

    with mc.use(**{"pass.dce": wrong}):
        found = mc.debug.bisect(case.graph, case.arrays, Pipeline.default(1))
    differs = wrong(Pipeline.default(1).until("cse").run(case.graph)[0])
    if found.guilty == "pass":
        assert found.step.name == "dce", names
        verify(found.reduced)
        assert len(found.reduced.nodes) <= 3
    else:
        got, want = interpret(differs, case.arrays), interpret(case.graph, case.arrays)
        case.check(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["rule", "pass"])
def test_a_fault_in_resnet18_is_found_in_a_minute(fault: str) -> None:
    model, arrays = MODELS["resnet18"]()
    graph = mc.load_onnx(model)
    relus = [n for n in graph.nodes if n.op.name == "relu"]

    def shares(g: Graph) -> Graph:
        """cse, and then a relu taken for an earlier one of its type."""
        g = Cse()(g)
        last = [n for n in g.nodes if n.op.name == "relu"][-1:]
        same = [n for n in g.nodes if n.op.name == "relu" and [n.type] == [r.type for r in last]]
        return with_replaced(g, {same[1]: same[0]}) if len(same) > 1 else g

    where = relus[len(relus) // 2].name
    wrong = planted(where) if fault == "rule" else {"pass.cse": shares}
    start = time.process_time()  # what else the machine does is no fault of the search
    with mc.use(**wrong):
        found = mc.debug.bisect(model, arrays)
    assert time.process_time() - start < 60
    assert found.step.name == ("canonicalize" if fault == "rule" else "cse")
    if fault == "rule":
        assert (found.rewrite.rule, found.rewrite.node) == ("wrong", where)
    assert len(found.reduced.nodes) <= 5
    assert weights_of(found.reduced) == {}, "no large constant is left"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"pipeline": 3}, "MDLC1001", "bisect: pipeline is a int, expected str or Pipeline"),
        ({"tolerance": "x"}, "MDLC1001", "bisect: tolerance is a str, expected float"),
        ({"tolerance": float("nan")}, "MDLC1047", "bisect: tolerance is nan, expected a finite"),
        ({"tolerance": float("inf")}, "MDLC1047", "bisect: tolerance is inf, expected a finite"),
        ({"tolerance": -1}, "MDLC1047", "bisect: tolerance is -1, expected a finite"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        mc.debug.bisect(G, feeds(G), **arguments)
    assert caught.value.code == code
    assert caught.value.message.startswith(message)


def test_a_pass_that_raises_is_printed_with_its_reason() -> None:
    def raises(g: Graph) -> Graph:
        raise ValueError("planted")

    with mc.use(**{"pass.cse": raises}):
        found = mc.debug.bisect(G, feeds(G), "cse", reduced=False)
    text = str(found).splitlines()
    assert text[0].endswith("'cse': raises, or breaks the graph, before a rewrite")
    assert text[1].startswith("  = ")
    assert "planted" in text[1]
    assert found.rewrite is None


def test_a_rule_that_raises_is_printed_with_its_reason() -> None:
    def raises(x: Any) -> Any:
        raise ValueError("planted")

    rule = Rule("w", lambda x: mc.exp(x), raises)
    with mc.use(**{"rules.canonicalize": lambda: [rule]}):
        found = mc.debug.bisect(G, feeds(G), "canonicalize", reduced=False)
    text = str(found).splitlines()
    assert text[0].endswith("'canonicalize': raises, or breaks the graph, before a rewrite")
    assert "rule 'w' failed at 'c': planted" in text[1]


def test_a_pass_that_does_not_do_the_same_twice() -> None:
    calls: list[Graph] = []

    def flaky(g: Graph) -> Graph:
        calls.append(g)
        relu = next(n for n in g.nodes if n.op.name == "relu")
        wrong = with_replaced(g, {relu: replace(relu.inputs[0], name=relu.name)})
        return wrong if len(calls) == 1 else g

    with mc.use(**{"pass.cse": flaky}):
        found = mc.debug.bisect(G, feeds(G), "cse", reduced=False)
    assert len(calls) > 1
    assert str(found).splitlines()[1] == ("  = not the second time: the pass is not deterministic")
