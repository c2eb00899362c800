"""Positions (`Index`, `Cond`) as 64-bit integers of the emitted function.

    p = Positions(builder); p.bind(i, "%i", (0, 9)); p.bind(u, 3, (3, 3))
    p.scalar(16 * i + u)                            # '%t1': 16*i computed once, outside inner loops
    p.lanes(idx, chunk)                             # one position per lane: a vector, or numbers

Unrolled variables are bound to numbers, so most of a position folds here, in Python. The variable
of a vectorised loop is bound to the position of lane 0 of the chunk being emitted.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from minidlc.codegen.values import Builder, Value, lane_numbers, splat_number
from minidlc.expr.index import (
    Atom,
    Cond,
    FloorDiv,
    Index,
    Interval,
    Max,
    Min,
    Mod,
    Opaque,
    Var,
    simplify,
    value_range,
)
from minidlc.expr.nodes import Expr
from minidlc.expr.walk import At, values_in
from minidlc.support.errors import CodegenError

Scalar: TypeAlias = int | str
Lanes: TypeAlias = list[int] | str  # one number per lane, or the name of an <N x i64>


@dataclass(frozen=True)
class Chunk:
    """The part of a vectorised loop emitted now: lane t is iteration `base + t` of `var`.

    `mask` names the lanes that are iterations (None: all `width` of them), as an LLVM value of type
    <width x i1>. `guarded` says that `mask` holds a test of the program, so that no lane may be on;
    `chosen` are the lanes that are, if that is known here.
    """

    var: Var
    base: Scalar
    width: int
    active: int
    mask: str | None = None
    guarded: bool = False
    chosen: tuple[int, ...] | None = None

    def masked(self, mask: str, chosen: tuple[int, ...] | None = None) -> Chunk:
        """The same lanes under a test: `mask` already includes the old one."""
        return replace(self, mask=mask, guarded=True, chosen=chosen)

    def on(self) -> tuple[int, ...] | None:
        """The lanes that are on, None where that is decided when the code runs."""
        return self.chosen if self.guarded else tuple(range(self.active)) or None


class Values(Protocol):
    """Emits the values that positions depend on (codegen/expressions.py)."""

    def emit(self, e: Expr, chunk: Chunk | None) -> Value:
        """The value of `e`."""
        ...

    def is_safe(self, e: Expr) -> bool:
        """True if every load in `e` is in bounds, whatever the tests around it say."""
        ...


@dataclass
class Positions:
    """Emits positions; `bound` maps loop variables to numbers or SSA names."""

    builder: Builder
    values: Values = field(init=False)
    bound: dict[str, Scalar] = field(default_factory=dict[str, Scalar])
    ranges: dict[Var, Interval] = field(default_factory=dict[Var, Interval])

    def bind(self, var: Var, value: Scalar, span: Interval | None) -> None:
        """Give a loop variable its value and the range that simplification may assume."""
        self.bound[var.name] = value
        self.ranges.pop(var, None)
        if span is not None:
            self.ranges[var] = span

    def unbind(self, var: Var) -> None:
        """Forget a loop variable."""
        self.bound.pop(var.name, None)
        self.ranges.pop(var, None)

    def simplified(self, e: Index) -> Index:
        """`e` with what the ranges and the unrolled variables decide."""
        return simplify(e, self.ranges)

    def span(self, e: Index) -> Interval | None:
        """The range of `e`, here."""
        return value_range(e, self.ranges)

    def inside(self, index: tuple[Index, ...], dims: tuple[int, ...]) -> bool:
        """True if the ranges prove every index within its dimension."""
        spans = [self.span(e) for e in index]
        return all(
            s is not None and s[0] >= 0 and s[1] < d for s, d in zip(spans, dims, strict=True)
        )

    def unsafe(self, e: Index, chunk: Chunk) -> bool:
        """True if `e` depends on values that may only be loaded in the lanes that are on."""
        return chunk.guarded and not all(self.values.is_safe(x) for x in values_in(e))

    def varies(self, e: Index, chunk: Chunk) -> bool:
        """True if `e` is computed for each lane of its own."""
        return chunk.var in e.vars() or self.unsafe(e, chunk)

    # one position

    def split(self, e: Index) -> tuple[int, list[tuple[str, int]]]:
        """`e` as a number plus factors times SSA names, names of outer loops first."""
        const, parts = e.const, dict[str, int]()
        for atom, k in e.terms:
            x = self._atom(atom)
            if isinstance(x, int):
                const += k * x
            else:
                parts[x] = parts.get(x, 0) + k
        depth = self.builder.depth
        return const, sorted(((x, k) for x, k in parts.items() if k), key=lambda p: depth(p[0]))

    def scalar(self, e: Index) -> Scalar:
        """The value of `e`: a number, or the name of an i64."""
        const, parts = self.split(e)
        total: Scalar = 0
        for x, k in parts:
            total = self.add(total, self.times(x, k))
        return self.add(total, const)

    def add(self, a: Scalar, b: Scalar) -> Scalar:
        """a + b, folded where possible."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._op(f"add nsw i64 {a}, {b}", a, b)

    def times(self, x: str, k: int) -> str:
        """x * k for a number k."""
        return x if k == 1 else self._op(f"mul nsw i64 {x}, {k}", x)

    def _op(self, text: str, *operands: Scalar) -> str:
        return self.builder.pure(text, *(x for x in operands if isinstance(x, str)), stem="at")

    def _atom(self, atom: Atom) -> Scalar:
        match atom:
            case Var(name):
                if name not in self.bound:
                    raise CodegenError(
                        f"the size or loop variable {name!r} has no value here",
                        hint="give numbers for symbolic sizes before code generation",
                        code="MDLC0802",
                    )
                return self.bound[name]
            case Min(a, b) | Max(a, b):
                x, y = self.scalar(a), self.scalar(b)
                smaller = isinstance(atom, Min)
                if isinstance(x, int) and isinstance(y, int):
                    return min(x, y) if smaller else max(x, y)
                return self._op(f"call i64 @llvm.{_extremum(atom)}.i64(i64 {x}, i64 {y})", x, y)
            case FloorDiv(a, c) | Mod(a, c):
                x = self.scalar(a)
                if isinstance(x, int):
                    return x // c if isinstance(atom, FloorDiv) else x % c
                return self._divide(x, c, "i64", a, isinstance(atom, FloorDiv))
            case Opaque():
                return self._value(atom, None)

    def _value(self, atom: Opaque, chunk: Chunk | None) -> str:
        """A value in memory as a position, for one iteration or for each lane."""
        assert isinstance(atom, At)
        value, width = self.values.emit(atom.value, chunk), chunk.width if chunk else 0
        x = self.splat(value.text, "i64", width) if width and not value.width else value.text
        type, over = ("i64", "i64") if not width else (f"<{width} x i64>", f"v{width}i64")
        zero, last = splat_number(0, "i64", width), splat_number(atom.last, "i64", width)
        low = self._op(f"call {type} @llvm.smax.{over}({type} {x}, {type} {zero})", x)
        return self._op(f"call {type} @llvm.smin.{over}({type} {low}, {type} {last})", low)

    def _divide(self, x: str, c: int, type: str, a: Index, quotient: bool) -> str:
        """Floor division or remainder by the constant c > 0, of i64 or a vector of them."""
        width = 0 if type == "i64" else int(type[1:].split()[0])
        by, zero = splat_number(c, "i64", width), splat_number(0, "i64", width)
        if c & (c - 1) == 0:
            shift = splat_number(c.bit_length() - 1, "i64", width)
            low = splat_number(c - 1, "i64", width)
            text = f"ashr {type} {x}, {shift}" if quotient else f"and {type} {x}, {low}"
            return self._op(text, x)
        span = self.span(a)
        if span is not None and span[0] >= 0:
            return self._op(f"{'udiv' if quotient else 'urem'} {type} {x}, {by}", x)
        mask = type.replace("i64", "i1")
        rest = self._op(f"srem {type} {x}, {by}", x)
        negative = self._op(f"icmp slt {type} {rest}, {zero}", rest)
        if quotient:
            down = self._op(f"sext {mask} {negative} to {type}", negative)
            plain = self._op(f"sdiv {type} {x}, {by}", x)
            return self._op(f"add {type} {plain}, {down}", plain, down)
        up = self._op(f"add {type} {rest}, {by}", rest)
        return self._op(f"select {mask} {negative}, {type} {up}, {type} {rest}", negative, up, rest)

    # one position per lane

    def lanes(self, e: Index, chunk: Chunk) -> Lanes:
        """The value of `e` in each lane of the chunk."""
        rest, total, coefficient = Index((), e.const), None, 0
        for atom, k in e.terms:
            if atom == chunk.var:
                coefficient = k
            elif self.varies(Index.of(atom), chunk):
                part = self._vector_times(self._lane_atom(atom, chunk), k, chunk.width)
                total = self._vector_add(total, part, chunk.width)
            else:
                rest = rest + k * atom
        base = self.scalar(rest + coefficient * chunk.var)
        steps = [coefficient * t for t in range(chunk.width)]
        if isinstance(base, int):
            return self._vector_add(total, [base + s for s in steps], chunk.width)
        first = self._vector_add(self.splat(base, "i64", chunk.width), steps, chunk.width)
        return self._vector_add(total, first, chunk.width)

    def steps(self, e: Index, chunk: Chunk) -> tuple[Index, list[int]] | None:
        """`e` as a position that all lanes share and the number that each of them adds to it.

        None if some lane adds what is not known here: by a value in memory, or an outer loop.
        """
        inner = [(a, k) for a, k in e.terms if a != chunk.var and chunk.var in Index.of(a).vars()]
        known = all(
            isinstance(self.bound.get(v.name), int) for a, _ in inner for v in Index.of(a).vars()
        )
        if not known or any(values_in(Index.of(a)) for a, _ in inner):
            return None
        total = [e.coefficient(chunk.var) * t for t in range(chunk.width)]
        for atom, k in inner:
            lanes = self.lanes(k * Index.of(atom), chunk)
            assert isinstance(lanes, list)
            total = [x + y for x, y in zip(total, lanes, strict=True)]
            e = e - k * Index.of(atom)
        return e, total

    def splat(self, x: str, element: str, width: int) -> str:
        """The SSA name `x` in every lane."""
        one = f"insertelement <{width} x {element}> poison, {element} {x}, i64 0"
        first = self.builder.pure(one, x)
        vector = f"<{width} x {element}>"
        spread = f"shufflevector {vector} {first}, {vector} poison, <{width} x i32> zeroinitializer"
        return self.builder.pure(spread, first)

    def lanes_text(self, lanes: Lanes) -> str:
        """LLVM text of per-lane positions."""
        return lane_numbers(lanes, "i64") if isinstance(lanes, list) else lanes

    def _vector_add(self, a: Lanes | None, b: Lanes, width: int) -> Lanes:
        if a is None or (isinstance(a, list) and not any(a)):
            return b
        if isinstance(b, list) and not any(b):
            return a
        if isinstance(a, list) and isinstance(b, list):
            return [x + y for x, y in zip(a, b, strict=True)]
        x, y = self.lanes_text(a), self.lanes_text(b)
        return self._op(f"add nsw <{width} x i64> {x}, {y}", x, y)

    def _vector_times(self, a: Lanes, k: int, width: int) -> Lanes:
        if isinstance(a, list):
            return [k * x for x in a]
        return a if k == 1 else self._op(f"mul nsw <{width} x i64> {a}, splat (i64 {k})", a)

    def _lane_atom(self, atom: Atom, chunk: Chunk) -> Lanes:
        vector = f"<{chunk.width} x i64>"
        match atom:
            case Min(a, b) | Max(a, b):
                x, y = self.lanes(a, chunk), self.lanes(b, chunk)
                if isinstance(x, list) and isinstance(y, list):
                    pick = min if isinstance(atom, Min) else max
                    return [pick(p, q) for p, q in zip(x, y, strict=True)]
                p, q = self.lanes_text(x), self.lanes_text(y)
                call = f"@llvm.{_extremum(atom)}.v{chunk.width}i64({vector} {p}, {vector} {q})"
                return self._op(f"call {vector} {call}", p, q)
            case FloorDiv(a, c) | Mod(a, c):
                x = self.lanes(a, chunk)
                quotient = isinstance(atom, FloorDiv)
                if isinstance(x, list):
                    return [p // c if quotient else p % c for p in x]
                return self._divide(x, c, vector, a, quotient)
            case Opaque():
                return self._value(atom, chunk)
            case Var():
                return self.lanes(Index.of(atom), chunk)

    # conditions

    def test(self, cond: Cond) -> bool | str:
        """A condition that is one for all lanes: decided, or the name of an i1."""
        result: bool | str = True
        for e in cond.ge:
            x = self.scalar(e)
            if isinstance(x, int):
                if x < 0:
                    return False
                continue
            one = self._op(f"icmp sge i64 {x}, 0", x)
            result = one if result is True else self._op(f"and i1 {result}, {one}", result, one)
        return result

    def lane_test(self, cond: Cond, chunk: Chunk) -> list[bool] | str:
        """A condition that differs between lanes: truth per lane, or the name of an <N x i1>."""
        result: list[bool] | str = [True] * chunk.width
        for e in cond.ge:
            x = self.lanes(e, chunk)
            if isinstance(x, list):
                one: list[bool] | str = [p >= 0 for p in x]
            else:
                one = self._op(f"icmp sge <{chunk.width} x i64> {x}, zeroinitializer", x)
            result = self.both(result, one, chunk.width)
        return result

    def both(self, a: list[bool] | str, b: list[bool] | str, width: int) -> list[bool] | str:
        """Lane-wise `and` of two masks."""
        if isinstance(a, list) and isinstance(b, list):
            return [p and q for p, q in zip(a, b, strict=True)]
        for x, y in ((a, b), (b, a)):
            if isinstance(x, list) and all(x):
                return y
        p, q = mask_text(a), mask_text(b)
        return self._op(f"and <{width} x i1> {p}, {q}", p, q)


def mask_text(mask: list[bool] | str) -> str:
    """LLVM text of a mask."""
    return lane_numbers(mask, "i1") if isinstance(mask, list) else mask


def weights(first: Scalar, end: Scalar) -> str:
    """How often a loop jumps back, for its branch: registers go to the loops that run most often.

    LLVM takes deeper loops for busier ones: it would keep the constants of an epilogue of two short
    loops in registers, and the sums of the product before it on the stack.
    """
    if not isinstance(first, int) or not isinstance(end, int):
        return ""
    again = min(max(end - first - 1, 0), 2**31 - 1)
    return f', !prof !{{!"branch_weights", i32 {again}, i32 1}}'


def _extremum(atom: Min | Max) -> str:
    return "smin" if isinstance(atom, Min) else "smax"
