"""The page of a pipeline: every pass with its time and what it changed, before and after it.

    _, records = Pipeline.default().run(g)
    mc.viz.passes(records)                          # in Jupyter: shows itself
    mc.viz.passes(records).save("passes.html")      # one file, no network

Arrow keys, the slider or the list choose a pass; a click on a box says why something was done or
not done there. The data of the page stand in it as JSON. Reads records, writes HTML. Treated in
course chapter 02_frontend_opt.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict
from xml.sax.saxutils import quoteattr

from minidlc.graph.graph import Graph
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.transform.pipeline import Record
from minidlc.viz.blocks import block, blocks_of, inside, numbered
from minidlc.viz.boxes import Chart, chart_of
from minidlc.viz.changes import Shown, counted
from minidlc.viz.collapse import collapse
from minidlc.viz.drawing import Drawing
from minidlc.viz.graph import draw_chart, headline
from minidlc.viz.page import PASSES_SCRIPT, PASSES_STYLE, Page, page
from minidlc.viz.reasons import BoxReasons, reasons
from minidlc.viz.svg import inline_svg
from minidlc.viz.theme import SIGNS

_MOST_EVENTS = 200  # lines below a picture; the data have more


class Step(TypedDict):
    """What the page knows of one pass."""

    name: str
    milliseconds: float
    changed: bool
    nodes: list[int]  # before, after
    counts: dict[str, int]  # kind of change -> boxes
    picture: int  # number of its pictures
    events: list[str]
    boxes: dict[str, BoxReasons]  # key of a box in the picture -> why


def passes(records: Sequence[Record], title: str | None = None) -> Page:
    """One page for what `Pipeline.run` recorded.

    Raises OptionError (MDLC1023) if there are no records.
    """
    expect("viz.passes", "records", records, list, tuple, hint="exe.passes")
    if not records:
        raise OptionError("no passes to show: the list of records is empty", code="MDLC1023")
    if title is None:
        first, last = records[0].before, records[-1].after
        title = f"{first.name}: {_number(first)} → {_number(last)}, {len(records)} passes"
    steps: list[Step] = []
    figures: list[str] = []
    known: dict[int, Figure] = {}  # of graphs that a pass left as they are: several may
    for record in records:
        if record.changed:
            figure = _both_sides(record)
        else:
            figure = known.get(id(record.before)) or _one(record.before)
            known[id(record.before)] = figure
        if figure.html not in figures:
            figures.append(figure.html)
        steps.append(_step(record, figure, figures.index(figure.html)))
    slowest = max(step["milliseconds"] for step in steps)
    entries = "\n".join(_entry(n, step, slowest) for n, step in enumerate(steps))
    body = f"""<main><nav><ol>
{entries}
</ol>
<input type="range" min="0" max="{len(records) - 1}" value="0" aria-label="pass">
<p class="hint">← → another pass</p>
<div id="why" aria-live="polite"><p class="hint">A click on a box says why.</p></div></nav>
<div>
{"".join(f'<div class="pictures" hidden>{text}</div>' for text in figures)}
{"".join(map(_lists, records))}
</div></main>"""
    return page(title, body, PASSES_STYLE, PASSES_SCRIPT, {"title": title, "steps": steps})


def _number(g: Graph) -> str:
    return headline(g).removeprefix(f"{g.name}: ").partition(",")[0]


@dataclass(frozen=True)
class Figure:
    """Pictures as HTML; the charts that they show, each with the one that it sums up."""

    html: str
    charts: tuple[tuple[Chart, Chart], ...]
    counts: Mapping[str, int]


def _both_sides(record: Record) -> Figure:
    """The graph before and after a pass, and below them what blocks hold."""
    shown = Shown.of(record.before, record.after)
    counts = shown.found.counts()
    what = counted(counts) if counts else "no op changed, only constants"
    text = _figure(shown.drawing(f"{record.name}: {what}"))
    charts = shown.both.sides()
    for key, title, part in shown.parts():
        if not part.is_changed:
            continue  # a block that stayed as it was need not open here
        text += _part(key, title, part.drawing(title))
        charts += part.both.sides()
    return Figure(text, tuple(charts), counts)


def _one(g: Graph) -> Figure:
    """A graph that a pass left as it is, and below it what blocks hold."""
    full = chart_of(g)
    chart = numbered(collapse(full))
    text = _figure(draw_chart(chart, f"unchanged: {headline(g)}"))
    charts = [(chart, full)]
    for n, box in enumerate(blocks_of(chart), 1):
        part = block(full, inside(box))
        title = f"block {n}: {box.title}"
        text += _part(box.key, title, draw_chart(part, title))
        charts.append((part, part))
    return Figure(text, tuple(charts), {})


def _step(record: Record, figure: Figure, number: int) -> Step:
    """The data of one pass."""
    events, boxes = reasons(record.events, figure.charts)
    return Step(
        name=record.name,
        milliseconds=round(1000 * record.seconds, 3),
        changed=record.changed,
        nodes=[record.nodes_before, record.nodes_after],
        counts=dict(figure.counts),
        picture=number,
        events=events,
        boxes=boxes,
    )


def _part(key: str, title: str, drawing: Drawing) -> str:
    """What a block holds; it opens by a click on the block or on the title."""
    opened = f"<summary>{html.escape(title)}</summary>{_figure(drawing)}"
    return f"<details data-block={quoteattr(key)}>{opened}</details>"


def _figure(drawing: Drawing) -> str:
    return f"<figure>{inline_svg(drawing, keys=True)}</figure>"


def _entry(n: int, step: Step, slowest: float) -> str:
    """One line of the list: name, time with a bar, nodes, counts by kind."""
    share = 100 * step["milliseconds"] / slowest if slowest else 0
    before, after = step["nodes"]
    counts = f"{before} → {after} nodes" if step["changed"] else "no change"
    signs = "".join(
        f'<b class="{kind}" title="{sign.meaning}">{sign.letter}{_count(step["counts"], kind)}</b>'
        for kind, sign in SIGNS.items()
        if step["counts"].get(kind)
    )
    return (
        f'<li><button data-step="{n}"><b>{html.escape(step["name"])}</b>'
        f"<span>{step['milliseconds']:.1f} ms</span>"
        f'<span class="bar"><i style="width:{share:.1f}%"></i></span>'
        f'<span class="counts">{signs}{counts}</span></button></li>'
    )


def _count(counts: dict[str, int], kind: str) -> str:
    """'3', or '7→2' of what was merged."""
    return f"{counts[kind]}→{counts['into']}" if kind == "merged" else str(counts[kind])


def _lists(record: Record) -> str:
    """What the pass said, as lists that open."""
    found = _events("done", [str(e) for e in record.rewrites])
    found += _events("not done, and why", [str(e) for e in record.refusals])
    found += _events("neighbours, fused or not", [str(e) for e in record.fusion])
    return f"<section hidden>{found}</section>"


def _events(word: str, lines: list[str]) -> str:
    if not lines:
        return ""
    rest = [f"… {len(lines) - _MOST_EVENTS} more"] if len(lines) > _MOST_EVENTS else []
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines[:_MOST_EVENTS] + rest)
    return f"<details><summary>{word}: {len(lines)}</summary><ul>{items}</ul></details>"
