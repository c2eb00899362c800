"""Graph -> what its picture shows: fused groups opened, bodies of branches and loops as frames.

    shown = opened(g)
    [(p.name, p.frame) for p in shown.placed]       # [('relu', 'if_.then'), ('if_', ''), …]
    shown.frames["if_.then"].headline               # 'then of if_'
    shown.outputs                                   # values of `placed`, or inputs of g

What a body captures is the outer value itself, so that its arrow goes from outside into the frame;
what a loop hands over from run to run is a box in the frame. Reads the graph, builds nothing that
runs. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.printer import value_names
from minidlc.graph.region import Region
from minidlc.ops.control_flow import If, Loop
from minidlc.ops.scan_loop import Scan

RETURNED = "returned as it is"  # the role of a result that no op of the body makes


@dataclass(frozen=True)
class Placed:
    """What becomes a box: an op, or (with a `role`) a value that a body is given or returns.

    `reads` are the values whose arrows end here; `frame` names the innermost frame, if any.
    """

    value: Value
    name: str
    frame: str = ""
    role: str = ""
    reads: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Frame:
    """A kernel, or (with an `op`) a body that the op of that key runs; `outer` is around it."""

    headline: str
    outer: str = ""
    op: str = ""
    change: str = ""  # what happened to it, as of a box
    region: bool = False  # that another back end runs, not a kernel of ours


@dataclass(frozen=True)
class Body:
    """A graph that an op holds. `given` pairs what its inputs get with roles; a capture has none.

    The first `ignored` results decide nothing; `runs` is how often the op runs it, if known.
    """

    title: str
    graph: Graph
    given: tuple[tuple[Value | None, str], ...]
    ignored: int = 0
    runs: int | None = None

    def headline(self, op: str, name: str) -> str:
        """'then of if_ (y)', 'body of loop, 6 runs': whose it is, by op and name."""
        runs = "" if self.runs is None else f", {self.runs} run{'s' * (self.runs != 1)}"
        return f"{self.title} of {op}{f' ({name})' * (name != op)}{runs}"


@dataclass
class Opened:
    """Boxes in an order in which data goes forward, and the frames they lie in."""

    placed: list[Placed] = field(default_factory=list[Placed])
    frames: dict[str, Frame] = field(default_factory=dict[str, Frame])
    outputs: tuple[Value, ...] = ()


def opened(g: Graph) -> Opened:
    """The boxes of a graph, groups and bodies opened."""
    shown = Opened()
    seen = _open(g, {}, "", shown)
    return replace(shown, outputs=tuple(seen.get(v, v) for v in g.outputs))


def given(node: Node) -> list[Value]:
    """The inputs that are not left out."""
    return [v for v in node.inputs if v is not None]


def fused_body(node: Node) -> Graph | None:
    """The graph inside a fused group or a region, or None for any other node."""
    return node.op.body if isinstance(node.op, (Fused, Region)) else None


def held(node: Node) -> tuple[tuple[Value | None, ...], list[Body]]:
    """What an op reads itself, and the bodies that it gives the rest to (none for most ops)."""
    match node.op:
        case If(then_branch=yes, else_branch=no):
            captures = tuple((v, "") for v in node.inputs[1:])
            return node.inputs[:1], [Body("then", yes, captures), Body("else", no, captures)]
        case Loop(body=body, carried=states, scanned=scanned, trips=trips) as op:
            own = ((None, "number of the run"), (None, "goes on"))
            values = (*own, *_roles(node.inputs[2:], states, scanned))
            ignored = op.goes_on or node.inputs[1] is None
            return node.inputs[:2], [Body("body", body, values, int(ignored), trips)]
        case Scan(body=body, states=states, scanned=scanned):
            return (), [Body("body", body, _roles(node.inputs, states, scanned))]
        case _:
            return node.inputs, []


def _roles(
    values: tuple[Value | None, ...], states: int, scanned: int
) -> tuple[tuple[Value | None, str], ...]:
    """First what goes from run to run, then what each run gets a row of, then captures."""
    roles = ["carried"] * states + ["one row a run"] * scanned
    roles += [""] * (len(values) - len(roles))
    return tuple(zip(values, roles, strict=True))


def _open(g: Graph, seen: dict[Value, Value], frame: str, shown: Opened) -> dict[Value, Value]:
    """Place the nodes of a graph; returns `seen`: a value -> what stands for it in the picture."""
    names = value_names(g)
    results: dict[Value, tuple[Value, ...]] = {}  # a group -> its outputs
    for node in g.nodes:
        here = replace(
            node, inputs=tuple(None if v is None else seen.get(v, v) for v in node.inputs)
        )
        key = box_key(frame, names[node])
        body = fused_body(node)
        if body is not None:
            region = isinstance(node.op, Region)
            title = f"region {body.name}" if region else f"kernel {names[node]}"
            shown.frames[key] = Frame(title, frame, region=region)
            pairs = zip(body.inputs, here.inputs, strict=True)
            inside = _open(body, {i: v for i, v in pairs if v is not None}, key, shown)
            results[node] = tuple(inside.get(v, v) for v in body.outputs)
            seen[node] = results[node][0]
        elif node.op.name == "getitem" and (group := given(node)[0]) in results:
            seen[node] = results[group][int(node.op.attributes()["index"])]
        else:
            own, inner = held(here)
            reads = [v for v in own if v is not None]
            for body in inner:
                headline = body.headline(node.op.name, names[node])
                reads += _open_body(body, Frame(headline, frame, key), shown)
            seen[node] = here
            shown.placed.append(Placed(here, names[node], frame, reads=tuple(reads)))
    return seen


def box_key(frame: str, name: str) -> str:
    """The key of a box, or of a frame, that lies in `frame`."""
    return f"{frame}.{name}" if frame else name


def _open_body(body: Body, place: Frame, shown: Opened) -> list[Value]:
    """Place a body in its frame: its own values, its nodes; returns what the op then reads."""
    frame = f"{place.op}.{body.title}"
    shown.frames[frame] = place
    names, before = value_names(body.graph), len(shown.placed)
    results = body.graph.outputs[body.ignored :]
    read = {v for node in body.graph.nodes for v in node.inputs} | set(results)
    seen: dict[Value, Value] = {}
    for i, (value, role) in zip(body.graph.inputs, body.given, strict=True):
        seen[i] = replace(i) if role or value is None else value  # a graph may be held twice
        if role and i in read:
            reads = () if value is None else (value,)
            shown.placed.append(Placed(seen[i], names[i], frame, role, reads))
    seen = _open(body.graph, seen, frame, shown)
    made = {p.value for p in shown.placed[before:]}
    found: list[Value] = []
    for v in dict.fromkeys(results):
        value = seen.get(v, v)
        if value not in made:  # a constant, or what the body captured
            reads = () if isinstance(value, Constant) else (value,)
            value = replace(value)
            shown.placed.append(Placed(value, names[v], frame, RETURNED, reads))
        found.append(value)
    return found
