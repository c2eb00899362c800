"""Where a node of the model went, and where an instruction came from: all levels side by side.

    mc.viz.where(exe, "Conv_3")                     # Page: shows itself in Jupyter, has .save()
    mc.viz.where(exe, "relu_1:37")                  # from line 37 of that kernel's LLVM text

Columns: nodes of the model, values of the graph after each pass, kernels with their stages, loops,
LLVM, assembly. What belongs together is marked; a click on a line marks what belongs to that one,
in both directions. Reads an Executable (`where_to`, `where_from`), writes HTML. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.support.locations import caller
from minidlc.viz.levels import COLUMNS, GRAPH, KERNELS, LOOPS, Entry, Levels
from minidlc.viz.page import WHERE_SCRIPT, WHERE_STYLE, Page, page

if TYPE_CHECKING:
    from minidlc.executable import Executable
    from minidlc.provenance import Destination

_HINT = "mc.compile(…); if sizes are open, its specialize(…)"
Found = dict[str, list[int]]  # "statements", "nodes", "places": numbers of what is marked


def where(exe: Executable, what: str) -> Page:
    """The page of a node of the model or source graph, or of an LLVM line "KERNEL:LINE" or text.

    Raises OptionError for what is no Executable (MDLC1001), no node (MDLC1031), no line (MDLC1032).
    """
    expect("viz.where", "what", what, str, hint='"Conv_3", or "kernel:37"')
    if not (hasattr(exe, "where_to") and hasattr(exe, "kernel")):
        text = f"viz.where: exe is a {type(exe).__name__}, expected Executable"
        raise OptionError(text, loc=caller(), hint=_HINT, code="MDLC1001")
    goal = _named(exe, what)
    if goal is None:
        origin = exe.where_from(what)
        levels = Levels.of(exe, [origin.kernel], ())
        number = levels.statement_at.get((origin.kernel, origin.line))
        title = f"{origin.kernel}:{origin.line}: {origin.instruction}"
        marked = _of_statement(levels, number)
    else:
        levels = Levels.of(exe, [part.kernel for part in goal.parts], goal.places)
        places = [levels.places.index(p) for p in goal.places]
        title = f"{what}: {_summary(levels, places)}"
        marked = _of_places(levels, places)
        said = [*goal.events, *goal.values]
        levels.entries += [Entry(GRAPH, "in words", head=True)] if said else []
        levels.entries += [Entry(GRAPH, text, places=tuple(places)) for text in said]
    return _page(levels, title, marked)


def _named(exe: Executable, what: str) -> Destination | None:
    """What became of the node of this name; None if there is none and it reads as an LLVM line.

    A name may read so too: conv:0.
    """
    try:
        return exe.where_to(what)
    except OptionError:
        if re.search(r":\d+\s*$| = |[,(]", what):
            return None
        raise


def _of_statement(levels: Levels, number: int | None) -> Found:
    """What belongs to a statement: its nodes, and the places that these were made from."""
    nodes = list(levels.nodes_of[number]) if number is not None else []
    places = sorted({p for node in nodes for p in levels.places_of[node]})
    return {"statements": [number] if number is not None else [], "nodes": nodes, "places": places}


def _of_places(levels: Levels, places: list[int]) -> Found:
    """What was made from places: nodes, and the statements that compute these."""
    nodes = [n for n, mine in enumerate(levels.places_of) if not set(mine).isdisjoint(places)]
    statements = [s for s, mine in enumerate(levels.nodes_of) if not set(mine).isdisjoint(nodes)]
    return {"statements": statements, "nodes": nodes, "places": places}


def _summary(levels: Levels, places: list[int]) -> str:
    """'1 kernel, 4 of 9 lines of loops': how much of the kernels a node of the model makes."""
    found = _of_places(levels, places)
    kernels = sum(e.head for e in levels.entries if e.column == KERNELS)
    if not kernels:
        return "no kernel"
    lines, of = len(found["statements"]), len(levels.nodes_of)
    return f"{kernels} kernel{'s' * (kernels != 1)}, {lines} of {of} statements of the loops"


def _page(levels: Levels, title: str, marked: Found) -> Page:
    """The columns, what is marked at first, and who belongs to whom."""
    columns: list[str] = []
    for number, name in enumerate(COLUMNS):
        rows = "".join(_row(e, marked) for e in levels.entries if e.column == number)
        kind = "text" if number >= LOOPS else "names"
        columns.append(f'<section class="{kind}"><h2>{name}</h2><div>{rows}</div></section>')
    body = f"""<p class="hint">A click on a line marks what belongs to it.</p>
<main>{"".join(columns)}</main>"""
    data = {"nodes": levels.places_of, "statements": levels.nodes_of, "marked": marked}
    return page(title, body, WHERE_STYLE, WHERE_SCRIPT, data)


def _row(entry: Entry, marked: Found) -> str:
    """One line of a column; the script finds its links in it."""
    text = html.escape(entry.text) or " "
    if entry.head:
        return f'<div class="head">{text}</div>'
    if entry.statement is not None:
        name = f' title="{entry.line}"' if entry.line else ""
        link = f' data-statement="{entry.statement}"{name}'
        on = entry.statement in marked["statements"]
    elif entry.nodes:
        link, on = f' data-node="{entry.nodes[0]}"', entry.nodes[0] in marked["nodes"]
    elif entry.places:
        numbers = " ".join(map(str, entry.places))
        link, on = f' data-places="{numbers}"', not set(entry.places).isdisjoint(marked["places"])
    else:
        link, on = "", False
    return f'<div class="row{" on" * on}"{link}>{text}</div>'
