"""Helpers of the public tests of assignment 1 (given to students)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import minidlc as mc
from grader import expect
from minidlc.graph import Node, result_types


def array(shape: Sequence[int], dtype: str = "float32", start: int = 0) -> np.ndarray:
    """The numbers start, start + 1, … in that shape."""
    return np.arange(start, start + int(np.prod(shape)), dtype=dtype).reshape(shape)


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
        expect.that(raised is None, "a graph without a fault was refused", given, "None", raised)
        return
    expect.refused(raised, "VerifyError", given=given)
    heads = [":".join(note.split(":")[:1]) for note in raised.notes]
    want = [" ".join(fault.split()[:2]) for fault in wanted]
    expect.that(heads == want, "the notes report other faults", given, want, list(raised.notes))
    for fault, note in zip(wanted, raised.notes, strict=True):
        for word in fault.split()[2:]:
            word = word.replace("_", " ")
            told = word in note.split(":", 1)[1]
            expect.that(told, f"the note does not mention {word}", given, fault, note)
    code = want[0].split()[0]
    expect.equal(raised.code, code, "the code of the error", given)
    start = raised.message.split()[:1]
    expect.equal(start, [str(len(wanted))], "the first word of the message", given)


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
