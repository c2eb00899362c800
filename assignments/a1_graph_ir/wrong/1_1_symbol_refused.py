"""Refuses a symbol beside a number, as the shipped rule does."""

import minidlc as mc
from minidlc.expr.types import DTYPES, TensorType
from minidlc.support.errors import TypeRuleError


def promoted(a, b):
    """The element type of a + b for two DTypes, or None if there is none."""
    if a.kind == b.kind == "bool":
        return None
    if "bool" in (a.kind, b.kind):
        return b if a.kind == "bool" else a
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        if a.bits == b.bits:
            return mc.f32  # f16 and bf16 are the only two
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return DTYPES.get(f"i{max(signed.bits, 2 * unsigned.bits)}")  # there is no i128


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
        else:
            faults.append(f"axis {axis}: {p} and {q}")
    if faults:
        code = "MDLC0202" if element is None else "MDLC0203"
        message = f"{op.name}: {a} and {b} do not fit in {len(faults)} respects"
        raise TypeRuleError(message, code=code, notes=faults)
    return TensorType(element, tuple(reversed(shape)))
