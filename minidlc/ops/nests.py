"""Loop nests as text, for ops that write their loops themselves.

    loops = serial("ij", (4, 8))                    # for i in serial(0, 4): for j in serial(0, 8):
    lines = nest(shared(loops, 32), "y[i, j] = x[i, j]")
    function("copy", {"x": x, "y": y}, lines)       # parsed; "pass" where there are no lines

Reads sizes and statements, writes a LoopFunction. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from minidlc.expr.types import TensorType
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function

LANES = 16  # elements side by side, in the vectors of any target
SHARED_WORK = 1 << 16  # elements: below, a fork costs more than it gains

Loops: TypeAlias = list[tuple[str, str, object]]  # (variable, kind, extent), the outermost first


def serial(variables: Iterable[str], extents: Iterable[object]) -> Loops:
    """A serial loop for each variable; the shorter of the two lists counts."""
    return [(v, "serial", n) for v, n in zip(variables, extents, strict=False)]


def in_vectors(axes: Sequence[str], shape: Sequence[int]) -> tuple[Loops, list[str]]:
    """Loops over `shape`, the last axis in vectors; and the position of their element."""
    if not axes:
        return [], []
    *outer, last = axes
    size = shape[-1]
    loops = serial(outer, shape)
    loops.append((f"{last}o", "serial", -(-size // LANES)))
    loops.append((f"{last}i", "vectorized", f"min({LANES}, {size} - {LANES}*{last}o)"))
    return loops, [*outer, f"{LANES}*{last}o + {last}i"]


def shared(loops: Loops, work: int) -> Loops:
    """The outermost loop of more than one iteration in parallel, if there is work for it."""
    first = next((n for n, (_, _, extent) in enumerate(loops) if extent != 1), None)
    if work < SHARED_WORK or first is None or loops[first][1] != "serial":
        return loops
    var, _, extent = loops[first]
    return [*loops[:first], (var, "parallel", extent), *loops[first + 1 :]]


def nest(loops: Loops, *statements: str) -> list[str]:
    """Lines of loop text inside loops."""
    heads = [f"for {var} in {kind}(0, {extent}):" for var, kind, extent in loops]
    lines = ["    " * depth + head for depth, head in enumerate(heads)]
    return [*lines, *("    " * len(heads) + line for line in statements)]


def function(name: str, params: Mapping[str, TensorType], lines: Iterable[str]) -> LoopFunction:
    """The loops of an op: its parameters, inputs first, and the lines of its body."""
    head = f"def {name}({', '.join(f'{p}: {type}' for p, type in params.items())}):"
    body = [f"    {line}" for line in lines]
    return parse_function("\n".join([head, *(body or ["    pass"])]))
