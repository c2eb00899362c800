"""Another build: shapes padded to one rank and read from the front, element types by sets."""

import minidlc as mc
from minidlc.expr.types import DTYPES
from minidlc.support.errors import TypeRuleError


def values_of(element):
    """What an element type can hold, as (kind, low, high) of its exact whole numbers."""
    if element.kind == "bool":
        return 0, 1
    if element.kind == "uint":
        return 0, 2**element.bits - 1
    return -(2 ** (element.bits - 1)), 2 ** (element.bits - 1) - 1


def element_of(a, b):
    """The element type, or None."""
    floats = {t.name: t for t in (a, b) if t.is_float}
    if floats:
        if len(floats) == 1:
            (only,) = floats.values()
            return only
        for name in ("f64", "f32"):
            if name in floats:
                return floats[name]
        return mc.f32
    if a == b == DTYPES["bool"]:
        return None
    low = min(values_of(a)[0], values_of(b)[0])
    high = max(values_of(a)[1], values_of(b)[1])
    integers = [t for t in DTYPES.values() if t.is_integer]
    for t in sorted(integers, key=lambda t: (t.bits, t.kind == "int")):
        if values_of(t)[0] <= low and high <= values_of(t)[1]:
            return t
    return None


def axis_of(p, q):
    """The size of one axis, or None if there is none."""
    if p == 1:
        return q
    if q == 1 or p == q:
        return p
    numbers = [n for n in (p, q) if isinstance(n, int)]
    return numbers[0] if len(numbers) == 1 else None


def add_type(op, *types):
    """Sizes first, then all faults from the last axis to the first."""
    try:
        a, b = types
    except ValueError:
        raise TypeRuleError(op.name + ": not two inputs", code="MDLC0201") from None
    rank = max(a.rank, b.rank)
    left = [1] * (rank - a.rank) + list(a.shape)
    right = [1] * (rank - b.rank) + list(b.shape)
    sizes = [axis_of(p, q) for p, q in zip(left, right, strict=True)]
    element = element_of(a.dtype, b.dtype)
    notes = () if element else (f"elements: {a.dtype} and {b.dtype}",)
    for at in reversed(range(rank)):
        if sizes[at] is None:
            notes += (f"axis {at - rank}: {left[at]} and {right[at]}",)
    if not notes:
        return element[tuple(sizes)]
    code = "MDLC0203" if element else "MDLC0202"
    raise TypeRuleError(f"{op.name}: " + "; ".join(notes), code=code, notes=notes)
