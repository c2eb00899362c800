"""Reports a value once for each time that a node reads it."""

from minidlc.graph import Constant, Input, Node, infer
from minidlc.support.errors import TypeRuleError, VerifyError


def find_faults(graph):
    """None, or one VerifyError that lists every fault of the graph in order."""
    faults = []

    def report(code, value, text):
        faults.append(f"{code} {value.name}: {text}")

    needed, stack = set(), list(graph.outputs)
    while stack:
        value = stack.pop()
        if isinstance(value, Node) and value not in needed:
            needed.add(value)
            stack += value.inputs
    listed, names, before = {*graph.inputs, *graph.nodes}, set(), set(graph.inputs)
    for value in graph.inputs:
        if value.name in names:
            report("MDLC0408", value, "an earlier input has this name")
        names.add(value.name)
    for node in graph.nodes:
        if node in before:
            report("MDLC0405", node, "stands in the graph already")
            continue
        for value in node.inputs:
            if isinstance(value, (Input, Node)) and value not in listed:
                report("MDLC0404", node, f"reads {value.name}, which the graph does not list")
            elif isinstance(value, Node) and value not in before:
                report("MDLC0403", node, f"reads {value.name}, which does not stand before it")
        try:
            wanted = infer(node.op, [None if v is None else v.type for v in node.inputs])
            if wanted != node.type:
                report("MDLC0406", node, f"is {node.type}, its rule gives {wanted}")
        except TypeRuleError as error:
            report("MDLC0406", node, f"is {node.type}, its rule refuses: {error.message}")
        if node not in needed:
            report("MDLC0490", node, "no output needs it")
        before.add(node)
    for value in graph.outputs:
        if not isinstance(value, Constant) and value not in listed:
            report("MDLC0407", value, "an output that the graph does not list")
    if faults:
        raise VerifyError(f"{len(faults)} faults in {graph.name}", code=faults[0][:8], notes=faults)
