"""Graph to text: a subset of Python that graph/parser.py reads back.

    def mlp(x: f32[4, 8], w: f32[8, 3]):
        h: f32[4, 3] = matmul(x, w)
        p: f32[4, 3] = softmax(h, axis=1)
        return p

One statement per node; constants where first used, large ones by name and checksum; attributes
only where they differ from the default. Several results: `a: f32[4]; b: i64[4]; a, b = topk(x)`.
Names become unique identifiers. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields

from minidlc.expr.types import Array
from minidlc.graph.graph import PRINTER, Constant, Graph, Node, Value, bodies
from minidlc.graph.literals import CHECKSUM, PRINTED, RESERVED, write_array, write_attribute
from minidlc.graph.op import Op
from minidlc.graph.types import TupleType
from minidlc.support import extension
from minidlc.support.names import Names, identifier

INLINE = 16  # constants of up to so many elements are written out
WIDTH = 100
_INDENT = "    "

extension.declare(
    "print",
    "(graph) -> str",
    "text of a graph; it must parse back",
    returns=extension.instance(str),
)


def print_graph(graph: Graph) -> str:
    """The graph as text, without a newline at the end (extension point `print`)."""
    return extension.dispatch("print", _print_graph)(graph)


def weights_of(graph: Graph) -> dict[str, Array]:
    """The large constants under the names that the text gives them."""
    return text_and_weights(graph)[1]


def text_and_weights(graph: Graph) -> tuple[str, dict[str, Array]]:
    """The shipped printer's text and the large constants that it names, in one walk."""
    printer = _Printer()
    lines = printer.function(graph, identifier(graph.name))
    return "\n".join(lines), printer.weights


def value_names(graph: Graph) -> dict[Value, str]:
    """The name that the text gives each value of the function itself, bodies not counted."""
    function = _Function(_Printer(), graph)
    parameters: dict[Value, str] = {i: function.name(i) for i in graph.inputs}
    list(function.statements())  # names are given in the order of the lines
    values: list[Value] = [*graph.constants, *graph.nodes]
    return parameters | {v: function.name(v) for v in values}


def _print_graph(graph: Graph) -> str:
    return text_and_weights(graph)[0]


@dataclass
class _Printer:
    """State of one text: weights of all its functions share one name space."""

    weights: dict[str, Array] = field(default_factory=dict[str, Array])
    weight_names: Names = field(default_factory=lambda: Names(("file", "allow_pickle")))

    def function(self, graph: Graph, name: str) -> list[str]:
        """The lines of one `def`."""
        body = _Function(self, graph)
        parameters = [f"{body.name(i)}: {i.type}" for i in graph.inputs]
        lines = [f"{_INDENT}{line}" for line in body.statements()]
        head = f"def {name}({', '.join(parameters)}):"
        if len(head) <= WIDTH:
            return [head, *lines]
        return [f"def {name}(", *(f"{_INDENT}{p}," for p in parameters), "):", *lines]


@dataclass
class _Function:
    """State of one `def`: the names of its values and nested functions."""

    printer: _Printer
    graph: Graph
    names: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        # an op's name stays free, so that no line reads `relu = relu(x)`
        self.taken = Names((*RESERVED, *(node.op.name for node in self.graph.nodes)))

    def name(self, value: Value | Graph) -> str:
        """The value's unique name, given at the first request."""
        if id(value) not in self.names:
            self.names[id(value)] = self.taken.fresh(identifier(value.name))
        return self.names[id(value)]

    def statements(self) -> Iterator[str]:
        """The lines of the body, in execution order."""
        nodes, i = self.graph.nodes, 0
        users = self.graph.users()
        while i < len(nodes):
            node = nodes[i]
            yield from self._before(node)
            parts = self._unpacked(node, nodes[i + 1 :][: _width(node)], users.get(node, ()))
            if parts:
                names = [self.name(part) for part in parts]
                yield "; ".join(f"{n}: {p.type}" for n, p in zip(names, parts, strict=True)) + (
                    f"; {', '.join(names)}{',' if len(names) == 1 else ''} = {self._call(node)}"
                )
            else:
                call = self._call(node)
                yield f"{self.name(node)}: {node.type} = {call}"
            i += 1 + len(parts)
        for output in self.graph.outputs:
            if isinstance(output, Constant) and id(output) not in self.names:
                yield self._constant(output)
        yield f"return {', '.join(map(self.name, self.graph.outputs)) or '()'}"

    def _before(self, node: Node) -> Iterator[str]:
        """Constants and nested functions that the node is the first to use."""
        for value in node.inputs:
            if isinstance(value, Constant) and id(value) not in self.names:
                yield self._constant(value)
        for body in bodies(node):
            if id(body) not in self.names:
                yield from self.printer.function(body, self.name(body))

    def _unpacked(
        self, node: Node, following: tuple[Node, ...], users: tuple[Node, ...]
    ) -> tuple[Node, ...]:
        """The getitem nodes if they take every result in order and nothing else reads the node."""
        takes = [n.op.attributes().get("index") for n in following if n.inputs == (node,)]
        in_order = takes == list(range(_width(node))) and users == following
        read = any(node is output for output in self.graph.outputs)
        plain = all(n.op.name == "getitem" for n in following)
        return following if following and in_order and plain and not read else ()

    def _constant(self, constant: Constant) -> str:
        name, array = self.name(constant), constant.array
        if array.size <= INLINE:
            return f"{name}: {constant.type} = const({write_array(array)})"
        key = self.printer.weight_names.fresh(name)
        self.printer.weights[key] = array
        checksum = constant.sha256[:CHECKSUM]
        PRINTED[checksum] = constant
        return f'{name}: {constant.type} = const("{key}", sha256="{checksum}")'

    def _call(self, node: Node) -> str:
        inputs = ["None" if v is None else self.name(v) for v in node.inputs]
        return f"{node.op.name}({', '.join([*inputs, *self._attributes(node.op)])})"

    def _attributes(self, op: Op) -> Iterator[str]:
        for f in fields(op):
            text = write_attribute(getattr(op, f.name), self.name)
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if default is MISSING or text != write_attribute(default, self.name):
                yield f"{f.name}={text}"


def _width(node: Node) -> int:
    return len(node.type.items) if isinstance(node.type, TupleType) else 0


PRINTER.append(print_graph)
