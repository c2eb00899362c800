"""The assembly of a kernel between the loops and the nodes of the model that it came from.

    print(exe.kernel("conv_relu").listing)
    # h wo: pad[0, 0, h + 2, 8*wo + wi] = x[0, 0, h, 8*wo + wi - 2]   <- Conv 'conv1' of lenet
    #         vmovups (%rax,%r14), %ymm3

A comment stands wherever the statement changes: the loops around it, the statement, and behind the
arrow where the graph node came from. Reads a kernel's `Lines`. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from minidlc.codegen.debug_lines import asm_origins
from minidlc.loop.nodes import For, Stmt, Store, lines, walk
from minidlc.provenance import Lines
from minidlc.support.locations import OnnxLoc, written

_WIDTH = 110


def listing(kernel: Lines) -> str:
    """Assembly with comments; the arrow names the node in the model's own file."""
    text: list[str] = []
    last: Stmt | None = None
    for row in asm_origins(kernel.native):
        if row.statement is not None and row.statement is not last:
            last = row.statement
            text.append(_comment(kernel, last))
        text.append(row.text)
    return "\n".join(text) + "\n"


def _comment(kernel: Lines, s: Stmt) -> str:
    """`# loops: statement   <- node`, cut to the width of a page."""
    around = kernel.around.get(id(s), ())
    names = " ".join(str(loop.var) for loop in around if isinstance(loop, For))
    what = f"# {names}: {lines(s)[0]}" if names else f"# {lines(s)[0]}"
    source = _source(kernel, s)
    room = _WIDTH - len(source)
    what = what if len(what) <= room else what[: room - 1] + "…"
    return what + source


def _source(kernel: Lines, s: Stmt) -> str:
    stages = {x.stage for x in walk(s) if isinstance(x, Store)}
    if len(stages) != 1:  # a loop around several
        return ""
    node = kernel.owner(next(iter(stages)))
    places = written(kernel.lowered.loc if node is None else node.loc)
    if not places:
        return "" if node is None else f"   <- {node.op.name} {node.name}"
    place = places[0]
    if isinstance(place, OnnxLoc) and place.op_type:
        return f"   <- {place.op_type} {place.node!r} of {place.model}"
    return f"   <- {place}"
