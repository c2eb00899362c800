"""How vector lanes meet memory: the mapping from a vectorised loop to one memory access.

    lane_access(16 * i + j, j)                      # 'vector': neighbours, one load
    lane_access(16 * i, j)                          # 'splat': one element for all lanes
    lane_access(2 * j, j)                           # 'gather': an address per lane

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from minidlc.expr.index import Index, Ranges, Var, atoms
from minidlc.expr.walk import At, values_in
from minidlc.loop.dependence import conflicts
from minidlc.loop.nodes import For, If, Stmt, Store, values, walk
from minidlc.loop.regions import loads
from minidlc.support.errors import CodegenError
from minidlc.support.extension import declare, dispatch

Access: TypeAlias = Literal["splat", "vector", "gather"]

declare(
    "vectorize",
    "(index: Index, lane: Var) -> 'splat' | 'vector' | 'gather'",
    "lane mapping: how the lanes of the vectorised loop `lane` read or write the element `index`",
)


def lane_access(index: Index, lane: Var) -> Access:
    """How lanes access a buffer at the flat element offset `index`; extension point `vectorize`.

    'splat' = all lanes the same element, 'vector' = lane t the element t further, 'gather' = any.
    Unrolled variables are numbers in `index` and what ranges decide is simplified. 'gather' is
    always right. Raises CodegenError (MDLC0803) if an override answers anything else, or what does
    not hold: lanes would read elements that are not theirs.
    """
    answer = dispatch("vectorize", _lane_access)(index, lane)
    right = _lane_access(index, lane)
    if answer not in ("gather", right):
        raise CodegenError(
            f"vectorize: lane mapping of {index} over {lane}: got {answer!r}",
            notes=(f"'gather' is always right, here {right!r} is too",),
            code="MDLC0803",
        )
    return answer


def _lane_access(index: Index, lane: Var) -> Access:
    if lane not in index.vars():
        return "splat"
    rest = index - index.coefficient(lane) * lane
    return "vector" if index.coefficient(lane) == 1 and lane not in rest.vars() else "gather"


def check_order(loop: For, ranges: Ranges) -> None:
    """Refuse a vectorised loop whose lanes may meet at an element that a value chooses (MDLC0823).

    Lanes run a statement together before the next one; iterations one after another would see what
    earlier ones stored. One store alone is in order: of two lanes the later one's value stays.
    """
    inside = list(walk(loop.body))
    stores = Counter((s.buffer, s.index) for s in inside if isinstance(s, Store))
    tested = {x.buffer for s in inside if isinstance(s, If) for e in values(s) for x in loads(e)}
    if not tested and not any(map(_looks_up, inside)):
        return
    for a, b in conflicts(loop, ranges):
        alone = a is b and len(a.loops) == 1 and stores[a.buffer, a.index] == 1
        by_value = any(_chosen_by_lane(e, loop.var) for e in (*a.index, *b.index))
        if (by_value or a.buffer in tested) and not alone:
            raise CodegenError(
                f"the lanes of {loop.var.name!r} may meet at one element of {a.buffer!r}, which "
                "a value in memory chooses",
                hint="make the loop serial",
                code="MDLC0823",
            )


def _chosen_by_lane(e: Index, lane: Var) -> bool:
    return any(isinstance(atom, At) and lane in atom.vars() for atom in atoms(e))


def _looks_up(s: Stmt) -> bool:
    index = s.index if isinstance(s, Store) else ()
    reads = (x.index for e in values(s) for x in loads(e))
    return any(values_in(e) for at in (index, *reads) for e in at)
