"""Nodes that read constants only, replaced by their result.

    c = add(const(2.0), const(3.0))    ->    c = const(5.0)

The result comes from the op's own `reference`, so folding cannot mean anything else than running.
A branch whose condition is a constant takes the place of its `if_`; loops are run, never folded.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.graph import Constant, Graph, Node, Value, bodies
from minidlc.graph.inline import inlined
from minidlc.graph.op import OpKind, evaluate
from minidlc.graph.types import result_types
from minidlc.ops.control_flow import If
from minidlc.support.locations import Derived, written
from minidlc.transform.expand import expand
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import with_replaced

Known = dict[Value, "Array | tuple[Array, ...]"]


@register_pass
@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate what depends on constants only, up to results of `max_bytes`.

    Left alone: ops that are not pure, or draw random numbers, and whatever makes `reference` raise;
    it raises when run.
    """

    name = "fold_constants"
    max_bytes: int = 1 << 26

    def run(self, graph: Graph) -> Graph:
        """The graph with results in place of nodes, and no branch that is always or never taken."""
        while (opened_graph := expand(graph, _known_branch)) is not graph:
            graph = opened_graph
        known: Known = {c: c.array for c in graph.constants}
        folded: dict[Value, Value] = {}
        for node in graph.nodes:
            if any(v is not None and v not in known for v in node.inputs):
                continue
            reason = self._reason_against(node) or _evaluate(node, known)
            if reason is not None:
                report(partial(Refusal, "fold", node.name, reason, node.loc))
                continue
            if not permitted("fold", node.name, node.loc):
                del known[node]
                break
            result = known[node]
            if not isinstance(result, tuple):  # a tuple waits for its getitem
                read = (folded.get(v, v) for v in node.inputs if v is not None)
                also = written(*(v.loc for v in read))
                folded[node] = Constant(node.name, result, Derived("fold", node.loc, also))
        return with_replaced(graph, folded)

    def _reason_against(self, node: Node) -> str | None:
        if not node.op.pure:
            return f"{node.op.name} gives another result each time"
        if _draws(node):
            return f"{node.op.name} draws when the model runs"
        if node.op.kind is OpKind.CONTROL:
            return f"{node.op.name} may run for long, or without end"
        types = result_types(node.type)
        if not all(t.is_static for t in types):
            return "the size of the result is not known"
        size = sum(t.nbytes for t in types)
        return f"{size} bytes are more than {self.max_bytes}" if size > self.max_bytes else None


def _draws(node: Node) -> bool:
    """True if the op, or one in a body of it, draws random numbers."""
    return node.op.drawn or any(_draws(n) for body in bodies(node) for n in body.nodes)


def _known_branch(node: Node) -> tuple[Value, ...] | None:
    """The results of the one branch that can run; None if that is not known."""
    condition = node.inputs[0] if node.inputs else None
    if not isinstance(node.op, If) or not isinstance(condition, Constant):
        return None
    branch = node.op.then_branch if condition.array.item() else node.op.else_branch
    if not permitted(f"always {branch.name}", node.name, node.loc):
        return None
    return inlined(branch, dict(zip(branch.inputs, node.inputs[1:], strict=True)))  # pyright: ignore


def _evaluate(node: Node, known: Known) -> str | None:
    """Put the node's result into `known`, or return the reason why there is none."""
    arrays = [None if v is None else known[v] for v in node.inputs]
    try:
        result = evaluate(node.op, arrays)  # pyright: ignore[reportArgumentType]
        parts = result if isinstance(result, tuple) else (result,)
        types = tuple(TensorType(dtype(a.dtype), a.shape) for a in parts)
    except Exception as e:  # whatever the reference raises belongs to the run, not to us
        return f"its reference raises {type(e).__name__}: {e}"
    if types != result_types(node.type):
        return f"its reference returns {', '.join(map(str, types))}, not {node.type}"
    known[node] = result
    return None
