"""Graph IR: a function of tensors as an ordered tuple of nodes.

    x = Input("x", f32[4, 8]); w = Constant("w", array)
    h = apply("relu", x @ w)                        # nodes are built purely, typed at once
    g = Graph.of("mlp", inputs=[x], outputs=[h])    # nodes in topological order
    str(g)                                          # text that parses back (graph/text.py)

Values compare by identity; `g1 == g2` compares what graphs compute, without names.
There is no hash-consing: CSE and DCE are passes one can read. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np

from minidlc.expr.types import Array, DType, TensorType, bool_, dtype
from minidlc.graph.op import Op, infer, op_class, type_notes
from minidlc.graph.types import TupleType, Type
from minidlc.graph.value_ops import APPLY, ValueOps
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, TypeRuleError, VerifyError, nearest
from minidlc.support.locations import Loc, caller
from minidlc.support.options import convert, hints


@dataclass(frozen=True, eq=False)
class Input(ValueOps):
    """A tensor the caller gives."""

    name: str
    type: TensorType
    loc: Loc | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Constant(ValueOps):
    """A tensor known at compile time (ONNX: initializer). The array is read-only, row-major."""

    name: str
    array: Array = field(repr=False)
    loc: Loc | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        array = np.asarray(self.array)
        dtype(array.dtype)  # refuses strings and complex numbers here, not later
        if _writeable(array) or not array.flags.c_contiguous:
            array = np.array(array, order="C", copy=True)  # ours alone: the caller may change his
            array.flags.writeable = False
        object.__setattr__(self, "array", array)

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the bytes (without element type and shape)."""
        return hashlib.sha256(self.array.reshape(-1).view(np.uint8).data).hexdigest()

    @property
    def type(self) -> TensorType:
        """Element type and shape of the array."""
        return TensorType(dtype(self.array.dtype), self.array.shape)


def _writeable(array: Array) -> bool:
    """True if somebody may still change the bytes, be it through the array this is a view of."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


@dataclass(frozen=True, eq=False)
class Node(ValueOps):
    """One application of an op. `name` is a wish; the printer makes names unique."""

    op: Op
    inputs: tuple[Value | None, ...] = field(repr=False)
    type: Type
    name: str
    loc: Loc | None = field(default=None, repr=False)


Value: TypeAlias = Input | Constant | Node

_place: ContextVar[Loc | None] = ContextVar("place", default=None)


@contextmanager
def located(loc: Loc | None) -> Generator[None, None, None]:
    """Nodes built inside the block carry this location instead of the caller's line."""
    token = _place.set(loc)
    try:
        yield
    finally:
        _place.reset(token)


def build(
    op: Op, inputs: Sequence[Value | None], *, name: str = "", loc: Loc | None = None
) -> Node:
    """Make a node; its type comes from the op's type rule.

    Raises TypeRuleError, its place `loc`, that of `located`, or the caller's line.
    """
    loc = loc or _place.get() or caller()
    types = tuple(None if v is None else v.type for v in inputs)
    try:
        type = infer(op, types)
    except CompileError as e:
        if e.notes == type_notes(types):
            e.notes = tuple(f"input {i}: {_named(v)}" for i, v in enumerate(inputs))
        raise e.at(loc) from None
    return Node(op, tuple(inputs), type, name or op.name, loc)


def _named(v: Value | None) -> str:
    return "None" if v is None else f"{v.name}: {v.type}"


class Staged(ValueOps, ABC):
    """A stand-in for a value: `apply` hands it the whole application (holes of rule patterns)."""

    @abstractmethod
    def staged(self, op: str, inputs: tuple[object, ...], attributes: dict[str, Any]) -> Any:
        """What `apply(op, *inputs, **attributes)` returns when this is among the inputs."""


# Inside `eager()` (eager.py): what `apply` does with plain arrays. None: it builds a node.
EagerApply: TypeAlias = Callable[[str, tuple[object, ...], dict[str, Any]], Any]
EAGER: ContextVar[EagerApply | None] = ContextVar("eager", default=None)


@contextmanager
def building() -> Generator[None, None, None]:
    """Inside the block `apply` builds nodes, also where the caller is inside `eager()`."""
    token = EAGER.set(None)
    try:
        yield
    finally:
        EAGER.reset(token)


def apply(op_name: str, *inputs: object, **attributes: Any) -> Node:
    """Build a node by the op's printed name; numbers and arrays become constants.

    `apply("softmax", x, axis=1)`. A number takes the element type of the first value that is no
    condition. Raises OptionError for an unknown op, TypeRuleError for inputs or attributes that do
    not fit, and MDLC0227 for a number that is none of that element type.
    """
    for thing in inputs:
        if isinstance(thing, Staged):
            return thing.staged(op_name, inputs, attributes)
    eager = EAGER.get()
    if eager is not None and not any(isinstance(v, (Input, Constant, Node)) for v in inputs):
        return eager(op_name, inputs, attributes)
    op = make_op(op_name, attributes)
    like = number_type(map(_type_of, inputs))
    return build(op, tuple(_as_value(v, like) for v in inputs))


def number_type(types: Iterable[object]) -> DType | None:
    """The element type of a number beside values of these types; None if there are none."""
    found = [t.dtype for t in types if isinstance(t, TensorType)]
    return next((d for d in found if d != bool_), found[0] if found else None)


def number_array(number: bool | int | float, like: DType) -> Array:
    """A number as an element of a type; TypeRuleError (MDLC0227) if it would be another number."""
    try:
        with np.errstate(over="ignore"):  # of floats: to infinity
            array = np.asarray(number, like.numpy)
    except (ValueError, OverflowError):
        array = None
    if array is None or not (like.is_float or array == number):
        raise TypeRuleError(
            f"{number!r:.40} beside a tensor of {like} would become another number",
            loc=caller(),
            hint="numbers take the element type of the tensor: convert that, x.astype('f32')",
            code="MDLC0227",
        )
    return array


def make_op(op_name: str, attributes: Mapping[str, Any]) -> Op:
    """The op of a printed name with these attributes; raises like `apply`."""
    cls = op_class(op_name)
    try:
        return cls(**_converted(cls, attributes))
    except CompileError as e:
        raise e.at(caller()) from None
    except (TypeError, ValueError) as e:
        message = str(e).replace(f"{cls.__name__}.__init__() ", "")
        known = [f.name for f in fields(cls)]
        unknown = next((name for name in attributes if name not in known), None)
        hint = nearest(unknown, known) if unknown else None
        raise TypeRuleError(
            f"{op_name}: {message}", loc=caller(), hint=hint, code="MDLC0208"
        ) from None


APPLY.append(apply)


def _converted(cls: type[Op], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of the kinds that the class declares: a list becomes a tuple, 'f32' a DType."""
    wanted = hints(cls)
    values: dict[str, Any] = {}
    for name, value in attributes.items():
        plain = cast(object, value.item() if isinstance(value, np.generic) else value)
        try:
            values[name] = (
                dtype(plain) if wanted.get(name) is DType else convert(plain, wanted.get(name, Any))
            )
        except ValueError as e:
            raise ValueError(f"attribute {name!r}: {e}, got {value!r}") from None
    return values


def _type_of(thing: object) -> Type | None:
    return thing.type if isinstance(thing, (Input, Constant, Node)) else None


def _as_value(thing: object, like: DType | None) -> Value | None:
    if thing is None or isinstance(thing, (Input, Constant, Node)):
        return thing
    if isinstance(thing, (bool, int, float)) and like is not None:
        return Constant("c", number_array(thing, like))
    return Constant("c", np.asarray(thing))


# Methods of Graph that are written in terms of Graph: text.py, structure.py, promote.py fill them.
PRINTER: list[Callable[[Graph], str]] = []
PROMOTE: list[Callable[[Graph, Sequence[str]], Graph]] = []
DIGEST: list[Callable[[Graph], str]] = []


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, nodes in execution order, outputs (any values, in the order the caller gets them).

    `str(g)` is text that parses back. `g1 == g2` compares what two graphs compute, op by op in
    order, whatever their values are called (structure.py).
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    @staticmethod
    def of(name: str, inputs: Iterable[Input], outputs: Iterable[Value]) -> Graph:
        """The graph of everything `outputs` need, in topological order."""
        expect("Graph.of", "name", name, str)
        expect("Graph.of", "inputs", inputs, Iterable, hint="a list of inputs")
        expect("Graph.of", "outputs", outputs, Iterable, hint="a list of values")
        outputs = tuple(outputs)
        return Graph(name, tuple(inputs), tuple(toposort(outputs)), outputs)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Constants that nodes or outputs read, in order of first use."""
        read = [v for node in self.nodes for v in node.inputs] + list(self.outputs)
        return tuple({id(v): v for v in read if isinstance(v, Constant)}.values())

    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """Value -> the nodes that read it, in execution order (each once)."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(v for v in node.inputs if v is not None):
                users.setdefault(v, []).append(node)
        return {v: tuple(nodes) for v, nodes in users.items()}

    def input_types(self) -> tuple[TensorType, ...]:
        """Types of the inputs, in order."""
        return tuple(i.type for i in self.inputs)

    def output_types(self) -> tuple[Type, ...]:
        """Types of the outputs, in order."""
        return tuple(o.type for o in self.outputs)

    def promote(self, names: Sequence[str]) -> Graph:
        """The graph with these constants as inputs, behind the inputs it has: trainable weights.

        A constant is called by its own name, or as `str(self)` calls it. The arrays are still in
        `self.constants`. Raises OptionError (MDLC1050) for a name that no constant has, that two
        have, or that an input has.
        """
        return PROMOTE[0](self, names)

    @cached_property
    def digest(self) -> str:
        """Hex digest of what the graph computes, without names: equal graphs, equal digests."""
        return DIGEST[0](self)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Graph) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return PRINTER[0](self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"


def getitem(value: Value, index: int) -> Node:
    """Take one result of a node with several."""
    if not isinstance(value.type, TupleType):
        raise TypeRuleError(f"getitem of {value.type}, which is not a tuple", loc=caller())
    return apply("getitem", value, index=index)


def results_of(node: Node) -> list[Value]:
    """Each result of a node as one tensor: the node itself if it has one."""
    if not isinstance(node.type, TupleType):
        return [node]
    return [getitem(node, n) for n in range(len(node.type.items))]


def bodies(node: Node) -> Iterator[Graph]:
    """The graphs that a node holds as attributes: a fused group, branches, the body of a loop."""
    for attribute in node.op.attributes().values():
        if isinstance(attribute, Graph):
            yield attribute


def tensor_type(value: Value) -> TensorType:
    """The type of a value that is one tensor, not the tuple of several."""
    assert isinstance(value.type, TensorType), f"{value.name} has several results"
    return value.type


extension.declare(
    "toposort",
    "(outputs: tuple[Value, ...]) -> list[Node]",
    "order of the nodes",
    returns=extension.items(Node),
)


def toposort(outputs: Sequence[Value]) -> list[Node]:
    """Every node that `outputs` need, inputs first; stable in the order of `outputs` and inputs.

    Iterative, so that deep graphs do not meet Python's recursion limit. Raises VerifyError
    (MDLC0402) on a cycle.
    """
    return list(extension.dispatch("toposort", _toposort)(tuple(outputs)))


def _toposort(outputs: Sequence[Value]) -> list[Node]:
    order: list[Node] = []
    state: dict[int, str] = {}  # id -> "open" while its inputs are visited, then "done"
    stack: list[Value] = list(reversed(outputs))
    while stack:
        value = stack[-1]
        if not isinstance(value, Node) or state.get(id(value)) == "done":
            stack.pop()
            continue
        pending = [v for v in value.inputs if isinstance(v, Node) and state.get(id(v)) != "done"]
        if not pending:
            state[id(value)] = "done"
            order.append(value)
            stack.pop()
            continue
        if state.get(id(value)) == "open" and any(state.get(id(v)) == "open" for v in pending):
            raise VerifyError(
                f"cycle through {value.name!r}",
                loc=value.loc,
                hint="a node reads what was computed before it, never its own result",
                code="MDLC0402",
            )
        state[id(value)] = "open"
        stack += reversed(pending)
    return order
