"""Composites opened, what they share computed once, and all grouped anew: graph kernels.

    p = softmax(x); l = log_softmax(x)              # two kernels, each with a maximum and a sum
 -> m = max(x); d = sub(x, m); e = exp(d); s = sum(e)
    p = div(e, s); l = sub(d, log(s))               # opened, then what is equal is merged
 -> p, l = fused(x, body=max_sub_exp_etc_sub)       # one kernel

An op that is one kernel hides what it computes. This pass opens those that share a step with
another op, has `cse` merge the steps, and groups in the style `stitch`. What shares nothing stays
closed: its own schedule is as good as any. After the graph kernel fusion of MindSpore: J. Zhao et
al., "AKG: Automatic Kernel Generation for Neural Processing Units", PLDI 2021, and "Apollo", MLSys
2022. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from minidlc.expr.types import f32, f64
from minidlc.graph.graph import Constant, Graph, Node, Value, apply, located, tensor_type
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.structure import constant_key, op_key
from minidlc.ops.normalization import LayerNorm, RmsNorm
from minidlc.ops.reduction import LogSoftmax, Softmax
from minidlc.support.locations import Derived
from minidlc.transform.dataflow.cse import Cse
from minidlc.transform.fusion.fuse import Fuse
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph

ROW_OPS = (Softmax, LogSoftmax, LayerNorm, RmsNorm)


@register_pass
@dataclass(frozen=True)
class GraphKernel(Pass):
    """Takes the place of `fuse`. Steps of f16 and bf16 are not opened: they are not rounded."""

    name = "graph_kernel"
    level = 2
    exact = False  # a step by itself may be rounded otherwise than inside the composite
    requires = ("decomposed",)
    max_ops: int = 32

    def run(self, graph: Graph) -> Graph:
        """The graph with composites opened where that pays, and groups as `fused` nodes."""
        shared = _sharing(graph)
        new: dict[Value, Value] = {}
        nodes: dict[Node, None] = {}
        for node in graph.nodes:
            current = with_inputs(node, new)
            if node in shared and permitted(f"open {node.op.name}", node.name, node.loc):
                current = replace(opened(current), name=node.name)
            new[node] = current
            nodes |= dict.fromkeys(nodes_made(current, nodes))
        if any(old is not now for old, now in new.items()):
            graph = regraph(graph, nodes, new)
        return Fuse(max_ops=self.max_ops, style="stitch").run(Cse().run(graph))


def _sharing(graph: Graph) -> set[Node]:
    """The composites of which some step is computed elsewhere too; refusals of the others."""
    steps, inside, existing = _Steps(), dict[Node, list[Node]](), frozenset(graph.nodes)
    for node in graph.nodes:
        steps.number(node, node)
        reason = _reason_against(node)
        if reason is None:
            inside[node] = nodes_made(opened(node), existing)
            for step in inside[node]:
                steps.number(step, node)
        elif isinstance(node.op, ROW_OPS):
            report(partial(Refusal, "open", node.name, reason, node.loc))
    shared = {n for n, made in inside.items() if any(map(steps.is_shared, made))}
    for node in (n for n in inside if n not in shared):
        reason = "no other op computes one of its steps"
        report(partial(Refusal, "open", node.name, reason, node.loc))
    return shared


@dataclass
class _Steps:
    """Numbers of values, equal for equal computations, and who computes each."""

    numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    table: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    owners: dict[int, set[Node]] = field(default_factory=dict[int, set[Node]])

    def number(self, value: Value, owner: Node) -> int:
        """The number of a value whose inputs have theirs."""
        if value not in self.numbers:
            self.numbers[value] = self.table.setdefault(self._key(value, owner), len(self.table))
        found = self.numbers[value]
        if isinstance(value, Node) and value.op.pure:
            self.owners.setdefault(found, set()).add(owner)
        return found

    def is_shared(self, value: Value) -> bool:
        """Whether several nodes compute the value."""
        return len(self.owners[self.numbers[value]]) > 1

    def _key(self, value: Value, owner: Node) -> Hashable:
        if isinstance(value, Constant):
            return constant_key(value)
        if not isinstance(value, Node) or not value.op.pure:
            return id(value)
        inputs = (None if v is None else self._input(v, owner) for v in value.inputs)
        return (op_key(value.op), *inputs)

    def _input(self, value: Value, owner: Node) -> int:
        return self.numbers[value] if value in self.numbers else self.number(value, owner)


def _reason_against(node: Node) -> str | None:
    """Why a node cannot be opened; None if it can."""
    if not isinstance(node.op, ROW_OPS):
        return f"{node.op.name} is no op on rows"
    t = tensor_type(node)
    if t.dtype not in (f32, f64):
        return f"its steps in {t.dtype} would be rounded"
    return None if t.is_static else f"{t} has symbolic sizes"


def opened(node: Node) -> Node:
    """The steps of an op on rows; the last of them."""
    x, *rest = node.inputs
    assert x is not None
    rank = tensor_type(x).rank
    with located(Derived(f"open {node.op.name}", node.loc)):
        match node.op:
            case Softmax(axis=axis):
                _, weights, total = _exponentials(x, axis % rank)
                return apply("div", weights, total)
            case LogSoftmax(axis=axis):
                distance, _, total = _exponentials(x, axis % rank)
                return apply("sub", distance, apply("log", total))
            case LayerNorm(axis=axis, epsilon=epsilon):
                axes = tuple(range(axis % rank, rank))
                distance = apply("sub", x, apply("mean", x, axes=axes))
                return _scaled(distance, axes, epsilon, rest)
            case RmsNorm(axis=axis, epsilon=epsilon):
                return _scaled(x, tuple(range(axis % rank, rank)), epsilon, rest)
            case _:
                raise AssertionError(f"{node.op.name} is not opened")


def _exponentials(x: Value, axis: int) -> tuple[Node, Node, Node]:
    """Distances from the largest of a row, their exponentials, and the sum of these."""
    distance = apply("sub", x, apply("max", x, axes=(axis,)))
    weights = apply("exp", distance)
    return distance, weights, apply("sum", weights, axes=(axis,))


def _scaled(
    distance: Value, axes: tuple[int, ...], epsilon: float, factors: Sequence[Value | None]
) -> Node:
    """Distances over the root of their mean square, times a scale, plus a bias if there is one."""
    squares = apply("mean", apply("mul", distance, distance), axes=axes)
    root = apply("sqrt", apply("add", squares, epsilon))
    result = apply("div", distance, root)
    for name, factor in zip(("mul", "add"), factors, strict=False):
        result = result if factor is None else apply(name, result, factor)
    return result
