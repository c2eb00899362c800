"""A graph → the steps of one run: kernel calls, branches and loops, and where each operand lies.

    program = lower_graph(g, target, fast=True, max_bytes=8 << 30)
    for step in program.steps:                      # k0_conv(input 0, constant 0, arena 0)
        print(step)

Views (reshape, flatten, a slice in one piece) get no kernel: they are other names of the same
bytes. Nor does a concat that its producers can write, each its part. A result takes the place of an
input that nobody reads again, if the loops allow it (loop/in_place.py). Outputs are arrays of the
caller's, never part of the arena; an output that is an input, a constant, a view or another output
is copied. Outputs over inputs (`donated`) are written there as soon as the old value is needed no
more (lower/updates.py). Bodies of branches and loops are lowered like the graph itself, with other
places for their inputs and outputs. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minidlc.codegen.control import (
    AnyStep,
    Branch,
    Commit,
    Flag,
    KernelCall,
    Operand,
    Repeat,
    Steps,
    placed,
    renamed,
)
from minidlc.expr.types import Array
from minidlc.graph import (
    Constant,
    Graph,
    Input,
    Node,
    OpKind,
    Value,
    bodies,
    result_types,
    tensor_type,
)
from minidlc.loop.in_place import in_place
from minidlc.loop.interpret import interpret
from minidlc.lower.kernels import LoweredKernel, Tuned, lower_copy, lower_node
from minidlc.lower.lifetimes import check_lifetimes
from minidlc.lower.memory import plan_memory
from minidlc.lower.packing import Packing, RunLoops
from minidlc.lower.places import NOWHERE, Memory, Places, resolved
from minidlc.lower.positions import RangeCheck, checks_of
from minidlc.lower.updates import Updates, updates_early
from minidlc.ops.control_flow import If, Loop
from minidlc.runtime.module import PositionCheck
from minidlc.runtime.plan import MemoryPlan, Update
from minidlc.support.errors import LoweringError
from minidlc.support.extension import overridden
from minidlc.support.names import Names, identifier
from minidlc.target import Target

_SOON = 1 << 16  # runs: a loop that cannot have more does not ask whether to stop


@dataclass(frozen=True)
class Program:
    """Everything code generation and the runtime need of a graph.

    Behind the outputs the entry takes two arrays more: an i64 for each of the `checks`, and an i64
    that stops loops.
    """

    graph: Graph
    steps: Steps  # kernels by name
    kernels: tuple[LoweredKernel, ...]  # in execution order, those of branches and bodies included
    plan: MemoryPlan
    constants: Array = field(repr=False)  # one block of bytes
    checks: tuple[PositionCheck, ...] = ()
    free: frozenset[Node] = frozenset()  # nodes without steps: their bytes lie where others do
    donated: Mapping[int, int] = field(default_factory=dict[int, int])  # output → input it is over

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of the kernels; no two are equal."""
        return tuple(kernel.name for kernel in self.kernels)

    @property
    def stop(self) -> Operand:
        """Where a call that has lost patience tells the entry to return."""
        return _stop(len(self.graph.outputs))

    @property
    def outline(self) -> str:
        """The steps as text, if there are branches or loops."""
        straight = all(isinstance(step, KernelCall | Flag | Commit) for step in self.steps)
        return "" if straight else "\n".join(map(str, self.steps))

    def calls(self, symbols: Mapping[str, str]) -> Steps:
        """The steps with the symbol of each kernel in place of its name: what the entry calls."""
        return renamed(self.steps, symbols.__getitem__)


def lower_graph(
    graph: Graph,
    target: Target,
    *,
    fast: bool,
    max_bytes: int,
    workspace_bytes: Callable[[LoweredKernel], int],
    run_loops: RunLoops = interpret,
    refused: Mapping[str, str] | None = None,
    donated: Mapping[int, int] | None = None,
    tuned: Tuned | None = None,
) -> Program:
    """Lower every node, plan the memory, place the operands.

    `workspace_bytes` says how much scratch a kernel needs (code generation knows), `run_loops`
    runs the loops that pack constants, `refused` says by name of a kernel what code generation
    could not take, `donated` by number which outputs go over which inputs, `tuned` which schedule
    of a kernel was found to be best. Raises LoweringError (MDLC0707) for symbolic dims,
    MemoryLimitError above `max_bytes`, CallError (MDLC0909) for a constant position that is out of
    range.
    """
    _require_static(graph)
    donated = donated or {}
    graph = updates_early(graph, donated)
    status, packing = len(graph.outputs), Packing.of(graph, run_loops)
    builder = _Builder(target, fast, workspace_bytes, status, packing, refused or {}, tuned)
    steps = builder.whole(graph, donated)
    memory = builder.memory
    check_lifetimes(steps, memory.requests, {k.name: len(k.inputs) for k in builder.kernels})
    constants, offsets = memory.block()
    packed = packing.within(constants, dict(zip(memory.constants, offsets, strict=True)))
    kernels = tuple(kernel.with_inputs(packed) for kernel in builder.kernels)
    notes = memory.lying(), tuple(memory.steps), tuple(builder.updates)
    plan = plan_memory(memory.requests, max_bytes, constants.nbytes, *notes)

    def place(operand: Operand) -> Operand:
        return resolved(operand, plan, offsets)

    checks, free = tuple(builder.checks), frozenset(builder.free)
    return Program(graph, placed(steps, place), kernels, plan, constants, checks, free, donated)


def _require_static(graph: Graph) -> None:
    for node in graph.nodes:
        for body in bodies(node):
            _require_static(body)
    for value in (*graph.inputs, *graph.nodes):
        if not all(t.is_static for t in result_types(value.type)):
            raise LoweringError(
                f"{value.name}: {value.type} has symbolic dims; machine code needs numbers",
                loc=value.loc,
                hint='give them at import: shapes={"N": 1}',
                code="MDLC0707",
            )


@dataclass
class _Builder:
    """The steps of a program in order; operands name buffers by number until the plan is made."""

    target: Target
    fast: bool
    workspace_bytes: Callable[[LoweredKernel], int]
    status: int  # number of the output array that takes what checks find
    packing: Packing
    refused: Mapping[str, str]
    tuned: Tuned | None = None
    memory: Memory = field(default_factory=Memory)
    names: Names = field(default_factory=Names)
    kernels: list[LoweredKernel] = field(default_factory=list[LoweredKernel])
    checks: list[PositionCheck] = field(default_factory=list[PositionCheck])
    free: set[Node] = field(default_factory=set[Node])
    loops: int = 0
    updates: list[Update] = field(default_factory=list[Update])

    def whole(self, graph: Graph, donated: Mapping[int, int]) -> Steps:
        """The steps of the program. Where the first writes into an input stands a Commit."""
        inputs = {i: Operand("input", k) for k, i in enumerate(graph.inputs)}
        outputs = [
            Operand("input", donated[k]) if k in donated else Operand("output", k)
            for k in range(len(graph.outputs))
        ]
        updates = Updates.of(graph, donated)
        places = Places(self.memory, graph, inputs, outputs, updates)
        checks = checks_of(graph)
        steps: list[AnyStep] = []
        for node in graph.nodes:
            untouched = not places.updated
            made = list(self.of(node, places, checks[node]))
            if untouched and places.updated:
                kernel = 0 if node.op.kind is OpKind.CONTROL else len(made) - 1
                made.insert(kernel, self.commit())
            steps += made
        late = [(value, to) for value, to in places.copied if to.space == "input"]
        fresh = [(value, to) for value, to in places.copied if to.space != "input"]
        steps += [self.copy(value, places.of(value), to) for value, to in fresh]
        if late and not places.updated:
            steps.append(self.commit())
        steps += self.hand_over([v for v, _ in late], places, [to for _, to in late])
        self.updates += updates.found(places.updated, places.kept)
        return tuple(steps)

    def graph(
        self, graph: Graph, inputs: Mapping[Input, Operand], outputs: Sequence[Operand | None]
    ) -> tuple[Places, Steps]:
        """The steps of a body, and where its values lie."""
        places = Places(self.memory, graph, inputs, outputs)
        checks = checks_of(graph)
        steps = [step for node in graph.nodes for step in self.of(node, places, checks[node])]
        steps += [self.copy(value, places.of(value), to) for value, to in places.copied]
        return places, tuple(steps)

    def of(self, node: Node, places: Places, checks: Sequence[RangeCheck]) -> Iterator[AnyStep]:
        """The steps of one node."""
        match node.op:
            case If():
                yield self.branch(node, node.op, places)
            case Loop():
                yield from self.loop(node, node.op, places)
            case _ if places.sharing.is_free(node):
                self.free.add(node)
            case _:
                yield from self.node(node, places, checks)

    def commit(self) -> Commit:
        """Inputs are written from here on; all checks are behind us."""
        return Commit(self.status, len(self.checks))

    def node(self, node: Node, places: Places, checks: Sequence[RangeCheck]) -> Iterator[AnyStep]:
        """The kernel of a node, behind the checks of the positions it reads."""
        for check in checks:
            found = self.memory.buffer("check", 8)
            kernel = self.lowered(check.node)
            yield self.step(kernel, [places.of(v) for v in kernel.inputs], [found])
            yield Flag(self.memory.use(found), self.status, len(self.checks))
            self.checks.append(check.fault)
        kernel = self.lowered(node)
        inputs = [places.of(v) for v in kernel.inputs]
        results = [
            places.define(node, i, kernel.name, type, over)
            for i, (type, over) in enumerate(
                zip(kernel.results, _overwritable(kernel), strict=True)
            )
        ]
        yield self.step(kernel, inputs, results)

    def lowered(self, node: Node) -> LoweredKernel:
        """A node as a kernel with a name of its own."""
        name = self.names.fresh(identifier(node.name))
        refused = self.refused.get(name, "")
        return lower_node(
            node,
            name,
            self.target,
            fast=self.fast,
            packing=self.packing,
            refused=refused,
            tuned=self.tuned,
        )

    def copy(self, value: Value, source: Operand, to: Operand) -> KernelCall:
        """Copy the bytes of a value from one place to another."""
        name = self.names.fresh(identifier(f"copy_{value.name}"))
        refused = self.refused.get(name, "")
        kernel = lower_copy(value, name, self.target, fast=self.fast, refused=refused)
        return self.step(kernel, [source], [to])

    def step(
        self, kernel: LoweredKernel, inputs: Sequence[Operand], results: Sequence[Operand]
    ) -> KernelCall:
        """One kernel call, at a time of its own."""
        operands = tuple(map(self.memory.use, (*inputs, *results)))
        scratch = self.workspace_bytes(kernel)
        workspace = NOWHERE
        if scratch:
            workspace = self.memory.buffer(f"{kernel.name}.workspace", scratch)
        self.memory.pass_time(kernel.name)
        self.kernels.append(kernel)
        return KernelCall(kernel.name, operands, workspace)

    def branch(self, node: Node, op: If, places: Places) -> Branch:
        """Both branches write the same results. They never run together, so they share scratch."""
        condition, *captures = (places.of(v) for v in node.inputs if v is not None)
        self.memory.use(condition)
        results = [
            places.define(node, i, node.name, t) for i, t in enumerate(result_types(node.type))
        ]
        self.memory.pass_time(node.name)

        def steps(body: Graph) -> Steps:
            return self.graph(body, dict(zip(body.inputs, captures, strict=True)), results)[1]

        return Branch(condition, steps(op.then_branch), steps(op.else_branch))

    def loop(self, node: Node, op: Loop, places: Places) -> Iterator[AnyStep]:
        """The state lies where the results will be; each run reads it, then puts the next there."""
        memory = self.memory
        trips, start = (None if v is None else places.of(v) for v in node.inputs[:2])
        state, scanned, captures = op.parts([v for v in node.inputs[2:] if v is not None])
        results = [
            places.define(node, i, node.name, t) for i, t in enumerate(result_types(node.type))
        ]
        for value, to in zip(state, results, strict=False):
            yield self.copy(value, places.of(value), to)
        begin, number = memory.time, self.loops
        self.loops += 1
        for operand in (trips, start, *results):
            _ = operand and memory.use(operand)
        counter, flag = memory.buffer(f"{node.name}.run", 8), memory.buffer(f"{node.name}.go", 1)
        memory.pass_time(node.name)
        rows = [
            _row(places.of(x), number, tensor_type(x).nbytes // max(1, op.trips or 0))
            for x in scanned
        ]
        given = [counter, flag, *results[: op.carried], *rows, *map(places.of, captures)]
        stacks = [
            _row(to, number, tensor_type(y).nbytes)
            for to, y in zip(results[op.carried :], op.body.outputs[1 + op.carried :], strict=True)
        ]
        inputs = dict(zip(op.body.inputs, given, strict=True))
        inside, steps = self.graph(op.body, inputs, [*[None] * (1 + op.carried), *stacks])
        following = op.body.outputs[1 : 1 + op.carried]
        steps += tuple(self.hand_over(following, inside, results[: op.carried]))
        proceed = None if start is None else memory.use(inside.of(op.body.outputs[0]))
        memory.end_loop(begin)
        limit = op.trips if trips is None else trips
        stop = None if _is_short(node, op) else _stop(self.status)
        yield Repeat(number, limit, start, proceed, counter, flag, steps, stop)

    def hand_over(
        self, values: Sequence[Value], inside: Places, state: Sequence[Operand]
    ) -> Iterator[AnyStep]:
        """Copy what a run computed to where the next one, or the next call, reads it.

        Values that change places (a, b = b, a) go through a buffer: no copy may overwrite what a
        later one reads.
        """
        moves: list[tuple[Value, Operand, Operand]] = []
        for value, to in zip(values, state, strict=True):
            source = inside.of(value)
            if source == to or not tensor_type(value).nbytes:
                continue
            if any((source.space, source.index) == (s.space, s.index) for s in state):
                between = self.memory.buffer(f"{value.name}.next", tensor_type(value).nbytes)
                yield self.copy(value, source, between)
                source = between
            moves.append((value, source, to))
        for value, source, to in moves:
            yield self.copy(value, source, to)


def _overwritable(kernel: LoweredKernel) -> Iterator[list[Value]]:
    """For each result the inputs that it may overwrite; none where a reader's `lower` runs."""
    pairs = {} if overridden("lower") else in_place(kernel.loops)
    names = [p.name for p in kernel.loops.params]
    inputs = dict(zip(names, kernel.inputs, strict=False))
    for result in names[len(inputs) :]:
        yield [inputs[name] for name in pairs.get(result, ())]


def _stop(outputs: int) -> Operand:
    """The second of the two arrays that the entry takes behind the outputs."""
    return Operand("output", outputs + 1)


def _is_short(node: Node, op: Loop) -> bool:
    """True if so few runs are possible that nobody will want to stop the loop."""
    most = node.inputs[0]
    limit = most.array.item() if isinstance(most, Constant) else op.trips
    return limit is not None and limit <= _SOON


def _row(stack: Operand, loop: int, nbytes: int) -> Operand:
    """The part of a stack of rows that belongs to the run of a loop."""
    return replace(stack, moves=(*stack.moves, (loop, nbytes)))
