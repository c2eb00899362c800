"""Which ops can be computed before a movement instead of after it, and how: what `sink` asks.

    Transposes().carried(relu, [(0, 2, 3, 1)])      # the same relu; its result is moved likewise
    Transposes().carried(softmax over axis 3, …)    # softmax over axis 1
    Transposes().carried(matmul, …)                 # None

A kind of movement has states: what has still to be done to a value. For a transpose that is the
permutation (axis d of the value is axis state[d] of what is there), for a reshape the two shapes,
for a cast the element type that is there. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from minidlc.expr.types import DType, TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, build, tensor_type
from minidlc.graph.op import Op
from minidlc.ops import rules
from minidlc.ops.binary import CastTo
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.movement import Concat, Expand, Transpose
from minidlc.ops.padding import Pad
from minidlc.ops.quantization import Scaled
from minidlc.ops.reduction import AlongAxis, Max, Min, Reduction
from minidlc.ops.resize import Resample
from minidlc.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from minidlc.ops.slicing import Slice, Tile
from minidlc.ops.space_to_depth import DepthToSpace, SpaceToDepth
from minidlc.support.locations import Derived
from minidlc.transform.block.weigh import elements, nbytes, traffic

S = TypeVar("S")

Views = Reshape | Flatten | Squeeze | Unsqueeze


class Carried(NamedTuple, Generic[S]):
    """The op on what is there, and what has still to be done to its result."""

    op: Op
    state: S


class Cost(NamedTuple):
    """The measure that sinking lowers: bytes moved; of equals, nodes that move."""

    nbytes: int
    nodes: int

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(self.nbytes + other.nbytes, self.nodes + other.nodes)


class Kind(ABC, Generic[S]):
    """A kind of movement."""

    name: str

    @abstractmethod
    def moved(self, node: Node, state: S | None) -> S | None:
        """The state of a movement's result, its input being in a state; None for other ops."""

    @abstractmethod
    def carried(self, node: Node, states: Sequence[S | None]) -> Carried[S] | None:
        """How an op goes before the movement of its inputs; None if it cannot."""

    @abstractmethod
    def cost(self, value: Value, state: S) -> Cost:
        """What it costs to do to a value what has still to be done."""

    @abstractmethod
    def done(self, value: Value, there: Value, state: S) -> Value:
        """`value`, from what is there."""

    def operand(self, value: Value, carried: Carried[S]) -> Value:
        """An input in no state, as an op needs it that goes before a movement."""
        return value

    def entering(self, value: Value, carried: Carried[S]) -> Cost:
        """What that costs."""
        return Cost(0, 0)

    def gives(self, node: Node) -> tuple[Value, S] | None:
        """The operand, and the state it is for, that a movement in the graph gives already."""
        return None

    def of(self, graph: Graph) -> Kind[S]:
        """The kind, knowing what this graph gives."""
        return self

    def saving(self, node: Node, carried: Carried[S]) -> int:
        """Bytes that a carried op moves less."""
        return 0


@dataclass(frozen=True)
class Transposes(Kind[tuple[int, ...]]):
    """Axes in another order. `costly`: an operand may be moved the other way to make an op fit."""

    name = "transpose"
    costly: bool = False
    given: frozenset[tuple[Value, tuple[int, ...]]] = frozenset()

    def moved(self, node: Node, state: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if not isinstance(node.op, Transpose):
            return None
        order = node.op.order(tensor_type(node).rank)
        return order if state is None else tuple(state[a] for a in order)

    def carried(
        self, node: Node, states: Sequence[tuple[int, ...] | None]
    ) -> Carried[tuple[int, ...]] | None:
        perms = {s for s in states if s is not None}
        if len(perms) != 1 or not isinstance(node.type, TensorType):
            return None
        (perm,) = perms
        match node.op:
            case Elementwise() | Identity():
                others = [v for v, s in zip(node.inputs, states, strict=True) if s is None]
                fits = len(perm) == node.type.rank and all(self._enters(v, perm) for v in others)
                return Carried(node.op, perm) if fits else None
            case Concat():
                others = [v for v, s in zip(node.inputs, states, strict=True) if s is None]
                axis = perm[node.op.axis % len(perm)]
                fits = all(isinstance(v, Constant) or self._turns(v, perm) for v in others)
                return Carried(Concat(axis), perm) if fits else None
            case _ if states[0] is not None and not any(s is not None for s in states[1:]):
                return _of_one(node, perm)
            case _:
                return None

    def cost(self, value: Value, state: tuple[int, ...]) -> Cost:
        if state == tuple(range(len(state))):
            return Cost(0, 0)
        free = keeps_order(tensor_type(value), inverse(state))
        return Cost(0 if free else 2 * nbytes(value.type), 1)

    def done(self, value: Value, there: Value, state: tuple[int, ...]) -> Value:
        if state == tuple(range(len(state))):
            return there
        free = keeps_order(tensor_type(value), inverse(state))
        op = Reshape(tensor_type(value).dims) if free else Transpose(state)
        return build(op, (there,), name=value.name, loc=Derived("sink", value.loc))

    def _enters(self, value: Value | None, perm: tuple[int, ...]) -> bool:
        """True if an operand may be had in the order of what is there."""
        if value is None or not isinstance(value.type, TensorType):
            return value is None
        free = isinstance(value, Constant) or elements(value.type) == 1
        return free or keeps_order(value.type, inverse(perm)) or self._turns(value, perm)

    def _turns(self, value: Value | None, perm: tuple[int, ...]) -> bool:
        """True if a transpose gives the operand, and is in the graph or may be put there."""
        if value is None or not isinstance(value.type, TensorType):
            return False
        return value.type.rank == len(perm) and (self.costly or (value, perm) in self.given)

    def operand(self, value: Value, carried: Carried[tuple[int, ...]]) -> Value:
        perm, t = carried.state, tensor_type(value)
        aligned = isinstance(carried.op, (Elementwise, Concat, Identity))
        if not aligned or (elements(t) == 1 and isinstance(carried.op, Elementwise)):
            return value
        loc, back = Derived("sink", value.loc), inverse(perm)
        shape = (1,) * (len(perm) - t.rank) + t.shape
        if isinstance(value, Constant):
            return Constant(
                value.name, value.array.reshape(t.with_shape(shape).dims).transpose(back), loc
            )
        if not keeps_order(t, back):
            return build(Transpose(back), (value,), name=value.name, loc=loc)
        op = Reshape(tuple(t.with_shape(shape).dims[a] for a in back))
        return build(op, (value,), name=value.name, loc=loc)

    def entering(self, value: Value, carried: Carried[tuple[int, ...]]) -> Cost:
        if not isinstance(value, (Node, Input)) or self.operand(value, carried) is value:
            return Cost(0, 0)
        free = keeps_order(tensor_type(value), inverse(carried.state))
        return Cost(0 if free else 2 * nbytes(value.type), 1)

    def gives(self, node: Node) -> tuple[Value, tuple[int, ...]] | None:
        if not isinstance(node.op, Transpose) or node.inputs[0] is None:
            return None
        return node.inputs[0], inverse(node.op.order(tensor_type(node).rank))

    def of(self, graph: Graph) -> Transposes:
        given = map(self.gives, graph.nodes)
        return replace(self, given=frozenset(g for g in given if g is not None))


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes this one."""
    return tuple(perm.index(a) for a in range(len(perm)))


def keeps_order(type: TensorType, perm: tuple[int, ...]) -> bool:
    """True if a transpose of such a tensor moves only axes of size 1: then it is a reshape."""
    shape = (1,) * (len(perm) - type.rank) + type.shape
    order = [a for a in perm if shape[a] != 1]
    return type.is_static and order == sorted(order)


def _of_one(node: Node, perm: tuple[int, ...]) -> Carried[tuple[int, ...]] | None:
    """Ops of one tensor that name axes; their other inputs are numbers."""
    op, rank = node.op, len(perm)
    back = inverse(perm)
    match op:
        case AlongAxis() | Resample():
            return Carried(replace(op, axis=perm[op.axis % rank]), perm)
        case Reduction():
            return _reduction(node, op, perm)
        case Pad():
            sides = op.sides()
            pads = (*(sides[a][0] for a in back), *(sides[a][1] for a in back))
            return Carried(replace(op, pads=pads), perm)
        case Tile():
            return Carried(Tile(tuple(op.repeats[a] for a in back)), perm)
        case Slice():
            axes = tuple(perm[a] for a in op.resolved_axes(rank))
            return Carried(replace(op, axes=axes), perm)
        case Scaled() if not op.block_size and -rank <= op.axis < rank:
            return Carried(replace(op, axis=perm[op.axis % rank]), perm)
        case _:
            return None


def _reduction(node: Node, op: Reduction, perm: tuple[int, ...]) -> Carried[tuple[int, ...]] | None:
    """Axes are added up in the order in which they lie: another order rounds otherwise."""
    axes = rules.axes(op, op.axes, len(perm))
    there = [perm[a] for a in axes]
    element = tensor_type(node).dtype
    if there != sorted(there) and element.is_float and not isinstance(op, (Max, Min)):
        return None
    new = replace(op, axes=tuple(sorted(there)))
    if op.keepdims:
        return Carried(new, perm)
    left = [p for a, p in enumerate(perm) if a not in axes]
    return Carried(new, tuple(sorted(left).index(p) for p in left))


class Shapes(NamedTuple):
    """The shape that is there, and the one that a reshape would give."""

    there: tuple[int, ...]
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class Reshapes(Kind[Shapes]):
    """The same elements under another shape: no bytes move, but two that meet are one or none."""

    name = "reshape"

    def moved(self, node: Node, state: Shapes | None) -> Shapes | None:
        (x,) = node.inputs if isinstance(node.op, Views) else (None,)
        if x is None or not (tensor_type(x).is_static and tensor_type(node).is_static):
            return None
        return Shapes(state.there if state else tensor_type(x).dims, tensor_type(node).dims)

    def carried(self, node: Node, states: Sequence[Shapes | None]) -> Carried[Shapes] | None:
        shapes = {s for s in states if s is not None}
        if len(shapes) != 1 or not isinstance(node.op, (Elementwise, Identity)):
            return None
        (state,) = shapes
        others = [v for v, s in zip(node.inputs, states, strict=True) if s is None]
        fits = all(_is_alike(v, state) for v in others)
        whole = isinstance(node.type, TensorType) and node.type.shape == state.wanted
        return Carried(node.op, state) if fits and whole else None

    def cost(self, value: Value, state: Shapes) -> Cost:
        return Cost(0, int(state.there != state.wanted))

    def done(self, value: Value, there: Value, state: Shapes) -> Value:
        if state.there == state.wanted:
            return there
        loc = Derived("sink", value.loc)
        return build(Reshape(state.wanted), (there,), name=value.name, loc=loc)

    def operand(self, value: Value, carried: Carried[Shapes]) -> Value:
        state, t = carried.state, tensor_type(value)
        if t.size == 1 and t.rank <= len(state.there):
            return value
        assert isinstance(value, Constant)
        shape = () if t.size == 1 else state.there
        return Constant(value.name, value.array.reshape(shape), Derived("sink", value.loc))


def _is_alike(value: Value | None, state: Shapes) -> bool:
    """True for one number, or a constant that has an element for each of the reshaped tensor."""
    if value is None:
        return True
    t = tensor_type(value)
    if isinstance(value, Constant) and (t.shape == state.wanted or t.size == 1):
        return True
    return t.is_static and t.size == 1 and t.rank <= len(state.there)


@dataclass(frozen=True)
class Casts(Kind[DType]):
    """A wider element type that holds every value of the narrower: what moves, moves less."""

    name = "cast"

    def moved(self, node: Node, state: DType | None) -> DType | None:
        (x,) = node.inputs if isinstance(node.op, CastTo) else (None,)
        if x is None:
            return None
        narrow = tensor_type(x).dtype
        return (state or narrow) if widens(narrow, tensor_type(node).dtype) else None

    def carried(self, node: Node, states: Sequence[DType | None]) -> Carried[DType] | None:
        first = states[0] if states else None
        if first is None or not isinstance(node.type, TensorType):
            return None
        match node.op:
            case (
                Transpose() | Reshape() | Flatten() | Squeeze() | Unsqueeze() | Slice()
                | Expand() | Tile() | DepthToSpace() | SpaceToDepth()
            ):  # fmt: skip
                return Carried(node.op, first)
            case Concat() if set(states) == {first}:
                return Carried(node.op, first)
            case _:
                return None

    def cost(self, value: Value, state: DType) -> Cost:
        return Cost(nbytes(value.type) + nbytes(tensor_type(value).with_dtype(state)), 1)

    def done(self, value: Value, there: Value, state: DType) -> Value:
        op = CastTo(tensor_type(value).dtype)
        return build(op, (there,), name=value.name, loc=Derived("sink", value.loc))

    def saving(self, node: Node, carried: Carried[DType]) -> int:
        wide = traffic(node)
        return wide - wide * carried.state.itemsize // tensor_type(node).dtype.itemsize


def widens(narrow: DType, wide: DType) -> bool:
    """True if every value of the first type is one of the second, and that takes more bytes."""
    if narrow.itemsize >= wide.itemsize:
        return False
    if narrow.name == "bf16":
        return wide.is_float
    return wide.name != "bf16" and np.can_cast(narrow.numpy, wide.numpy, "safe")


# By name, one after the other: what is free first, so that what is not need not be paid.
KINDS: dict[str, tuple[Kind[tuple[int, ...]] | Kind[Shapes] | Kind[DType], ...]] = {
    "cast": (Casts(),),
    "transpose": (Transposes(), Transposes(costly=True)),
    "reshape": (Reshapes(),),
}
