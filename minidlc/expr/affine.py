"""Positions as integers in canonical affine form: equality is `==`, and subtraction proves things.

    i, j = Var("i"), Var("j")
    str(14 * i + j - 1)                             # '14*i + j - 1'
    (i + j) - i == Index.of(j)                      # True: one form for one value
    (16 * i + 3) // 16 == Index.of(i)               # True: floor division splits off multiples
    str((i >= 1) & (i < 5))                         # 'i - 1 >= 0 and 4 - i >= 0'

Everything here holds for all integers; what needs the ranges of variables is in expr/index.py.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import keyword
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn, SupportsIndex, TypeAlias

from minidlc.expr.sums import print_dividend, print_sum
from minidlc.support.errors import LoweringError


class Arithmetic:
    """Operators shared by `Var`, the atoms and `Index`; results are canonical `Index` or `Cond`."""

    __slots__ = ()

    def __add__(self, other: Position) -> Index:
        return _add(Index.of(self), Index.of(other), 1)

    def __radd__(self, other: Position) -> Index:
        return _add(Index.of(other), Index.of(self), 1)

    def __sub__(self, other: Position) -> Index:
        return _add(Index.of(self), Index.of(other), -1)

    def __rsub__(self, other: Position) -> Index:
        return _add(Index.of(other), Index.of(self), -1)

    def __neg__(self) -> Index:
        return _scale(Index.of(self), -1)

    def __mul__(self, other: Position) -> Index:
        return _multiply(Index.of(self), Index.of(other))

    def __rmul__(self, other: Position) -> Index:
        return _multiply(Index.of(other), Index.of(self))

    def __floordiv__(self, other: Position) -> Index:
        return _floordiv(Index.of(self), _divisor(self, other, "//"))

    def __rfloordiv__(self, other: Position) -> Index:
        return Index.of(other) // self

    def __mod__(self, other: Position) -> Index:
        return _mod(Index.of(self), _divisor(self, other, "%"))

    def __rmod__(self, other: Position) -> Index:
        return Index.of(other) % self

    def __lt__(self, other: Position) -> Cond:
        return Cond((Index.of(other) - Index.of(self) - 1,))

    def __le__(self, other: Position) -> Cond:
        return Cond((Index.of(other) - Index.of(self),))

    def __gt__(self, other: Position) -> Cond:
        return Cond((Index.of(self) - Index.of(other) - 1,))

    def __ge__(self, other: Position) -> Cond:
        return Cond((Index.of(self) - Index.of(other),))


class Axis(Arithmetic, ABC):
    """Something that stands for a position, as a reduction axis does; `index` is the position."""

    __slots__ = ()

    @property
    @abstractmethod
    def index(self) -> Index:
        """The position."""


@dataclass(frozen=True, slots=True, eq=False)
class Var(Arithmetic):
    """A loop variable or a symbolic size, compared by name (an identifier; else LoweringError)."""

    name: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise LoweringError(f"not a name for a variable: {self.name!r}", code="MDLC0712")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Var) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Min(Arithmetic):
    """The smaller of two positions; build it with `minimum`, which orders the operands."""

    a: Index
    b: Index

    def __str__(self) -> str:
        return f"min({self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class Max(Arithmetic):
    """The larger of two positions; build it with `maximum`, which orders the operands."""

    a: Index
    b: Index

    def __str__(self) -> str:
        return f"max({self.a}, {self.b})"


@dataclass(frozen=True, slots=True)
class FloorDiv(Arithmetic):
    """`a // c`, rounded down, c > 1; built by the operator `//`, which splits off multiples."""

    a: Index
    c: int

    def __str__(self) -> str:
        return f"{print_dividend(str(self.a))}//{self.c}"


@dataclass(frozen=True, slots=True)
class Mod(Arithmetic):
    """`a % c`, in 0..c-1 for any sign of `a`, c > 1; built by the operator `%`."""

    a: Index
    c: int

    def __str__(self) -> str:
        return f"{print_dividend(str(self.a))}%{self.c}"


class Opaque(Arithmetic, ABC):
    """An atom of which only its range is known, 0 .. last: a value in memory (expr/walk.py)."""

    __slots__ = ()

    @property
    @abstractmethod
    def last(self) -> int:
        """The largest position it can be."""

    @abstractmethod
    def vars(self) -> frozenset[Var]:
        """The variables it depends on."""

    @abstractmethod
    def map(self, f: Callable[[Index], Index]) -> Index:
        """The same with `f` applied to the positions inside."""


Atom: TypeAlias = Var | Min | Max | FloorDiv | Mod | Opaque


@dataclass(frozen=True, slots=True, eq=False)
class Index(Arithmetic):
    """`k1*atom1 + k2*atom2 + … + const`, terms sorted by the text of the atom, no k is 0."""

    terms: tuple[tuple[Atom, int], ...]
    const: int
    _hash: int | None = field(default=None, init=False, repr=False)

    @staticmethod
    def of(x: Position) -> Index:
        """Return `x` as an Index; anything but integers, atoms and Index is a LoweringError."""
        if type(x) is int:  # by far the most calls
            return Index((), x)
        if isinstance(x, Index):
            return x
        if isinstance(x, (Var, Min, Max, FloorDiv, Mod, Opaque)):
            return Index(((x, 1),), 0)
        if isinstance(x, Axis):
            return x.index
        try:
            return Index((), operator.index(x))  # pyright: ignore[reportArgumentType]
        except TypeError:
            raise LoweringError(
                f"not a position: {x!r} ({type(x).__name__})",
                hint="positions are made of integers, loop variables, + - * // % min max",
                code="MDLC0715",
            ) from None

    @property
    def is_const(self) -> bool:
        """True if this is a number."""
        return not self.terms

    @property
    def value(self) -> int:
        """The number this is; LoweringError (MDLC0713) if variables are left."""
        if self.terms:
            raise LoweringError(f"not a constant: {self}", code="MDLC0713")
        return self.const

    def vars(self) -> frozenset[Var]:
        """Every variable in this expression, inside atoms too."""
        return _vars(self)

    def coefficient(self, var: Var) -> int:
        """The factor of `var` in the affine sum (occurrences inside other atoms not counted)."""
        return next((k for atom, k in self.terms if atom == var), 0)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Index) and self.const == other.const and self.terms == other.terms
        )

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.terms, self.const)))
        return self._hash or 0

    def __reduce__(self) -> tuple[type[Index], tuple[tuple[tuple[Atom, int], ...], int]]:
        return Index, (self.terms, self.const)  # a cached hash means nothing in another process

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True, slots=True)
class Cond:
    """A conjunction: every index of `ge` is >= 0. Written `(i >= 1) & (i < 5)`."""

    ge: tuple[Index, ...]

    def __and__(self, other: Cond) -> Cond:
        return Cond(tuple(dict.fromkeys(self.ge + other.ge)))

    def vars(self) -> frozenset[Var]:
        """Every variable the condition tests."""
        return frozenset[Var]().union(*(e.vars() for e in self.ge))

    def __bool__(self) -> NoReturn:
        raise LoweringError(
            f"the truth of '{self}' depends on where it is evaluated",
            hint="join conditions with &, not with 'and' or a chained comparison",
            code="MDLC0714",
        )

    def __str__(self) -> str:
        return " and ".join(f"{e} >= 0" for e in self.ge) or "True"


Position: TypeAlias = "SupportsIndex | Arithmetic"


def minimum(a: Position, b: Position) -> Index:
    """The smaller of two positions, a number or one of them where that is certain."""
    return _extremum(Index.of(a), Index.of(b), 1)


def maximum(a: Position, b: Position) -> Index:
    """The larger of two positions, a number or one of them where that is certain."""
    return _extremum(Index.of(a), Index.of(b), -1)


def operands(atom: Atom) -> tuple[Index, ...]:
    """The positions inside an atom."""
    match atom:
        case Var() | Opaque():
            return ()
        case Min(a, b) | Max(a, b):
            return (a, b)
        case FloorDiv(a, _) | Mod(a, _):
            return (a,)


@lru_cache(maxsize=1 << 14)
def _vars(e: Index) -> frozenset[Var]:
    own = frozenset(atom for atom, _ in e.terms if isinstance(atom, Var))
    deep = (atom.vars() for atom, _ in e.terms if isinstance(atom, Opaque))
    return own.union(*deep, *(_vars(part) for atom, _ in e.terms for part in operands(atom)))


@lru_cache(maxsize=1 << 14)
def _order(atom: Atom) -> str:
    """Sort key of terms: the text, so that order never depends on what was built before."""
    return str(atom)


def _sum(parts: dict[Atom, int], const: int) -> Index:
    terms = [(atom, k) for atom, k in parts.items() if k]
    return Index(tuple(sorted(terms, key=lambda term: _order(term[0]))), const)


def _add(a: Index, b: Index, k: int) -> Index:
    """a + k*b."""
    if not b.terms:
        return a if not b.const else Index(a.terms, a.const + k * b.const)
    if not a.terms:
        return _add(_scale(b, k), a, 1)
    parts = dict(a.terms)
    for atom, factor in b.terms:
        parts[atom] = parts.get(atom, 0) + k * factor
    return _sum(parts, a.const + k * b.const)


def _scale(e: Index, k: int) -> Index:
    if k == 1:
        return e
    return Index(tuple((atom, k * n) for atom, n in e.terms), k * e.const) if k else Index((), 0)


def _multiply(a: Index, b: Index) -> Index:
    if b.is_const:
        return _scale(a, b.const)
    if a.is_const:
        return _scale(b, a.const)
    raise LoweringError(
        f"not affine: ({a}) * ({b})",
        hint="a position may multiply a variable by an integer only",
        code="MDLC0710",
    )


def _divisor(a: Arithmetic, by: Position, op: str) -> int:
    """The divisor as a positive integer, or an error naming the expression."""
    c = Index.of(by)
    if c.is_const and c.const > 0:
        return c.const
    problem = "a positive integer" if c.const or c.terms else "an integer other than 0"
    raise LoweringError(
        f"({Index.of(a)}) {op} ({c}): the divisor must be {problem}", code="MDLC0711"
    )


@lru_cache(maxsize=1 << 14)
def _floordiv(e: Index, c: int) -> Index:
    """e // c: (c*q + r)//c = q + r//c, common factors cancelled, (x//a)//c = x//(a*c)."""
    whole = {atom: k // c for atom, k in e.terms if k % c == 0}
    rest = [(atom, k) for atom, k in e.terms if k % c]
    quotient, const = Index(tuple(whole.items()), e.const // c), e.const % c
    if not rest:
        return quotient
    g = math.gcd(c, *(k for _, k in rest))
    inner, c = Index(tuple((atom, k // g) for atom, k in rest), const // g), c // g
    match inner.terms:
        case ((FloorDiv(x, d), 1),):
            return quotient + _floordiv(x + inner.const * d, c * d)
        case _:
            return quotient + FloorDiv(inner, c)


@lru_cache(maxsize=1 << 14)
def _mod(e: Index, c: int) -> Index:
    """e % c: multiples of c dropped, common factors out, (x % a) % c = x % c if c divides a."""
    if any(isinstance(atom, Mod) and atom.c % c == 0 for atom, _ in e.terms):
        total = Index((), e.const)
        for atom, k in e.terms:
            total += k * (atom.a if isinstance(atom, Mod) and atom.c % c == 0 else atom)
        return _mod(total, c)
    # the factor keeps its sign: -i % 4 stays, 6*i % 4 is 2*i % 4
    rest = [(atom, k % c if k > 0 else -(-k % c)) for atom, k in e.terms if k % c]
    const = e.const % c
    if not rest:
        return Index((), const)
    g = math.gcd(c, *(k for _, k in rest))
    inner = Index(tuple((atom, k // g) for atom, k in rest), const // g)
    inside = Index.of(Mod(inner, c)) if g == 1 else _mod(inner, c // g)
    return g * inside + const % g


@lru_cache(maxsize=1 << 14)
def _extremum(a: Index, b: Index, sign: int) -> Index:
    """min(a, b) for sign 1, max(a, b) for sign -1."""
    difference = a - b
    if difference.is_const:
        return a if sign * difference.const <= 0 else b
    kind = Min if sign == 1 else Max
    for outer, other in ((a, b), (b, a)):  # min(min(x, y), x) = min(x, y)
        inner = outer.terms[0][0] if outer.terms and outer == Index.of(outer.terms[0][0]) else None
        if isinstance(inner, kind) and other in operands(inner):
            return outer
    first, second = sorted((a, b), key=lambda x: (not x.is_const, str(x)))  # min(14, 127 - io)
    return Index.of(kind(first, second))


@lru_cache(maxsize=1 << 14)
def _text(e: Index) -> str:
    parts = [(str(atom), k, isinstance(atom, (FloorDiv, Mod))) for atom, k in e.terms]
    return print_sum(parts, e.const)
