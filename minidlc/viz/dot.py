"""Where things go: Graphviz's `dot` lays out boxes and arrows of sizes that we choose.

    use_renderer()                                  # system dot, else the wheel graphviz-pure
    plan = layout([Node("a", 90, 40), Node("b", 90, 40)], [Edge("a", "b", label=(80, 18))])
    plan.nodes["b"]                                 # (x, y) of its centre; y grows downwards

Reads sizes, writes positions: text is measured and painted by us, so that a system `dot` and the
wheel give the same picture. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import graphviz
from graphviz.backend import dot_command

from minidlc.support.errors import OptionError
from minidlc.viz.drawing import Point

_INCH = 72  # dot's unit of sizes; its positions are in points, our units
_HINT = "pip install graphviz-pure, or put a newer Graphviz on the PATH"


@dataclass(frozen=True)
class Node:
    """A box to place; `rank` "source" or "sink" puts it at the left or right end."""

    name: str
    width: float
    height: float
    rank: str = ""


@dataclass(frozen=True)
class Edge:
    """An arrow; `label` is the (width, height) to keep free for its text."""

    tail: str
    head: str
    label: Point | None = None


@dataclass(frozen=True)
class Cluster:
    """Nodes to keep together in a frame with a headline of size `label`, inside frame `outer`."""

    name: str
    members: tuple[str, ...]
    label: Point
    outer: str = ""


@dataclass(frozen=True)
class Route:
    """Bézier points of an arrow, and the centre of its label."""

    points: tuple[Point, ...]
    label: Point | None


@dataclass(frozen=True)
class Frame:
    """Where a cluster lies: left, top, right, bottom."""

    box: tuple[float, float, float, float]
    label: Point


@dataclass(frozen=True)
class Layout:
    """Positions of everything; edges in the order given."""

    width: float
    height: float
    nodes: dict[str, Point]
    edges: tuple[Route, ...]
    clusters: dict[str, Frame]


def renderer() -> Path:
    """The program that lays out graphs: a system `dot`, else the wheel's `graphviz-pure`.

    Raises OptionError (MDLC1020) if there is neither.
    """
    return _renderer_on(os.environ.get("PATH", ""))


@lru_cache(maxsize=4)
def _renderer_on(path: str) -> Path:
    """The program, with this PATH: looking for it takes as long as a small layout."""
    system = shutil.which("dot", path=path)
    if system:
        return Path(system)
    schemes = (sysconfig.get_default_scheme(), *sorted(sysconfig.get_scheme_names()))
    for place in (*(sysconfig.get_path("scripts", scheme) for scheme in schemes), path):
        found = shutil.which("graphviz-pure", path=place)
        if found:
            return Path(found)
    raise OptionError(
        "no program to lay out graphs: neither dot nor graphviz-pure is installed",
        hint=_HINT,
        code="MDLC1020",
    )


def use_renderer() -> Path:
    """Make the package `graphviz` run `renderer()`, here and in the reader's own cells."""
    dot_command.DOT_BINARY = renderer()
    return dot_command.DOT_BINARY


def layout(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    clusters: Sequence[Cluster] = (),
) -> Layout:
    """Place everything from left to right with Graphviz's layered layout, without overlaps.

    Raises OptionError (MDLC1020) if there is no program that can.
    """
    program = use_renderer()
    try:
        text = source(nodes, edges, clusters).pipe(format="json0", encoding="utf-8")
    except (graphviz.ExecutableNotFound, graphviz.CalledProcessError) as e:
        raise OptionError(f"{program} failed: {e}", hint=_HINT, code="MDLC1020") from None
    return _read(json.loads(text), len(edges))


def source(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    clusters: Sequence[Cluster] = (),
) -> graphviz.Digraph:
    """The problem in Graphviz's language; labels stand in it as blank tables of their size."""
    graph: Any = graphviz.Digraph(  # no stubs
        graph_attr={"rankdir": "LR", "nodesep": "0.3", "ranksep": "0.45", "margin": "0"},
        node_attr={"shape": "box", "fixedsize": "true", "label": ""},
    )
    for rank in ("", "source", "sink"):
        with graph.subgraph(graph_attr={"rank": rank} if rank else {}) as part:
            for node in nodes:
                if node.rank == rank:
                    size = {"width": _inches(node.width), "height": _inches(node.height)}
                    part.node(node.name, _attributes=size)
    _add_clusters(graph, "", clusters)
    for i, edge in enumerate(edges):
        attributes = {"id": str(i), "tailport": "e", "headport": "w"}
        if edge.label:
            attributes["label"] = _blank(edge.label)
        graph.edge(edge.tail, edge.head, _attributes=attributes)
    return graph


def _add_clusters(graph: Any, outer: str, clusters: Sequence[Cluster]) -> None:
    """The clusters that lie directly in `outer`, each with those it holds."""
    for cluster in clusters:
        if cluster.outer != outer:
            continue
        with graph.subgraph(name=f"cluster_{cluster.name}") as part:
            part.attr(label=_blank(cluster.label), labeljust="l", margin="14")
            for member in cluster.members:
                part.node(member)
            _add_clusters(part, cluster.name, clusters)


def _inches(size: float) -> str:
    return f"{size / _INCH:.4f}"


def _blank(size: Point) -> str:
    """An empty table of an exact size, Graphviz's HTML-like label."""
    return (
        f'<<TABLE BORDER="0" CELLBORDER="0" CELLPADDING="0" CELLSPACING="0" FIXEDSIZE="TRUE" '
        f'WIDTH="{size[0]:.0f}" HEIGHT="{size[1]:.0f}"><TR><TD></TD></TR></TABLE>>'
    )


def _read(plan: dict[str, Any], n_edges: int) -> Layout:
    """Positions out of Graphviz's JSON; its y axis points up, ours down."""
    _, _, width, height = (float(v) for v in plan["bb"].split(","))

    def point(text: str) -> Point:
        x, y = text.split(",")
        return float(x), height - float(y)

    nodes: dict[str, Point] = {}
    clusters: dict[str, Frame] = {}
    for thing in plan.get("objects", ()):
        if "pos" in thing:
            nodes[thing["name"]] = point(thing["pos"])
        elif "bb" in thing and thing["name"].startswith("cluster_"):
            left, bottom, right, top = (float(v) for v in thing["bb"].split(","))
            box = (left, height - top, right, height - bottom)
            clusters[thing["name"].removeprefix("cluster_")] = Frame(box, point(thing["lp"]))
    routes: list[Route | None] = [None] * n_edges
    for edge in plan.get("edges", ()):
        label = point(edge["lp"]) if "lp" in edge else None
        routes[int(edge["id"])] = Route(_spline(edge["pos"], point), label)
    return Layout(width, height, nodes, tuple(r for r in routes if r), clusters)


def _spline(text: str, point: Any) -> tuple[Point, ...]:
    """Points of 'e,x,y x,y x,y …': the curve, led on to the arrow's tip 'e'."""
    words = text.split(" ")
    tips = [w[2:] for w in words if w.startswith("e,")]
    points = [point(w) for w in words if not w.startswith(("e,", "s,"))]
    if tips:
        tip = point(tips[0])
        points += [points[-1], tip, tip]
    return tuple(points)
