"""Random loop functions that stay inside their buffers, for the tests of loop passes."""

from __future__ import annotations

import random

import numpy as np

from minidlc.expr.index import Cond, Index, Var, maximum, minimum
from minidlc.expr.nodes import Const, Expr, Load, Select
from minidlc.expr.types import Array, f32
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import Alloc, For, If, Kind, LoopFunction, Param, Scope, Stmt, Store, block
from minidlc.tests.expr.test_index import random_index

SIZE = 9


def random_function(rng: random.Random) -> LoopFunction:
    """Two or three loop nests over A (read) and C (read and written): splits, padding, guards."""
    nests = [_nest(rng, n) for n in range(rng.randint(1, 3))]
    return LoopFunction("f", (Param("A", f32[SIZE]), Param("C", f32[SIZE, SIZE])), block(*nests))


def run(fn: LoopFunction) -> Array:
    """What `fn` makes of C."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "A": rng.integers(-8, 8, SIZE).astype(np.float32),
        "C": rng.integers(-8, 8, (SIZE, SIZE)).astype(np.float32),
    }
    interpret(fn, arrays)
    return arrays["C"]


def _nest(rng: random.Random, n: int) -> Stmt:
    """Loops over i and j, each split or whole, around stores; sometimes through a local buffer."""
    (i_loops, i), (j_loops, j) = _axis(rng, f"i{n}"), _axis(rng, f"j{n}")
    loops = [*i_loops, *j_loops]
    if rng.random() < 0.3:
        loops = [*i_loops[:1], *j_loops[:1], *i_loops[1:], *j_loops[1:]]
    names = tuple(var for var, _ in loops)
    body = block(*(_store(rng, names, i, j) for _ in range(rng.randint(1, 2))))
    if rng.random() < 0.3:
        local = Store(f"T{n}", (), _value(rng, names))
        use = Store("C", (i, j), Load(f"T{n}", (), f32) + Load("C", (i, j), f32))
        body = block(body, Alloc(f"T{n}", f32[()], Scope.STACK, block(local, use)))
    for var, extent in reversed(loops):
        body = For(var, extent, rng.choice((Kind.SERIAL, Kind.SERIAL, Kind.UNROLLED)), body)
    return body


def _axis(rng: random.Random, name: str) -> tuple[list[tuple[Var, Index]], Index]:
    """The loops of one axis and the position they give, 0 <= position < size."""
    size, f = rng.randint(1, SIZE), rng.randint(1, 4)
    outer, inner = Var(f"{name}o"), Var(f"{name}i")
    if rng.random() < 0.4:
        return [(outer, Index.of(size))], Index.of(outer)
    loops = [(outer, Index.of(-(-size // f))), (inner, minimum(f, size - f * outer))]
    return loops, f * outer + inner


def _store(rng: random.Random, names: tuple[Var, ...], i: Index, j: Index) -> Stmt:
    value = _value(rng, names) + Load("C", (i, j), f32)
    choice = rng.random()
    if choice < 0.5:
        return Store("C", (i, j), value)
    if choice < 0.8:
        return If(Cond((random_index(rng, 0, names),)), Store("C", (i, j), value))
    far = i + rng.randint(-2, 2)
    return If((far >= 0) & (far < SIZE), Store("C", (far, j), value))


def _value(rng: random.Random, names: tuple[Var, ...]) -> Expr:
    e = random_index(rng, rng.randint(0, 1), names)
    choice = rng.random()
    if choice < 0.5:  # a zero border
        return Select((e >= 0) & (e < SIZE), Load("A", (e,), f32), Const(0.0, f32))
    if choice < 0.75:  # a replicated border
        return Load("A", (minimum(maximum(e, 0), SIZE - 1),), f32)
    return Load("A", (e % SIZE,), f32) * 2.0
