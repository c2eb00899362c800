"""Helpers of the public tests of assignment 1 (given to students)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import minidlc as mc
from grader import expect
from minidlc.graph import Node, result_types


def array(shape: Sequence[int], dtype: str = "float32", start: int = 0) -> np.ndarray:
    """The numbers start, start + 1, … in that shape."""
    return np.arange(start, start + int(np.prod(shape)), dtype=dtype).reshape(shape)


@lru_cache(maxsize=128)
def typed(graph_text: str) -> mc.Graph:
    """The graph of a text."""
    return mc.parse(graph_text)


def shown(recipe: dict[str, Any]) -> str:
    """A recipe (see `built` in glue.py) as one reads a graph."""
    names = recipe.get("names", {})
    inputs, nodes = recipe.get("inputs", {}), recipe["nodes"]

    def listed(keys: Iterable[Any]) -> str:
        return ", ".join("None" if key is None else names.get(key, key) for key in keys)

    takes = ", ".join(f"{names.get(k, k)}: {inputs[k]}" for k in recipe.get("takes", inputs))
    lines = [f"g({takes}):"]
    for key in recipe.get("lists", nodes):
        op, reads, *more = nodes[key]
        type = f": {more[1]}" if len(more) > 1 else ""
        lines.append(f"    {names.get(key, key)}{type} = {op}({listed(reads)})")
    lines.append(f"    return {listed(recipe['outputs'])}")
    missing = [key for key in nodes if key not in recipe.get("lists", nodes)]
    lines += [
        f"    (not listed: {key} = {nodes[key][0]}({listed(nodes[key][1])}))" for key in missing
    ]
    return "\n".join(lines)


def check_faults(student: Any, recipe: dict[str, Any] | int, wanted: list[str]) -> None:
    """The verifier of 1.3 reports exactly these faults: "CODE NAME" or "CODE NAME word word"."""
    given = recipe if isinstance(recipe, int) else shown(recipe)
    raised = student.raises("1.3", recipe)
    if not wanted:
        refused = raised is not None and raised.kind == "VerifyError"
        got = "\n".join([raised.message, *raised.notes]) if refused else ""
        expect.that(not refused, "a graph without a fault was refused", given, "None", got)
        if raised is not None:
            raise raised
        return
    expect.refused(raised, "VerifyError", given=given)
    both = "\n".join(map(_note, wanted)), "\n".join(raised.notes)
    heads = [note.split(":")[0] for note in raised.notes]
    want = [" ".join(fault.split()[:2]) for fault in wanted]
    sentence = f"the number of notes is {len(heads)}, not {len(want)}"
    expect.that(len(heads) == len(want), sentence, given, *both)
    for number, (head, right) in enumerate(zip(heads, want, strict=True), 1):
        sentence = f"note {number} begins with {head}, not with {right}"
        expect.that(head == right, sentence, given, *both)
    for number, (fault, note) in enumerate(zip(wanted, raised.notes, strict=True), 1):
        for word in fault.split()[2:]:
            word = word.replace("_", " ")
            told = word in note.split(":", 1)[1]
            expect.that(told, f"note {number} does not mention {word}", given, *both)
    code = want[0].split()[0]
    expect.equal(raised.code, code, "the code of the error", given)
    start = raised.message.split()[:1]
    expect.equal(start, [str(len(wanted))], "the first word of the message", given)


def _note(fault: str) -> str:
    """How a note must begin, and which words it must have: `MDLC0404 y: … h …`."""
    code, name, *words = fault.split()
    rest = "".join(f" {word.replace('_', ' ')} …" for word in words)
    return f"{code} {name}: …{rest}"


def check_evaluated(got: dict[str, Any], graph: mc.Graph) -> None:
    """The interpreter of 1.4 ran its ops through `evaluate`, where tests can watch them."""
    if got["seen"] and not got["made"]:
        told = "ops ran without `evaluate`: a meaning that mc.use replaced is not seen"
        raise expect.Mismatch(told, graph, "evaluate(node.op, arrays)", "no such call", told)


def check_broken(
    student: Any, graph: mc.Graph, inputs: list[np.ndarray], broken: dict[str, str], name: str
) -> None:
    """The interpreter of 1.4 refuses what a replaced meaning gives, and names the node."""
    raised = student.raises("1.4", graph, inputs, broken=broken)
    if raised is None:
        check_evaluated(student.call("1.4", graph, inputs, broken=broken), graph)
    expect.refused(raised, "MDLC0415", mentions=[name], given=graph)


def peak(graph: mc.Graph, order: Sequence[str]) -> int:
    """The most bytes alive after any step of an order of the graph's nodes, given by name."""
    nodes = {node.name: node for node in graph.nodes}
    placed, most = list[Node](), 0
    for name in order:
        placed.append(nodes[name])
        waiting = [v for key in order[len(placed) :] for v in nodes[key].inputs]
        alive = [n for n in placed if any(n is v for v in (*waiting, *graph.outputs))]
        most = max(most, sum(t.nbytes for n in alive for t in result_types(n.type)))
    return most
