"""A page of its own: one HTML file, no network; and the style and script of the page of passes.

    Page("title", "<!DOCTYPE html>…").save("page.html")

Plain CSS and JavaScript, no library: the page works from a file, in a notebook's output (an iframe
with its text inside) and in an exported notebook. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minidlc.support.errors import OptionError
from minidlc.viz.drawing import writable
from minidlc.viz.svg import theme_style

_PLAIN_MODE = 0o644  # of a new page: temporary files are for their owner only


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page; `str(page)` is its text."""

    title: str
    html: str

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, all of it or nothing; OptionError (MDLC1022, MDLC1024)."""
        path = check_page(path)
        with _writing(path):
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
            try:
                with open(handle, "w", encoding="utf-8", newline="\n") as file:
                    file.write(self.html)
                os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else _PLAIN_MODE)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        return path

    def _repr_html_(self) -> str:
        frame = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{frame}" style="width:100%;height:720px;border:0"></iframe>'

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"<Page {self.title!r}>"


def check_page(path: str | Path) -> Path:
    """The path, whose folder is there from now on, if a page can be written to it.

    OptionError: MDLC1022 for another suffix than .html, MDLC1024 for a folder, or where nothing can
    be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        message = f"a page cannot be saved as {path.suffix or path.name!r}"
        raise OptionError(message, hint="use .html", code="MDLC1022")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    return path


@contextlib.contextmanager
def _writing(path: Path) -> Generator[None]:
    """What the system says against a write as an OptionError (MDLC1024)."""
    try:
        yield
    except (OSError, ValueError) as e:
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e)
        raise OptionError(f"{path} cannot be written: {reason}", code="MDLC1024") from None


def page(title: str, body: str, style: str, script: str, data: object) -> Page:
    """A page with its data as a JSON block, which the script finds under the id `data`."""
    words = html.escape(title)
    block = json.dumps(_writable(data), ensure_ascii=False).replace("<", "\\u003c")
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{words}</title>
<style>{theme_style(media=True)}{_STYLE}{style}</style></head>
<body class="minidlc"><h1>{words}</h1>
{body}
<script type="application/json" id="data">{block}</script>
<script>{script}</script></body></html>
"""
    return Page(title, writable(text))


def _writable(data: Any) -> Any:
    """JSON data, every text as it stands in the page: a key finds its box."""
    match data:
        case str():
            return writable(data)
        case dict():
            return {_writable(k): _writable(v) for k, v in data.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return list(map(_writable, data))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return data


_STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 16px 24px; font: 16px/1.4 "DejaVu Sans", Verdana, sans-serif;
  color-scheme: light dark; background: var(--minidlc-page); color: var(--minidlc-text) }
h1 { font-size: 26px; margin: 0 0 16px } h2 { font-size: 18px; margin: 16px 0 8px }
"""

PASSES_STYLE = """
main { display: grid; grid-template-columns: 340px minmax(0, 1fr); gap: 24px }
nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: hidden auto }
ol { list-style: none; margin: 0; padding: 0 }
button { display: grid; grid-template-columns: 1fr auto; width: 100%; text-align: left; gap: 0 8px;
  font: inherit; color: inherit; background: none; border: 1px solid transparent;
  border-left: 6px solid transparent; padding: 5px 10px; cursor: pointer }
button[aria-current] { background: var(--minidlc-frame); border-color: var(--minidlc-frame-edge) }
button .counts { grid-column: 1 / 3; color: var(--minidlc-muted) }
button .counts b { padding-right: 10px }
button .bar { grid-column: 1 / 3; height: 4px; background: var(--minidlc-grid) }
button .bar i { display: block; height: 4px; background: var(--minidlc-text) }
.removed { color: var(--minidlc-removed) } .added { color: var(--minidlc-added) }
.merged { color: var(--minidlc-merged) } .changed { color: var(--minidlc-changed) }
input { width: 100%; margin-top: 12px }
figure { margin: 0 0 16px; border: 1px solid var(--minidlc-grid) }
figure svg { display: block; width: 100%; height: auto }
g.box, g.frame { cursor: pointer }
g.chosen > rect:first-of-type { stroke: var(--minidlc-accent); stroke-width: 5 }
#why { border-top: 1px solid var(--minidlc-grid); margin-top: 12px; font-size: 14px }
#why ul { margin: 0; padding-left: 18px } #why li { overflow-wrap: anywhere }
details { margin: 8px 0 } summary { cursor: pointer } .hint { color: var(--minidlc-muted) }
@media (max-width: 900px) { main { grid-template-columns: 1fr } nav { position: static } }
"""

PASSES_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const buttons = [...document.querySelectorAll("button[data-step]")];
const sections = [...document.querySelectorAll("section")];  // what each pass said
const pictures = [...document.querySelectorAll(".pictures")];
const slider = document.querySelector("input[type=range]");
const why = document.getElementById("why");
const hint = why.innerHTML;
let current = 0;
function show(step) {
  current = Math.max(0, Math.min(sections.length - 1, step));
  sections.forEach((s, n) => { s.hidden = n !== current; });
  pictures.forEach((p, n) => { p.hidden = n !== data.steps[current].picture; });
  buttons.forEach((b, n) => {
    if (n === current) b.setAttribute("aria-current", "step");
    else b.removeAttribute("aria-current");
  });
  slider.value = current;
  explain(null);
}
function explain(key) {
  document.querySelectorAll("g.chosen").forEach(g => g.classList.remove("chosen"));
  if (key === null) { why.innerHTML = hint; return; }
  const step = data.steps[current], found = step.boxes[key] || { title: key, events: [] };
  const shown = pictures[step.picture];
  shown.querySelectorAll("g[data-key]").forEach(g => {
    if (g.dataset.key === key) g.classList.add("chosen");
  });
  shown.querySelectorAll("details").forEach(d => { if (d.dataset.block === key) d.open = true; });
  const lines = [...(found.note ? [found.note] : []), ...found.events.map(n => step.events[n]),
    ...(found.more ? [`… ${found.more} more`] : [])];
  if (!lines.length) lines.push(`${step.name} did nothing here, and refused nothing`);
  const title = document.createElement("h2"), list = document.createElement("ul");
  title.textContent = found.title;
  for (const line of lines) list.appendChild(document.createElement("li")).textContent = line;
  why.replaceChildren(title, list);
}
buttons.forEach((b, n) => b.addEventListener("click", () => show(n)));
slider.addEventListener("input", () => show(Number(slider.value)));
pictures.forEach(p => p.addEventListener("click", event => {
  const box = event.target.closest("g[data-key]");
  if (box) explain(box.dataset.key);
}));
document.addEventListener("keydown", event => {
  const move = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (move) { event.preventDefault(); show(current + move); }
  if (event.key === "Escape") explain(null);
});
show(Number(slider.value));
"""

WHERE_STYLE = """
main { display: grid; gap: 12px; height: calc(100vh - 130px); min-height: 420px;
  grid-template-columns: 1fr 1.7fr 1.5fr 2.2fr 2.2fr 2fr }
section { display: flex; flex-direction: column; min-width: 0; min-height: 0 }
section > div { overflow: auto; border: 1px solid var(--minidlc-grid); flex: 1 }
h2 { margin: 0 0 6px } .hint { margin: 0 0 8px; color: var(--minidlc-muted) }
.text { font: 14px/1.35 "DejaVu Sans Mono", Menlo, Consolas, monospace }
.text h2 { font-family: "DejaVu Sans", Verdana, sans-serif }
.names { font-size: 15px } .text .row { white-space: pre }
.row { padding: 1px 6px 1px 20px; position: relative; overflow-wrap: anywhere;
  min-width: max-content }
.names .row { min-width: 0 }
.row[data-statement], .row[data-node], .row[data-places] { cursor: pointer }
.row.on { background: var(--minidlc-out_fusable); color: var(--minidlc-ink) }
.row.on::before { content: "▸"; position: absolute; left: 5px }
.head { padding: 4px 6px; font-weight: bold; background: var(--minidlc-frame) }
"""

WHERE_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const rows = [...document.querySelectorAll(".row")];
const meet = (a, b) => a.some(n => b.includes(n));
const numbers = list => [...list.keys()];
const places = row => row.dataset.places.split(" ").map(Number);
function ofStatement(s) {
  const nodes = data.statements[s];
  return { statements: [s], nodes, places: nodes.flatMap(n => data.nodes[n]) };
}
function ofNodes(nodes, found) {
  const statements = numbers(data.statements).filter(s => meet(data.statements[s], nodes));
  return { statements, nodes, places: found || nodes.flatMap(n => data.nodes[n]) };
}
function ofPlaces(found) {
  return ofNodes(numbers(data.nodes).filter(n => meet(data.nodes[n], found)), found);
}
function isOn(row, found) {
  const { statement, node } = row.dataset;
  if (statement !== undefined) return found.statements.includes(Number(statement));
  if (node !== undefined) return found.nodes.includes(Number(node));
  return row.dataset.places !== undefined && meet(places(row), found.places);
}
function mark(found, clicked) {
  rows.forEach(row => row.classList.toggle("on", isOn(row, found)));
  document.querySelectorAll("section > div").forEach(column => {
    const first = column.querySelector(".row.on"), top = e => e.getBoundingClientRect().top;
    if (first && !(clicked && column.contains(clicked)))
      column.scrollTop += top(first) - top(column) - 60;
  });
}
document.querySelector("main").addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (!row) return;
  const { statement, node } = row.dataset;
  if (statement !== undefined) mark(ofStatement(Number(statement)), row);
  else if (node !== undefined) mark(ofNodes([Number(node)]), row);
  else if (row.dataset.places !== undefined) mark(ofPlaces(places(row)), row);
});
mark(data.marked);
"""
