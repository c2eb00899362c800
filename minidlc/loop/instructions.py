"""What a kernel executes, by class: arithmetic, loads, stores, branches; loop body by loop body.

    for body in bodies(fn, target):
        body.loop, body.iterations                  # 'k', 32768
        body.counts["vector"]                       # 26.0: one iteration, unrolled loops in full

An estimate from the loops alone, quick to make: a vectorised loop is as many instructions as it has
vectors, a product and a sum are one instruction, what two unrolled copies load both is loaded once,
what no iteration of a serial loop changes is loaded before it, buffers in registers are not loaded.
Extents count at their largest. Reads loop IR. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from minidlc.expr.index import Cond, Index, Ranges, Var
from minidlc.expr.nodes import Binary, Call, Cast, Compare, Expr, Load, Select
from minidlc.expr.types import DType, TensorType
from minidlc.expr.walk import children
from minidlc.loop.footprint import registers, slopes, trips_of
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, LoopFunction, Stmt, Store, values
from minidlc.target import Target

CLASSES = (
    "flops",  # elements computed: sums, products, functions
    "vector",  # arithmetic on vectors; a product and a sum of it are one
    "scalar",  # arithmetic on single elements
    "slow",  # of these: quotients and functions such as exp
    "select",  # choices between two values, conversions
    "vector_load",
    "broadcast",  # one element loaded into all lanes
    "gather",  # elements loaded into the lanes one by one
    "scalar_load",
    "vector_store",
    "scatter",  # lanes stored one by one
    "scalar_store",
    "horizontal",  # lanes of a vector reduced to one element
    "branch",
    "prefetch",
)


@dataclass
class Body:
    """What one iteration of a loop does, without the loops in it; `loop` is "" for the function.

    `iterations` in one call of the kernel, `trips` each time the loop is reached, `parallel` by how
    many they may be shared. `counts` is by CLASSES. `chain` is the largest number of updates of
    one accumulator, which wait for one another; `live` the vectors in registers, `lanes` the
    elements that the vector instructions work on, `width` those that they could.
    """

    loop: str
    depth: int
    iterations: int
    trips: int
    parallel: int
    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0.0))
    chain: float = 0.0
    live: float = 0.0
    lanes: float = 0.0
    width: float = 0.0
    is_parallel: bool = False
    is_innermost: bool = True

    @property
    def instructions(self) -> float:
        """All of them, without those of the loop itself."""
        return sum(self.counts.values()) - self.counts["flops"] - self.counts["slow"]


@dataclass(frozen=True)
class _Place:
    """Where a statement stands: bodies around it, and the loops replayed in the innermost."""

    bodies: tuple[tuple[Body, Var | None, frozenset[str]], ...]  # and what its loop stores
    copies: tuple[tuple[Var, int], ...] = ()  # unrolled loops
    vector: tuple[Var, int] | None = None
    ranges: Ranges = field(default_factory=dict[Var, tuple[int, int]])

    @property
    def body(self) -> Body:
        return self.bodies[-1][0]


def bodies(fn: LoopFunction, target: Target) -> list[Body]:
    """The function itself and each of its serial and parallel loops, in program order."""
    root = Body("", 0, 1, 1, 1)
    counter = _Counter(fn, target, [root])
    counter.visit(fn.body, _Place(((root, None, frozenset()),)))
    return counter.found


def total(found: list[Body], name: str) -> float:
    """How often a class is executed in one call."""
    return sum(body.iterations * body.counts[name] for body in found)


class _Counter:
    def __init__(self, fn: LoopFunction, target: Target, found: list[Body]) -> None:
        self.types: Mapping[str, TensorType] = fn.buffers()
        self.in_registers = registers(fn.body)
        self.target, self.found = target, found
        self.loaded = set[tuple[int, str, object]]()

    def visit(self, s: Stmt, at: _Place) -> None:
        match s:
            case For():
                self.loop(s, at)
            case Alloc(body=body):
                self.visit(body, at)
            case Block(stmts):
                for child in stmts:
                    self.visit(child, at)
            case If(body=body):
                at.body.counts["branch"] += self.replays(at)
                self.values(s, at)
                self.visit(body, at)
            case Store():
                self.values(s, at)
                self.store(s, at)

    def loop(self, s: For, at: _Place) -> None:
        trips = trips_of(s.extent, at.ranges)
        if not trips:
            return
        at = replace(at, ranges={**at.ranges, s.var: (0, trips - 1)})
        match s.kind:
            case Kind.UNROLLED:
                at = replace(at, copies=(*at.copies, (s.var, trips)))
            case Kind.VECTORIZED:
                at = replace(at, vector=(s.var, trips))
            case Kind.SERIAL | Kind.PARALLEL:
                at = self.inside(s, trips, at)
        self.visit(s.body, at)

    def inside(self, s: For, trips: int, at: _Place) -> _Place:
        """A loop that stays one: its body is counted apart."""
        outer = at.body
        outer.is_innermost = False
        repeated = outer.iterations * math.prod(n for _, n in at.copies)
        is_parallel = s.kind is Kind.PARALLEL
        shared = outer.parallel * (trips if is_parallel else 1)
        body = Body(s.var.name, len(at.bodies), repeated * trips, trips, shared)
        body.is_parallel = is_parallel
        body.counts["prefetch"] += len(s.prefetch)
        self.found.append(body)
        written = frozenset(stored(s.body))
        return replace(at, bodies=(*at.bodies, (body, s.var, written)), copies=())

    def replays(self, at: _Place) -> float:
        return float(math.prod(n for _, n in at.copies))

    def vectors(self, at: _Place, dtype: DType) -> tuple[int, int]:
        """Number of vectors that the vectorised loop takes, and lanes of each."""
        lanes = self.target.lanes(max(8, dtype.bits))
        return math.ceil(at.vector[1] / lanes) if at.vector else 1, lanes

    def values(self, s: Store | If, at: _Place) -> None:
        """The arithmetic and the loads of a statement; a shared expression counts once."""
        seen, todo = set[int](), list[Expr](values(s))
        while todo:
            e = todo.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            self.operation(e, at)
            todo += children(e)

    def operation(self, e: Expr, at: _Place) -> None:
        counts, copies = at.body.counts, self.replays(at)
        match e:
            case Load():
                self.load(e, at)
            case Binary() | Call():
                vectors, lanes = self.vectors(at, e.dtype)
                counts["flops"] += copies * (at.vector[1] if at.vector else 1)
                if not _is_fused(e):
                    counts["vector" if at.vector else "scalar"] += copies * vectors
                if isinstance(e, Call) or e.op == "/":
                    counts["slow"] += copies * vectors
                if at.vector:
                    at.body.lanes += copies * at.vector[1]
                    at.body.width += copies * vectors * lanes
            case Select() | Compare() | Cast():
                is_border = isinstance(e, Select) and isinstance(e.cond, Cond)  # guards its loads
                counts["select"] += copies * self.vectors(at, e.a.dtype)[0] * (1 + is_border)
            case _:
                pass

    def load(self, e: Load, at: _Place) -> None:
        body, copies, key = self.hoisted(e, at)
        if e.buffer in self.in_registers or (id(body), e.buffer, key) in self.loaded:
            return
        self.loaded.add((id(body), e.buffer, key))
        used = {v for index in e.index for v, _ in slopes(index)}
        read = float(math.prod(n for v, n in copies if v in used))
        vectors, _ = self.vectors(at, e.dtype)
        match _lane_step(e.index, at.vector):
            case None if at.vector:
                body.counts["broadcast"] += read
                body.live += _kept(copies, used)
            case None:
                body.counts["scalar_load"] += read
            case 1:
                body.counts["vector_load"] += read * vectors
                body.live += _kept(copies, used) * vectors
            case _:
                body.counts["gather"] += read * (at.vector[1] if at.vector else 1)

    def hoisted(self, e: Load, at: _Place) -> tuple[Body, tuple[tuple[Var, int], ...], object]:
        """The outermost body in which the load may stand; the unrolled copies there; what it is."""
        used = {v for index in e.index for v, _ in slopes(index)}
        place = len(at.bodies) - 1
        while place and at.bodies[place][1] not in used:
            if e.buffer in at.bodies[place][2]:
                break
            place -= 1
        key = (e.index, tuple((v, n) for v, n in at.copies if v in used), at.vector)
        return at.bodies[place][0], at.copies, key

    def store(self, s: Store, at: _Place) -> None:
        counts, copies = at.body.counts, self.replays(at)
        vectors, lanes = self.vectors(at, self.types[s.buffer].dtype)
        step = _lane_step(s.index, at.vector)
        if at.vector and step is None:
            counts["horizontal"] += copies
            at.body.chain = max(at.body.chain, copies * vectors)
        used = {v for index in s.index for v, _ in slopes(index)}
        distinct = float(math.prod(n for v, n in at.copies if v in used))
        if _updates(s) and at.bodies[-1][1] not in used:
            at.body.chain = max(at.body.chain, copies / distinct)
        if s.buffer in self.in_registers:
            at.body.live += distinct * (vectors if at.vector else 1 / lanes)
        elif at.vector and step == 1:
            counts["vector_store"] += copies * vectors
        elif at.vector and step is not None:
            counts["scatter"] += copies * at.vector[1]
        else:
            counts["scalar_store"] += copies


def _kept(copies: tuple[tuple[Var, int], ...], used: set[Var]) -> int:
    """How many of the vectors that a load gives are alive at once, for unrolled copies to share.

    Those of the loops inside the outermost one that reads the same again.
    """
    shared = next((n for n, (v, _) in enumerate(copies) if v not in used), None)
    return 0 if shared is None else math.prod(n for v, n in copies[shared:] if v in used)


def stored(s: Stmt) -> Iterator[str]:
    """The buffers that are written inside a statement."""
    match s:
        case Store(buffer):
            yield buffer
        case Block(stmts):
            for child in stmts:
                yield from stored(child)
        case For(body=body) | Alloc(body=body) | If(body=body):
            yield from stored(body)


def _is_fused(e: Expr) -> bool:
    """True for a sum with a product in it: counted with the product."""
    if not isinstance(e, Binary) or e.op not in ("+", "-") or not e.dtype.is_float:
        return False
    return any(isinstance(x, Binary) and x.op == "*" for x in (e.a, e.b))


def _updates(s: Store) -> bool:
    """True for `c[i] = c[i] + …`: the next such statement waits for this one."""
    todo = list(values(s))
    for _ in range(64):  # an accumulator stands near the root
        if not todo:
            return False
        e = todo.pop(0)
        if isinstance(e, Load) and e.buffer == s.buffer and e.index == s.index:
            return True
        todo += children(e)
    return False


def _lane_step(index: tuple[Index, ...], vector: tuple[Var, int] | None) -> int | None:
    """1 if neighbouring lanes are neighbours in memory, None if all are one element, else 2."""
    if vector is None:
        return None
    moves = [next((k for v, k in slopes(e) if v == vector[0]), None) for e in index]
    if all(k is None for k in moves):
        return None
    return 1 if all(k is None for k in moves[:-1]) and moves[-1] == 1.0 else 2
