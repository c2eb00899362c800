"""Public tests of 1.3, a verifier that reports everything."""

from __future__ import annotations

from a1_public import check_faults

import minidlc as mc
from grader import expect

f32 = mc.f32
GOOD = {
    "inputs": {"x": f32[4]},
    "nodes": {"h": ["relu", ["x"]], "y": ["add", ["h", "x"]]},
    "outputs": ["y"],
}
THREE = {
    "inputs": {"x": f32[4]},
    "nodes": {
        "y": ["add", ["h", "h"], {}, f32[8]],
        "h": ["relu", ["x"], {}, f32[8]],
        "k": ["relu", ["x"], {}, f32[4]],
    },
    "outputs": ["y"],
}


def test_good(student):
    """A graph without a fault passes."""
    check_faults(student, GOOD, [])


def test_unlisted(student):
    """What the graph does not list is reported where it is read, and at the outputs."""
    recipe = GOOD | {"takes": [], "lists": ["y"], "outputs": ["y", "h"]}
    check_faults(student, recipe, ["MDLC0404 y h", "MDLC0404 y x", "MDLC0407 h"])


def test_example(student):
    """The order of the nodes, a type and a node that nobody needs are reported together."""
    wanted = ["MDLC0403 y h", "MDLC0406 h f32[8] f32[4]", "MDLC0490 k"]
    check_faults(student, THREE, wanted)


def test_twice(student):
    """Two inputs of one name; a node that stands twice."""
    recipe = {
        "inputs": {"x": f32[4], "z": f32[4]},
        "names": {"z": "x"},
        "nodes": {"h": ["add", ["x", "z"]]},
        "lists": ["h", "h"],
        "outputs": ["h"],
    }
    check_faults(student, recipe, ["MDLC0408 x", "MDLC0405 h"])


def test_in_the_compiler(student):
    """As the point `verify` it lets a good graph pass and refuses a bad one."""
    expect.equal(student.call("1.3", GOOD, plugged=True), None, "the result of mc.verify")
    bad = GOOD | {"outputs": ["h"]}
    expect.refused(student.raises("1.3", bad, plugged=True), "MDLC0490", given="y: not needed")
