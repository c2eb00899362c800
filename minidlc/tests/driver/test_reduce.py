"""reduce: to the smallest bad graph, valid at every step, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import minidlc as mc
from minidlc.graph import Graph, apply, interpret, parse, verify
from minidlc.graph.text import weights_of
from minidlc.support.errors import OptionError, VerifyError
from minidlc.tests.random_graphs import Case, cases

pytestmark = [pytest.mark.llvm, pytest.mark.ch02]

CHAIN = parse("""\
def chain(x: f32[8, 16], w: f32[16, 16]):
    a = matmul(x, w)
    b = relu(a)
    c = exp(b)
    s = softmax(c)
    d = tanh(s)
    e = add(d, b)
    f = neg(e)
    g = matmul(f, w)
    return g, f
""")


def has(*ops: str) -> Callable[[Graph], bool]:
    """Bad while these ops are in the graph."""

    def is_bad(g: Graph) -> bool:
        verify(g)
        return set(ops) <= {n.op.name for n in g.nodes}

    return is_bad


@pytest.mark.parametrize("ops", [("softmax",), ("relu", "neg"), ("matmul", "tanh", "exp")])
def test_only_what_is_needed_stays(ops: tuple[str, ...]) -> None:
    small = mc.debug.reduce(CHAIN, has(*ops))
    assert small.complete
    assert sorted(n.op.name for n in small.graph.nodes) == sorted(ops)
    assert all(d == 1 for i in small.graph.inputs for d in i.type.dims), "sizes are cut"
    assert parse(str(small)) == small.graph


def test_the_way_between_two_ops_stays_if_it_is_needed() -> None:
    def is_bad(g: Graph) -> bool:
        """A relu whose value reaches a neg."""
        reached: set[object] = set()
        for n in g.nodes:
            if n.op.name == "relu" or any(v in reached for v in n.inputs):
                reached.add(n)
        return any(n.op.name == "neg" and n in reached for n in g.nodes)

    small = mc.debug.reduce(CHAIN, is_bad)
    assert [n.op.name for n in small.graph.nodes] == ["relu", "neg"], "add is bypassed"
    assert len(small.graph.inputs) == len(small.graph.outputs) == 1


def test_what_is_cut_off_becomes_an_input_of_its_name() -> None:
    seen: list[set[str]] = []

    def is_bad(g: Graph) -> bool:
        seen.append({i.name for i in g.inputs})
        return has("softmax")(g)

    small = mc.debug.reduce(CHAIN, is_bad)
    assert [i.name for i in small.graph.inputs] == ["c"]
    names = {v.name for v in (*CHAIN.inputs, *CHAIN.nodes)}
    assert all(given <= names for given in seen)


def test_a_question_that_raises_is_answered_with_no() -> None:
    def is_bad(g: Graph) -> bool:
        if len(g.nodes) % 2:
            raise RuntimeError("odd")
        return has("softmax")(g)

    assert len(mc.debug.reduce(CHAIN, is_bad).graph.nodes) == 2


def test_a_graph_that_is_not_bad_is_refused() -> None:
    def raises(g: Graph) -> bool:
        raise KeyError("x")

    for question, part in (
        (has("conv"), "is_bad says no"),
        (raises, "is_bad raises KeyError: 'x'"),
    ):
        with pytest.raises(OptionError, match="reduce: chain is not bad as it is") as caught:
            mc.debug.reduce(CHAIN, question)
        assert caught.value.code == "MDLC1045"
        assert part in caught.value.message
    with pytest.raises(OptionError, match="graph is a str"):
        mc.debug.reduce("f", has("conv"))  # type: ignore[arg-type]
    broken = Graph("f", (), CHAIN.nodes, CHAIN.outputs)
    with pytest.raises(VerifyError):
        mc.debug.reduce(broken, has("softmax"))


def test_the_number_of_questions_is_bounded() -> None:
    count = 0

    def is_bad(g: Graph) -> bool:
        nonlocal count
        count += 1
        return has("softmax", "tanh")(g)

    small = mc.debug.reduce(CHAIN, is_bad, max_tests=5)
    assert count == small.tests == 5
    assert not small.complete
    assert is_bad(small.graph)


def test_constants_become_inputs_or_plain() -> None:
    w = np.arange(64, dtype=np.float32).reshape(8, 8)
    g = parse(
        """\
def f(x: f32[8, 8]):
    w: f32[8, 8] = const("w")
    c: f32[8] = const([1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    m = matmul(x, w)
    a = add(m, c)
    return a
""",
        {"w": w},
    )
    small = mc.debug.reduce(g, has("matmul"))
    assert weights_of(small.graph) == {}
    assert [i.name for i in small.graph.inputs] == ["x", "w"]

    def adds_a_constant(g: Graph) -> bool:
        return bool(g.constants) and has("add")(g)

    small = mc.debug.reduce(g, adds_a_constant)
    assert [c.array.tolist() for c in small.graph.constants] == [[0.0]]
    assert [n.op.name for n in small.graph.nodes] == ["add"]


def test_several_results_are_cut_together() -> None:
    g = parse("""\
def f(x: f32[6]):
    r = relu(x)
    v: f32[2]; i: i64[2]; v, i = topk(r, k=2)
    n = neg(v)
    return n, i
""")
    small = mc.debug.reduce(g, has("topk"))
    assert [n.op.name for n in small.graph.nodes] == ["topk", "getitem"]
    small = mc.debug.reduce(g, has("neg"))
    assert [n.op.name for n in small.graph.nodes] == ["neg"]
    assert [i.name for i in small.graph.inputs] == ["v"]


BRANCHES = """\
def f(p: bool[()], x: f32[4]):
    def then_branch(x: f32[4]):
        a = exp(x)
        b = relu(a)
        c = add(b, x)
        return c
    def else_branch(x: f32[4]):
        d = neg(x)
        return d
    y = if_(p, x, then_branch=then_branch, else_branch=else_branch)
    z = tanh(y)
    return z
"""


def test_bodies_are_opened_or_made_smaller() -> None:
    g = parse(BRANCHES)

    def inside(g: Graph) -> set[str]:
        found: set[str] = set()
        for n in g.nodes:
            found.add(n.op.name)
            for v in n.op.attributes().values():
                found |= inside(v) if isinstance(v, Graph) else set()
        return found

    small = mc.debug.reduce(g, lambda g: "relu" in inside(g)).graph
    assert [n.op.name for n in small.nodes] == ["relu"], "the branch stands in place of the if"
    small = mc.debug.reduce(g, lambda g: {"relu", "if_"} <= inside(g)).graph
    assert [n.op.name for n in small.nodes] == ["if_"]
    assert inside(small) == {"if_", "relu"}


def looped() -> Graph:
    """Three runs of tanh, relu, add."""
    i, go = mc.Input("i", mc.i64[()]), mc.Input("go", mc.bool_[()])
    s, x = mc.Input("s", mc.f32[4]), mc.Input("x", mc.f32[4])
    r = replace(mc.relu(mc.tanh(s)), name="r")
    body = Graph.of("step", [i, go, s], [go, r + s])
    loop = apply("loop", None, None, x, body=body, carried=1, trips=3)
    return Graph.of("g", [x], [mc.tanh(loop)])


def test_a_body_may_be_all_that_is_needed() -> None:
    def anywhere(g: Graph) -> bool:
        inner = [v for n in g.nodes for v in n.op.attributes().values() if isinstance(v, Graph)]
        return any(n.op.name == "relu" for n in g.nodes) or any(map(anywhere, inner))

    small = mc.debug.reduce(looped(), anywhere).graph
    assert [n.op.name for n in small.nodes] == ["relu"], "a run of the loop, without the loop"
    small = mc.debug.reduce(looped(), lambda g: anywhere(g) and has("loop")(g)).graph
    (loop,) = small.nodes
    assert [n.op.name for n in loop.op.body.nodes] == ["relu"]  # type: ignore[attr-defined]


@pytest.mark.long
@given(cases(max_ops=6))
def test_random_graphs_stay_valid_and_the_answer_is_the_same_each_time(case: Case) -> None:
    wanted = case.graph.nodes[len(case.graph.nodes) // 2].op.name

    def is_bad(g: Graph) -> bool:
        verify(g)
        return any(n.op.name == wanted for n in g.nodes)

    first = mc.debug.reduce(case.graph, is_bad)
    assert first.complete
    again = mc.debug.reduce(case.graph, is_bad)
    assert (str(first), first.tests) == (str(again), again.tests)
    assert len({n.op.name for n in first.graph.nodes} - {wanted, "getitem"}) <= 1
    assert parse(str(first), weights_of(first.graph)) == first.graph


def test_a_fault_of_numbers_is_cut_to_the_op() -> None:
    """The question runs two programs: an exp that doubles, and the right one."""

    def differs(g: Graph) -> bool:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(i.type.dims).astype(np.float32) for i in g.inputs]
        doubled = [n for n in g.nodes if n.op.name == "exp"]
        if not doubled:
            return False
        wrong = parse(str(g).replace(" = exp(", " = tanh("))
        return not np.allclose(interpret(wrong, arrays)[0], interpret(g, arrays)[0])

    small = mc.debug.reduce(CHAIN, differs).graph
    assert [n.op.name for n in small.nodes] == ["exp"]


@pytest.mark.parametrize("answer", [np.array([1, 2]), np.array([True]), None, 1])
def test_a_question_answers_true_or_false(answer: object) -> None:
    with pytest.raises(OptionError, match="must return True or False") as caught:
        mc.debug.reduce(CHAIN, lambda g: answer)  # type: ignore[return-value,arg-type]
    assert caught.value.code == "MDLC1045"
    with pytest.raises(OptionError, match="must return True or False"):
        mc.debug.reduce(CHAIN, lambda g: g == CHAIN or answer)  # type: ignore[return-value,arg-type]
    small = mc.debug.reduce(CHAIN, lambda g: np.any(np.array(["exp" in str(g)])))  # type: ignore[arg-type,return-value]
    assert len(small.graph.nodes) == 1


@pytest.mark.parametrize("tests", [0, -1])
def test_at_least_one_test(tests: int) -> None:
    with pytest.raises(OptionError, match=f"max_tests is {tests}") as caught:
        mc.debug.reduce(CHAIN, has("exp"), max_tests=tests)
    assert caught.value.code == "MDLC1047"
