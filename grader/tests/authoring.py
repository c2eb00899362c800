"""A small assignment with all its parts, written into a folder: for the tests of authoring.

    folder = make(tmp_path / "a0_small")            # two tasks and the end-to-end run

1.1 is plain Python. 1.2 runs in the compiler as `toposort`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MANIFEST = """
[assignment]
id = "a0_small"
title = "A small assignment"
version = "1"

[[task]]
id = "1.1"
title = "The closest name"
function = "closest"
points = 4
minutes = 5
difficulty = 1
topic = "strings"
section = "01 Names, 'Plug yours in'"
withheld = ["minidlc.viz.boxes:bytes_text"]
mistakes = ["counts letters"]
hints = ["Look at lengths.", "abs of a difference.", "min with a key."]
seconds = 10
public_tests = 1
hidden_tests = 2

[[task]]
id = "1.2"
title = "Last operand first"
function = "order"
points = 6
minutes = 10
difficulty = 2
topic = "order"
section = "02 A graph IR, 'Plug yours in'"
extension = ["toposort"]
mistakes = ["first operand first"]
hints = ["Recursion.", "reversed(node.inputs).", "Remember what was seen."]
seconds = 10
public_tests = 1
hidden_tests = 2

[[task]]
id = "1.3"
title = "All together"
function = ""
points = 2
minutes = 5
difficulty = 1
topic = "end to end"
section = "02 A graph IR"
prerequisites = ["1.1", "1.2"]
hints = ["Mend 1.1.", "Mend 1.2.", "Run both."]
seconds = 10
public_tests = 0
hidden_tests = 1
"""

SETUP = "import grader\nimport minidlc as mc\nfrom minidlc.graph import Node"
CLOSEST = '''
def closest(word, known):
    """The name whose length is nearest to the word's; the first of several."""
    ### BEGIN SOLUTION
    distance = {name: abs(len(name) - len(word)) for name in known}
    return min(distance, key=distance.get)
    ### END SOLUTION
'''
ORDER = '''
def order(outputs):
    """All nodes that the outputs need, the last operand's first."""
    ### BEGIN SOLUTION
    found = {}

    def visit(value):
        if not isinstance(value, Node) or value in found:
            return
        for operand in reversed(value.inputs):
            visit(operand)
        found[value] = len(found)

    for output in outputs:
        visit(output)
    return list(found)
    ### END SOLUTION
'''
GLUE = '''
"""How the tests call the tasks."""

import minidlc as mc


def ordered(function, graph):
    """The graph with its nodes in the order that the function gives."""
    nodes = function(graph.outputs)
    return mc.Graph(graph.name, graph.inputs, tuple(nodes), graph.outputs)


def whole(functions, word, graph):
    """Both parts in one run."""
    with mc.use(toposort=functions["1.2"]):
        again = mc.trace(lambda x: mc.relu(x) + mc.exp(x), mc.f32[2])
    return [functions["1.1"](word, ["relu", "sigmoid"]), again]


GLUE = {"1.2": ordered, "1.3": whole}
'''
SHARED = """
import minidlc as mc


def two_branches(first, second):
    x = mc.Input("x", mc.f32[2])
    a, b = getattr(mc, first)(x), getattr(mc, second)(x)
    total = a + b
    return mc.Graph("two", (x,), (a, b, total), (total,))
"""
PUBLIC_1 = '''
from grader import expect


def test_nearest_length(student):
    """The name with the nearest length is returned."""
    expect.equal(student.call("1.1", "rel", ["relu", "sigmoid"]), "relu", "the name")
'''
HIDDEN_1 = '''
import pytest

from grader import expect


@pytest.mark.parametrize("word", ["sigmoids", "a"])
def test_other_words(student, reference, word):
    """Longer and shorter words work as well."""
    known = ["relu", "sigmoid", "tanh", "exp"]
    expect.equal(student.call("1.1", word, known), reference.closest(word, known), "the name")
'''
PUBLIC_2 = '''
import minidlc as mc
from a0_public import two_branches
from grader import expect


def test_last_operand_first(student):
    """Of a sum, the second operand is computed first."""
    given = two_branches("relu", "exp")
    a, b, total = given.nodes
    want = mc.Graph("two", given.inputs, (b, a, total), given.outputs)
    expect.same_graph(student.call("1.2", given), want, given)
'''
HIDDEN_2 = '''
import pytest

from a0_public import two_branches
from grader import expect


@pytest.mark.parametrize("shared", [True, False])
def test_each_node_once(student, reference, rng, shared):
    """Every node stands once, however often it is read."""
    kinds = ["relu", "relu"] if shared else list(rng.permutation(["tanh", "exp"]))
    given = two_branches(*kinds)
    nodes = reference.order(given.outputs)
    expect.that(len(student.call("1.2", given).nodes) == len(nodes), "another number of nodes")
    want = type(given)("two", given.inputs, tuple(nodes), given.outputs)
    expect.same_graph(student.call("1.2", given), want, given)
'''
HIDDEN_3 = '''
from grader import expect


def test_both(student):
    """Both parts work in one run of the compiler."""
    name, graph = student.call("1.3", "sigmoi", None)
    expect.equal(name, "sigmoid", "the name")
    expect.equal([node.op.name for node in graph.nodes], ["exp", "relu", "add"], "the order")
'''
WRONG_1 = '''
"""Takes the first name of all."""

def closest(word, known):
    return known[0]
'''
WRONG_2 = '''
"""The first operand first."""

def order(outputs):
    found = []
    def visit(value):
        if isinstance(value, Node) and value not in found:
            for operand in value.inputs:
                visit(operand)
            found.append(value)
    for output in outputs:
        visit(output)
    return found
'''
RIGHT_1 = '''
"""By sorting."""

def closest(word, known):
    return sorted(known, key=lambda name: abs(len(name) - len(word)))[0]
'''
RIGHT_2 = '''
"""With a stack of its own."""

def order(outputs):
    found, stack = [], [(value, False) for value in reversed(outputs)]
    while stack:
        value, ready = stack.pop()
        if not isinstance(value, Node) or value in found:
            continue
        if ready:
            found.append(value)
        else:
            stack.append((value, True))
            stack += [(operand, False) for operand in value.inputs]
    return found
'''
FILES = {
    "assignment.toml": MANIFEST,
    "glue.py": GLUE,
    "tests/public/a0_public.py": SHARED,
    "tests/public/test_1_1.py": PUBLIC_1,
    "tests/public/test_1_2.py": PUBLIC_2,
    "tests/hidden/test_1_1.py": HIDDEN_1,
    "tests/hidden/test_1_2.py": HIDDEN_2,
    "tests/hidden/test_1_3.py": HIDDEN_3,
    "wrong/1_1_first.py": WRONG_1,
    "wrong/1_2_first_operand.py": WRONG_2,
    "right/1_1_sorted.py": RIGHT_1,
    "right/1_2_stack.py": RIGHT_2,
}


def make(folder: Path, **changed: str) -> Path:
    """Write the assignment; `changed` are other texts of its cells: task_1_1=…, setup=…."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
    sources = {"setup": SETUP, "task_1_1": CLOSEST.strip(), "task_1_2": ORDER.strip()} | changed
    write_text(folder, cells(sources))
    return folder


def cells(sources: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """(kind, source, nbgrader metadata) of every cell."""
    found = [("code", sources["setup"], marks("setup", locked=True))]
    for key, points in (("1-1", 4), ("1-2", 6), ("1-3", 2)):
        task = key.replace("-", ".")
        found.append(("markdown", f"## {task}", marks(f"text-{key}", locked=True)))
        source = sources.get(f"task_{key.replace('-', '_')}")
        if source:
            found.append(("code", source, marks(f"task-{key}", solution=True)))
        check = marks(f"check-{key}", locked=True, grade=True) | {"points": points}
        found.append(("code", f'grader.check_here("{task}")', check))
    return found


def marks(grade_id: str, **true: bool) -> dict[str, Any]:
    """nbgrader's metadata of a cell."""
    plain = dict.fromkeys(("grade", "locked", "solution", "task"), False)
    return {"schema_version": 3, "grade_id": grade_id, **plain, **true}


def write_text(folder: Path, found: list[tuple[str, str, dict[str, Any]]]) -> None:
    """`assignment.py` in jupytext's percent format."""
    parts: list[str] = []
    for kind, source, metadata in found:
        word = " [markdown]" if kind == "markdown" else ""
        text = "\n".join(f"# {line}" for line in source.split("\n")) if word else source
        parts.append(f"# %%{word} nbgrader={json.dumps(metadata)}\n{text}\n")
    (folder / "assignment.py").write_text("\n".join(parts), encoding="utf-8")
