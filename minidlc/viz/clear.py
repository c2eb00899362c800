"""Labels that a line crosses move along their own arrow to a place where none does.

    plan = cleared(dot.layout(nodes, edges, clusters), nodes, edges, clusters)

Graphviz keeps room for a label in the rank where it puts it, but lets other arrows bend through
that room. Reads and writes a Layout; a label for which no place is found is left out, its type
stands in the hover of the box. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minidlc.viz.dot import Cluster, Edge, Layout, Node, Route
from minidlc.viz.drawing import Point

_STEPS = 24  # samples of one Bézier piece
_PAD = 14  # the width of a label's room beyond its text
_BESIDE = 16  # from a line to the middle of a label above or below it

Area = tuple[float, float, float, float]  # left, top, right, bottom


def cleared(
    plan: Layout, nodes: Sequence[Node], edges: Sequence[Edge], clusters: Sequence[Cluster] = ()
) -> Layout:
    """The layout with no label under a line. What is not crossed stays where it is."""
    lines = [list(_sampled(route.points)) for route in plan.edges]
    boxes = [_around(plan.nodes[n.name], (n.width, n.height)) for n in nodes]
    boxes += [_around(plan.clusters[c.name].label, c.label) for c in clusters]
    routes = list(plan.edges)
    for n, edge in enumerate(edges):
        place = routes[n].label
        if place is None or edge.label is None or not _crossed(_text(place, edge.label), lines):
            continue
        taken = [*boxes, *_labels(routes, edges, n)]
        free = (p for p in _beside(lines[n]) if _is_free(_text(p, edge.label), lines, taken))
        routes[n] = replace(routes[n], label=next(free, None))
    return replace(plan, edges=tuple(routes))


def _sampled(points: Sequence[Point]) -> Iterator[Point]:
    """Points on a curve of cubic pieces, ends included."""
    for k in range(0, len(points) - 3, 3):
        a, b, c, d = points[k : k + 4]
        for step in range(_STEPS + 1):
            t = step / _STEPS
            u = 1 - t
            weights = (u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t)
            x, y = (
                sum(w * p[i] for w, p in zip(weights, (a, b, c, d), strict=True)) for i in (0, 1)
            )
            yield x, y


def _around(centre: Point, size: Point) -> Area:
    x, y = centre
    return x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2


def _text(centre: Point, room: Point) -> Area:
    """What the text of a label covers of its room."""
    return _around(centre, (room[0] - _PAD, room[1] - 6))


def _labels(routes: Sequence[Route], edges: Sequence[Edge], but: int) -> list[Area]:
    """The labels of other arrows."""
    pairs = [(r.label, e.label) for r, e in zip(routes, edges, strict=True)]
    return [_text(at, size) for n, (at, size) in enumerate(pairs) if at and size and n != but]


def _crossed(area: Area, lines: Sequence[Sequence[Point]]) -> bool:
    left, top, right, bottom = area
    return any(left < x < right and top < y < bottom for line in lines for x, y in line)


def _beside(line: Sequence[Point]) -> Iterator[Point]:
    """Places above and below a line, those near its middle first."""
    middle = len(line) // 2
    for n in sorted(range(len(line)), key=lambda n: abs(n - middle)):
        x, y = line[n]
        yield x, y - _BESIDE
        yield x, y + _BESIDE


def _is_free(area: Area, lines: Sequence[Sequence[Point]], taken: Sequence[Area]) -> bool:
    left, top, right, bottom = area
    over = any(left < b[2] and b[0] < right and top < b[3] and b[1] < bottom for b in taken)
    return not over and not _crossed(area, lines)
