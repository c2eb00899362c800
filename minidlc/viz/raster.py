"""Drawing -> PNG and PDF through matplotlib: its wheel carries fonts and rasteriser, so the bytes
depend on the drawing and on matplotlib's version alone.

    to_png(drawing, LIGHT)                          # 1920 pixels wide
    to_pdf(drawing, LIGHT)                          # vectors, fonts embedded

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from minidlc.viz.drawing import SLIDE, Drawing, Label, Line, Rect, flat, font_file, writable
from minidlc.viz.svg import arrow_head

Colours = Mapping[str, str]


def to_png(drawing: Drawing, colours: Colours, width: int = SLIDE) -> bytes:
    """PNG of `width` pixels; the height follows."""
    return _render(drawing, colours, "png", dpi=72 * width / drawing.width)


def to_pdf(drawing: Drawing, colours: Colours) -> bytes:
    """PDF of one page with the size of the drawing."""
    return _render(drawing, colours, "pdf", dpi=72)


def _render(drawing: Drawing, colours: Colours, kind: str, dpi: float) -> bytes:
    from matplotlib import style  # 1 s: paid by who saves a PNG or PDF, not on import

    # neither time nor version goes into the file: the same picture is the same bytes
    metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"CreationDate": None}
    out = io.BytesIO()
    # whatever the notebook has set; unhinted letters are as wide as they were measured
    with style.context(["default", {"text.hinting": "none"}]):
        _figure(drawing, colours).savefig(out, format=kind, dpi=dpi, metadata=metadata)
    return out.getvalue()


def _figure(drawing: Drawing, colours: Colours) -> Any:
    """One unit of the drawing is one point of the figure."""
    from matplotlib.figure import Figure

    figure: Any = Figure((drawing.width / 72, drawing.height / 72), facecolor=colours["page"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for order, item in enumerate(flat(drawing.items)):
        match item:
            case Rect():
                _rect(axes, item, colours, order)
            case Line():
                _line(axes, item, colours, order)
            case Label():
                _label(axes, item, colours, order)
    return figure


def _rect(axes: Any, r: Rect, colours: Colours, order: int) -> None:
    from matplotlib.patches import BoxStyle, FancyBboxPatch

    style = BoxStyle("Round", pad=0, rounding_size=min(r.radius, r.width / 2, r.height / 2))
    axes.add_patch(
        FancyBboxPatch(
            (r.x, r.y),
            r.width,
            r.height,
            boxstyle=style if r.radius else BoxStyle("Square", pad=0),
            facecolor=colours[r.fill] if r.fill else "none",
            edgecolor=colours[r.stroke] if r.stroke else "none",
            linewidth=r.line_width if r.stroke else 0,
            linestyle=_dashes(r.dash, r.line_width),
            zorder=order,
        )
    )


def _line(axes: Any, line: Line, colours: Colours, order: int) -> None:
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    code = Path.CURVE4 if line.bezier else Path.LINETO
    path = Path(line.points, [Path.MOVETO] + [code] * (len(line.points) - 1))
    colour = colours[line.stroke]
    dashes = _dashes(line.dash, line.line_width)
    width = line.line_width
    stroke: dict[str, Any] = {"edgecolor": colour, "linewidth": width, "linestyle": dashes}
    axes.add_patch(PathPatch(path, facecolor="none", zorder=order, **stroke))
    if line.arrow:
        head = Polygon(arrow_head(line), facecolor=colour, linewidth=0, zorder=order)
        axes.add_patch(head)


def _dashes(dash: str, line_width: float) -> Any:
    """matplotlib counts dashes in line widths, SVG in units."""
    return (0, tuple(float(d) / line_width for d in dash.split())) if dash else "solid"


def _label(axes: Any, label: Label, colours: Colours, order: int) -> None:
    from matplotlib.font_manager import FontProperties

    axes.text(
        label.x,
        label.y,
        writable(label.text),
        parse_math=False,  # a $ is a $
        fontproperties=FontProperties(fname=font_file(label.bold, label.mono), size=label.size),
        color=colours[label.role],
        ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
        va="baseline",
        zorder=order,
    )
