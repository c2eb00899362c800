"""Another build: one generator for each invariant, the faults sorted by place afterwards."""

from minidlc.graph import Constant, infer
from minidlc.support.errors import TypeRuleError, VerifyError


def unique_inputs(graph):
    """MDLC0408."""
    for at, value in enumerate(graph.inputs):
        if value.name in [other.name for other in graph.inputs[:at]]:
            yield (0, at, 0), "MDLC0408", value.name, "name is taken"


def standings(graph):
    """The nodes at their first places, and MDLC0405 for the others."""
    first = {}
    for at, node in enumerate(graph.nodes):
        first.setdefault(id(node), at)
    return first


def order(graph):
    """MDLC0403, MDLC0404, MDLC0405."""
    first, inputs = standings(graph), {id(i) for i in graph.inputs}
    for at, node in enumerate(graph.nodes):
        if first[id(node)] != at:
            yield (1, at, 0), "MDLC0405", node.name, "again"
            continue
        seen = set()
        for number, value in enumerate(node.inputs):
            if value is None or isinstance(value, Constant) or id(value) in seen:
                continue
            seen.add(id(value))
            if id(value) not in inputs and id(value) not in first:
                yield (1, at, number), "MDLC0404", node.name, f"unknown {value.name}"
            elif id(value) in first and first[id(value)] >= at:
                yield (1, at, number), "MDLC0403", node.name, f"too early for {value.name}"


def typing(graph):
    """MDLC0406."""
    first = standings(graph)
    for at, node in enumerate(graph.nodes):
        if first[id(node)] != at:
            continue
        try:
            rule = str(infer(node.op, tuple(getattr(v, "type", None) for v in node.inputs)))
        except TypeRuleError as e:
            rule = "nothing: " + str(e)
        if rule != str(node.type):
            yield (1, at, 1000), "MDLC0406", node.name, f"{node.type}; by its rule {rule}"


def used(graph):
    """MDLC0490: marks backwards until nothing changes."""
    first, marked = standings(graph), {}
    front = {id(v): v for v in graph.outputs}
    while front:
        marked |= front
        reads = [v for node in front.values() for v in getattr(node, "inputs", ())]
        front = {id(v): v for v in reads if v is not None and id(v) not in marked}
    for at, node in enumerate(graph.nodes):
        if first[id(node)] == at and id(node) not in marked:
            yield (1, at, 1001), "MDLC0490", node.name, "dead"


def results(graph):
    """MDLC0407."""
    known = {id(v) for v in (*graph.inputs, *graph.nodes)}
    for at, value in enumerate(graph.outputs):
        if id(value) not in known and not isinstance(value, Constant):
            yield (2, at, 0), "MDLC0407", value.name, "not in the graph"


def find_faults(graph):
    """All checks, one after another; the key of a fault is (part, place, rule)."""
    checks = (unique_inputs, order, typing, used, results)
    faults = sorted(fault for check in checks for fault in check(graph))
    if faults:
        notes = [f"{code} {name}: {text}" for _, code, name, text in faults]
        text = f"{len(notes)} things are wrong with this graph"
        raise VerifyError(text, notes=notes, code=faults[0][1])
