"""Hidden tests of 1.2, a topological order."""

from __future__ import annotations

import re

import pytest
from a1_hidden import needs, random_graph
from a1_public import peak, typed

import minidlc as mc
from grader import expect
from minidlc.graph import Node

f32 = mc.f32
ONE = f32[4]


def check(student, reference, graph):
    """The order of the reference."""
    want = [node.name for node in reference.order_nodes(graph.outputs)]
    expect.equal(student.call("1.2", graph), want, "the order", graph)


@pytest.mark.points(2)
def test_valid(student, rng):
    """In random graphs every needed node stands once, after all that it reads."""
    for _ in range(3):
        graph = random_graph(rng)
        got = student.call("1.2", graph)
        needed = needs(graph.outputs)
        expect.equal(
            sorted(got), sorted(n.name for n in needed), "the nodes that are placed", graph
        )
        for node in needed:
            early = [v.name for v in node.inputs if isinstance(v, Node)]
            fits = all(got.index(name) < got.index(node.name) for name in early)
            expect.that(fits, f"{node.name} stands before what it reads", graph, early, got)


@pytest.mark.points(3)
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_fewest_bytes(student, reference, rng, element):
    """In random graphs every step leaves the fewest bytes alive."""
    for _ in range(4):
        check(student, reference, random_graph(rng, 11, dtype=getattr(mc, element)))


def test_equal_sizes(student, reference, rng):
    """Where all sizes are equal, the depth-first walk decides between equals."""
    names = ["x"]
    lines = []
    for n in range(14):
        a, b = (names[int(rng.integers(0, len(names)))] for _ in range(2))
        lines.append(f"    n{n}: f32[4] = add({a}, {b})")
        names.append(f"n{n}")
    ends = ", ".join(names[-3:])
    graph = typed("\n".join(["def g(x: f32[4]):", *lines, f"    return {ends}"]))
    check(student, reference, graph)


CASES = {
    "read_twice_by_one": """
def g(x: f32[8], z: f32[10]):
    a: f32[8] = relu(x)
    b: f32[16] = concat(a, a, axis=0)
    c: f32[10] = relu(z)
    t: f32[1] = sum(b, axes=(0,))
    u: f32[1] = sum(c, axes=(0,))
    y: f32[1] = add(u, t)
    return y
""",
    "output_stays_alive": """
def g(x: f32[8]):
    a: f32[8] = relu(x)
    s: f32[1] = sum(a, axes=(0,))
    d: f32[2] = slice(a, starts=(0,), ends=(2,), axes=(0,))
    e: f32[1] = neg(s)
    y: f32[2] = add(d, e)
    return a, y
""",
    "output_with_two_readers": """
def g(x: f32[8]):
    a: f32[8] = relu(x)
    s: f32[1] = sum(a, axes=(0,))
    d: f32[2] = slice(a, starts=(0,), ends=(2,), axes=(0,))
    b: f32[2] = slice(a, starts=(1,), ends=(3,), axes=(0,))
    e: f32[1] = neg(s)
    c: f32[2] = add(d, e)
    y: f32[2] = add(c, b)
    return a, y
""",
    "inputs_are_free": """
def g(x: f32[1000], z: f32[2]):
    a: f32[4] = slice(x, starts=(0,), ends=(4,), axes=(0,))
    b: f32[2] = relu(z)
    s: f32[1] = sum(a, axes=(0,))
    t: f32[1] = sum(b, axes=(0,))
    y: f32[1] = add(s, t)
    return y
""",
    "second_reader_frees": """
def g(x: f32[8]):
    a: f32[8] = relu(x)
    b: f32[6] = slice(a, starts=(0,), ends=(6,), axes=(0,))
    c: f32[7] = slice(a, starts=(0,), ends=(7,), axes=(0,))
    s: f32[1] = sum(b, axes=(0,))
    d: f32[3] = concat(s, s, s, axis=0)
    t: f32[1] = sum(c, axes=(0,))
    y: f32[3] = add(d, t)
    return y
""",
    "a_dead_reader_holds_nothing": """
def g(x: f32[8]):
    a: f32[8] = relu(x)
    dead: f32[8] = neg(a)
    b: f32[8] = neg(x)
    s: f32[1] = sum(a, axes=(0,))
    t: f32[4] = slice(b, starts=(0,), ends=(4,), axes=(0,))
    y: f32[4] = add(s, t)
    return y
""",
    "bytes_not_elements": """
def g(x: f32[8], z: f64[8]):
    a: f32[8] = relu(x)
    b: f64[8] = relu(z)
    c: f64[5] = slice(b, starts=(0,), ends=(5,), axes=(0,))
    d: f32[5] = cast(c, to=f32)
    e: f32[7] = slice(a, starts=(0,), ends=(7,), axes=(0,))
    s: f32[1] = sum(d, axes=(0,))
    t: f32[1] = sum(e, axes=(0,))
    y: f32[1] = add(s, t)
    return y
""",
    "symbols": """
def g(x: f32["N"], z: f32[2]):
    a: f32[2] = relu(z)
    b: f32["N"] = neg(x)
    s: f32[1] = sum(a, axes=(0,))
    t: f32[1] = sum(b, axes=(0,))
    y: f32[1] = add(s, t)
    return y
""",
    "several_results": """
def g(x: f32[8], z: f32[10]):
    a: (f32[4], i64[4]) = topk(x, k=4)
    b: f32[10] = relu(z)
    p: f32[4] = getitem(a, index=0)
    q: i64[4] = getitem(a, index=1)
    s: f32[1] = sum(b, axes=(0,))
    y: f32[4] = add(s, p)
    return q, y
""",
}


@pytest.mark.parametrize("case", CASES)
def test_alive(student, reference, case):
    """What is alive: by last reads, outputs, bytes of all results; not inputs, not dead reads."""
    check(student, reference, typed(CASES[case]))


def test_peak(student, reference, rng):
    """Many wide branches: the peak is that of one branch, not of all."""
    wide = int(rng.integers(50, 90))
    names = ["x"]
    text = ["def g(x: f32[1]):"]
    for n in range(8):
        text.append(f"    w{n}: f32[{wide + n}] = expand(x, shape=({wide + n},))")
    for n in range(8):
        text.append(f"    s{n}: f32[1] = sum(w{n}, axes=(0,))")
        names.append(f"s{n}")
    text += ["    a1: f32[1] = add(s0, s1)"]
    text += [f"    a{n}: f32[1] = add(a{n - 1}, s{n})" for n in range(2, 8)]
    graph = typed("\n".join([*text, "    return a7"]))
    check(student, reference, graph)
    got = student.call("1.2", graph)
    most = peak(graph, got)
    expect.that(most <= 4 * (wide + 7 + 8), "the peak is too high", graph, "one branch", most)


def test_outputs(student):
    """Outputs may be inputs, constants or one node twice; without nodes the list is empty."""
    graph = typed("def g(x: f32[4]):\n    a: f32[4] = relu(x)\n    return x, a, a\n")
    expect.equal(student.call("1.2", graph), ["a"], "the order", graph)
    graph = typed("def g(x: f32[4]):\n    return x, x\n")
    expect.equal(student.call("1.2", graph), [], "the order", graph)


def test_deep(student):
    """A chain of 2,000 nodes."""
    got = student.call("1.2", 2_000)
    right = got == [f"n{n}" for n in range(2_000)]
    expect.that(right, "the order of the chain is wrong", "n0 … n1999", "n0, n1, …", got[:5])


def cycle(reads, outputs):
    """A graph of adds, which may read anything."""
    nodes = {key: ["add", list(pair), {}, ONE] for key, pair in reads.items()}
    return {"inputs": {"x": ONE}, "nodes": nodes, "outputs": outputs}


CYCLES = {
    "of_three": ({"a": "xc", "b": "ax", "c": "bx"}, "c", "abc"),
    "of_one": ({"a": "xx", "b": "ab"}, "b", "b"),
    "deep_inside": ({"p": "xx", "a": "pb", "b": "ax", "q": "bp", "r": "qq"}, "rp", "ab"),
    "beside_a_diamond": ({"a": "xx", "b": "aa", "c": "ab", "d": "ce", "e": "dc"}, "ce", "de"),
}


@pytest.mark.parametrize("case", CYCLES)
def test_cycles(student, case):
    """A cycle is refused with MDLC0402; the message names nodes of the cycle only."""
    reads, outputs, on_it = CYCLES[case]
    given = ", ".join(f"{key} = add({pair[0]}, {pair[1]})" for key, pair in reads.items())
    raised = student.raises("1.2", cycle(reads, list(outputs)))
    raised = expect.refused(raised, "MDLC0402", given=given)
    named = set(re.findall(r"'(\w)'", raised.message)) & reads.keys()
    right = bool(named) and named <= set(on_it)
    expect.that(right, "the message names other nodes", given, list(on_it), raised.message)


def test_no_cycle(student):
    """A node that several paths reach is no cycle; a cycle that no output needs does not matter."""
    reads = {"a": "xx", "b": "aa", "c": "ab", "d": "cb", "p": "xq", "q": "px"}
    got = student.call("1.2", cycle(reads, ["d"]))
    expect.equal(got, ["a", "b", "c", "d"], "the order", "a, b, c, d, and p reads q reads p")


def test_graphs_of_the_compiler(student, reference, rng):
    """As the point `toposort` it gives the graphs that the compiler makes their order."""
    for _ in range(2):
        graph = random_graph(rng)
        order = reference.order_nodes(graph.outputs)
        want = mc.Graph(graph.name, graph.inputs, tuple(order), graph.outputs)
        expect.same_graph(student.call("1.2", graph, plugged=True), want, graph)
