"""Hidden tests of 1.4, an interpreter that forgets."""

from __future__ import annotations

import numpy as np
import pytest
from a1_hidden import arrays_for, needs, random_graph
from a1_public import array, check_broken, check_evaluated, typed

import minidlc as mc
from grader import expect
from minidlc.graph import result_types

RELU = "def g(x: f32[4], z: i32[2, 3]):\n    y: f32[4] = relu(x)\n    return y, z\n"
GOOD = [array([4]), array([2, 3], "int32")]


def heard(graph):
    """What the observer has to hear."""
    needed = needs(graph.outputs)
    order = [node for node in graph.nodes if node in needed]
    rows = []
    for at, node in enumerate(order):
        later = {v for other in order[at + 1 :] for v in other.inputs} | {*graph.outputs}
        held = [n for n in order[: at + 1] if n in later]
        rows.append([node.name, sum(t.nbytes for n in held for t in result_types(n.type))])
    return rows


@pytest.mark.points(2)
@pytest.mark.parametrize("element", ["f32", "f64", "i32"])
def test_random_graphs(student, rng, element):
    """The outputs of random graphs are those of the shipped interpreter."""
    for _ in range(2):
        graph = random_graph(rng, dtype=getattr(mc, element))
        arrays = arrays_for(rng, graph)
        by_name = {i.name: a for i, a in zip(graph.inputs, arrays, strict=True)}
        got = student.call("1.4", graph, by_name if rng.random() < 0.5 else arrays)["outputs"]
        want = mc.interpret(graph, arrays)
        expect.equal(len(got), len(want), "the number of outputs", graph)
        for mine, right in zip(got, want, strict=True):
            expect.close(mine, right, given=graph)


@pytest.mark.points(3)
def test_bytes(student, rng):
    """The observer hears of every needed node in order, and of the bytes that are held after it."""
    twice = typed("""
def g(x: f32[4]):
    a: f32[4] = neg(x)
    b: f32[4] = mul(a, a)
    c: f32[4] = add(b, x)
    return c
""")
    for graph in (twice, *(random_graph(rng, 11) for _ in range(4))):
        got = student.call("1.4", graph, arrays_for(rng, graph))["seen"]
        expect.equal(got, heard(graph), "what the observer heard", graph)


@pytest.mark.points(2)
def test_really_free(student, rng):
    """Arrays that are not held any more do not exist any more when the next node has run."""
    lines, names = [], ["x"]
    for n in range(12):
        a, b = (names[int(rng.integers(max(0, len(names) - 3), len(names)))] for _ in range(2))
        lines.append(f"    n{n}: f32[64] = {rng.choice(['add', 'mul'])}({a}, {b})")
        names.append(f"n{n}")
    graph = typed("\n".join(["def g(x: f32[64]):", *lines, f"    return {names[-1]}, n2"]))
    got = student.call("1.4", graph, [array([64])])
    order = [node for node in graph.nodes if node in needs(graph.outputs)]
    check_evaluated(got, graph)
    expect.equal([name for name, _ in got["seen"]], [n.name for n in order], "what ran", graph)
    for at, alive in enumerate(got["kept"]):
        later = {v for other in order[at:] for v in other.inputs} | {*graph.outputs, order[at]}
        held = {n.name for n in order[: at + 1] if n in later}
        names = {order[n].name for n in alive}
        expect.that(names <= held, f"arrays exist after {order[at].name}", graph, held, names)
        missing = {n.name for n in order[: at + 1] if n in graph.outputs} - names
        expect.that(not missing, f"outputs are gone after {order[at].name}", graph, held, names)


def test_dead_nodes_do_not_run(student):
    """A node that no output needs does not run, although it would fail."""
    graph = typed("""
def g(x: f32[4], at: i64[1]):
    bad: f32[1] = gather(x, at, axis=0)
    worse: f32[1] = relu(bad)
    y: f32[4] = neg(x)
    return y
""")
    got = student.call("1.4", graph, [array([4]), array([1], "int64", 99)])
    expect.close(got["outputs"][0], -array([4]), given=graph)
    expect.equal(got["seen"], [["y", 16]], "what the observer heard", graph)


def test_a_dead_reader_holds_nothing(student):
    """An array that only nodes without use still read is let go."""
    graph = typed("""
def g(x: f32[4]):
    a: f32[4] = neg(x)
    y: f32[1] = sum(a, axes=(0,))
    dead: f32[4] = relu(a)
    z: f32[1] = neg(y)
    return y, z
""")
    got = student.call("1.4", graph, [array([4])])["seen"]
    expect.equal(got, [["a", 16], ["y", 4], ["z", 8]], "what the observer heard", graph)


def test_several_results(student):
    """Results of one node count together, and stay until the last of them was taken."""
    graph = typed("""
def g(x: f32[8]):
    t: (f32[3], i64[3]) = topk(x, k=3)
    v: f32[3] = getitem(t, index=0)
    n: f32[3] = neg(v)
    i: i64[3] = getitem(t, index=1)
    return n, i
""")
    got = student.call("1.4", graph, [array([8])])
    want = [["t", 36], ["v", 48], ["n", 48], ["i", 36]]
    expect.equal(got["seen"], want, "what the observer heard", graph)
    expect.close(got["outputs"][1], np.array([7, 6, 5]), given=graph)


def test_views_and_twins(student):
    """Views of inputs, constants, other results, and outputs that stand twice are new arrays."""
    graph = typed("""
def g(x: f32[4], z: f32[4]):
    k: f32[2] = const([1.0, 2.0])
    y: f32[2, 2] = reshape(x, shape=(2, 2))
    w: f32[4] = reshape(y, shape=(4,))
    a: f32[4] = neg(x)
    b: f32[2, 2] = reshape(a, shape=(2, 2))
    return k, y, w, z, a, b, z, k, a
""")
    inputs = [array([4]), array([4], start=5)]
    got = student.call("1.4", graph, inputs)
    expect.equal(got["own"], [True] * 9, "which outputs the caller may write into", graph)
    for mine, right in zip(got["outputs"], mc.interpret(graph, inputs), strict=True):
        expect.close(mine, right, given=graph)


def test_without_an_observer(student, rng):
    """Without an observer, and through mc.interpret, the outputs are the same."""
    graph = random_graph(rng)
    arrays = arrays_for(rng, graph)
    for how in ({"watched": False}, {"plugged": True}):
        got = student.call("1.4", graph, arrays, **how)["outputs"]
        for mine, right in zip(got, mc.interpret(graph, arrays), strict=True):
            expect.close(mine, right, given=graph)


INPUTS = {
    "too_few": (GOOD[:1], "0911", ""),
    "too_many": ([*GOOD, GOOD[0]], "0911", ""),
    "missing_name": ({"x": GOOD[0]}, "0911", "z"),
    "unknown_name": ({"x": GOOD[0], "z": GOOD[1], "w": GOOD[1]}, "0911", "w"),
    "element": ([array([4], "float64"), GOOD[1]], "0912", "x"),
    "element_of_that_size": ([array([4], "int32"), GOOD[1]], "0912", "x"),
    "shape": ([GOOD[0], array([3, 2], "int32")], "0913", "z"),
    "rank": ([array([4, 1]), GOOD[1]], "0913", "x"),
    "shape_by_name": ({"z": array([6], "int32"), "x": GOOD[0]}, "0913", "z"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(student, case):
    """Inputs that do not fit are refused, by the code of the rule and with the name."""
    inputs, code, name = INPUTS[case]
    raised = student.raises("1.4", typed(RELU), inputs)
    expect.refused(raised, "CallError", mentions=[name], given=RELU)
    expect.equal(raised.code, f"MDLC{code}", "the code", RELU)


def test_order_of_a_dict(student):
    """A dict may have its names in any order."""
    graph = typed(RELU)
    got = student.call("1.4", graph, {"z": GOOD[1], "x": GOOD[0]})["outputs"]
    expect.close(got[0], GOOD[0], given=graph)
    expect.close(got[1], GOOD[1], given=graph)


BROKEN = ["element", "kind", "shape", "size", "twice"]


@pytest.mark.parametrize("how", BROKEN)
def test_wrong_type_of_result(student, how):
    """A result of another element type, rank, size or number is refused, and the node named."""
    graph = typed(
        "def g(x: f32[4]):\n    a: f32[4] = neg(x)\n    b: f32[4] = relu(a)\n    return b\n"
    )
    check_broken(student, graph, [array([4])], {"relu": how}, "'b'")


@pytest.mark.parametrize("how", ["fewer", "second", "swapped"])
def test_wrong_type_of_several(student, how):
    """Of several results each is looked at, and their number."""
    graph = typed("""
def g(x: f32[8]):
    t: (f32[3], i64[3]) = topk(x, k=3)
    v: f32[3] = getitem(t, index=0)
    return v
""")
    check_broken(student, graph, [array([8])], {"topk": how}, "'t'")


def test_replaced_meaning(student):
    """A meaning that was replaced through mc.use is the one that runs."""
    graph = typed("def g(x: f32[4]):\n    y: f32[4] = relu(x)\n    return y\n")
    got = student.call("1.4", graph, [array([4])], broken={"relu": "one more"})
    check_evaluated(got, graph)
    expect.close(got["outputs"][0], array([4]) + 1, given=graph)


def test_omitted_input(student):
    """An omitted input arrives at the op as None."""
    graph = typed("""
def g(a: u8[2, 2], z: u8[()]):
    y: i32[2, 2] = matmul_integer(a, a, None, z)
    return y
""")
    a, z = array([2, 2], "uint8"), array([], "uint8", 3)
    got = student.call("1.4", graph, [a, z])["outputs"]
    expect.close(got[0], a.astype("int32") @ (a.astype("int32") - 3), given=graph)
