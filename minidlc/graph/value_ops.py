"""What Python's operators, methods and conversions mean on a graph value.

    x @ w + 1.0                                     # nodes matmul and add
    x.sum(axis=0), x.reshape(2, -1), x.T, x.shape   # NumPy's names for what has an op
    if x > 0: ...                                   # TypeRuleError: elements are not known yet

`/` of integers rounds towards zero, as ONNX's Div does; `//` rounds down, as Python does.
Reads operands, makes nodes through `apply` (graph.py hands it over, being written in terms of this
class). Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Never, TypeAlias, cast

import numpy as np

from minidlc.expr.types import Array, Dim, DType, TensorType
from minidlc.graph.op import registered_ops
from minidlc.graph.types import TupleType
from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import caller

if TYPE_CHECKING:
    from minidlc.graph.graph import Node

Operand: TypeAlias = "ValueOps | Array | int | float | bool"

APPLY: list[Callable[..., Any]] = []  # graph.py fills it in
_of_elements: ContextVar[bool] = ContextVar("of_elements", default=False)


@contextmanager
def equality(*, of_elements: bool) -> Generator[None, None, None]:
    """What `a == b` of two values is in the block: which value it is, or, refused, of elements.

    In a function that is traced it is meant of elements; compilers ask which value it is.
    """
    token = _of_elements.set(of_elements)
    try:
        yield
    finally:
        _of_elements.reset(token)


def _apply(op: str, *inputs: object, **attributes: object) -> Node:
    return APPLY[0](op, *inputs, **attributes)


# NumPy's names of the functions behind Python's operators: `array + value` arrives as np.add.
_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow",
    "remainder": "mod", "matmul": "matmul", "less": "less", "less_equal": "less_or_equal",
    "greater": "greater", "greater_equal": "greater_or_equal",
}  # fmt: skip


class PastTheEnd(TypeRuleError, IndexError):
    """No such result; as an IndexError it ends Python's iteration: `a, b = mc.topk(x, k=3)`."""


class ValueOps:
    """Python's operators on values; each builds a node through the op registry."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Node:
        return _apply("add", self, other)

    def __radd__(self, other: Operand) -> Node:
        return _apply("add", other, self)

    def __sub__(self, other: Operand) -> Node:
        return _apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Node:
        return _apply("sub", other, self)

    def __mul__(self, other: Operand) -> Node:
        return _apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Node:
        return _apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Node:
        return _apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Node:
        return _apply("div", other, self)

    def __mod__(self, other: Operand) -> Node:
        return _apply("mod", self, other)

    def __rmod__(self, other: Operand) -> Node:
        return _apply("mod", other, self)

    def __floordiv__(self, other: Operand) -> Node:
        return _floor_div(self, other)

    def __rfloordiv__(self, other: Operand) -> Node:
        return _floor_div(other, self)

    def __matmul__(self, other: Operand) -> Node:
        return _apply("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Node:
        return _apply("matmul", other, self)

    def __pow__(self, other: Operand) -> Node:
        return _apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Node:
        return _apply("pow", other, self)

    def __neg__(self) -> Node:
        return _apply("neg", self)

    def __abs__(self) -> Node:
        return _apply("abs", self)

    def __lt__(self, other: Operand) -> Node:
        return _apply("less", self, other)

    def __le__(self, other: Operand) -> Node:
        return _apply("less_or_equal", self, other)

    def __gt__(self, other: Operand) -> Node:
        return _apply("greater", self, other)

    def __ge__(self, other: Operand) -> Node:
        return _apply("greater_or_equal", self, other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bool, int, float, np.generic, np.ndarray)):
            _refuse("cannot be compared by `==` with numbers", "mc.equal(a, b) compares elements")
        if self is not other and isinstance(other, ValueOps) and _of_elements.get():
            hint = "mc.equal(a, b) compares elements, `a is b` asks for the same value"
            _refuse("cannot be compared by `==` with another tensor", hint)
        return self is other  # which value it is; a dict of values and `in` ask for it

    __hash__ = object.__hash__

    @property
    def T(self) -> Node:
        """The transpose: axes reversed."""
        return _apply("transpose", self)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The dims; TypeRuleError (MDLC0212) for a value that is no single tensor."""
        return self._tensor().shape

    @property
    def ndim(self) -> int:
        """Number of dimensions; TypeRuleError (MDLC0212) for what is no single tensor."""
        return self._tensor().rank

    @property
    def dtype(self) -> DType:
        """The element type; TypeRuleError (MDLC0212) for what is no single tensor."""
        return self._tensor().dtype

    def reshape(self, *shape: int | tuple[int, ...]) -> Node:
        """`x.reshape(2, -1)` or `x.reshape((2, -1))`, row-major."""
        return _apply("reshape", self, shape=_flat(shape))

    def transpose(self, *axes: int | tuple[int, ...]) -> Node:
        """`x.transpose(1, 0)` or `x.transpose((1, 0))`; without axes all are reversed."""
        return _apply("transpose", self, perm=_flat(axes) if axes else None)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
        """Sum over `axis`, None being all of them."""
        return _apply("sum", self, axes=_axes(axis), keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
        """Mean over `axis`, None being all of them."""
        return _apply("mean", self, axes=_axes(axis), keepdims=keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
        """Largest element over `axis`, None being all of them."""
        return _apply("max", self, axes=_axes(axis), keepdims=keepdims)

    def min(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Node:
        """Smallest element over `axis`, None being all of them."""
        return _apply("min", self, axes=_axes(axis), keepdims=keepdims)

    def astype(self, dtype: object) -> Node:
        """The elements converted: `x.astype("f32")`, `x.astype(np.int64)`."""
        return _apply("cast", self, to=dtype)

    def _tensor(self) -> TensorType:
        type = getattr(self, "type", None)
        return type if isinstance(type, TensorType) else _refuse("has no single shape", _ONE)

    # What needs the elements. They are known when the model runs, not while the graph is built.

    def __bool__(self) -> bool:
        raise TypeRuleError(
            "a graph value has no truth value: its elements are not known yet",
            loc=caller(),
            hint="use where(cond, a, b)",
            code="MDLC0207",
        )

    def __len__(self) -> int:
        if (results := self._results()) is not None:
            return results
        shape = self.shape
        if not shape:
            _refuse("of rank 0 has no len()", "x.ndim is the rank")
        return shape[0] if isinstance(shape[0], int) else self._tensor().dims[0]

    def __int__(self) -> int:
        _refuse("cannot be converted by int()", 'x.astype("i64") converts while the model runs')

    def __float__(self) -> float:
        _refuse("cannot be converted by float()", 'x.astype("f32") converts while the model runs')

    def item(self) -> Any:
        """Refused (MDLC0212), as are round(), divmod() and formats such as `{x:.3f}`."""
        _refuse("cannot be converted by item()", "return it: the caller gets its elements")

    def __round__(self, digits: int | None = None) -> Any:
        _refuse("cannot be converted by round()", "mc.round(x) rounds while the model runs")

    def __divmod__(self, other: Operand) -> Any:
        _refuse("cannot be taken apart by divmod()", "x // y and x % y")

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            _refuse(f"cannot be formatted by {format_spec!r}", "f'{x}' shows its name and type")
        return str(self)

    def __index__(self) -> int:
        _refuse("cannot be an index or a size", "use a Python number, such as x.shape[0]")

    def __getitem__(self, index: object) -> Node:  # Python asks it too, to iterate and unpack
        results = self._results()
        if results is None or not isinstance(index, int):
            _refuse("can be neither indexed nor iterated over", _WHOLE)
        if not -results <= index < results:
            text = f"result {index} of an op with {results}"
            raise PastTheEnd(text, loc=caller(), hint="they count from 0", code="MDLC0212")
        return _apply("getitem", self, index=index % results)

    def _results(self) -> int | None:
        """How many results an op with several has."""
        type = getattr(self, "type", None)
        return len(type.items) if isinstance(type, TupleType) else None

    def __setitem__(self, index: object, value: object) -> Never:
        _refuse("cannot be changed", "choose elementwise: y = where(cond, a, b)")

    def __contains__(self, item: object) -> bool:
        _refuse("cannot be searched by `in`", "max(cast(equal(x, item), to='i32')) is 1 if it is")

    def __array__(self, *args: object, **kwargs: object) -> Never:
        _refuse("is no NumPy array", "compute with minidlc's ops; interpret(graph, inputs) runs it")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **kwargs: object) -> Node:
        name = cast(str, ufunc.__name__)
        if name in _OPERATORS and method == "__call__" and not kwargs:
            return _apply(_OPERATORS[name], *inputs)
        _refuse_numpy(name)

    def __array_function__(self, function: Any, *rest: object) -> Never:
        _refuse_numpy(cast(str, function.__name__))


_WHOLE = "work on the whole tensor: x.sum(axis=0), mc.where(cond, a, b); len(x) is known"
_ONE = "mc.getitem(value, index=0) takes one result of an op with several"


def _refuse(what: str, hint: str) -> Never:
    text = f"a graph value {what}: its elements are known only when the model runs"
    raise TypeRuleError(text, loc=caller(), hint=hint, code="MDLC0212")


def _refuse_numpy(name: str) -> Never:
    op = name if name in registered_ops() else _OPERATORS.get(name)
    hint = f"mc.{op} is the op of this kind" if op else "write it with the ops that dir(mc) lists"
    _refuse(f"cannot be computed with by np.{name}", hint)


def _floor_div(a: Operand, b: Operand) -> Node:
    """`a // b` of integers: `div` rounds towards zero, which is one too many where signs differ."""
    rest = _apply("mod", a, b)
    if isinstance(rest.type, TensorType) and rest.type.dtype.is_float:
        text = f"// is for integers, got {rest.type.dtype}"
        raise TypeRuleError(text, loc=caller(), hint="mc.floor(a / b)", code="MDLC0202")
    quotient = _apply("div", a, b)
    exact = _apply("equal", rest, _apply("mod", a, b, fmod=True))
    return _apply("where", exact, quotient, _apply("sub", quotient, 1))


def _flat(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` mean the same, as in NumPy."""
    one = cast(object, numbers[0]) if len(numbers) == 1 else None
    return tuple(cast("tuple[Any, ...]", one)) if isinstance(one, (tuple, list)) else numbers


def _axes(axis: object) -> object:
    return (axis,) if isinstance(axis, int) else axis
