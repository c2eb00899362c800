"""One graph node → the tensor expressions of one kernel.

    node   conv_relu: f32[1, 8, 28, 28] = fused(x, w, b, body=…)
    group  pad, conv (the anchor), relu (the output); inputs (x, w, b)

A `fused` node gives the stages of all its ops; a plain node those of its own. Scalar constants
become numbers in the expressions. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidlc.expr.index import Index
from minidlc.graph import Constant, Fused, Node, Value, result_types, tensor_type
from minidlc.graph.op import express
from minidlc.schedules import Group
from minidlc.support.errors import CompileError, LoweringError
from minidlc.support.names import identifier
from minidlc.te import Tensor, compute, placeholder, stages, unique_names
from minidlc.te.tensor import Filled, filled


@dataclass(frozen=True)
class Expressed:
    """A node as stages: `inputs[i]` is the graph value that placeholder `names[i]` stands for."""

    group: Group
    kind: str
    inputs: tuple[Value, ...]
    names: tuple[str, ...]


def express_node(node: Node) -> Expressed:
    """Build the tensor expressions of `node`; raises LoweringError if an op has none."""
    with unique_names():
        env, inputs, names = _placeholders(node.inputs)
        try:
            outputs, anchor, kind = _stages(node, env)
        except CompileError as e:
            raise e.at(node.loc) from None
        outputs = tuple(_own(t) for t in outputs)
    read = {t.name for t in stages(outputs)}  # an op may leave an input of size 0 unread
    pairs = [(v, n) for v, n in zip(inputs, names, strict=True) if n in read]
    inputs, names = tuple(v for v, _ in pairs), tuple(n for _, n in pairs)
    _check_types(node, outputs)
    constants = frozenset(n for v, n in zip(inputs, names, strict=True) if isinstance(v, Constant))
    return Expressed(Group(outputs, anchor, constants), kind, inputs, names)


def _check_types(node: Node, outputs: tuple[Tensor, ...]) -> None:
    """Loops that write another type than the graph says would write outside their buffer."""
    types = result_types(node.type)
    found = tuple(t.type for t in outputs)
    if found != types:
        raise LoweringError(
            f"{node.op.name}: the tensor expression gives {', '.join(map(str, found))}, "
            f"the type rule {node.type}",
            loc=node.loc,
            hint="compute and type_rule of an op must agree",
            code="MDLC0708",
        )


def express_copy(value: Value) -> Expressed:
    """A kernel that copies `value`: for graph outputs that would be an alias of something else."""
    with unique_names():
        env, inputs, names = _placeholders((value,), inline=False)
        output = _own(env[value])
    return Expressed(Group((output,)), "injective", inputs, names)


def _placeholders(
    values: Sequence[Value | None], inline: bool = True
) -> tuple[dict[Value, Tensor], tuple[Value, ...], tuple[str, ...]]:
    env: dict[Value, Tensor] = {}
    for value in values:
        if value is None or value in env:
            continue
        if inline and isinstance(value, Constant) and value.array.size == 1:
            env[value] = filled(value.type, value.array.item())
        else:
            env[value] = placeholder(tensor_type(value), identifier(value.name))
    read = {v: t for v, t in env.items() if not isinstance(t, Filled)}
    return env, tuple(read), tuple(t.name for t in read.values())


def _stages(node: Node, env: dict[Value, Tensor]) -> tuple[tuple[Tensor, ...], Tensor | None, str]:
    """Outputs, anchor and schedule kind of a node, given the tensors of its inputs."""
    tensors = [None if v is None else env[v] for v in node.inputs]
    if isinstance(node.op, Fused):
        outputs, kind = node.op.outputs(*(t for t in tensors if t is not None)), node.op.anchor
    else:
        outputs, kind = express(node.op, tensors), node.op.schedule
    found = (_anchor(output, tensors) for output in reversed(outputs))
    anchor = next((stage for stage in found if stage is not None), None)
    if anchor is None:  # a sum over no axis, for example
        kind = "injective"
    elif not anchor.axes:  # one number: no tile to speak of
        kind = "reduction"
    return outputs, anchor, kind


def stage_owners(node: Node) -> dict[str, Node]:
    """Stage → the node whose op it is part of: `node` itself, or one of the body of a group.

    Expresses the node once more: the same names come out.
    """
    with unique_names():
        env, _, names = _placeholders(node.inputs)
        tensors = [None if v is None else env[v] for v in node.inputs]
        results: list[tuple[Node, tuple[Tensor, ...]]]
        if isinstance(node.op, Fused):
            found = node.op.tensors(*(t for t in tensors if t is not None))
            results = [(n, (found[n],)) for n in node.op.body.nodes]
        else:
            results = [(node, tuple(map(_own, express(node.op, tensors))))]
    owners: dict[str, Node] = {}
    for owner, made in results:
        for stage in stages(made):
            if stage.name not in names:
                owners.setdefault(stage.name, owner)
    return owners


def _anchor(output: Tensor, inputs: Sequence[Tensor | None]) -> Tensor | None:
    """The reduction nearest to the output: the stage a schedule is built around."""
    stack, seen = [output], {id(t) for t in inputs if t is not None}
    while stack:
        tensor = stack.pop(0)
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.reduce_axes:
            return tensor
        stack += tensor.inputs
    return None


def _own(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it where an op returned its input or a number as it came."""
    if tensor.body is not None:
        return tensor

    def element(*index: Index) -> object:
        return tensor[index]

    return compute(tensor.shape, element, "copy")
