"""Graphs and schedules that show themselves in a notebook.

    register()                                      # done by `import minidlc.viz`

Writes to IPython's table of formatters if IPython is running, else does nothing. An IR that cannot
be drawn (half written, say) is shown as text, as before. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from minidlc.graph.graph import Graph
from minidlc.support.errors import CompileError
from minidlc.te.schedule import Schedule
from minidlc.viz.graph import graph
from minidlc.viz.loops import loops
from minidlc.viz.picture import Picture


def register() -> bool:
    """Add the formatters; returns False where no IPython is running."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return False
    formatters: Any = shell.display_formatter.formatters
    _add(formatters, Graph, graph)
    _add(formatters, Schedule, loops)
    return True


def _add(formatters: Any, cls: type, draw: Callable[[Any], Picture]) -> None:
    def drawn(thing: Any, show: Callable[[Picture], str]) -> str | None:
        try:
            return show(draw(thing))
        except CompileError:
            return None  # IPython goes on to the text

    def as_html(thing: Any) -> str | None:
        return drawn(thing, lambda picture: picture.fragment())

    def as_svg(thing: Any) -> str | None:
        return drawn(thing, lambda picture: picture.svg)

    formatters["text/html"].for_type(cls, as_html)
    formatters["image/svg+xml"].for_type(cls, as_svg)
