"""The nodes of one ONNX graph → graph values; what cannot be taken is collected in one table.

    scope = Importer("net.onnx", {"": 20}, names, {"x": x})
    scope.add_all(proto.graph)                      # scope.values["y"] is the value of that name
    scope.report()                                  # OnnxImportError that lists every problem
    inner = scope.nested({**scope.opsets}, {"i": i})     # a body: sees i, and all that scope sees

An op without converter whose ONNX schema is a function is imported as the nodes of that function.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import onnx

from minidlc.frontend.onnx.functions import Functions, expansion
from minidlc.frontend.onnx.legacy import FIRST_MODERN_OPSET, modernise
from minidlc.frontend.onnx.order import names_read, needed_nodes, node_label
from minidlc.frontend.onnx.registry import (
    UNSUPPORTED,
    WRONG,
    OnnxNode,
    ValueNeeded,
    converter,
    known_op_types,
)
from minidlc.graph.graph import Constant, Input, Node, Value, located
from minidlc.support.errors import CompileError, OnnxImportError, nearest
from minidlc.support.locations import OnnxLoc
from minidlc.support.names import Names, identifier

DOMAINS = ("", "ai.onnx")
_DEEPEST = 50  # calls of functions in functions: more is a recursion
_ELEMENT_TYPE = "MDLC0202"  # an element type that our op does not take


class UnknownOp(OnnxImportError):
    """No converter and no function: no input of any shape makes the op known."""


@dataclass(frozen=True)
class Problem:
    """One row of the table."""

    node: OnnxNode
    domain: str
    error: CompileError

    def cells(self) -> tuple[str, str, str, str]:
        """Op, opset, node, what is missing."""
        op = f"{self.domain}.{self.node.op_type}" if self.domain else self.node.op_type
        return op, str(self.node.opset), self.node.loc.node, self.error.message


@dataclass
class Importer:
    """Values by ONNX name; readers of what could not be imported are skipped.

    `opsets`: version by domain. `functions`: those of the model. `within`: for the body of a
    function the place of its call; `depth`: how many calls that is inside. `copies`: how often
    this is imported, inside loops whose runs are. `streams`: numbers of random draws without a
    seed; `repeats`: inside a loop that stays one.
    """

    model: str
    opsets: Mapping[str, int]
    names: Names
    values: MutableMapping[str, Value]
    functions: Functions = field(default_factory=dict[tuple[str, str], onnx.FunctionProto])
    within: OnnxLoc | None = None
    depth: int = 0
    copies: int = 1
    streams: Iterator[int] = field(default_factory=lambda: count(1))
    repeats: bool = False
    failed: set[str] = field(default_factory=set[str])
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def opset(self) -> int:
        """The version of ONNX's own operator set."""
        return self.opsets.get("", onnx.defs.onnx_opset_version())

    def nested(
        self, opsets: Mapping[str, int], values: Mapping[str, Value], closed: bool = False
    ) -> Importer:
        """A scope inside: sees `values`, then (unless `closed`) what this one sees.

        Names and problems are shared, so that one report tells all.
        """
        inner: MutableMapping[str, Value] = dict(values)
        seen = inner if closed else ChainMap(inner, self.values)
        failed = set[str]() if closed else set(self.failed)
        return replace(self, opsets=opsets, values=seen, failed=failed)

    def add_all(self, graph: onnx.GraphProto) -> None:
        """Import every node that the graph's outputs need."""
        for proto in needed_nodes(graph, self.model, {*self.values, *self.failed}):
            self.add(proto)

    def add(self, proto: onnx.NodeProto) -> None:
        """Import one node, or note why not."""
        loc = self.within or OnnxLoc(self.model, node_label(proto), proto.op_type)
        domain = "" if proto.domain in DOMAINS else proto.domain
        node = OnnxNode(proto, self.opsets.get(domain, self.opset), loc, self)
        try:
            results = self._convert(node, domain, proto)
        except CompileError as e:
            self.problems.append(Problem(node, domain, e))
        else:
            if results is not None:
                self.values.update(results)
                return
        self.failed.update(filter(None, proto.output))

    def _convert(
        self, node: OnnxNode, domain: str, proto: onnx.NodeProto
    ) -> Mapping[str, Value] | None:
        readable = self.failed.isdisjoint(names_read(proto))
        inputs = [self.values[name] if name else None for name in proto.input] if readable else []
        while inputs and inputs[-1] is None:
            inputs.pop()
        own = (proto.domain, proto.op_type) in self.functions
        if domain or own or converter(node.op_type) is None:
            return self._expand(node, domain, proto, inputs, readable)
        if not readable:
            return None  # what it reads is in the table already
        return self._name(node, inputs, _converted(node, proto, inputs))

    def _expand(
        self,
        node: OnnxNode,
        domain: str,
        proto: onnx.NodeProto,
        inputs: Sequence[Value | None],
        readable: bool,
    ) -> Mapping[str, Value] | None:
        """The nodes of the function that ONNX defines the op by; None if some could not be taken.

        Raises UnknownOp if there is no function.
        """
        types = [None if v is None else v.type for v in inputs]
        body = expansion(proto, self.opsets, types, self.functions)
        if body is None:
            what = f"the domain {domain!r} is unknown" if domain else "no such op in this kit"
            hint = nearest(node.op_type, known_op_types())
            raise UnknownOp(what, loc=node.loc, hint=hint, code=UNSUPPORTED)
        if not readable:
            return None
        if self.depth >= _DEEPEST:
            raise node.unsupported(f"functions nested deeper than {_DEEPEST}")
        given = zip(body.inputs, inputs, strict=True)
        values = {name: value for name, value in given if value is not None}
        inner = self.nested(body.opsets, values, closed=True)
        inner.within, inner.depth = node.loc, self.depth + 1
        inner.add_all(body.graph)
        outputs = [name for name in proto.output if name]
        if not inner.failed.isdisjoint(outputs):
            return None  # the table says which node inside
        return {name: inner.values[name] for name in outputs}

    def _name(
        self, node: OnnxNode, inputs: Sequence[Value | None], values: Sequence[Value]
    ) -> dict[str, Value]:
        extra = [name for name in node.outputs[len(values) :] if name]
        if extra:
            raise node.unsupported(f"output {extra[0]!r} (number {len(values) + 1})")
        named: dict[str, Value] = {}
        for name, value in zip(node.outputs, values, strict=False):
            new = value not in inputs and not isinstance(value, Input)
            if new and len(values) == 1:  # several results may depend on each other
                value = replace(value, name=self.names.fresh(identifier(name)))
            named[name] = value
        return named

    def report(self) -> None:
        """Raise what was noted: one problem as itself, several as a table.

        If all that is missing are values of inputs, the error is a ValueNeeded with these inputs.
        """
        if not self.problems:
            return
        error = self._one() if len(self.problems) == 1 else self._several()
        needed = [p.error for p in self.problems if isinstance(p.error, ValueNeeded)]
        if len(needed) < len(self.problems):
            raise error
        wanted = ValueNeeded(
            error.message, loc=error.place, notes=error.notes, hint=needed[0].hint, code=error.code
        )
        wanted.inputs = tuple(dict.fromkeys(i for e in needed for i in e.inputs))
        raise wanted

    def report_unknown(self) -> None:
        """Raise for the ops that are not known; other problems may go once all sizes are known."""
        self.problems = [p for p in self.problems if isinstance(p.error, UnknownOp)]
        self.report()

    def _one(self) -> OnnxImportError:
        """The only problem; an op that the kit lacks with its row, for the opset."""
        problem = self.problems[0]
        error = problem.error
        text, code, notes = error.message, error.code, error.notes
        if not isinstance(error, OnnxImportError):
            text, code = f"{text} [{code}]", WRONG
            text = _unsupported(text) if error.code == _ELEMENT_TYPE else text
        if code == UNSUPPORTED:
            notes = (*notes, *_table([problem.cells()]))
            text = f"{problem.cells()[0]}: {_unsupported(text)}"
        return OnnxImportError(text, loc=problem.node.loc, notes=notes, hint=error.hint, code=code)

    def _several(self) -> OnnxImportError:
        codes = {p.error.code for p in self.problems}
        text = f"{self.model}: {len(self.problems)} nodes cannot be imported"
        text = _unsupported(text) if {UNSUPPORTED, _ELEMENT_TYPE} & codes else text
        table = _table([p.cells() for p in self.problems])
        hint = next((p.error.hint for p in self.problems if p.error.hint), None)
        if any(isinstance(p.error, UnknownOp) for p in self.problems):
            hint = "onnx_op registers a converter for an op of your own"
        return OnnxImportError(text, notes=table, hint=hint, code="MDLC0117")


def _converted(
    node: OnnxNode, proto: onnx.NodeProto, inputs: Sequence[Value | None]
) -> Sequence[Value]:
    """The results of a node that has a converter."""
    convert = converter(node.op_type)
    assert convert is not None
    with located(node.loc):
        if node.opset < FIRST_MODERN_OPSET:
            proto, inputs = modernise(node, proto, tuple(inputs))
            node = OnnxNode(proto, node.opset, node.loc, node.scope)
        node.check_inputs(convert, inputs)
        result = convert(node, *inputs)
    if unread := node.unread():
        raise node.unsupported(f"attribute {unread[0]!r} is not supported")
    return (result,) if isinstance(result, (Input, Constant, Node)) else tuple(result)


def _unsupported(text: str) -> str:
    """The text, in which the words "not supported" stand."""
    return text if "not supported" in text else f"{text} (not supported)"


def _table(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Lines of aligned columns under a header."""
    lines = [("op", "opset", "node", "what is missing"), *rows]
    widths = [max(len(line[c]) for line in lines) for c in range(3)]
    return tuple(
        "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1]])
        for line in lines
    )
