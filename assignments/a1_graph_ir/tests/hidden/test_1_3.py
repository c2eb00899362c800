"""Hidden tests of 1.3, a verifier that reports everything."""

from __future__ import annotations

import pytest
from a1_hidden import needs, random_graph, recipe_of
from a1_public import array, check_faults, shown

import minidlc as mc
from grader import expect

f32 = mc.f32
X = f32[4]


def graph(outputs: str, nodes: dict, **more) -> dict:
    """A recipe of one input x and of outputs that are named by one letter each."""
    return {"inputs": {"x": X}, "nodes": nodes, "outputs": list(outputs), **more}


@pytest.mark.points(2)
def test_good_graphs(student, rng):
    """Random graphs without a fault pass."""
    for _ in range(5):
        check_faults(student, recipe_of(random_graph(rng, dead=False)), [])


def test_not_too_strict(student):
    """Constants, omitted inputs, reads and outputs twice, an input that nobody reads: no fault."""
    recipe = {
        "inputs": {"a": mc.u8[2, 2], "z": mc.u8[()], "unread": X},
        "constants": {"k": array([2, 2], "uint8")},
        "nodes": {
            "h": ["matmul_integer", ["a", "k", None, "z"]],
            "y": ["add", ["h", "h"]],
        },
        "names": {"y": "h"},
        "outputs": ["y", "y", "a", "k"],
    }
    check_faults(student, recipe, [])


@pytest.mark.points(2)
def test_dead(student, rng):
    """All nodes that no output needs are reported, also those that only such nodes read."""
    for _ in range(4):
        drawn = random_graph(rng)
        needed = needs(drawn.outputs)
        dead = [f"MDLC0490 {node.name}" for node in drawn.nodes if node not in needed]
        check_faults(student, recipe_of(drawn), dead)


@pytest.mark.points(2)
def test_shuffled(student, rng):
    """In a random order every read of a node that stands later is reported."""
    for _ in range(4):
        drawn = random_graph(rng, 6, dead=False)
        order = [drawn.nodes[i] for i in rng.permutation(len(drawn.nodes))]
        recipe = recipe_of(drawn) | {"lists": [node.name for node in order]}
        want = [
            f"MDLC0403 {node.name} {v.name}"
            for at, node in enumerate(order)
            for v in dict.fromkeys(node.inputs)
            if v in order[at:]
        ]
        check_faults(student, recipe, want)


@pytest.mark.points(2)
def test_taken_out(student, rng):
    """Nodes that are not listed: every node that reads one is reported, and every output."""
    for _ in range(4):
        drawn = random_graph(rng, 7, dead=False)
        out = {drawn.nodes[i] for i in rng.permutation(len(drawn.nodes))[:2]}
        kept = [node for node in drawn.nodes if node not in out]
        recipe = recipe_of(drawn) | {"lists": [node.name for node in kept]}
        want = [
            f"MDLC0404 {node.name} {v.name}"
            for node in kept
            for v in dict.fromkeys(node.inputs)
            if v in out
        ]
        outputs = list(dict.fromkeys(drawn.outputs))
        want += [f"MDLC0407 {o.name}" for o in outputs if o in out]
        check_faults(student, recipe | {"outputs": [o.name for o in outputs]}, want)


def test_types(student):
    """A stated type that the rule does not give, in element type or shape, names both types."""
    nodes = {
        "a": ["relu", ["x"], {}, f32[5]],
        "b": ["relu", ["a"], {}, f32[5]],
        "c": ["add", ["b", "a"], {}, mc.f64[5]],
        "d": ["neg", ["x"], {}, f32[4, 1]],
    }
    want = ["MDLC0406 a f32[5] f32[4]", "MDLC0406 c f64[5] f32[5]", "MDLC0406 d f32[4,_1] f32[4]"]
    check_faults(student, graph("cd", nodes), want)


def test_refused_types(student):
    """Where the rule refuses what is read, the node is reported, and the rest as well."""
    nodes = {
        "a": ["topk", ["x"], {"k": 2}],
        "b": ["relu", ["a"], {}, X],
        "c": ["add", ["x", "y"], {}, X],
        "d": ["relu", ["c"], {}, f32[3]],
    }
    recipe = graph("bd", nodes) | {"inputs": {"x": X, "y": f32[3]}}
    want = ["MDLC0406 b f32[4]", "MDLC0406 c f32[4]", "MDLC0406 d f32[3] f32[4]"]
    check_faults(student, recipe, want)


def test_cycles(student):
    """A cycle, and a node that reads itself, show as reads of what does not stand before."""
    nodes = {
        "a": ["add", ["x", "b"], {}, X],
        "b": ["relu", ["a"], {}, X],
        "c": ["add", ["b", "c"], {}, X],
    }
    check_faults(student, graph("c", nodes), ["MDLC0403 a b", "MDLC0403 c c"])


def test_mixed_reads(student):
    """Reads of one node are reported in their order, once each, before its type and its use."""
    nodes = {
        "a": ["relu", ["x"], {}, X],
        "b": ["concat", ["z", "c", "a", "c", "x"], {"axis": 0}, X],
        "c": ["neg", ["x"], {}, X],
    }
    recipe = graph("c", nodes) | {"inputs": {"x": X, "z": X}, "takes": ["x"], "lists": ["b", "c"]}
    want = [
        "MDLC0404 b z",
        "MDLC0403 b c",
        "MDLC0404 b a",
        "MDLC0406 b f32[4] f32[20]",
        "MDLC0490 b",
    ]
    check_faults(student, recipe, want)


def test_again(student):
    """A node that stands again is reported there only as that; a third input of a name too."""
    nodes = {"a": ["relu", ["x"], {}, f32[5]], "b": ["neg", ["c"], {}, X], "c": ["exp", ["x"]]}
    recipe = {
        "inputs": {"x": X, "y": X, "z": X},
        "names": {"y": "x", "z": "x"},
        "nodes": nodes,
        "lists": ["a", "b", "a", "c", "b", "a"],
        "outputs": ["b"],
    }
    first = ["MDLC0408 x", "MDLC0408 x", "MDLC0406 a f32[5] f32[4]", "MDLC0490 a", "MDLC0403 b c"]
    check_faults(student, recipe, [*first, "MDLC0405 a", "MDLC0405 b", "MDLC0405 a"])


def test_through_the_unlisted(student):
    """What an unlisted node reads is needed, if an output needs that node."""
    nodes = {"a": ["relu", ["x"]], "b": ["neg", ["a"]], "c": ["exp", ["b"]], "d": ["neg", ["a"]]}
    recipe = graph("c", nodes) | {"lists": ["a", "c", "d"]}
    check_faults(student, recipe, ["MDLC0404 c b", "MDLC0490 d"])
    check_faults(student, graph("c", nodes) | {"lists": ["a", "b"]}, ["MDLC0407 c"])


def test_outputs(student):
    """Outputs that are not listed are reported in their order: inputs and nodes, not constants."""
    recipe = {
        "inputs": {"x": X, "z": X},
        "constants": {"k": array([2])},
        "takes": ["x"],
        "nodes": {"a": ["relu", ["x"]], "b": ["neg", ["x"]]},
        "lists": ["a"],
        "outputs": ["b", "k", "a", "x", "z"],
    }
    check_faults(student, recipe, ["MDLC0407 b", "MDLC0407 z"])


def test_nothing(student):
    """A graph without nodes passes; a chain of 2,000 nodes passes."""
    check_faults(student, graph("x", {}), [])
    check_faults(student, 2_000, [])


def test_plugged_in(student, rng):
    """Plugged in, it lets good graphs pass and reports several faults of a bad one."""
    good = recipe_of(random_graph(rng, dead=False))
    expect.equal(student.call("1.3", good, plugged=True), None, "the result of mc.verify")
    nodes = {"a": ["relu", ["x"], {}, f32[5]], "b": ["neg", ["c"], {}, X], "c": ["exp", ["x"]]}
    bad = graph("b", nodes)
    raised = expect.refused(student.raises("1.3", bad, plugged=True), "MDLC0406", given=shown(bad))
    expect.equal(len(raised.notes), 3, "the number of faults", shown(bad))
