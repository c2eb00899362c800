"""How vector lanes meet memory: the mapping from a vectorised loop to one memory access.

    lane_access(16 * i + j, j)                      # 'vector': neighbours, one load
    lane_access(16 * i, j)                          # 'splat': one element for all lanes
    lane_access(2 * j, j)                           # 'gather': an address per lane

Treated in course chapter 05_codegen.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from minidlc.expr.index import Index, Var
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
