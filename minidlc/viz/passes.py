"""The page of a pipeline: every pass with its time and counts, the graph before and after it.

    _, records = Pipeline.default().run(g)
    mc.viz.passes(records)                          # in Jupyter: shows itself
    mc.viz.passes(records).save("passes.html")      # one file, no network

Arrow keys, the slider or the list choose a pass. Boxes that a pass removed carry a −, new ones a +.
Reads records, writes HTML. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minidlc.graph.graph import Graph
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.transform.pipeline import Record
from minidlc.viz.boxes import Box, Chart, chart_of
from minidlc.viz.collapse import collapse
from minidlc.viz.graph import draw_chart, headline
from minidlc.viz.page import SCRIPT, STYLE
from minidlc.viz.svg import inline_svg, theme_style

_MOST_EVENTS = 200  # lines of what a pass did, and of what it refused


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page; `str(page)` is its text."""

    title: str
    html: str

    def save(self, path: str | Path) -> Path:
        """Write the page to a file ending in .html; another suffix is an OptionError (MDLC1022)."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            message = f"a page cannot be saved as {path.suffix or path.name!r}"
            raise OptionError(message, hint="use .html", code="MDLC1022")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html, encoding="utf-8", newline="\n")
        return path

    def _repr_html_(self) -> str:
        frame = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{frame}" style="width:100%;height:720px;border:0"></iframe>'

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"<Page {self.title!r}>"


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
    steps = "\n".join(_step(n, record) for n, record in enumerate(records))
    entries = "\n".join(_entry(n, record) for n, record in enumerate(records))
    words = html.escape(title)
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{words}</title>
<style>{theme_style(media=True)}{STYLE}</style></head>
<body class="minidlc"><h1>{words}</h1>
<main><nav><ol>
{entries}
</ol>
<input type="range" min="0" max="{len(records) - 1}" value="0" aria-label="pass">
<p class="hint">← → another pass</p></nav>
<div>
{steps}
</div></main>
<script>{SCRIPT}</script></body></html>
"""
    return Page(title, text)


def _number(g: Graph) -> str:
    return headline(g).partition(": ")[2].partition(",")[0]


def _entry(n: int, record: Record) -> str:
    """One line of the list: name, time, nodes before and after."""
    counts = f"{record.nodes_before} → {record.nodes_after}" if record.changed else "no change"
    return (
        f'<li><button data-step="{n}"><b>{html.escape(record.name)}</b>'
        f"<span>{counts}</span><span>{1000 * record.seconds:.1f} ms</span></button></li>"
    )


def _step(n: int, record: Record) -> str:
    """The pictures and events of one pass; only the chosen one is shown."""
    before, after = _marked(chart_of(record.before), chart_of(record.after))
    pictures = [_picture("before", record.before, before)] if record.changed else []
    pictures.append(_picture("after" if record.changed else "unchanged", record.after, after))
    events = _events("done", [str(e) for e in record.rewrites])
    events += _events("not done, and why", [str(e) for e in record.refusals])
    return f'<section data-step="{n}" hidden>{"".join(pictures)}{events}</section>'


def _picture(word: str, g: Graph, chart: Chart) -> str:
    drawing = draw_chart(collapse(chart), f"{word}: {headline(g)}")
    return f"<figure>{inline_svg(drawing)}</figure>"


def _events(word: str, lines: list[str]) -> str:
    if not lines:
        return ""
    rest = [f"… {len(lines) - _MOST_EVENTS} more"] if len(lines) > _MOST_EVENTS else []
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines[:_MOST_EVENTS] + rest)
    return f"<details><summary>{word}: {len(lines)}</summary><ul>{items}</ul></details>"


def _marked(before: Chart, after: Chart) -> tuple[Chart, Chart]:
    """Both charts, boxes of the one that the other has not marked: − removed, + new."""
    old, new = (Counter(b.origin for b in c.boxes if b.origin) for c in (before, after))
    return _mark(before, old - new, "−"), _mark(after, new - old, "+")


def _mark(chart: Chart, extra: Counter[str], mark: str) -> Chart:
    left = Counter(extra)
    boxes: list[Box] = []
    for box in reversed(chart.boxes):  # of several equal ones the last are the new ones
        if left[box.origin] > 0:
            left[box.origin] -= 1
            box = replace(box, mark=mark)
        boxes.append(box)
    return replace(chart, boxes=tuple(reversed(boxes)))
