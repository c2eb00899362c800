"""Hidden tests of task 1.7, an op whose attribute became an input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from a1_models import model

import minidlc as mc
from grader import expect


def by_input(dims, target, opset=18, **attributes):
    """A model whose target is an initializer."""
    node = ("Reshape", ["x", "shape"], ["y"], attributes)
    return model(dims, [node], opset, {"shape": target})


def by_attribute(dims, target, opset=18, **attributes):
    """A model whose target is an attribute."""
    return model(dims, [("Reshape", ["x"], ["y"], {"shape": list(target), **attributes})], opset)


def graph_of(dims, shape):
    """The graph that is expected: one reshape."""
    x = mc.Input("x", mc.f32[tuple(dims)])
    return mc.Graph.of("g", [x], [mc.reshape(x, shape=tuple(shape))])


def check(student, given, dims, shape, what):
    """The model gives one reshape with this attribute."""
    expect.same_graph(student.call("1.7", given), graph_of(dims, shape), given=what)


def show(dims, target, how=""):
    """A case as a failing student reads it."""
    return f"x: {mc.f32[tuple(dims)]}, target {list(target)}{how}"


@pytest.mark.points(2)
def test_random_targets(student, rng):
    """Random shapes with copies and a -1, all sizes known: numbers only, the same elements."""
    for _ in range(4):
        dims = [int(n) for n in rng.integers(1, 7, size=rng.integers(1, 5))]
        keep = int(rng.integers(0, len(dims)))  # the first sizes stay, some of them as copies
        rest = [int(n) for n in rng.permutation([*dims[keep:], 1])]
        shape = dims[:keep] + rest
        target = [0 if p < keep and rng.integers(2) else n for p, n in enumerate(shape)]
        own = [place for place, size in enumerate(target) if size]
        target[int(rng.choice(own))] = -1
        make = (by_input, by_attribute)[rng.integers(2)]
        check(student, make(dims, target), dims, shape, show(dims, target))
    got = student.call("1.7", by_input(dims, target))
    x = rng.normal(size=dims).astype(np.float32)
    expect.close(student.evaluate(got, [x])[0], x.reshape(shape), given=show(dims, target))


@pytest.mark.points(2)
def test_random_open_sizes(student, rng):
    """One open size, copied or left for the -1: it alone is written -1."""
    for _ in range(4):
        dims = ["N", *(int(n) for n in rng.integers(2, 6, size=3))]
        a, b, c = dims[1:]
        whole = a * b * c
        cases = [
            ([0, -1], [-1, whole]),
            ([0, -1, c], [-1, a * b, c]),
            ([0, 0, -1], [-1, a, b * c]),
            ([-1, whole], [-1, whole]),
            ([b * c, -1], [b * c, -1]),
            ([0, whole, 1], [-1, whole, 1]),
            ([-1, 0, 0, 0], [-1, a, b, c]),
        ]
        target, shape = cases[rng.integers(len(cases))]
        check(student, by_input(dims, target), dims, shape, show(dims, target))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("place", [1, 2])
def test_open_size_further_back(student, place):
    """An open size that is copied at another place than the first."""
    dims = [2, 6, 4]
    dims[place] = "N"
    target = [-1 if p == 0 else 0 for p in range(3)]
    shape = [2 if p == 0 else -1 if p == place else dims[p] for p in range(3)]
    check(student, by_input(dims, target), dims, shape, show(dims, target))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("opset", [4, 7, 8, 13, 21])
def test_any_form_at_any_opset(student, opset):
    """Attribute, input, or both with the same list, whatever the opset says."""
    dims, target, shape = (4, 6), [0, 3, -1], [4, 3, 2]
    check(student, by_attribute(dims, target, opset), dims, shape, f"attribute, opset {opset}")
    check(student, by_input(dims, target, opset), dims, shape, f"input, opset {opset}")
    if opset > 4:
        both = by_input(dims, target, opset, shape=target)
        check(student, both, dims, shape, f"both, opset {opset}")


def test_computed_targets(student):
    """The target from several ops on initializers and on the shape of x."""
    nodes = [
        ("Shape", ["x"], ["dims"], {}),
        ("Gather", ["dims", "order"], ["turned"], {}),
        ("Mul", ["turned", "times"], ["scaled"], {}),
        ("Div", ["scaled", "by"], ["part"], {}),
        ("Concat", ["part", "end"], ["shape"], {"axis": 0}),
        ("Relu", ["x"], ["z"], {}),
        ("Reshape", ["z", "shape"], ["y"], {}),
    ]
    constants = {"order": [1, 0], "times": [2, 1], "by": [3, 2], "end": [-1]}
    got = student.call("1.7", model((4, 6), nodes, constants=constants))
    x = mc.Input("x", mc.f32[4, 6])
    want = mc.Graph.of("g", [x], [mc.reshape(mc.relu(x), shape=(4, 2, 3))])
    expect.same_graph(got, want, given="x: f32[4, 6], target computed as [4, 2, -1]")


def test_target_from_an_input(student):
    """A target that depends on an input of the graph is MDLC0116, directly or through ops."""
    words = ["input 'shape' is computed at run time"]
    given = model((4, 6), [("Reshape", ["x", "shape"], ["y"], {})], inputs={"shape": [2]})
    expect.refused(student.raises("1.7", given), "MDLC0116", words, given="target is an input")
    nodes = [("Add", ["part", "one"], ["shape"], {}), ("Reshape", ["x", "shape"], ["y"], {})]
    given = model((4, 6), nodes, constants={"one": [1, 1]}, inputs={"part": [2]})
    expect.refused(student.raises("1.7", given), "MDLC0116", words, given="target is input + 1")
    nodes = [("Add", ["one", "part"], ["shape"], {}), ("Reshape", ["x", "shape"], ["y"], {})]
    given = model((4, 6), nodes, constants={"one": [1, 1]}, inputs={"part": [2]})
    expect.refused(student.raises("1.7", given), "MDLC0116", words, given="target is 1 + input")


def test_targets_that_differ(student, rng):
    """Attribute and input that differ are MDLC0115 with both lists; the order of dims counts."""
    for _ in range(3):
        a, b = (int(n) for n in rng.permutation(np.arange(2, 9))[:2])
        given = by_input((a, b), [b, a], int(rng.integers(7, 20)), shape=[a, b])
        words = [f"attribute shape ({a}, {b}) and input shape ({b}, {a}) differ"]
        expect.refused(student.raises("1.7", given), "MDLC0115", words, given=str(words))
    given = by_input((4, 6), [4, -1], shape=[4, 6])
    expect.refused(
        student.raises("1.7", given), "MDLC0115", given="attribute (4, 6), input (4, -1)"
    )


def test_no_target(student):
    """Neither attribute nor input: MDLC0119."""
    given = model((4, 6), [("Reshape", ["x"], ["y"], {})])
    expect.refused(student.raises("1.7", given), "MDLC0119", given="Reshape(x)")


def test_allowzero(student):
    """With allowzero a 0 is a size; without, also with allowzero=0, it copies."""
    check(student, by_input((0, 3), [3, 0], allowzero=1), (0, 3), (3, 0), "[3, 0], allowzero=1")
    check(student, by_input((2, 0), [0, 7], allowzero=1), (2, 0), (0, 7), "[0, 7], allowzero=1")
    check(student, by_input((4, 6), [0, 6], allowzero=0), (4, 6), (4, 6), "[0, 6], allowzero=0")
    check(student, by_attribute((0, 3), [3, 0], allowzero=1), (0, 3), (3, 0), "the attribute")
    check(student, by_input((4, 6), [-1, 8], allowzero=1), (4, 6), (3, 8), "[-1, 8], allowzero=1")
    check(student, by_input((0, 3), [0, -1]), (0, 3), (0, 3), "[0, -1] of f32[0, 3]")
    check(student, by_input((0, 3), [-1, 3]), (0, 3), (0, 3), "[-1, 3] of f32[0, 3]")
    given = by_input((0, 3), [0, -1], allowzero=1)
    expect.refused(student.raises("1.7", given), "MDLC0115", given="[0, -1] with allowzero")


@pytest.mark.points(0.3)
@pytest.mark.parametrize(
    ("dims", "target"),
    [
        ((4, 6), (-1, -1)),
        ((4, 6), (0, -1, -1)),
        ((4, 6), (5, -1)),
        ((4, 6), (0, -1, 4)),
        (("N", 6), (0, -1, 4)),
        ((4, 6), (2, 12, 0)),
        ((6,), (-1, 0)),
        (("N", 6), (0, 2)),
        (("N", "M", 2), (0, 1, 2)),
    ],
    ids=str,
)
def test_targets_without_sense(student, dims, target):
    """Two -1, a remainder, a copy of a size that x has not, copies that do not cancel: MDLC0115."""
    given = by_input(dims, target)
    expect.refused(student.raises("1.7", given), "MDLC0115", given=show(dims, target))


@pytest.mark.points(0.3)
@pytest.mark.parametrize(
    ("dims", "target"),
    [
        (("N", "M"), (0, -1)),
        (("N", 4, "M"), (0, 4, 0)),
        (("N", "M", 6), (0, 0, 2, -1)),
        (("M", "N", 2), (-1, 0, 2)),
    ],
    ids=str,
)
def test_two_open_sizes(student, dims, target):
    """More than one size that is not known: MDLC0116, with the target in the message."""
    words = [f"Reshape leaves two sizes open: {target}"]
    given = by_input(dims, target)
    expect.refused(student.raises("1.7", given), "MDLC0116", words, given=show(dims, target))


@pytest.mark.points(0.3)
@pytest.mark.parametrize("target", [(5, 5), (4, -6), (-2, 12), (4, 6, 2)], ids=str)
def test_left_to_the_type_rule(student, target):
    """Elements that do not add up, negative sizes: refused by the type rule, not taken."""
    raised = student.raises("1.7", by_input((4, 6), target))
    expect.that(raised is not None, "it was accepted", given=show((4, 6), target))
    expect.equal(raised.kind, "OnnxImportError", "the error", given=show((4, 6), target))


def test_all_elements_in_one(student, rng):
    """[-1] flattens; an empty list makes a scalar of one element."""
    dims = [int(n) for n in rng.integers(2, 6, size=3)]
    check(student, by_input(dims, [-1]), dims, [math.prod(dims)], show(dims, [-1]))
    check(student, by_input((1, 1), []), (1, 1), [], show((1, 1), []))
