"""An op: one frozen dataclass holding its type rule, its meaning, its loops and its examples.

    @register_op
    @dataclass(frozen=True)
    class Relu(Op):
        '''relu(x)[i] = x[i] if x[i] > 0 else 0; NaN stays NaN.'''
        ...

Fields are the attributes. `register_op` is the outermost decorator; the printed name is the class
name in snake case unless `name` says otherwise. The methods are called through `infer`, `evaluate`
and `express`, which honour the extension points `type_rule.OP`, `reference.OP`, `compute.OP`.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.types import TupleType, Type
from minidlc.loop.nodes import LoopFunction
from minidlc.support import extension
from minidlc.support.errors import CallError, LoweringError, OptionError, TypeRuleError, nearest
from minidlc.te.tensor import Tensor


class OpKind(StrEnum):
    """How an op runs."""

    COMPILED = "compiled"  # has `compute`, or `loops`
    COMPOSITE = "composite"  # has `decompose`
    CONTROL = "control"  # holds graphs: which run, and how often, is decided at run time
    HOST = "host"  # NumPy between kernels, for sizes that depend on data; no op does so yet


class Pattern(StrEnum):
    """What fusion may do with an op, after TVM's OpPatternKind (ordered from easy to hard)."""

    ELEMENTWISE = "elementwise"
    BROADCAST = "broadcast"
    INJECTIVE = "injective"
    REDUCTION = "reduction"
    OUT_FUSABLE = "out_fusable"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Example:
    """Inputs for one use of an op; `rtol`, `atol` bound loops and machine code to `reference`."""

    op: Op
    inputs: tuple[Array | None, ...]
    rtol: float = 1e-5
    atol: float = 1e-6


class Positions(NamedTuple):
    """Elements of input number `input` are positions: low <= element < high.

    Bounds are one number each, or one for each place along the input's last axis.
    """

    input: int
    low: int | tuple[int, ...]
    high: int | tuple[int, ...]


def no_positions(op: Op, *types: TensorType | None) -> tuple[Positions, ...]:
    """What `Op.positions` is for ops without positions among their inputs."""
    return ()


@dataclass(frozen=True)
class Op:
    """Base of all ops. Subclasses declare fields (attributes) and methods; see ops/."""

    name: ClassVar[str] = ""  # printed name; filled in by register_op
    onnx: ClassVar[str | None] = None  # ONNX op_type of the same meaning, if there is one
    kind: ClassVar[OpKind] = OpKind.COMPILED
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    schedule: ClassVar[str] = "injective"  # the KIND of schedule that an anchor of this op takes
    is_view: ClassVar[bool] = False  # same bytes under another shape: no kernel, an alias
    optional: ClassVar[tuple[int, ...]] = ()  # positions of inputs that may be omitted (None)
    takes_tuple: ClassVar[bool] = False  # inputs may be the tuples of nodes with several results
    pure: ClassVar[bool] = True  # equal inputs give equal results: may be folded, merged, dropped
    drawn: ClassVar[bool] = False  # random numbers: pure, but drawn when the model runs, not folded
    finite: ClassVar[tuple[str, ...]] = ()  # attributes that must not be NaN or infinite

    # (self, *TensorType | None) -> TensorType | TupleType; raises TypeRuleError
    type_rule: ClassVar[Callable[..., Type]]
    # (self, *array | None) -> array | tuple of arrays: the meaning, in NumPy
    reference: ClassVar[Callable[..., Any]]
    # (self, *Tensor | None) -> Tensor, or a tuple of them: what each element is (kind COMPILED)
    compute: ClassVar[Callable[..., Tensor | tuple[Tensor, ...]]]
    # (self, *TensorType | None) -> LoopFunction: the loops of an op that no tensor expression
    # states (kind COMPILED); its parameters are the inputs that are given, then the results
    loops: ClassVar[Callable[..., LoopFunction]]
    # (self, *Value | None) -> Value, or a tuple of them: the same in simpler ops (kind COMPOSITE)
    decompose: ClassVar[Callable[..., Any]]
    # (self, *TensorType | None) -> Positions of each input that holds some: checked wherever the
    # op runs, so that a position outside is a CallError (MDLC0909), not a wrong place
    positions: ClassVar[Callable[..., tuple[Positions, ...]]] = no_positions
    # (self, y: Node, dy) -> for each input how the loss changes with it, or None: ops/gradients.py;
    # an op without one is differentiated through `decompose` (also one that is COMPILED)
    gradient: ClassVar[Callable[..., Any]]
    # () -> iterable of Example: drives every generic test
    examples: ClassVar[Callable[..., Iterable[Example]]]

    def attributes(self) -> dict[str, Any]:
        """Field name -> value, in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


OpClass = TypeVar("OpClass", bound=type[Op])
_registry: dict[str, type[Op]] = {}


def register_op(cls: OpClass) -> OpClass:
    """Add an op class under its printed name; a second class of that name is an OptionError."""
    name = cls.__dict__.get("name") or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    if not (is_dataclass(cls) and cls.__dataclass_params__.frozen):  # pyright: ignore
        raise OptionError(f"op {name!r} is not a frozen dataclass", code="MDLC1004")
    old = _registry.get(name)
    if old is not None and (old.__module__, old.__qualname__) != (cls.__module__, cls.__qualname__):
        raise OptionError(f"op {name!r} is registered twice", code="MDLC1004")
    twin = next((n for n, c in _registry.items() if cls.onnx and c.onnx == cls.onnx), name)
    if twin != name:  # the importer could not know which is meant
        text = f"op {name!r} says that it is ONNX's {cls.onnx}, which {twin!r} is"
        raise OptionError(text, code="MDLC1004")
    missing = [m for m in ("type_rule", "reference", "examples") if not hasattr(cls, m)]
    needed = {OpKind.COMPILED: ("compute", "loops"), OpKind.COMPOSITE: ("decompose",)}
    ways = () if cls.is_view else needed.get(cls.kind, ())  # a view needs no kernel
    if ways and not any(hasattr(cls, way) for way in ways):
        missing.append(" or ".join(ways))
    if missing:
        raise OptionError(f"op {name!r} lacks {', '.join(missing)}", code="MDLC1004")
    cls.name = name
    _registry[name] = cls
    return cls


def unregister_op(name: str) -> None:
    """Remove an op again (tests and notebooks that register one of their own)."""
    _registry.pop(name, None)


def registered_ops() -> dict[str, type[Op]]:
    """Printed name -> class, sorted by name."""
    return dict(sorted(_registry.items()))


def op_class(name: str) -> type[Op]:
    """The class of a printed name; raises OptionError (MDLC1005) naming the nearest known one."""
    if name not in _registry:
        no_ops = "add" not in _registry
        hint = "import minidlc.ops: it has the ops" if no_ops else nearest(name, _registry)
        raise OptionError(f"unknown op {name!r}", hint=hint, code="MDLC1005")
    return _registry[name]


def _members() -> list[str]:
    return list(_registry)


extension.declare("type_rule.OP", "(op, *types) -> type", "type rule of one op", _members)
extension.declare("reference.OP", "(op, *arrays) -> array", "meaning of one op", _members)
extension.declare(
    "compute.OP",
    "(op, *tensors) -> Tensor or Tensors",
    "loops of one op",
    _members,
    returns=lambda result: isinstance(result, Tensor) or extension.items(Tensor)(result),
)


def type_notes(types: Sequence[Type | None]) -> tuple[str, ...]:
    """Lines of an error that list the types of the inputs."""
    return tuple(f"input {i}: {t}" for i, t in enumerate(types))


def _check_inputs(op: Op, types: Sequence[Type | None]) -> None:
    """Refuse what no type rule should have to look at: omitted inputs, tuples."""
    for i, t in enumerate(types):
        if t is None and i not in op.optional:
            raise TypeRuleError(f"{op.name}: input {i} is required, got None")
        if isinstance(t, TupleType) and not op.takes_tuple:
            hint = "take one of its results: getitem(x, index=0)"
            raise TypeRuleError(f"{op.name}: input {i} is the tuple {t}", hint=hint)


def infer(op: Op, types: Sequence[Type | None]) -> Type:
    """Type of the op's result; raises TypeRuleError with the input types as notes."""
    rule = extension.dispatch(f"type_rule.{op.name}", type(op).type_rule)
    try:
        _check_inputs(op, types)
        result: object = rule(op, *types)
    except TypeRuleError as e:
        e.notes = e.notes or type_notes(types)
        raise
    except TypeError as e:
        if "argument" not in str(e):
            raise
        raise TypeRuleError(
            f"{op.name}: takes another number of inputs, got {len(types)}", notes=type_notes(types)
        ) from None
    if not isinstance(result, (TensorType, TupleType)):
        raise TypeRuleError(
            f"{op.name}: the type rule returned {result!r}, not a type",
            notes=type_notes(types),
            code="MDLC0206",
        )
    return result


def evaluate(op: Op, arrays: Sequence[Array | None]) -> Array | tuple[Array, ...]:
    """The op's meaning on NumPy arrays: an array, or a tuple where the type is a tuple.

    Raises CallError (MDLC0909) for a position outside what the op can reach.
    """
    _check_positions(op, arrays)
    function = extension.dispatch(f"reference.{op.name}", type(op).reference)
    with np.errstate(all="ignore"):
        result: Any = function(op, *arrays)
    if isinstance(result, tuple):
        return tuple(np.asarray(r) for r in result)  # pyright: ignore
    return np.asarray(result)


def _check_positions(op: Op, arrays: Sequence[Array | None]) -> None:
    if type(op).positions is Op.positions:
        return  # also for ops whose inputs are tuples
    types = [None if a is None else TensorType(dtype(a.dtype), a.shape) for a in arrays]
    for found in op.positions(*types):
        array = arrays[found.input]
        assert array is not None, "an omitted input holds no positions"
        wrong = np.argwhere((array < np.asarray(found.low)) | (array >= np.asarray(found.high)))
        if len(wrong):
            raise out_of_range(op, found, str(array[tuple(wrong[0])]))


def out_of_range(op: Op, positions: Positions, found: str = "a position") -> CallError:
    """The error for an element of an input that is not in its range."""
    low, high = np.asarray(positions.low), np.asarray(positions.high) - 1
    return CallError(
        f"{op.name}: {found} in input {positions.input} is outside the range {low} to {high}",
        hint="positions count from 0; a negative one, where it is allowed, from the end",
        code="MDLC0909",
    )


def express(op: Op, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """The results of an op as tensor expressions; LoweringError (MDLC0701) if it has none."""
    if not hasattr(type(op), "compute"):
        raise LoweringError(f"{op.name} has no compute: it cannot be lowered to loops")
    found = extension.dispatch(f"compute.{op.name}", type(op).compute)(op, *tensors)
    return (found,) if isinstance(found, Tensor) else tuple(found)
