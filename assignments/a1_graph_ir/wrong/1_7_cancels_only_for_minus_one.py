"""Lets copied sizes cancel only where a -1 takes the rest: [0, 2] of f32["N", 6] is taken."""

import math

from minidlc.graph.graph import Graph, apply


def import_reshape(node, x, shape=None):
    """The value of the ONNX node Reshape(x, shape), its target an attribute or an input.

    Signature of the extension point `onnx.Reshape`. Raises OnnxImportError: MDLC0115 for a target
    that makes no sense, 0116 for one that is not known, 0119 for none.
    """
    target = target_of(node, shape)
    sizes, copied = list(target), set()
    if target.count(-1) > 1:
        raise node.wrong(f"shape {target} has two -1")
    if node.attr_int("allowzero", 0):
        if 0 in target and -1 in target:
            raise node.wrong(f"shape {target} has 0 and -1 with allowzero")
    else:
        copied = {place for place, size in enumerate(target) if size == 0}
    for place in copied:
        if place >= len(x.type.shape):
            raise node.wrong(f"shape {target} copies size {place} of {x.type}")
        sizes[place] = x.type.shape[place]
    left = [size for place, size in enumerate(x.type.shape) if place not in copied]
    own = math.prod(n for p, n in enumerate(target) if p not in copied and n != -1)
    known = all(isinstance(size, int) for size in left)
    if -1 in target and known:
        sizes[target.index(-1)] = math.prod(left) // own  # a remainder the type rule refuses
    numbers = tuple(size if isinstance(size, int) else -1 for size in sizes)
    if numbers.count(-1) > 1:
        raise node.unsupported(f"Reshape leaves two sizes open: {target}")
    return apply("reshape", x, shape=numbers)


def target_of(node, shape):
    """The target as integers, from the attribute or the input."""
    attribute = node.attr_ints("shape") if node.has("shape") else None
    given = None if shape is None else known_ints(node, shape)
    if attribute is None and given is None:
        raise node.missing("shape")
    if None not in (attribute, given) and attribute != given:
        raise node.wrong(f"attribute shape {attribute} and input shape {given} differ")
    return given if attribute is None else attribute


def known_ints(node, value):
    """The elements of a value that depends on constants only."""
    graph = Graph.of("shape", [], [value])
    try:
        mc.verify(graph)  # refuses what reads an input: the graph has none
    except mc.CompileError:
        raise node.unsupported("input 'shape' is computed at run time") from None
    [array] = mc.interpret(graph, [])
    return tuple(array.tolist())
