"""Both levels of a compiled model on one page: the calls of one run, and the loops of each kernel.

    print(exe.module)
    # def main(x: f32[1, 8]):
    #     w: f32[8, 3] = constant("w")
    #     h: f32[1, 3] = matmul_relu(x, w)
    #     return h
    # def matmul_relu(x: f32[1, 8], w: f32[8, 3], relu: f32[1, 3]): …

The text is Python by its syntax; branches and loops of the model are `if` and `for`. A comment over
each kernel says which nodes it computes. Reads a Program. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from minidlc.codegen.control import (
    AnyStep,
    Branch,
    Commit,
    Flag,
    KernelCall,
    Operand,
    Repeat,
    Steps,
)
from minidlc.graph import Constant, Fused, Graph, Node, Value, bodies, result_types
from minidlc.graph.literals import write_attribute
from minidlc.lower import LoweredKernel, Program
from minidlc.ops.control_flow import If, Loop
from minidlc.ops.movement import GetItem
from minidlc.support.locations import OnnxLoc, written
from minidlc.support.names import Names, identifier

_INDENT = "    "


@dataclass(frozen=True)
class ModuleText:
    """`str` of it is the page; `main` and `kernels` are its parts."""

    program: Program = field(repr=False)

    @property
    def main(self) -> str:
        """The calls of one run."""
        return "\n".join(_Main(self.program).function())

    @property
    def kernels(self) -> tuple[str, ...]:
        """The loop function of each kernel under a comment that says what it computes."""
        return tuple(map(_kernel, self.program.kernels))

    def __str__(self) -> str:
        return "\n\n\n".join((self.main, *(text.rstrip() for text in self.kernels))) + "\n"


def _kernel(kernel: LoweredKernel) -> str:
    """The loops of a kernel, above them its nodes and where these came from."""
    origin = kernel.origin
    if kernel.is_copy:
        rows = [f"# copies {origin.name}"]
    elif isinstance(origin, Node) and isinstance(origin.op, Fused):
        rows = [_comment(node) for node in origin.op.body.nodes]
    else:
        rows = [_comment(origin)]
    return "\n".join([*rows, str(kernel.loops)])


def _comment(value: Value) -> str:
    what = value.op.name if isinstance(value, Node) else "value"
    places = "; ".join(map(_place, written(value.loc)))
    return f"# {what} {value.name}: {value.type}" + (f", from {places}" if places else "")


def _place(place: object) -> str:
    if isinstance(place, OnnxLoc) and place.op_type:
        return f"{place.op_type} {place.node!r} of {place.model}"
    return str(place)


class _Main:
    """Writes the function `main`: a line for each step, in the order in which they run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kernels = {kernel.name: kernel for kernel in program.kernels}
        views = {node.op.name for node in _nodes(program.graph) if node in program.free}
        words = ("main", "constant", "count", "range", "raise_if", "empty")
        self.taken = Names([*words, *self.kernels, *views])
        self.names: dict[Value, Sequence[str]] = {}  # one for each result
        self.at: dict[Operand, str] = {}  # what copies are called, by place
        self.lines: list[str] = []
        self.depth = 1

    def function(self) -> list[str]:
        """The whole text."""
        graph = self.program.graph
        params = [f"{self.define(i)[0]}: {i.type}" for i in graph.inputs]
        for constant in _constants(self.program):
            (name,) = self.define(constant)
            places = "; ".join(map(_place, written(constant.loc)))
            comment = f"  # {places}" if places else ""
            self.say(f"{name}: {constant.type} = constant({constant.name!r}){comment}")
        steps = (step for step in self.program.steps if not isinstance(step, Commit))
        rest = self.nodes(graph, steps)
        copies = self.copies(rest, {})
        over = self.program.donated
        results: list[str] = []
        for k, value in enumerate(graph.outputs):
            place = Operand("input", over[k]) if k in over else Operand("output", k)
            results.append(copies.get(place, self.name(value)))
        self.say(f"return {', '.join(results)}")
        return [f"def main({', '.join(params)}):", *self.lines]

    def say(self, text: str) -> None:
        """One line."""
        self.lines.append(_INDENT * self.depth + text)

    def fresh(self, name: str) -> str:
        """A name that nothing has yet."""
        return self.taken.fresh(identifier(name))

    def define(self, value: Value) -> Sequence[str]:
        """New names for the results of a value."""
        count = len(result_types(value.type))
        numbered = [value.name] if count == 1 else [f"{value.name}_{n}" for n in range(count)]
        self.names[value] = [self.fresh(name) for name in numbered]
        return self.names[value]

    def name(self, value: Value | None) -> str:
        """What a value is called."""
        return "None" if value is None else self.names[value][0]

    def assign(self, value: Value, expression: str, comment: str = "") -> None:
        """`y: f32[4] = expression`; of several results the types come first."""
        names = self.define(value)
        pairs = zip(names, result_types(value.type), strict=True)
        typed = [f"{name}: {type}" for name, type in pairs]
        if len(names) == 1:
            self.say(f"{typed[0]} = {expression}{comment}")
        else:
            self.say(f"{'; '.join(typed)}; {', '.join(names)} = {expression}{comment}")

    # the steps of a graph or of a body

    def nodes(self, graph: Graph, steps: Iterator[AnyStep]) -> Iterator[AnyStep]:
        """Nodes in order, each with the steps that run it; returns the rest: copies of results."""
        for node in graph.nodes:
            match node.op:
                case GetItem(index=index):
                    source = node.inputs[0]
                    assert source is not None
                    self.names[node] = [self.names[source][index]]
                case If():
                    self.branch(node, node.op, steps)
                case Loop():
                    self.loop(node, node.op, steps)
                case _ if node in self.program.free:
                    self.assign(node, self.view(node), "  # the same bytes")
                case _:
                    self.call(node, steps)
        return steps

    def view(self, node: Node) -> str:
        """`reshape(x, shape=(4, 2))`."""
        written = [self.name(value) for value in node.inputs]
        for name, value in node.op.attributes().items():
            written.append(f"{name}={write_attribute(value, str)}")
        return f"{node.op.name}({', '.join(written)})"

    def call(self, node: Node, steps: Iterator[AnyStep]) -> None:
        """The kernel of a node, and before it the checks of the positions it reads."""
        found = ""
        for step in steps:
            match step:
                case Flag(number=number):
                    self.say(f"raise_if({found})  # {self.program.checks[number].message}")
                case KernelCall(symbol=symbol):
                    kernel = self.kernels[symbol]
                    assert isinstance(kernel.origin, Node), "copies stand behind the nodes"
                    self.assign(kernel.origin, self.expression(kernel))
                    if kernel.origin is node:
                        return
                    found = self.name(kernel.origin)
                case _:
                    raise AssertionError("a branch or a loop belongs to a node of its own")

    def expression(self, kernel: LoweredKernel) -> str:
        """`kernel(x, w)`."""
        return f"{kernel.name}({', '.join(map(self.name, kernel.inputs))})"

    def copies(self, steps: Iterator[AnyStep], called: Mapping[Operand, str]) -> dict[Operand, str]:
        """Lines of copies; returns place → name. `called` names the places that have one."""
        made: dict[Operand, str] = {}
        for step in steps:
            assert isinstance(step, KernelCall)
            kernel = self.kernels[step.symbol]
            source, target = step.operands
            name = called.get(target) or self.fresh(step.symbol)
            given = made.get(source) or self.name(kernel.origin)
            self.say(f"{name}: {kernel.origin.type} = {step.symbol}({given})")
            made[target] = name
        return made

    # control flow

    def inner(self, body: Graph, given: Sequence[str]) -> None:
        """Inside a body its inputs are called what they stand for."""
        self.names.update(zip(body.inputs, ([name] for name in given), strict=True))

    def branch(self, node: Node, op: If, steps: Iterator[AnyStep]) -> None:
        """`if c:` with the steps of one branch, `else:` with those of the other."""
        step = next(steps)
        assert isinstance(step, Branch)
        condition, *captures = map(self.name, node.inputs)
        results = self.define(node)
        self.side(f"if {condition}:", op.then_branch, captures, step.then_steps, results)
        self.side("else:", op.else_branch, captures, step.else_steps, results)

    def side(
        self, head: str, body: Graph, captures: Sequence[str], steps: Steps, results: Sequence[str]
    ) -> None:
        """One branch: its steps, then the results under the names that the node has for them."""
        self.say(head)
        self.depth += 1
        self.inner(body, captures)
        rest = list(self.nodes(body, iter(steps)))
        copied = dict(
            zip(map(self.source, rest), self.copies(iter(rest), {}).values(), strict=True)
        )
        for name, value in zip(results, body.outputs, strict=True):
            self.say(f"{name}: {value.type} = {copied.get(value, self.name(value))}")
        self.depth -= 1

    def source(self, step: AnyStep) -> Value:
        """What a step copies."""
        assert isinstance(step, KernelCall)
        return self.kernels[step.symbol].origin

    def loop(self, node: Node, op: Loop, steps: Iterator[AnyStep]) -> None:
        """The state is copied, then the body runs and hands it on from run to run."""
        results = self.define(node)
        state, stacks = results[: op.carried], results[op.carried :]
        places: dict[Operand, str] = {}
        for name in state:
            step = next(steps)
            assert isinstance(step, KernelCall)
            places |= self.copies(iter([step]), {step.operands[-1]: name})
        for name, type in zip(stacks, result_types(node.type)[op.carried :], strict=True):
            self.say(f"{name}: {type} = empty({type})")
        repeat = next(steps)
        assert isinstance(repeat, Repeat)
        trips, start, *rest = node.inputs
        count = self.fresh("i")
        go = "True" if start is None else self.fresh("go")
        if start is not None:
            self.say(f"{go} = {self.name(start)}")
        limit = repeat.trips if isinstance(repeat.trips, int) else self.name(trips)
        self.say(f"for {count} in {'count()' if repeat.trips is None else f'range({limit})'}:")
        self.depth += 1
        if start is not None:
            self.say(f"if not {go}: break")
        _, scanned, captures = op.parts([v for v in rest if v is not None])
        rows = [f"{self.name(x)}[{count}]" for x in scanned]
        self.inner(op.body, [count, go, *state, *rows, *map(self.name, captures)])
        left = self.nodes(op.body, iter(repeat.steps))
        if start is not None:
            self.say(f"{go} = {self.name(op.body.outputs[0])}")
        for name, value in zip(stacks, op.body.outputs[1 + op.carried :], strict=True):
            self.say(f"{name}[{count}] = {self.name(value)}")
        self.copies(left, places)
        if self.lines[-1].endswith(":"):
            self.say("pass")
        self.depth -= 1


def _constants(program: Program) -> list[Constant]:
    """The constants that kernels, views, control flow and results read, in order of first use."""
    read: list[Value | None] = [v for kernel in program.kernels for v in kernel.inputs]
    read += program.graph.outputs
    for node in _nodes(program.graph):
        if isinstance(node.op, (If, Loop)) or node in program.free:
            read += [*node.inputs, *(o for body in bodies(node) for o in body.outputs)]
    return list(dict.fromkeys(v for v in read if isinstance(v, Constant)))


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the branches and loop bodies in it."""
    for node in graph.nodes:
        yield node
        if isinstance(node.op, (If, Loop)):
            for body in bodies(node):
                yield from _nodes(body)
