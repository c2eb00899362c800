"""Graph -> boxes and arrows: what a picture of a graph has to show, before anything is placed.

    chart = chart_of(g)                             # Fused groups opened, weights as badges
    [(b.title, b.badges) for b in chart.boxes]      # [('x', ()), ('conv2d', ('w: 6×1×5×5',)), …]
    [(a.tail, a.head, a.label) for a in chart.arrows]

Reads the graph, writes a Chart; every box has at most two lines. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import cast

from minidlc.expr.types import TensorType
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.op import Op
from minidlc.graph.printer import value_names
from minidlc.graph.types import Type, result_types

_MOST_BADGES = 2  # weights named on a box; more are counted


@dataclass(frozen=True)
class Box:
    """An op, an input, an output, or a collapsed run of ops.

    `kind` is a pattern, "value" for inputs and outputs, "many" for a collapsed run; `frame` is the
    key of the fused group it belongs to.
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
    origin: str = ""  # equal for the same op before and after a pass
    mark: str = ""  # "+" new, "−" removed


@dataclass(frozen=True)
class Arrow:
    """Data from one box to another; `label` is the type where it changes."""

    tail: str
    head: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """Boxes in execution order, arrows, and the headline of each frame."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    frames: Mapping[str, str]


@dataclass(frozen=True)
class Placed:
    """A node to draw, its inputs seen through fused groups; `frame` names its group, if any."""

    node: Node
    name: str
    frame: str = ""


def chart_of(g: Graph) -> Chart:
    """The boxes of a graph: inputs just before their first reader, outputs after their maker."""
    placed, outputs = open_groups(g)
    own = value_names(g)
    names = own | {p.node: p.name for p in placed}
    boxes: list[Box] = []
    waiting = list(g.inputs)
    for p in placed:
        for i in [i for i in waiting if i in p.node.inputs]:
            boxes.append(_value_box(i, f"in {names[i]}", "input", names[i]))
            waiting.remove(i)
        if p.node.op.name != "getitem":
            boxes.append(_op_box(p, names))
    boxes += [_value_box(i, f"in {names[i]}", "input", names[i]) for i in waiting]
    arrows = _arrows(g, placed, outputs, names)
    made_by = {a.head: a.tail for a in arrows}
    for n, v in reversed(list(enumerate(g.outputs))):
        box = _value_box(v, f"out {n}", "output", own[v])
        maker = made_by.get(box.key)
        after = next((i + 1 for i, b in enumerate(boxes) if b.key == maker), len(boxes))
        boxes.insert(after, box)
    return Chart(tuple(boxes), arrows, {p.frame: f"kernel {p.frame}" for p in placed if p.frame})


def given(node: Node) -> list[Value]:
    """The inputs that are not left out."""
    return [v for v in node.inputs if v is not None]


def fused_body(node: Node) -> Graph | None:
    """The graph inside a Fused group, or None for any other node."""
    return node.op.body if isinstance(node.op, Fused) else None


def open_groups(g: Graph) -> tuple[list[Placed], tuple[Value, ...]]:
    """The nodes to draw, Fused groups replaced by what they hold, and the outputs among them."""
    names = value_names(g)
    seen: dict[Value, Value] = {}  # a value of the graph -> what stands for it in the picture
    results: dict[Value, tuple[Value, ...]] = {}  # a group -> its outputs
    placed: list[Placed] = []
    for node in g.nodes:
        inputs = _resolve(node.inputs, seen)
        body = fused_body(node)
        if body is not None:
            local = _open_group(body, inputs, names[node], placed)
            results[node] = tuple(local.get(v, v) for v in body.outputs)
            seen[node] = results[node][0]
        elif node.op.name == "getitem" and (group := given(node)[0]) in results:
            seen[node] = results[group][int(node.op.attributes()["index"])]
        else:
            shown = replace(node, inputs=inputs)
            seen[node] = shown
            placed.append(Placed(shown, names[node]))
    return placed, tuple(seen.get(v, v) for v in g.outputs)


def _open_group(
    body: Graph, inputs: tuple[Value | None, ...], frame: str, placed: list[Placed]
) -> dict[Value, Value]:
    """Place the nodes of one group; returns what stands for its values outside."""
    names = value_names(body)
    pairs = zip(body.inputs, inputs, strict=True)
    local: dict[Value, Value] = {inside: v for inside, v in pairs if v is not None}
    for part in body.nodes:
        shown = replace(part, inputs=_resolve(part.inputs, local))
        local[part] = shown
        placed.append(Placed(shown, names[part], frame))
    return local


def _resolve(
    inputs: tuple[Value | None, ...], seen: Mapping[Value, Value]
) -> tuple[Value | None, ...]:
    return tuple(None if v is None else seen.get(v, v) for v in inputs)


def _arrows(
    g: Graph, placed: list[Placed], outputs: tuple[Value, ...], names: Mapping[Value, str]
) -> tuple[Arrow, ...]:
    """Every arrow once; a type is written on the first arrow of a value that changes it."""
    source: dict[Value, str] = {i: f"in {names[i]}" for i in g.inputs}
    labels: dict[Value, str] = {}
    arrows: dict[tuple[str, str], str] = {}
    for p in placed:
        for v in given(p.node):
            if v in source and p.node.op.name != "getitem":
                pair = (source[v], _key(p))
                arrows[pair] = arrows.get(pair) or labels.pop(v, "")
        inner = p.node.op.name == "getitem" and given(p.node)[0] in source
        source[p.node] = source[given(p.node)[0]] if inner else _key(p)
        if _changes_type(p.node):
            labels[p.node] = type_text(p.node.type)
    for n, v in enumerate(outputs):
        if v in source:
            arrows[source[v], f"out {n}"] = ""  # the output's box says the type
    return tuple(Arrow(tail, head, label) for (tail, head), label in arrows.items())


def _changes_type(node: Node) -> bool:
    known = [v.type for v in given(node) if not isinstance(v, Constant)]
    return isinstance(node.type, TensorType) and node.type not in known


def _key(p: Placed) -> str:
    return f"{p.frame}.{p.name}" if p.frame else p.name


def _value_box(value: Value, key: str, role: str, name: str) -> Box:
    hover = f"{role} {name}: {value.type}\n{_size(value.type)}"
    return Box(key, "value", name, extra=role, detail=type_text(value.type), hover=hover)


def _op_box(p: Placed, names: Mapping[Value, str]) -> Box:
    op = p.node.op
    weights = [v for v in dict.fromkeys(p.node.inputs) if isinstance(v, Constant)]
    return Box(
        _key(p),
        kind=op.pattern.value,
        title=op.name,
        extra=attributes_text(op),
        detail="" if p.name == op.name else p.name,
        badges=_badges(weights, names),
        hover=_hover(p, names),
        frame=p.frame,
        origin=f"{op.name} {p.node.name} {p.node.loc}",
    )


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


def _hover(p: Placed, names: Mapping[Value, str]) -> str:
    node = p.node
    inputs = ["None" if v is None else names.get(v, v.name) for v in node.inputs]
    attributes = [f"{k}={v}" for k, v in node.op.attributes().items() if not isinstance(v, Graph)]
    lines = [f"{p.name}: {node.type} = {node.op.name}({', '.join([*inputs, *attributes])})"]
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
