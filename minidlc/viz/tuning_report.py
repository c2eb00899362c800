"""The report of tuning: one HTML file, no network, for people who were not there.

    write_report(results, "report.html", environment={"date": "2026-05-04", "seed": "0"})

What was gained, then each kernel: the story in words, the pictures, every trial with its reason;
last, where it was measured and how to do it again. Tables sort by a click or the enter key on the
head of a column. The same results and environment give the same bytes. Reads TaskResults, writes a
file. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import NoneType

from minidlc import __version__
from minidlc.support.arguments import expect
from minidlc.support.timing import readable
from minidlc.tuning.database import Database, existing
from minidlc.tuning.explain import cut, outcome, sections
from minidlc.tuning.gather import Results, results_of
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.result import TaskResult
from minidlc.tuning.summary import believed, counted, improvements, percent, ranks
from minidlc.tuning.trial import Fate, Trial, fates
from minidlc.viz.drawing import Drawing
from minidlc.viz.page import Page, page
from minidlc.viz.svg import SANS, inline_svg
from minidlc.viz.tuning import details
from minidlc.viz.tuning_progress import SHOWN, headline, progress
from minidlc.viz.tuning_tasks import Row, by_time, layout_words, tasks_picture, whole_model
from minidlc.viz.tuning_tasks import headline as model_headline

MOST_ROWS = 200  # of a table of trials; the fastest, the failures of each kind and gains stay
_ALL_ROWS, _ALL_MARKS = 3000, 1200  # of all kernels together: a page stays below 3 MB
_DETAILED = 8  # kernels with all pictures, those that take the most time
_REASON = 300  # letters

_SAME = (
    "The same seed on the same times gives the same trials; times are those of this machine, and "
    "vary from run to run. Default and best of a kernel were measured again in turns."
)

_PLACE = (
    "The model's place: where the model, as it was when it was asked, put a trial among the "
    "{count} that ran and of which it had spoken; 1 is the fastest. It learns in between, so "
    "places of early trials are those of a model that knew less."
)

Cell = tuple[str, float | None]  # its text, and what it is sorted by if that is a number


def write_report(
    results: Results,
    path: str | Path,
    *,
    environment: Mapping[str, str] | None = None,
    command: str = "",
    database: Database | None = None,
) -> Path:
    """Write the report to a file that ends in .html; returns its path.

    `environment` adds what only the caller knows (date, seed, machine, version of LLVM), `command`
    is how to run it again; of the `database` (default: that of the results) each kernel's record is
    named. OptionError: another suffix (MDLC1022), another type (MDLC1001); TuneError: no such
    database (MDLC1341), no result (MDLC1360).
    """
    made = report(results, environment=environment, command=command, database=database)
    return made.save(path)


def report(
    results: Results,
    *,
    environment: Mapping[str, str] | None = None,
    command: str = "",
    database: Database | None = None,
) -> Page:
    """The page of `write_report`; a notebook shows it."""
    expect("write_report", "database", database, Database, NoneType)
    if isinstance(results, (str, os.PathLike)):
        database = existing(results, "write_report")
    elif isinstance(results, Tuning) and database is None and Path(results.database).is_file():
        database = Database(results.database)
    found = by_time(results_of("write_report", results))
    expect("write_report", "command", command, str)
    given = dict[str, str]() if environment is None else environment
    expect("write_report", "environment", given, Mapping, hint='{"date": "2026-05-04"}')
    single = len(found) == 1
    whole = results if isinstance(results, Tuning) else None
    title = headline(found[0]) if single else model_headline([Row.of(r) for r in found])
    title = whole_model(whole) if whole and whole.seconds else title
    parts = _whole(whole) if whole else list[str]()
    parts += [] if single else [_figure(tasks_picture(found, whole)), _tasks(found)]
    parts += [_task(n, r, len(found)) for n, r in enumerate(found)]
    parts.append(_environment(found, given, command, database))
    data = [_data(r) for r in found]
    return page(title, f"<main>{''.join(parts)}</main>", _STYLE, _SCRIPT, {"tasks": data})


def _whole(tuning: Tuning) -> list[str]:
    """What the title does not say, and the table of the terminal with all that was left out."""
    words = layout_words(tuning)
    if not tuning.seconds:
        words = [f"{cut(tuning.model, 100)}: no run of the whole model was timed"]
    elsewhere = tuning.trials - sum(len(r.trials) for r in tuning.results)
    if elsewhere > 0:
        of = "were of kernels that the model has in other layouts of images, or that failed"
        words.append(f"{counted(tuning.trials, 'trial')} in all, {elsewhere:,} of them {of}")
    parts = [f"<p>{escape(text)}.</p>" for text in words]
    table = f"<pre>{escape(str(tuning))}</pre>"
    return [*parts, f"<details><summary>What was and was not tuned</summary>{table}</details>"]


def _data(result: TaskResult) -> dict[str, object]:
    """The figures of a kernel, for programs."""
    return {
        "name": result.task.name,
        "workload": result.task.workload.key,
        "kernels": result.count,
        "fates": fates(result.trials),
        "default": str(result.task.default),
        "best": str(result.best),
        "default_seconds": list(result.default_seconds),
        "best_seconds": list(result.best_seconds),
    }


def _figure(drawing: Drawing) -> str:
    """A picture; what all its texts have in common stands in the style of the page, once."""
    svg = inline_svg(drawing).replace(f' font-family="{SANS}"', "")
    svg = svg.replace(' xml:space="preserve"', "")
    return f"<figure>{svg}</figure>"


def _tasks(results: Sequence[TaskResult]) -> str:
    """A table of the kernels, each a link to its part."""
    rows = list[list[Cell]]()
    for number, result in enumerate(results):
        row = Row.of(result)
        name = f'<a href="#kernel{number}">{escape(cut(result.task.name, 60))}</a>'
        ratio = result.ratio if result.is_checked else math.nan
        rows.append(
            [
                (name, None),
                (f"{result.count}", result.count),
                (f"{len(result.trials)}", len(result.trials)),
                _seconds(row.before),
                _seconds(row.after),
                (f"{ratio:.3f}" if ratio == ratio else "", ratio),
                (escape(_winner(result)), None),
            ]
        )
    heads = ("kernel", "calls", "trials", "default", "best", "ratio", "winner")
    better = sum(r.is_better for r in results)
    note = f"{better} of {counted(len(results), 'kernel')} got faster, the others keep the "
    note += "compiler's choice. "
    if lost := sum(bool(r.lost) for r in results):
        note += f"{lost} had a winner that was faster alone and lost inside the model. "
    note += "Times are those of all calls of a kernel in one run of the model; the default is the "
    note += "compiler's own schedule of that kernel."
    return f"<h2>Kernels</h2><p>{note}</p>{_table(heads, rows)}"


def _winner(result: TaskResult) -> str:
    """The point that is taken, and of a default why."""
    if result.lost:
        return f"the default stays; {cut(result.lost, 160)}"
    return cut(f"{result.best}", 120) if result.is_better else "the default stays"


def _task(number: int, result: TaskResult, of: int) -> str:
    """A kernel: the story, pictures, and all trials."""
    marks = max(40, min(SHOWN, _ALL_MARKS // of))
    words = f"{cut(result.task.name, 60)}: {cut(outcome(result), 200)}"
    story = "".join(
        f"<dt>{escape(label)}</dt><dd>{'<br>'.join(map(escape, texts))}</dd>"
        for label, texts in sections(result)
    )
    figures = _figure(progress(result, marks))
    if number < _DETAILED:
        figures += "".join(_figure(drawing) for _, drawing in details(result, marks))
    else:
        figures += f"<p>Space and nests: {_DETAILED} kernels that take more time have theirs.</p>"
    trials = _trials(result, max(40, min(MOST_ROWS, _ALL_ROWS // of)))
    start = f'<details class="kernel" id="kernel{number}"{" open" if of == 1 else ""}>'
    return (
        f"{start}<summary><h2>{escape(words)}</h2></summary>"
        f"<dl>{story}</dl>{figures}{trials}</details>"
    )


def _trials(result: TaskResult, most: int) -> str:
    """Every trial with its fate and reason; of very many, those that matter, and counts."""
    shown = chosen(result.trials, most)
    known = believed(result.trials)
    order = ranks([t.predicted or 0.0 for t in known])
    places = {id(t): float(place) for t, place in zip(known, order, strict=True)}
    rows, first = list[list[Cell]](), dict[str, int]()
    for number, trial in shown:
        reason = cut(trial.reason, _REASON)
        earlier = first.setdefault(reason, number)
        text = f"as trial {earlier}" if reason and earlier != number else reason
        place = places.get(id(trial))
        rows.append(
            [
                (f"{number}", number),
                (escape(cut(f"{trial.config}", 200)), None),
                (f'<b class="{trial.fate.name.lower()}">{trial.fate}</b>', None),
                _seconds(trial.cost),
                ("", None) if place is None else (f"{place:g}", place),
                (escape(trial.by), None),
                (escape(text), None),
            ]
        )
    heads = ("trial", "point", "fate", "one run", "model's place", "proposed by", "reason")
    counts = ", ".join(f"{n} {fate}" for fate, n in fates(result.trials).items())
    count = counted(len(result.trials), "trial")
    words = (
        f"{'All ' * (len(result.trials) > 1)}{count}: {counts}" if result.trials else "No trials"
    )
    if len(shown) < len(result.trials):
        words += f"; {len(shown)} are listed: gains, failures, the fastest"
    note = f"<p>{_PLACE.format(count=len(known))}</p>" if known else ""
    return f"<details><summary>{words}</summary>{note}{_table(heads, rows)}</details>"


def chosen(trials: Sequence[Trial], most: int = MOST_ROWS) -> list[tuple[int, Trial]]:
    """At most `most` trials with their numbers, in order: gains, first failures, the fastest."""
    numbered = list(enumerate(trials, 1))
    if len(numbered) <= most:
        return numbered
    gains = set(improvements(trials))
    kinds = {fate: next((n for n, t in numbered if t.fate is fate), 0) for fate in Fate}
    first = {*gains, *kinds.values()}
    ranked = sorted(numbered, key=lambda pair: (pair[0] not in first, pair[1].cost, pair[0]))
    return sorted(ranked[:most], key=lambda pair: pair[0])


def _seconds(seconds: float) -> Cell:
    return (readable(seconds), seconds) if 0 < seconds < math.inf else ("", math.inf)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that can be sorted; texts are HTML already."""
    head = "".join(f'<th scope="col"><button>{escape(word)}</button></th>' for word in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _cell(cell: Cell) -> str:
    text, value = cell
    if value is None or not math.isfinite(value):
        return f"<td>{text}</td>"
    return f'<td class="n"{"" if text == f"{value}" else f" data-v={value:.6g}"}>{text}</td>'


def _environment(
    results: Sequence[TaskResult],
    given: Mapping[str, str],
    command: str,
    database: Database | None,
) -> str:
    """Where it was measured, and how to do it again."""
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in _facts(results, given))
    file = "…" if database is None or database.path is None else f'"{database.path.name}"'
    threads = dict.fromkeys(r.task.threads for r in results)
    calls = (f"mc.compile(model, threads={n}, database={file})" for n in threads)
    codes = " or ".join(f"<code>{escape(call)}</code>" for call in calls)
    again = f"<p>Without measuring: {codes}</p>"
    if command:
        again = f"<pre>{escape(command)}</pre>{again}"
    if database is not None:
        again += f"<dl>{''.join(_records(results, database))}</dl>"
    return f"<h2>Measured on</h2><dl>{rows}</dl><h2>Do it again</h2>{again}<p>{_SAME}</p>"


def _records(results: Sequence[TaskResult], database: Database) -> Iterator[str]:
    """Which record each kernel is compiled from."""
    for result in results:
        record = database.best(result.task.workload)
        words = "no record: the default" if record is None else f"{record}: {record.config}"
        yield f"<dt>{escape(cut(result.task.name, 60))}</dt><dd>{escape(words)}</dd>"


def _facts(results: Sequence[TaskResult], given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((str(k), str(v)) for k, v in given.items())
    yield "minidlc", __version__
    for target in dict.fromkeys(r.task.target for r in results):
        yield "target", f"{target}; {target.triple}"
        yield "caches", f"L1 {target.l1 >> 10} KiB, L2 {target.l2 >> 10} KiB"
        yield "features", cut(target.features, 600) or "none"
    yield "threads", ", ".join(f"{n}" for n in dict.fromkeys(r.task.threads for r in results))
    tried = sum(len(r.trials) for r in results)
    failed = sum(t.fate is not Fate.OK for r in results for t in r.trials)
    share = percent(failed / tried) if tried else "0 %"
    yield "trials", f"{tried:,}, of which {failed:,} failed ({share})"
    noise = [s for r in results for t in r.trials for s in (t.seconds,) if len(s) > 2]
    if noise:
        spread = statistics.median((max(s) - min(s)) / statistics.median(s) for s in noise)
        yield "noise", f"slowest and fastest repeat of a trial differ by {percent(spread)} (median)"


_STYLE = (
    f"figure text {{ font-family: {SANS} }}"
    + """
main { max-width: 1500px; margin: 0 auto } figure { margin: 16px 0 }
figure svg { display: block; width: 100%; height: auto }
figure text { white-space: pre }
summary { cursor: pointer; padding: 6px 0 } summary h2 { display: inline; overflow-wrap: anywhere }
details.kernel { border-top: 1px solid var(--minidlc-grid) }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 20px }
dt { font-weight: bold } dd { margin: 0; overflow-wrap: anywhere }
.scroll { overflow-x: auto; max-height: 640px; overflow-y: auto }
table { border-collapse: collapse; font-size: 15px }
th { position: sticky; top: 0; background: var(--minidlc-frame); text-align: left; padding: 0 }
td { border-top: 1px solid var(--minidlc-grid); padding: 3px 10px; vertical-align: top;
  overflow-wrap: anywhere } td.n { text-align: right; white-space: nowrap }
th button { font: inherit; font-weight: bold; color: inherit; background: none; border: 0;
  padding: 6px 10px; cursor: pointer; white-space: nowrap; text-align: left }
th[aria-sort=ascending] button::after { content: " ▲" }
th[aria-sort=descending] button::after { content: " ▼" }
:focus-visible { outline: 3px solid var(--minidlc-accent) } a { color: var(--minidlc-changed) }
td b { color: var(--minidlc-removed) } td b.ok { color: var(--minidlc-added) }
pre { background: var(--minidlc-frame); padding: 10px; overflow-x: auto; white-space: pre-wrap }
@media print { details > * { display: block } .scroll { max-height: none } }
"""
)

_SCRIPT = """
const value = (row, n) => {
  const cell = row.cells[n], v = cell.dataset.v ?? (cell.className === "n" ? cell.textContent : "");
  return v === "" ? (cell.textContent === "" ? Infinity : cell.textContent) : Number(v);
};
const order = (a, b) => typeof a === "number" && typeof b === "number"
  ? a - b : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? 1 : -1;
document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const head = button.parentElement, table = head.closest("table"), n = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows].map(row => [value(row, n), row]);
  const none = pair => pair[0] === Infinity;  // nothing in the cell: last in either order
  rows.sort((a, b) => none(a) - none(b) || (up ? order(a[0], b[0]) : order(b[0], a[0])));
  table.tBodies[0].append(...rows.map(pair => pair[1]));
}));
function open() {
  const part = document.getElementById(location.hash.slice(1));
  if (part) { part.open = true; part.scrollIntoView(); }
}
addEventListener("hashchange", open);
open();
"""
