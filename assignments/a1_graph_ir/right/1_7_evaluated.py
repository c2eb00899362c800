"""Evaluates the target node by node with each op's reference; sizes as Index arithmetic."""

import functools
import operator

from minidlc.expr.index import Index
from minidlc.graph.graph import Constant, Input, apply
from minidlc.graph.op import evaluate


def elements(node, value):
    match value:
        case Constant():
            return value.array
        case Input():
            raise node.unsupported("input 'shape' is computed at run time")
        case _:
            return evaluate(value.op, [v if v is None else elements(node, v) for v in value.inputs])


def product(sizes):
    """Of numbers and of at most one symbol; None of more."""
    symbols = [s for s in sizes if not isinstance(s, int)]
    number = functools.reduce(operator.mul, [s for s in sizes if isinstance(s, int)], 1)
    if len(symbols) > 1:
        return None
    return Index.of(symbols[0]) * number if symbols else number


def import_reshape(node, x, shape=None):
    """The value of the ONNX node Reshape(x, shape), its target an attribute or an input."""
    zero_is_zero = bool(node.attr_int("allowzero", 0))
    old = x.type.shape
    if shape is None and not node.has("shape"):
        raise node.missing("shape")
    read = None if shape is None else tuple(elements(node, shape).tolist())
    if node.has("shape"):
        wanted = node.attr_ints("shape")
        if read not in (None, wanted):
            raise node.wrong(f"attribute shape {wanted} and input shape {read} differ")
    else:
        wanted = read
    if wanted.count(-1) > 1 or (zero_is_zero and 0 in wanted and -1 in wanted):
        raise node.wrong(f"shape {wanted} says no sizes")
    copies = [] if zero_is_zero else [p for p in range(len(wanted)) if wanted[p] == 0]
    if copies and copies[-1] >= len(old):
        raise node.wrong(f"shape {wanted} copies what is not there")
    new = [old[p] if p in copies else size for p, size in enumerate(wanted)]
    if -1 in wanted:
        total = product([size for p, size in enumerate(old) if p not in copies])
        rest = product([size for p, size in enumerate(wanted) if p not in copies and size != -1])
        if isinstance(total, int):
            if total % rest:
                raise node.wrong(f"{total} is no multiple of {rest}")
            new[wanted.index(-1)] = total // rest
        else:
            new[wanted.index(-1)] = None
    elif copies:
        total = product([size for p, size in enumerate(old) if p not in copies])
        if total != product([size for p, size in enumerate(wanted) if p not in copies]):
            raise node.wrong(f"{total} elements are left")
    if sum(not isinstance(size, int) for size in new) > 1:
        raise node.unsupported(f"Reshape leaves two sizes open: {wanted}")
    return apply("reshape", x, shape=[size if isinstance(size, int) else -1 for size in new])
