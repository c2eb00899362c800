"""What the type rules of ops on positions refuse, with message and code."""

from __future__ import annotations

from typing import Any

import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import TensorType, bool_, f32, f64, i8, i32, i64, u8
from minidlc.graph import Input, apply
from minidlc.support.errors import TypeRuleError

X = f32[3, 4]
REFUSED: list[tuple[str, tuple[TensorType, ...], dict[str, Any], str, str]] = [
    ("gather", (X, f32[2]), {}, "MDLC0202", "indices must hold i32 or i64, got f32"),
    ("gather", (X, i64[2]), {"axis": 2}, "MDLC0209", "axis 2 is outside [-2, 1]"),
    ("gather", (f32[()], i64[2]), {}, "MDLC0209", "a scalar, which has no axes"),
    ("gather_elements", (X, i64[3]), {}, "MDLC0204", "indices must have rank 2"),
    ("gather_elements", (X, i64[3, 5]), {}, "MDLC0203", "axis 1 of indices has size 5, that of x"),
    ("gather_elements", (f32["N", 4], i64[2, 4]), {"axis": 1}, "MDLC0205", "axis 0 of indices"),
    ("gather_nd", (X, i64[3, 3]), {}, "MDLC0203", "3 positions a tuple, x: f32[3, 4] has 2 axes"),
    ("gather_nd", (X, i64[3, 0]), {}, "MDLC0203", "0 positions a tuple"),
    ("gather_nd", (X, i64[()]), {}, "MDLC0204", "takes no scalars"),
    ("gather_nd", (X, i64[2, "K"]), {}, "MDLC0205", "the last axis of indices has the symbolic"),
    ("gather_nd", (X, i64[2, 1]), {"batch_dims": 1}, "MDLC0203", "batch axis 0 differs: 3 and 2"),
    ("gather_nd", (X, i64[3, 1]), {"batch_dims": 2}, "MDLC0209", "batch_dims 2 is outside [0, 1]"),
    ("one_hot", (i64[3], f32[3]), {"depth": 2}, "MDLC0203", "what is off and what is on"),
    ("one_hot", (i64[3], f32[2]), {"depth": -1}, "MDLC0209", "depth must be at least 0, got -1"),
    ("one_hot", (i64[3], f32[2]), {"depth": 2, "axis": 2}, "MDLC0209", "axis 2 is outside [-2, 1]"),
    ("one_hot", (bool_[3], f32[2]), {"depth": 2}, "MDLC0202", "got bool"),
    ("reverse_sequence", (f32[3], i64[3]), {}, "MDLC0204", "takes sequences in batches"),
    ("reverse_sequence", (X, i64[3]), {}, "MDLC0203", "3 lengths for a batch of 4"),
    ("reverse_sequence", (X, i64[4]), {"time_axis": 1}, "MDLC0209", "are 0 and 1, got 1, 1"),
    ("reverse_sequence", (X, f32[4]), {}, "MDLC0202", "lengths must hold i32 or i64"),
    ("scatter_elements", (X, i64[2, 4], f32[2, 3]), {}, "MDLC0203", "updates must be f32[2, 4]"),
    ("scatter_elements", (X, i64[2, 4], f64[2, 4]), {}, "MDLC0202", "element types differ"),
    ("scatter_elements", (X, i8[2, 4], f32[2, 4]), {}, "MDLC0202", "got i8"),
    ("scatter_elements", (X, i64[2, 4], f32[2, 4]), {"reduction": "sum"}, "MDLC0209", "'sum' is"),
    ("scatter_nd", (X, i64[5, 1], f32[5, 3]), {}, "MDLC0203", "updates must be f32[5, 4]"),
    ("scatter_nd", (X, i64[5, 2], f32[5]), {"reduction": "x"}, "MDLC0209", "none, add, mul, max"),
    ("tensor_scatter", (X, X), {}, "MDLC0209", "axis 0 is that of the batch"),
    ("tensor_scatter", (X, f32[3, 5]), {"axis": 1}, "MDLC0203", "axis 1 of updates has size 5"),
    ("tensor_scatter", (X, X, i64[4]), {"axis": 1}, "MDLC0203", "begins must have shape [3]"),
    ("tensor_scatter", (X, X), {"axis": 1, "mode": "ring"}, "MDLC0209", "neither linear nor"),
    ("bit_cast", (X,), {"to": f64}, "MDLC0202", "f32 has 32 bits, f64 has 64"),
    ("bit_cast", (u8[3],), {"to": bool_}, "MDLC0202", "may be no bool"),
]


@pytest.mark.parametrize(("op", "types", "attributes", "code", "text"), REFUSED)
def test_refused(
    op: str, types: tuple[TensorType, ...], attributes: dict[str, Any], code: str, text: str
) -> None:
    inputs = [Input(f"x{n}", type) for n, type in enumerate(types)]
    with pytest.raises(TypeRuleError) as caught:
        apply(op, *inputs, **attributes)
    assert caught.value.code == code
    assert f"{op}: " in caught.value.message
    assert text in caught.value.message


def test_symbolic_sizes_go_through() -> None:
    x, i = Input("x", f32["N", 4]), Input("i", i32["M", 2])
    assert apply("gather", x, i).type == f32["M", 2, 4]
    assert apply("gather", x, i, axis=1).type == f32["N", "M", 2]
    assert apply("gather_nd", x, i).type == f32["M"]
    values = Input("v", f32[2])
    assert apply("one_hot", i, values, depth=5, axis=0).type == f32[5, "M", 2]
