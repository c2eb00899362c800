"""Takes the element type from NumPy: i32 and f32 give f64 there."""

import numpy as np

from minidlc.expr.types import TensorType, dtype
from minidlc.support.errors import TypeRuleError


def promoted(a, b):
    """The element type of a + b for two DTypes, or None if there is none."""
    if a.kind == b.kind == "bool":
        return None
    try:
        found = dtype(np.result_type(a.numpy, b.numpy))
    except TypeError:
        return None
    mixed = {a.kind, b.kind} == {"int", "uint"} and found.is_float
    return None if mixed else found


def add_type(op, *types):
    """The TensorType of op(a, b), or one TypeRuleError with a note for each fault."""
    if len(types) != 2:
        raise TypeRuleError(f"{op.name}: takes 2 inputs, got {len(types)}", code="MDLC0201")
    a, b = types
    element, shape, faults = promoted(a.dtype, b.dtype), [], []
    if element is None:
        faults.append(f"elements: {a.dtype} and {b.dtype}")
    for axis in range(-1, -1 - max(a.rank, b.rank), -1):
        p, q = (t.shape[axis] if t.rank >= -axis else 1 for t in types)
        if p == q or q == 1:
            shape.append(p)
        elif p == 1:
            shape.append(q)
        elif isinstance(p, int) != isinstance(q, int):
            shape.append(p if isinstance(p, int) else q)
        else:
            faults.append(f"axis {axis}: {p} and {q}")
    if faults:
        code = "MDLC0202" if element is None else "MDLC0203"
        message = f"{op.name}: {a} and {b} do not fit in {len(faults)} respects"
        raise TypeRuleError(message, code=code, notes=faults)
    return TensorType(element, tuple(reversed(shape)))
