"""Element types and tensor types, shared by every level from the graph to the loops.

    f32[4, 8]                                       # TensorType(f32, (4, 8))
    f32["N", 784]                                   # a symbolic dim: an index expression over N
    dtype("float32") is f32 is dtype(np.float32)
    str(f32["N", 784])                              # 'f32["N", 784]'

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from minidlc.expr.index import Index, Var
from minidlc.support.errors import TypeRuleError, nearest

Dim: TypeAlias = int | Index
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class DType:
    """An element type: `kind` 'float', 'int', 'uint' or 'bool'; `bits` is its width in memory."""

    name: str
    kind: str
    bits: int

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same meaning (bfloat16 comes from ml_dtypes)."""
        return _NUMPY[self.name]

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory (a bool takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """True for f16, bf16, f32, f64."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    def __getitem__(self, shape: int | str | Index | tuple[int | str | Index, ...]) -> TensorType:
        dims = shape if isinstance(shape, tuple) else (shape,)
        return TensorType(self, tuple(Index.of(Var(d)) if isinstance(d, str) else d for d in dims))

    def __str__(self) -> str:
        return self.name


f16, bf16, f32, f64 = (DType(n, "float", int(n.strip("bf"))) for n in ("f16", "bf16", "f32", "f64"))
i8, i16, i32, i64 = (DType(f"i{b}", "int", b) for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
bool_ = DType("bool", "bool", 8)

DTYPES = {t.name: t for t in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)}
_LONG = {"f": "float", "i": "int", "u": "uint"}
_NUMPY = {
    name: np.dtype(ml_dtypes.bfloat16 if name == "bf16" else _LONG.get(name[0], "") + name[1:])
    if t.kind != "bool"
    else np.dtype(np.bool_)
    for name, t in DTYPES.items()
}
_BY_NUMPY = {numpy_dtype: DTYPES[name] for name, numpy_dtype in _NUMPY.items()}


def dtype(thing: object) -> DType:
    """Return the DType for a DType, a name ('f32', 'float32') or a NumPy dtype.

    Raises TypeRuleError (MDLC0202) for anything else, such as complex or string dtypes.
    """
    if isinstance(thing, DType):
        return thing
    if isinstance(thing, str) and thing in DTYPES:
        return DTYPES[thing]
    try:
        if type(thing) in (type(None), tuple):  # f64, and a record, to NumPy
            raise TypeError
        return _BY_NUMPY[np.dtype(thing)]  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (KeyError, TypeError):
        raise TypeRuleError(
            f"no element type for {thing!r}", hint=nearest(str(thing), DTYPES), code="MDLC0202"
        ) from None


@dataclass(frozen=True)
class TensorType:
    """Element type and shape; the rank is fixed, a dim is an int or an index expression."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """True if every dim is a number."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as ints; a symbolic dim is a TypeRuleError (MDLC0205)."""
        if not self.is_static:
            raise TypeRuleError(
                f"{self} has symbolic dims where numbers are needed",
                hint="give them: shapes={'N': 1}",
                code="MDLC0205",
            )
        return tuple(d for d in self.shape if isinstance(d, int))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense row-major array of this type."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[Dim, ...]) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, element: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(element, self.shape)

    def __str__(self) -> str:
        dims = (str(d) if isinstance(d, int) else f'"{d}"' for d in self.shape)
        return f"{self.dtype}[{', '.join(dims) or '()'}]"
