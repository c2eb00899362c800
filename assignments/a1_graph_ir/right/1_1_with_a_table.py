"""Another build: promotion by a table that is filled once, broadcasting by zip_longest."""

import itertools

import minidlc as mc
from minidlc.expr.types import DTYPES, TensorType
from minidlc.support.errors import TypeRuleError


def table():
    """(name, name) -> the element type."""
    found = {}
    for a in DTYPES.values():
        for b in DTYPES.values():
            pair = {a, b}
            floats = sorted((t for t in pair if t.is_float), key=lambda t: t.bits)
            integers = sorted((t for t in pair if t.is_integer), key=lambda t: t.bits)
            if len(floats) == 2 and floats[0].bits == floats[1].bits:
                result = mc.f32
            elif floats:
                result = floats[-1]
            elif len({t.kind for t in integers}) == 2:
                bits = max(t.bits * (2 if t.kind == "uint" else 1) for t in integers)
                result = DTYPES.get("i" + str(bits))
            else:
                result = integers[-1] if integers else None
            found[a.name, b.name] = result
    return found


TABLE = table()


def add_type(op, *types):
    """Collects (note, size) from the right and looks at the notes at the end."""
    if not len(types) == 2:
        raise TypeRuleError(f"{op.name}: two inputs, please", code="MDLC0201")
    first, second = types
    element = TABLE[first.dtype.name, second.dtype.name]
    shape, notes = (), []
    pairs = itertools.zip_longest(reversed(first.shape), reversed(second.shape), fillvalue=1)
    for count, (p, q) in enumerate(pairs, 1):
        known = {d for d in (p, q) if isinstance(d, int)} - {1}
        named = {d for d in (p, q) if not isinstance(d, int)}
        if len(known) > 1 or (not known and len(named) > 1):
            notes.append(f"axis -{count}: {p} and {q}")
        else:
            shape = (*(known or named or {1}), *shape)
    if element is None:
        notes.insert(0, f"elements: {first.dtype} and {second.dtype}")
        raise TypeRuleError(f"{op.name}: no type", code="MDLC0202", notes=notes)
    if notes:
        raise TypeRuleError(f"{op.name}: no shape", code="MDLC0203", notes=notes)
    return TensorType(element, shape)
