"""Why something was done or not done at a box: what a pass reported, sorted by the boxes it names.

    events, boxes = reasons(record.events, [(chart, chart)])
    [events[n] for n in boxes["relu_1"]["events"]]  # ['add-zero at relu: …', …]

Reads events and the charts of a picture, writes what a page keeps as JSON. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict

from minidlc.graph.graph import Node
from minidlc.support.locations import written
from minidlc.transform.log import Event, Pair, Rewrite
from minidlc.viz.boxes import Box, Chart

_MOST = 40  # reasons at one box


class BoxReasons(TypedDict):
    """What is said of a box: numbers of events, how many more there are, what it became."""

    title: str
    events: list[int]
    more: NotRequired[int]
    note: NotRequired[str]


def reasons(
    events: Sequence[Event], charts: Iterable[tuple[Chart, Chart]]
) -> tuple[list[str], dict[str, BoxReasons]]:
    """The events as text, and by the keys of boxes and frames.

    Each chart comes with the one that it sums up: what blocks hold is found there.
    """
    named: dict[str, list[int]] = {}
    for n, event in enumerate(events):
        for name in _names(event):
            named.setdefault(name, []).append(n)
    boxes: dict[str, BoxReasons] = {}
    for chart, full in charts:
        found = {box.key: _of(box, named, events) for box in full.boxes}
        for box in chart.boxes:
            mine = [n for key in (box.key, *box.members) for n in found.get(key, ())]
            _add(boxes, box.key, f"{box.title} {box.detail}".strip(), mine, box.note)
        for key, frame in chart.frames.items():
            held = [n for box in full.boxes if box.frame == key for n in found[box.key]]
            done = [n for n in held if _is_done(events[n])]
            _add(boxes, key, frame.headline, done, "")
    return [str(event) for event in events], boxes


def _names(event: Event) -> tuple[str, ...]:
    """The nodes that an event is about."""
    return (event.producer, event.consumer) if isinstance(event, Pair) else (event.node,)


def _is_done(event: Event) -> bool:
    return isinstance(event, Rewrite) or (isinstance(event, Pair) and event.fused)


def _of(box: Box, named: dict[str, list[int]], events: Sequence[Event]) -> list[int]:
    """The numbers of the events about the node of a box."""
    if box.node is None:
        return []
    return [n for n in named.get(box.node.name, ()) if _fits(events[n], box.node)]


def _fits(event: Event, node: Node) -> bool:
    """False if the event is about another node of the same name: it comes from elsewhere."""
    loc = None if isinstance(event, Pair) else event.loc
    if loc is None or node.loc is None or loc == node.loc:
        return True
    return not set(written(loc)).isdisjoint(written(node.loc))


def _add(
    boxes: dict[str, BoxReasons], key: str, title: str, numbers: Sequence[int], note: str
) -> None:
    """Put down what is said of a box, in addition to what was said of its place before."""
    known = boxes.get(key)
    found = list(dict.fromkeys([*(known["events"] if known else ()), *numbers]))
    notes = dict.fromkeys(n for n in (known.get("note", "") if known else "", note) if n)
    if not found and not notes:
        return
    entry = BoxReasons(title=known["title"] if known else title, events=found[:_MOST])
    if len(found) > _MOST:
        entry["more"] = len(found) - _MOST
    if notes:
        entry["note"] = "; ".join(notes)
    boxes[key] = entry
