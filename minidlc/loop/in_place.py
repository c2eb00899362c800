"""Which results may lie where an input lies: each element is read only to write its successor.

    for i in serial(0, 4):
        y[i] = x[i] * 2 + b[0]      # in_place(fn) == {"y": ("x",)}: y may take the place of x
    for i in serial(0, 4):
        y[i] = x[3 - i]             # {}: a flip would read what it has written (y[2] = x[1] = y[1])

A load in a statement ahead is right too, if that goes over the same elements in the same round.
Equal positions are asked for, not equal shapes. Reads statements, writes nothing. Codegen promises
LLVM that no other two parameters overlap, lowering puts such results on inputs that nobody reads
again. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minidlc.expr.evaluate import substitute
from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.loop.nodes import Alloc, Block, For, If, LoopFunction, Param, Stmt, Store, values, walk
from minidlc.loop.regions import loads

_LONG = 256  # runs of loops that inner extents depend on: blocks of tails are fewer


@dataclass(frozen=True)
class _Site:
    """A store, how often it runs (None: not known), and the way to it.

    The way has the loops and tests around the store, and where it branches in a block the number
    of the statement.
    """

    store: Store
    times: int | None
    way: tuple[For | If | int, ...]

    @property
    def loads(self) -> Iterator[Load]:
        """What the statement reads, positions included."""
        return (e for v in values(self.store) for e in loads(v))


def in_place(fn: LoopFunction) -> dict[str, tuple[str, ...]]:
    """Result -> the inputs whose place it may take, one of them at a time.

    The loops must write every element of their results, as those of a schedule do. Then as many
    stores as there are elements means that each is stored once: nobody sees a value half done. A
    result that is read back, by a statement behind its store, is read as it was stored.
    """
    sites, tested = list(_sites(fn.body, ())), set(_tested(fn.body))
    written = {site.store.buffer for site in sites}
    found: dict[str, tuple[str, ...]] = {}
    for result in fn.params:
        mine = [site for site in sites if site.store.buffer == result.name]
        if result.name in tested or _count(mine) != math.prod(result.type.dims):
            continue
        fits = (p for p in fn.params if p.name not in written | tested and _same_bytes(p, result))
        inputs = tuple(p.name for p in fits if _only_before(p.name, result.name, sites))
        if inputs:
            found[result.name] = inputs
    return found


def _same_bytes(x: Param, y: Param) -> bool:
    return x.type.dims == y.type.dims and x.type.dtype.itemsize == y.type.dtype.itemsize


def _count(sites: list[_Site]) -> int | None:
    """How many stores run in all."""
    times = [site.times for site in sites]
    return None if None in times else sum(t for t in times if t is not None)


def _only_before(x: str, y: str, sites: list[_Site]) -> bool:
    """True if `x` is read in stores to `y` at the position that is stored, or ahead of these."""
    seen = False
    stores = [site for site in sites if site.store.buffer == y]
    for site in sites:
        for load in (e for e in site.loads if e.buffer == x):
            here = site.store.buffer == y and load.index == site.store.index
            if not here and not any(_is_ahead(load, site, later) for later in stores):
                return False
            seen = True
    return seen


def _is_ahead(load: Load, site: _Site, later: _Site) -> bool:
    """True if `later` stores, after `site` in each round of their common loops, what it reads.

    Both must go over the same elements: by loops of the same extents, at positions that are equal
    once the loops have the same names. No other store writes these: each element is stored once.
    """
    pairs = zip(site.way, later.way, strict=False)
    parting = next((n for n, (a, b) in enumerate(pairs) if a is not b and a != b), None)
    if parting is None:
        return False
    number, after = site.way[parting], later.way[parting]
    if not (isinstance(number, int) and isinstance(after, int) and number < after):
        return False
    mine, theirs = ([w for w in s.way[parting:] if isinstance(w, For)] for s in (site, later))
    if len(mine) != len(theirs):
        return False
    names: dict[Var, Index] = {}
    for loop, other in zip(mine, theirs, strict=True):
        if substitute(loop.extent, names) != other.extent:
            return False
        names[loop.var] = Index.of(other.var)
    return tuple(substitute(i, names) for i in load.index) == later.store.index


def _sites(s: Stmt, way: tuple[For | If | int, ...]) -> Iterator[_Site]:
    """Every store; how often one under a test runs nobody knows."""
    match s:
        case Store():
            loops = tuple(w for w in way if isinstance(w, For))
            tested = any(isinstance(w, If) for w in way)
            yield _Site(s, None if tested else _times(loops, {}, _LONG), way)
        case For(body=body) | If(body=body):
            yield from _sites(body, (*way, s))
        case Alloc(body=body):
            yield from _sites(body, way)
        case Block(stmts):
            for number, child in enumerate(stmts):
                yield from _sites(child, (*way, number))


def _times(loops: tuple[For, ...], at: Mapping[Var, Index], most: int) -> int | None:
    """How often the body of nested loops runs: the last block of a split may be shorter.

    Loops on which the extent of an inner one depends are gone through; None for over `most` runs.
    """
    if not loops:
        return 1
    head, *inner = loops
    extent = substitute(head.extent, at)
    if not extent.is_const:
        return None
    if not any(head.var in loop.extent.vars() for loop in inner):
        each = _times(tuple(inner), at, most)
        return None if each is None else max(0, extent.const) * each
    if extent.const > most:
        return None
    left, runs = most // max(1, extent.const), range(extent.const)
    times = [_times(tuple(inner), {**at, head.var: Index.of(n)}, left) for n in runs]
    return None if None in times else sum(t for t in times if t is not None)


def _tested(s: Stmt) -> Iterator[str]:
    """Buffers that the tests of `if` read."""
    tests = (inner for inner in walk(s) if isinstance(inner, If))
    yield from (e.buffer for test in tests for v in values(test) for e in loads(v))
