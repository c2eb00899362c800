"""Lets the compiler's own constant folding find the target; sizes are resolved in one pass."""

from math import prod

from minidlc.graph.graph import Constant, Graph, Input, Node, apply
from minidlc.transform.block.fold_constants import FoldConstants


def reads_input(value):
    if isinstance(value, Node):
        return any(reads_input(v) for v in value.inputs if v is not None)
    return isinstance(value, Input)


def import_reshape(node, x, shape=None):
    """The value of the ONNX node Reshape(x, shape), its target an attribute or an input."""
    targets = []
    if node.has("shape"):
        targets.append(tuple(node.attr_ints("shape")))
    if shape is not None:
        if reads_input(shape):
            raise node.unsupported("input 'shape' is computed at run time")
        folded = FoldConstants()(Graph.of("target", (), (shape,))).outputs[0]
        assert isinstance(folded, Constant)
        targets.append(tuple(int(n) for n in folded.array))
    if not targets:
        raise node.missing("shape")
    if targets[0] != targets[-1]:
        text = f"attribute shape {targets[0]} and input shape {targets[-1]} differ"
        raise node.wrong(text)
    return apply("reshape", x, shape=resolve(node, x.type.shape, targets[0]))


def resolve(node, old, target):
    literal = node.attr_int("allowzero", 0) != 0
    if literal and 0 in target and -1 in target:
        raise node.wrong("a 0 and a -1 with allowzero")
    if sum(size == -1 for size in target) > 1:
        raise node.wrong("two -1")
    left, new, own = list(old), [], 1
    for place, size in enumerate(target):
        if size == 0 and not literal:
            if place >= len(old):
                raise node.wrong(f"there is no size {place} to copy")
            left[place] = 1
            new.append(old[place])
        else:
            new.append(None if size == -1 else size)
            own *= 1 if size == -1 else size
    known = all(type(size) is int for size in left)
    if None in new and known and prod(left) % own:
        raise node.wrong("the elements do not fill the target")
    if None not in new and left != list(old) and not (known and prod(left) == own):
        raise node.wrong("copied sizes do not cancel")
    new = [prod(left) // own if size is None and known else size for size in new]
    open_places = [place for place, size in enumerate(new) if type(size) is not int]
    if len(open_places) > 1:
        raise node.unsupported(f"Reshape leaves two sizes open: {target}")
    return tuple(-1 if place in open_places else size for place, size in enumerate(new))
