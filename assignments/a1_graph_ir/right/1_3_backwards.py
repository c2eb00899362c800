"""Another build: goes through the nodes from last to first, and turns the report around."""

from minidlc.graph import Constant, Input, Node, infer
from minidlc.support.errors import TypeRuleError, VerifyError


def find_faults(graph):
    """From the outputs to the inputs; needed nodes are met on the way, unlisted ones by a stack."""
    places = {}
    for at, node in enumerate(graph.nodes):
        places.setdefault(node, at)
    listed = set(graph.inputs)
    need, stack = set(graph.outputs), list(graph.outputs)
    for value in stack:
        for read in value.inputs if isinstance(value, Node) else ():
            if read is not None and read not in need:
                need.add(read)
                stack.append(read)
    report = []
    for value in reversed(graph.outputs):
        if not (value in places or value in listed or isinstance(value, Constant)):
            report.append(("MDLC0407", value, "is returned, but is not there"))
    for at in reversed(range(len(graph.nodes))):
        node = graph.nodes[at]
        if places[node] < at:
            report.append(("MDLC0405", node, f"is node {places[node]} already"))
            continue
        if node not in need:
            report.append(("MDLC0490", node, "is for nothing"))
        report.extend(wrong_type(node))
        for value in reversed(list(dict.fromkeys(node.inputs))):
            if value in listed or not isinstance(value, (Input, Node)):
                continue
            if value not in places:
                report.append(("MDLC0404", node, f"needs {value.name}: not there"))
            elif places[value] >= at:
                report.append(("MDLC0403", node, f"needs {value.name}: node {places[value]}"))
    names = [i.name for i in graph.inputs]
    for at in reversed(range(len(names))):
        if names.index(names[at]) < at:
            report.append(("MDLC0408", graph.inputs[at], "has a name that is taken"))
    if not report:
        return None
    report.reverse()
    notes = tuple(f"{code} {value.name}: {text}" for code, value, text in report)
    raise VerifyError(f"{len(report)} found in {graph.name}", notes=notes, code=report[0][0])


def wrong_type(node):
    """The fault of a node's type, or nothing."""
    types = []
    for value in node.inputs:
        types.append(None if value is None else value.type)
    try:
        rule = infer(node.op, types)
    except TypeRuleError as error:
        return [("MDLC0406", node, f"says {node.type}, but {error.message}")]
    return [] if rule == node.type else [("MDLC0406", node, f"says {node.type}, not {rule}")]
