"""Everything that happened to one op of a model, from import to machine code.

    print(mc.debug.explain(exe, "Conv_3"))          # an ONNX node's name, or a value's of the graph
    # from     m.onnx: node 'Conv_3' (Conv)
    # import   conv_3: f32[1, 8, 14, 14] = conv(x, w, …), 6,272 bytes
    # fuse     conv_3 -> relu_4: fused: relu follows conv
    # kernel   …

An event of a pass belongs to the op if its place does, or if it names what the op had become by
then. Reads an executable; its levels are made if it came from the cache. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from minidlc.executable import Executable
from minidlc.graph import Graph, Input, Node, TupleType, Value, bodies, result_types
from minidlc.levels import CompiledKernel
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.support.locations import Loc, written
from minidlc.transform import Pair, Record, Refusal, Rewrite
from minidlc.transform.rules.forms import expression

_Places = frozenset[Loc]


@dataclass(frozen=True)
class Explanation:
    """The story of one op: lines under the name of the stage that they belong to."""

    name: str
    lines: tuple[tuple[str, str], ...]

    def of(self, stage: str) -> tuple[str, ...]:
        """Lines of a stage: "from", "import", the name of a pass, "kernel", "bytes", "memory"."""
        return tuple(line for where, line in self.lines if where == stage)

    def __str__(self) -> str:
        width = max((len(stage) for stage, _ in self.lines), default=0) + 2
        rows: list[str] = []
        before = ""
        for stage, line in self.lines:
            rows.append(f"{'' if stage == before else stage:{width}}{line}")
            before = stage
        return "\n".join(rows)


def explain(exe: Executable, name: str) -> Explanation:
    """What became of an op, stage by stage, and why.

    A graph input is a value too: what reads it. Raises OptionError (MDLC1031) for a name that
    neither the model nor its graph has.
    """
    expect("explain", "exe", exe, Executable, hint="mc.compile(model)")
    expect("explain", "name", name, str)
    try:
        destination = exe.where_to(name)
    except OptionError:
        given = next((i for i in exe.source.inputs if i.name == name), None)
        if given is None:
            raise
        return _of_input(exe, given)
    places: _Places = frozenset(destination.places)
    lines = [("from", str(place)) for place in destination.places]
    lines += [("import", _described(node)) for node in _of(exe.source, places)]
    for number, record in enumerate(exe.passes):
        again = sum(r.name == record.name for r in exe.passes[:number])
        stage = f"{record.name} {again + 1}" if again else record.name
        lines += [(stage, line) for line in _in_pass(record, places)]
    lines += [("kernel", line) for line in (*destination.values, *map(str, destination.parts))]
    kernels = dict.fromkeys(part.kernel for part in destination.parts)
    lines += [("bytes", _bytes(exe.kernel(kernel))) for kernel in kernels]
    named = dict.fromkeys((*kernels, *(n.name for n in _of(exe.graph, places))))
    lines += [("memory", line) for n in named for line in exe.memory_plan.about(n)]
    return Explanation(name, tuple(lines))


def _of_input(exe: Executable, given: Input) -> Explanation:
    """An input: nothing happens to it; who reads it, in the model and in the kernels."""
    lines = [("from", str(place)) for place in written(given.loc)]
    lines.append(("import", f"{given.name}: {given.type}, an input{_comma_bytes(given)}"))
    lines += [("import", f"read by {_described(n)}") for n in exe.source.nodes if given in n.inputs]
    readers = [k for k in exe.kernels if any(v.name == given.name for v in k.lowered.inputs)]
    lines += [("kernel", f"kernel {kernel.name} reads it") for kernel in readers]
    lines += [("memory", line) for line in exe.memory_plan.about(given.name)]
    return Explanation(given.name, tuple(lines))


def _of(graph: Graph, places: _Places) -> Iterator[Node]:
    """The nodes of a graph, and of the bodies in it, that were made from these places."""
    for node in graph.nodes:
        inner = [n for body in bodies(node) for n in _of(body, places)]
        if inner:
            yield from inner
        elif places.intersection(written(node.loc)):
            yield node


def _in_pass(record: Record, places: _Places) -> Iterator[str]:
    """What a pass did to the op, what it refused, and what the op was then."""
    before, after = list(_of(record.before, places)), list(_of(record.after, places))
    names = {n.name for n in (*before, *after)}
    old = set(record.before.nodes)
    made = [n for n in _around(record.after, places) if n not in old]
    for event in record.events:
        if _concerns(event, places, names) or (isinstance(event, Rewrite) and _gave(event, made)):
            yield str(event)
    now, then = [list(map(_described, nodes)) for nodes in (after, before)]
    if now != then:
        yield from (f"now: {line}" for line in now)
        if not now:
            told = {e for e in record.rewrites if _concerns(e, places, names) or _gave(e, made)}
            if not told:
                yield from (f"no longer read: {e}" for e in _behind(record, before))
            yield "now: no node of its own"


def _behind(record: Record, gone: Iterable[Node]) -> Iterator[Rewrite]:
    """The rewrites of what read these nodes, directly or through nodes that went too."""
    kept = {n.name for n in record.after.nodes}
    done = {event.node: event for event in record.rewrites}
    reached = set(gone)
    for node in record.before.nodes:  # readers stand behind what they read
        if node not in reached and not reached.isdisjoint(node.inputs):
            if node.name in done:
                yield done[node.name]
            elif node.name not in kept:
                reached.add(node)


def _around(graph: Graph, places: _Places) -> Iterator[Node]:
    """The nodes of the graph that are made from these places, or hold such a node."""
    for node in graph.nodes:
        inner = any(True for body in bodies(node) for _ in _of(body, places))
        if inner or places.intersection(written(node.loc)):
            yield node


def _concerns(event: Rewrite | Refusal | Pair, places: _Places, names: set[str]) -> bool:
    match event:
        case Pair(producer=producer, consumer=consumer):
            return producer in names or consumer in names
        case Rewrite() | Refusal() if event.loc is not None:
            return bool(places.intersection(written(event.loc)))
        case _:
            return event.node in names


def _gave(event: Rewrite, made: list[Node]) -> bool:
    """Whether a rewrite made one of the nodes, such as a convolution with the op's scale in it."""
    where = written(event.loc)
    return any(event.node == n.name or set(where).intersection(written(n.loc)) for n in made)


def _described(node: Node) -> str:
    return f"{node.name}: {node.type} = {expression(node, depth=1)}{_comma_bytes(node)}"


def _comma_bytes(value: Value) -> str:
    size = _size([value])
    return f", {size:,} bytes" if size is not None else ""


def _size(values: Iterable[Value]) -> int | None:
    """Bytes of values; None if a dim is not known."""
    types = [t for v in values for t in result_types(v.type)]
    return sum(t.nbytes for t in types) if all(t.is_static for t in types) else None


def _bytes(kernel: CompiledKernel) -> str:
    """What a kernel reads and writes."""
    reads, results = _size(kernel.lowered.inputs), kernel.lowered.results
    written_bytes = sum(t.nbytes for t in results if not isinstance(t, TupleType))
    return f"kernel {kernel.name} reads {reads or 0:,} and writes {written_bytes:,}"
