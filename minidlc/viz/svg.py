"""Drawing -> SVG text. Text stays text: searchable, selectable; the same bytes on every run.

    to_svg(drawing, LIGHT)                          # '<svg xmlns=… viewBox="0 0 960 540">…</svg>'
    to_html(drawing)                                # follows the light or dark theme of Jupyter

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from minidlc.viz.drawing import Drawing, Group, Item, Label, Line, Point, Rect, flat, writable
from minidlc.viz.theme import DARK, LIGHT, OCCASIONAL

SANS = "DejaVu Sans, Verdana, sans-serif"  # Verdana has the widths of DejaVu Sans
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"

# How JupyterLab, VS Code and Colab say that the page around an output is dark.
_DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]')

Paint = Callable[[str], str]

# Opens the piece below a picture whose key the clicked box has, and shows it.
_OPEN = (
    "event.stopPropagation(); const box = event.target.closest('[data-key]');"
    "for (const part of this.querySelectorAll(':scope > details'))"
    " if (box && box.tagName === 'g' && part.dataset.key === box.dataset.key)"
    " { part.open = true; part.scrollIntoView({ block: 'nearest' }) }"
)
_PARTS = (
    ".minidlc details { margin: 8px 40px; color: var(--minidlc-text);"
    f" font: 18px {SANS} }} .minidlc summary, .minidlc g[data-key^=many] {{ cursor: pointer }}"
)


def to_svg(drawing: Drawing, colours: Mapping[str, str]) -> str:
    """The drawing as a stand-alone SVG document, coloured by one theme."""
    return _document(drawing, lambda role: colours[role] if role else "none")


def to_html(drawing: Drawing, parts: Sequence[tuple[str, str, str]] = ()) -> str:
    """The drawing as inline SVG whose colours follow the page: light, or dark as in Jupyter.

    `parts` are pieces of HTML below it: key, title, text. A click on the box of a key opens its
    piece, and so does one on its title where scripts do not run.
    """
    width = f"max-width:{_number(drawing.width)}px"
    painted = {role for item in flat(drawing.items) for role in _roles(item)}
    style = f"<style>{theme_style(without=OCCASIONAL - painted)}</style>"
    if not parts:
        return f'<div class="minidlc" style="{width}">{style}\n{inline_svg(drawing)}</div>'
    pieces = "".join(
        f"<details data-key={quoteattr(key)}><summary>{escape(title)}</summary>{text}</details>"
        for key, title, text in parts
    )
    pieces = writable(pieces)
    svg = inline_svg(drawing, keys=True)
    return (
        f'<div class="minidlc" style="{width}" onclick={quoteattr(_OPEN)}>{style}'
        f"<style>{_PARTS}</style>\n{svg}{pieces}</div>"
    )


def to_page(title: str, fragment: str, theme: str | None = None) -> str:
    """A page of its own around a piece of HTML; dark where the system is, if no theme is given."""
    style = theme_style(media=theme is None)
    dark = ' data-jp-theme-light="false"' if theme == "dark" else ""
    return f"""<!DOCTYPE html>
<html lang="en"{dark}><head><meta charset="utf-8"><title>{escape(writable(title))}</title>
<style>{style}body {{ margin: 0; background: var(--minidlc-page) }}</style></head>
<body class="minidlc">{fragment}</body></html>
"""


def inline_svg(drawing: Drawing, *, keys: bool = False) -> str:
    """The drawing as SVG coloured by the variables of `theme_style`.

    With `keys` each group says its key as `data-key`, for scripts that answer clicks.
    """
    return _document(drawing, lambda role: f"var(--{_variable(role)})" if role else "none", keys)


def theme_style(*, media: bool = False, without: Collection[str] = ()) -> str:
    """CSS variables for every role; dark where Jupyter is, or (`media`) where the system is."""
    themes = [{r: c for r, c in colours.items() if r not in without} for colours in (LIGHT, DARK)]
    light, dark = (f"{{{_variables(colours)}}}" for colours in themes)
    pages = ", ".join(f"{page} .minidlc" for page in _DARK_PAGES)
    system = f"\n@media (prefers-color-scheme: dark) {{ .minidlc {dark} }}" if media else ""
    return f"\n.minidlc {light}\n{pages} {dark}{system}\n"


def _roles(item: Rect | Line | Label) -> tuple[str, ...]:
    match item:
        case Rect(fill=fill, stroke=stroke):
            return fill, stroke
        case Line(stroke=stroke):
            return (stroke,)
        case Label(role=role):
            return (role,)


def _variable(role: str) -> str:
    return "minidlc-" + role.replace(".", "-")


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{_variable(role)}:{colour}" for role, colour in colours.items())


def _document(drawing: Drawing, paint: Paint, keys: bool = False) -> str:
    width, height = _number(drawing.width), _number(drawing.height)
    title = escape(drawing.title)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" style="max-width:100%;height:auto">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="{paint("page")}"/>',
    ]
    for item in drawing.items:
        lines += _item(item, paint, keys)
    return writable("\n".join([*lines, "</svg>", ""]))


def _item(item: Item, paint: Paint, keys: bool) -> list[str]:
    match item:
        case Rect():
            return [_rect(item, paint)]
        case Line():
            return _line(item, paint)
        case Label():
            return [_label(item, paint)]
        case Group(items, hover, kind, key):
            inner = [line for child in items for line in _item(child, paint, keys)]
            names = {"class": kind, "data-key": key if keys else ""}
            start = f"<g{''.join(f' {k}={quoteattr(v)}' for k, v in names.items() if v)}>"
            title = [f"<title>{escape(hover)}</title>"] if hover else []
            return [start, *title, *inner, "</g>"]


def _rect(r: Rect, paint: Paint) -> str:
    radius = f' rx="{_number(r.radius)}"' if r.radius else ""
    return (
        f'<rect x="{_number(r.x)}" y="{_number(r.y)}" width="{_number(r.width)}" '
        f'height="{_number(r.height)}"{radius} fill="{paint(r.fill)}"'
        f"{_stroke(r.stroke, r.line_width, r.dash, paint)}/>"
    )


def _stroke(role: str, width: float, dash: str, paint: Paint) -> str:
    if not role:
        return ""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f' stroke="{paint(role)}" stroke-width="{_number(width)}"{dashes}'


def _line(line: Line, paint: Paint) -> list[str]:
    points = [f"{_number(x)},{_number(y)}" for x, y in line.points]
    path = f"M{points[0]}{'C' if line.bezier else 'L'}{' '.join(points[1:])}"
    stroke = _stroke(line.stroke, line.line_width, line.dash, paint)
    out = [f'<path d="{path}" fill="none"{stroke}/>']
    if line.arrow:
        head = " ".join(f"{_number(x)},{_number(y)}" for x, y in arrow_head(line))
        out.append(f'<polygon points="{head}" fill="{paint(line.stroke)}"/>')
    return out


def arrow_head(line: Line) -> tuple[Point, Point, Point]:
    """The triangle at the end of a line: its tip, then the two corners behind it."""
    (x, y) = line.points[-1]
    back = next((p for p in reversed(line.points) if math.dist(p, (x, y)) > 1e-3), (x - 1, y))
    angle = math.atan2(y - back[1], x - back[0])
    size = 7 + 2 * line.line_width
    corners = ((x - size * math.cos(a), y - size * math.sin(a)) for a in (angle - 0.4, angle + 0.4))
    left, right = corners
    return (x, y), left, right


def _label(label: Label, paint: Paint) -> str:
    anchor = "" if label.anchor == "start" else f' text-anchor="{label.anchor}"'
    bold = ' font-weight="bold"' if label.bold else ""
    family = MONO if label.mono else SANS
    return (
        f'<text x="{_number(label.x)}" y="{_number(label.y)}" font-size="{_number(label.size)}" '
        f'font-family="{family}"{bold}{anchor} fill="{paint(label.role)}" '
        f'xml:space="preserve">{escape(label.text)}</text>'
    )


def _number(x: float) -> str:
    """At most one decimal, no trailing zero, no minus zero."""
    return f"{round(x, 1) + 0.0:.1f}".removesuffix(".0")
