"""Graph -> boxes and arrows: what a picture of a graph has to show, before anything is placed.

    chart = chart_of(g)                             # groups and bodies opened, weights as badges
    [(b.title, b.badges) for b in chart.boxes]      # [('x', ()), ('conv2d', ('w: 6×1×5×5',)), …]
    [(a.tail, a.head, a.label) for a in chart.arrows]

Reads the graph, writes a Chart; every box has at most two lines. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import cast

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.op import Op
from minidlc.graph.printer import value_names
from minidlc.graph.types import Type, result_types
from minidlc.support.locations import steps
from minidlc.viz.opening import Frame, Opened, Placed, box_key, opened

_MOST_BADGES = 2  # weights named on a box; more are counted


@dataclass(frozen=True)
class Box:
    """An op, an input, an output, or a collapsed run of ops.

    `kind` is a pattern, "value" for inputs and outputs, "many" for a collapsed run; `frame` is the
    key of the innermost frame it lies in: a fused group, or a body of a branch or loop.
    """

    key: str
    kind: str
    title: str
    extra: str = ""  # after the title, of less weight: attributes
    detail: str = ""  # the second line
    badges: tuple[str, ...] = ()
    hover: str = ""
    frame: str = ""
    times: int = 1  # a block that stands for this many
    node: Node | None = None  # that it stands for
    mark: str = ""  # "+" new, "−" removed, "⇉2" one of those that change 2 merges, "≠" differs
    change: str = ""  # the role of the mark's colour: "added", "removed" …; "" is "accent"
    note: str = ""  # the change in words
    members: tuple[str, ...] = ()  # keys of the boxes that this one stands for
    first: int = 0  # how many of these the first of `times` blocks holds
    least: float = 0  # width, where another picture has a wider box in this place
    derivative: bool = False  # made by autodiff, not written by the reader


@dataclass(frozen=True)
class Arrow:
    """Data from one box to another; `label` is the type where it changes."""

    tail: str
    head: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """Boxes in execution order, arrows, and the frames that hold boxes, outer ones first."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    frames: Mapping[str, Frame]


def chart_of(g: Graph) -> Chart:
    """The boxes of a graph: inputs just before their first reader, outputs after their maker."""
    shown = opened(g)
    own = value_names(g)
    boxed = {p.value: p.name for p in shown.placed}
    names = own | boxed
    arrows = _arrows(g, shown, names)
    boxes: list[Box] = []
    waiting = list(g.inputs)
    for p, first in zip(shown.placed, _first_of_outermost(shown), strict=True):
        for i in [i for i in waiting if i in p.reads]:
            box = _value_box(i, f"in {names[i]}", "input", names[i])
            at = next((n for n, b in enumerate(boxes) if b.key == first), len(boxes))
            boxes.insert(at, box)
            waiting.remove(i)
        if not _is_getitem(p):
            boxes.append(_value_box_inside(p) if p.role else _op_box(p, names, boxed))
    boxes += [_value_box(i, f"in {names[i]}", "input", names[i]) for i in waiting]
    made_by = {a.head: a.tail for a in arrows}
    for n, v in reversed(list(enumerate(g.outputs))):
        box = _value_box(v, f"out {n}", "output", own[v])
        maker = made_by.get(box.key)
        after = next((i + 1 for i, b in enumerate(boxes) if b.key == maker), len(boxes))
        boxes.insert(after, box)
    return Chart(tuple(boxes), arrows, used_frames(boxes, shown.frames))


def _first_of_outermost(shown: Opened) -> list[str]:
    """For each box the first one of the outermost body it lies in; its own key if in none."""
    firsts: dict[str, str] = {}
    found: list[str] = []
    for p in shown.placed:
        around = [f for f in frames_around(p.frame, shown.frames) if shown.frames[f].op]
        outermost = around[-1] if around else ""
        found.append(firsts.setdefault(outermost, key_of(p)) if around else key_of(p))
    return found


def frames_around(frame: str, frames: Mapping[str, Frame]) -> list[str]:
    """The frame and those it lies in, from the inside out."""
    found: list[str] = []
    while frame:
        found.append(frame)
        frame = frames[frame].outer
    return found


def used_frames(boxes: Sequence[Box], frames: Mapping[str, Frame]) -> dict[str, Frame]:
    """Frames that hold a box, outer ones first."""
    used = {f for box in boxes for f in frames_around(box.frame, frames)}
    return {key: frame for key, frame in frames.items() if key in used}


def _is_getitem(p: Placed) -> bool:
    return isinstance(p.value, Node) and p.value.op.name == "getitem" and not p.role


def _arrows(g: Graph, shown: Opened, names: Mapping[Value, str]) -> tuple[Arrow, ...]:
    """Every arrow once; a type is written on the first arrow of a value that changes it."""
    source: dict[Value, str] = {i: f"in {names[i]}" for i in g.inputs}
    labels: dict[Value, str] = {}
    arrows: dict[tuple[str, str], str] = {}
    for p in shown.placed:
        for v in p.reads:
            if v in source and not _is_getitem(p):
                pair = (source[v], key_of(p))
                arrows[pair] = arrows.get(pair) or labels.pop(v, "")
        inner = _is_getitem(p) and p.reads[0] in source
        source[p.value] = source[p.reads[0]] if inner else key_of(p)
        if _changes_type(p):
            labels[p.value] = type_text(p.value.type)
    for n, v in enumerate(shown.outputs):
        if v in source:
            arrows[source[v], f"out {n}"] = ""  # the output's box says the type
    return tuple(Arrow(tail, head, label) for (tail, head), label in arrows.items())


def _changes_type(p: Placed) -> bool:
    if p.role:
        return False  # its box says the type
    known = [v.type for v in p.reads if not isinstance(v, Constant)]
    return isinstance(p.value.type, TensorType) and p.value.type not in known


def key_of(p: Placed) -> str:
    """The key of the box that this becomes."""
    return box_key(p.frame, f"{p.role} {p.name}" if p.role else p.name)


def _value_box(value: Value, key: str, role: str, name: str) -> Box:
    hover = f"{role} {name}: {value.type}\n{_size(value.type)}"
    return Box(key, "value", name, extra=role, detail=type_text(value.type), hover=hover)


def _value_box_inside(p: Placed) -> Box:
    """A value that a body is given or returns."""
    if isinstance(p.value, Constant):
        title, role = _badge(p.value, p.name), "constant"
    else:
        title, role = p.name, p.role
    return replace(_value_box(p.value, key_of(p), role, p.name), title=title, frame=p.frame)


def _op_box(p: Placed, names: Mapping[Value, str], boxed: Container[Value]) -> Box:
    node = p.value
    assert isinstance(node, Node)
    weights = [v for v in dict.fromkeys(p.reads) if isinstance(v, Constant) and v not in boxed]
    return Box(
        key_of(p),
        kind=node.op.pattern.value,
        title=node.op.name,
        extra=attributes_text(node.op),
        detail="" if p.name == node.op.name else p.name,
        badges=_badges(weights, names),
        hover=_hover(node, p.name, names),
        frame=p.frame,
        node=node,
        derivative=is_derivative(node),
    )


def is_derivative(node: Node) -> bool:
    """Did autodiff make this node, as part of a gradient or a tangent?"""
    return not {"gradient", "tangent"}.isdisjoint(steps(node.loc))


def _badges(weights: Sequence[Constant], names: Mapping[Value, str]) -> tuple[str, ...]:
    """One line per weight, `w: 6×1×5×5` or `c = 0.5`; of more than two only number and bytes."""
    if len(weights) > _MOST_BADGES:
        return (f"{len(weights)} weights, {bytes_text(sum(w.array.nbytes for w in weights))}",)
    return tuple(_badge(w, names.get(w, w.name)) for w in weights)


def _badge(weight: Constant, name: str) -> str:
    name = name if len(name) <= 12 else name[:11] + "…"
    if weight.array.size == 1:
        value = weight.array.reshape(-1)[0].item()
        return f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
    return f"{name}: {'×'.join(map(str, weight.array.shape))}"


def _hover(node: Node, name: str, names: Mapping[Value, str]) -> str:
    inputs = ["None" if v is None else names.get(v, v.name) for v in node.inputs]
    attributes = [f"{k}={v}" for k, v in node.op.attributes().items() if not isinstance(v, Graph)]
    lines = [f"{name}: {node.type} = {node.op.name}({', '.join([*inputs, *attributes])})"]
    seen = [v for v in dict.fromkeys(node.inputs) if v is not None]
    lines += [f"{names.get(v, v.name)}: {v.type}" for v in seen]
    lines += [f"result {_size(node.type)}, {node.op.pattern.value}"]
    return "\n".join([*lines, *([str(node.loc)] if node.loc else [])])


def attributes_text(op: Op) -> str:
    """The attributes that differ from their defaults: 'stride=2, pads=(1, 0)'."""
    shown: list[str] = []
    for f in fields(op):
        value: object = getattr(op, f.name)
        if isinstance(value, Graph) or (f.default is not MISSING and value == f.default):
            continue
        shown.append(f"{f.name}={_attribute(value)}")
    return ", ".join(shown)


def _attribute(value: object) -> str:
    """A tuple of equal numbers is written as one of them."""
    if not isinstance(value, tuple):
        return str(value)
    items = cast("tuple[object, ...]", value)
    same = len(items) > 1 and len(set(items)) == 1
    return str(next(iter(items)) if same else items)


def type_text(type: Type) -> str:
    """The type as printed, without the quotes of symbolic dims: `f32[N, 784]`."""
    return str(type).replace('"', "")


def _size(type: Type) -> str:
    parts = result_types(type)
    if not all(t.is_static for t in parts):
        return "size known when the symbols are"
    return bytes_text(sum(t.nbytes for t in parts))


def bytes_text(n: int) -> str:
    """'928 B', '3.5 kB', '26 kB', '1.2 MB' (1 kB = 1000 bytes)."""
    size, unit = float(n), "B"
    for bigger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, bigger
    return f"{size:.1f} {unit}" if unit != "B" and size < 10 else f"{size:.0f} {unit}"
