"""Types of graph values: tensors (from expr/types.py) and tuples of them.

    TupleType((f32[4], i64[4]))                     # the type of topk(x, k=4)

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minidlc.expr.types import TensorType


@dataclass(frozen=True)
class TupleType:
    """The type of a node with several results; `getitem` takes one of them."""

    items: tuple[TensorType, ...]

    def __str__(self) -> str:
        comma = "," if len(self.items) == 1 else ""
        return f"({', '.join(map(str, self.items))}{comma})"


Type: TypeAlias = TensorType | TupleType


def result_types(type: Type) -> tuple[TensorType, ...]:
    """The type of each result of a node: one, or those of the tuple."""
    return type.items if isinstance(type, TupleType) else (type,)
