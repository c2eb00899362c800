"""Eager: ops run at once, one by one, on arrays; for looking at values step by step.

    with eager():                                   # ops of plain arrays run too
        y = relu(tensor(x) @ w)
        print(y, y.shape, float(y[0, 0]))           # elements are known: `if y.sum() > 0`

Reads arrays, runs each op's NumPy reference (the same one that `interpret` runs, overrides
included) after its type rule, so that a mistake is found at its line. A function written for
`trace` gives the same numbers here. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Never, TypeAlias, cast

import numpy as np

from minidlc.expr.types import Array, DType, TensorType
from minidlc.expr.types import dtype as element_type
from minidlc.graph.graph import (
    EAGER,
    Constant,
    Input,
    Node,
    Staged,
    apply,
    make_op,
    number_array,
    number_type,
)
from minidlc.graph.interpret import run_op
from minidlc.graph.op import infer
from minidlc.graph.types import TupleType, Type
from minidlc.graph.value_ops import Operand
from minidlc.support.errors import CompileError, TypeRuleError
from minidlc.support.locations import caller

Elements: TypeAlias = Array | tuple[Array, ...]


class Tensor(Staged):
    """An array with its type; ops of it run at once. Read-only, as graph values are.

    An op with several results gives one Tensor of a tuple type: unpack it, or index it.
    """

    __slots__ = ("elements", "type")

    def __init__(self, elements: Elements, type: Type) -> None:
        self.elements = elements
        self.type = type

    def staged(self, op: str, inputs: tuple[object, ...], attributes: dict[str, Any]) -> Any:
        """Run the op; next to a value of a graph this tensor is a constant of the graph."""
        if any(isinstance(v, (Input, Constant, Node)) for v in inputs):
            return apply(op, *(_in_graph(v) for v in inputs), **attributes)
        return _run(op, inputs, attributes)

    @property
    def array(self) -> Array:
        """The elements, read-only; TypeRuleError (MDLC0220) for an op's several results."""
        if isinstance(self.elements, tuple):
            _refuse("several results are no single array", "unpack them: a, b = result")
        return self.elements

    def numpy(self) -> Array:
        """A copy of the elements that may be changed."""
        return self.array.copy()

    def item(self) -> int | float | bool:
        """The one element as a Python number."""
        if self.array.size != 1:
            _refuse(f"{self.type} has {self.array.size} elements, one is needed", "y[0], y.sum()")
        return self.array.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __format__(self, format_spec: str) -> str:
        return format(self.item(), format_spec) if format_spec else str(self)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)

    def __divmod__(self, other: Operand) -> Any:
        return self // other, self % other

    def __index__(self) -> int:
        if not isinstance(self.type, TensorType) or self.type.dtype.numpy.kind not in "iu":
            _refuse(f"{self.type} is no index", "indices are integers: int(y)")
        return int(self.item())

    def __len__(self) -> int:
        return len(self.elements) if isinstance(self.elements, tuple) else super().__len__()

    def __iter__(self) -> Iterator[Tensor]:
        if isinstance(self.type, TupleType) and isinstance(self.elements, tuple):
            return map(Tensor, self.elements, self.type.items)
        if self.array.ndim == 0:
            _refuse(f"{self.type} has no rows to iterate over", "float(y) is its element")
        return iter([tensor(row) for row in self.array])

    def __getitem__(self, index: object) -> Tensor:  # pyright: ignore
        if isinstance(self.elements, tuple):
            return list(self)[cast(int, index)]
        try:
            return tensor(self.array[_plain(index)])
        except (IndexError, TypeError, ValueError) as e:
            _refuse(f"{self.type} cannot be indexed so: {e}", "indices are NumPy's")

    def __contains__(self, item: object) -> bool:
        return bool(np.any(self.array == _plain(item)))

    def __eq__(self, other: object) -> Any:
        return False if other is None else apply("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return True if other is None else apply("logical_not", apply("equal", self, other))

    __hash__ = None  # pyright: ignore

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # pyright: ignore
        return np.array(self.array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **kwargs: object) -> Any:
        try:
            return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)
        except TypeRuleError as e:
            if e.code != "MDLC0212":
                raise
            return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(  # pyright: ignore
        self, function: Any, types: object, args: Any, kwargs: Any
    ) -> Any:
        return function(*_plain(args), **{name: _plain(v) for name, v in kwargs.items()})

    def __repr__(self) -> str:
        return f"Tensor({self.type}, {self})"

    def __str__(self) -> str:
        return str(self.elements)


def tensor(thing: object, dtype: DType | str | None = None) -> Any:
    """The array as an eager tensor: `tensor(x)`, `tensor([1, 2, 3], "f32")`.

    A value of a graph that is being traced stays what it is, so that one function runs both ways.
    Raises TypeRuleError (MDLC0221) for what is no array of numbers.
    """
    if isinstance(thing, (Input, Constant, Node, Tensor)):
        return thing if dtype is None else apply("cast", thing, to=dtype)
    try:
        array = np.asarray(thing, None if dtype is None else element_type(dtype).numpy)
        type = TensorType(element_type(array.dtype), array.shape)
    except (CompileError, ValueError, TypeError, OverflowError) as e:
        raise TypeRuleError(
            f"tensor: {e.message if isinstance(e, CompileError) else e}",
            loc=caller(),
            hint="give numbers: an array, a list, one number",
            code="MDLC0221",
        ) from None
    return Tensor(_frozen(array), type)


@contextmanager
def eager() -> Generator[None, None, None]:
    """Inside the block ops of plain arrays run at once, too: `relu(np.ones(3))` is a Tensor.

    Ops that read a value of a graph still build nodes: tracing goes on as usual.
    """
    token = EAGER.set(_run)
    try:
        yield
    finally:
        EAGER.reset(token)


def _run(op_name: str, inputs: Sequence[object], attributes: dict[str, Any]) -> Tensor:
    """One op: its type rule, then its reference."""
    op = make_op(op_name, attributes)
    like = number_type(v.type for v in inputs if isinstance(v, Tensor))
    given = [None if v is None else _operand(v, like) for v in inputs]
    loc = caller()
    try:
        type = infer(op, [None if v is None else v.type for v in given])
    except CompileError as e:
        raise e.at(loc) from None
    arrays = [None if v is None else v.elements for v in given]
    result = run_op(op, arrays, type, loc)
    if isinstance(result, tuple):
        return Tensor(tuple(_frozen(part) for part in result), type)
    return Tensor(_frozen(result), type)


def _operand(thing: object, like: DType | None) -> Tensor:
    """A number takes the element type of the first tensor, as it does in a graph."""
    if isinstance(thing, (bool, int, float)) and like is not None:
        thing = number_array(thing, like)
    return cast(Tensor, tensor(thing))


def _frozen(array: Array) -> Array:
    """The elements where nobody can change them: a constant's."""
    return Constant("c", array).array


def _in_graph(thing: object) -> object:
    return Constant("c", thing.array) if isinstance(thing, Tensor) else thing


def _plain(thing: Any) -> Any:
    """What NumPy takes: arrays in place of tensors, also inside containers."""
    if isinstance(thing, Tensor):
        return thing.array
    if isinstance(thing, (tuple, list)):
        parts = [_plain(part) for part in cast("tuple[Any, ...]", thing)]
        return parts if isinstance(thing, list) else tuple(parts)
    return thing


def _refuse(what: str, hint: str) -> Never:
    raise TypeRuleError(f"eager: {what}", loc=caller(), hint=hint, code="MDLC0220")
