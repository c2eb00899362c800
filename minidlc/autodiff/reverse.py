"""Reverse mode: from a graph to the graph that computes its gradients.

    g = mc.value_and_grad(loss, ["w"])              # outputs: loss, dw
    print(g)                                        # the gradient as text, node after node
    mc.grad(f)                                      # f gives no single number: takes dy as an input

Reads a graph, writes one with the same inputs. Everything else of the compiler works on it. Treated
in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from minidlc.autodiff.chain import backward
from minidlc.autodiff.shared_loops import with_loops, with_shared_loops
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Graph, Input, Node, Value, located, tensor_type
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.substitute import symbols
from minidlc.graph.value_ops import equality
from minidlc.graph.verify import verify
from minidlc.ops.gradients import filled, zeros_like
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError, nearest
from minidlc.support.locations import Derived
from minidlc.support.names import Names


def grad(graph: Graph, wrt: str | Sequence[str] | None = None) -> Graph:
    """The graph of the gradients with respect to the inputs `wrt` (default: all of real numbers).

    It takes the same inputs and gives one output for each of `wrt`, of its type and in this order;
    zeros where nothing depends on it. A single output of one element is the loss. Else each output
    of real numbers asks for an input behind the others: `dy` for one, `d` and the name of the
    output for several; what comes out is the sum of the gradients of all, weighted by these.

    Raises GradientError: MDLC1201 an op has no gradient, 1202 an input is of integers, 1203 no such
    input or none at all, 1205 a size is a symbol, 1207 no output of real numbers. Algorithm:
    Speelpenning, 1980; as a transformation of graphs Theano, 2010.
    """
    return _with_gradients("grad", graph, wrt, values=False)


def value_and_grad(graph: Graph, wrt: str | Sequence[str] | None = None) -> Graph:
    """Like `grad`; the outputs of the graph come first, then the gradients."""
    return _with_gradients("value_and_grad", graph, wrt, values=True)


@equality(of_elements=False)
def _with_gradients(
    what: str, graph: Graph, wrt: str | Sequence[str] | None, *, values: bool
) -> Graph:
    inputs = inputs_named(what, graph, wrt)
    graph = with_loops(graph)
    seeds = _seeds(what, graph)
    dys = [seeds.get(n) for n in range(len(graph.outputs))]
    names: dict[Value, str] = {}
    found = backward(graph.nodes, graph.outputs, dys, inputs, names)
    grads = [zeros_like(x) if dx is None else dx for x, dx in zip(inputs, found, strict=True)]
    asked = [dy for dy in seeds.values() if isinstance(dy, Input)]
    outputs = (*graph.outputs, *grads) if values else tuple(grads)
    names |= {dx: f"d{x.name}" for x, dx in zip(inputs, grads, strict=True)}
    for node in graph.nodes:
        names.pop(node, None)  # of the reader's own names none is changed
    by_input = dict(zip(inputs, grads, strict=True))
    made = [by_input[x] for x in last_used_first(graph, inputs)]
    all_inputs = (*graph.inputs, *asked)
    return assembled(f"{graph.name}_grad", all_inputs, (*graph.nodes, *made), outputs, names)


def last_used_first(graph: Graph, inputs: Iterable[Input]) -> list[Input]:
    """The inputs in the order in which a walk backwards is done with them.

    In this order gradients are computed, so that what only one of them needs is not alive for long.
    """
    first_use: dict[Value | None, int] = {}
    for n, node in enumerate(graph.nodes):
        for v in node.inputs:
            first_use.setdefault(v, n)
    return sorted(inputs, key=lambda x: first_use.get(x, -1), reverse=True)


def inputs_named(what: str, graph: Graph, wrt: str | Sequence[str] | None) -> list[Input]:
    """The inputs of these names, checked: they are there, once, and of real numbers."""
    expect(what, "graph", graph, Graph, hint=_how_to_get_a_graph(what, graph))
    if open_sizes := symbols(graph):
        text = (
            f"{what}: {graph.name} has sizes that are not known: {', '.join(map(str, open_sizes))}"
        )
        hint = "load or trace it with numbers: mc.load_onnx(path, shapes={…})"
        raise GradientError(text, hint=hint, code="MDLC1205")
    by_name = {i.name: i for i in graph.inputs}
    if wrt is None:
        found = [i for i in graph.inputs if i.type.dtype.is_float]
        if not found:
            text = f"{what}: {graph.name} has no input of real numbers"
            hint = "g.promote([…]) turns constants into inputs"
            raise GradientError(text, hint=hint, code="MDLC1203")
        return found
    expect(what, "wrt", wrt, str, list, tuple, hint='["w", "b"]')
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    if not names:
        hint = "leave wrt out: then it is all inputs of real numbers"
        raise GradientError(f"{what}: wrt names no input", hint=hint, code="MDLC1203")
    for n, name in enumerate(names):
        if name not in by_name:
            text = f"{what}: {graph.name} has no input {name!r}"
            raise GradientError(text, hint=nearest(name, by_name), code="MDLC1203")
        if name in names[:n]:
            raise GradientError(f"{what}: {name!r} stands twice in wrt", code="MDLC1203")
        if not by_name[name].type.dtype.is_float:
            text = f"{what}: input {name!r} is {by_name[name].type}: no derivative by integers"
            hint = "leave it out of wrt, or make it of real numbers: f32"
            raise GradientError(text, loc=by_name[name].loc, hint=hint, code="MDLC1202")
    return [by_name[name] for name in names]


def _how_to_get_a_graph(what: str, thing: object) -> str:
    """What to do with what is no graph."""
    if hasattr(type(thing), "source"):  # an executable, which this module does not know
        return f"mc.{what}(exe.source): the graph that was compiled"
    if isinstance(thing, str):
        return f"mc.{what}(mc.parse(text)), mc.{what}(mc.load_onnx(path))"
    return f"mc.{what}(mc.trace(fn, mc.f32[4, 8])): trace makes a graph of a function"


def _seeds(what: str, graph: Graph) -> dict[int, Value]:
    """How the loss changes with each output: by 1 if it is the loss, else an input says so."""
    smooth = {n: tensor_type(o) for n, o in enumerate(graph.outputs) if _is_smooth(o)}
    if not smooth:
        types = ", ".join(str(o.type) for o in graph.outputs) or "none"
        text = f"{what}: no output of {graph.name} is of real numbers: {types}"
        raise GradientError(text, hint="return a loss of f32", code="MDLC1207")
    if is_loss(graph):
        with located(Derived("gradient", graph.outputs[0].loc)):
            return {0: filled(1, smooth[0])}
    taken = Names(i.name for i in graph.inputs)
    wanted = {n: "dy" if len(smooth) == 1 else f"d{graph.outputs[n].name}" for n in smooth}
    return {n: Input(taken.fresh(wanted[n]), type) for n, type in smooth.items()}


def is_loss(graph: Graph) -> bool:
    """True for a graph with one output, of one real number."""
    return len(graph.outputs) == 1 and all(
        _is_smooth(o) and tensor_type(o).size == 1 for o in graph.outputs
    )


def _is_smooth(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def assembled(
    name: str,
    inputs: Sequence[Input],
    order: Sequence[Value],
    outputs: Sequence[Value],
    names: Mapping[Value, str],
) -> Graph:
    """The graph of what the outputs need: what comes first in `order` is computed first.

    `names` renames nodes that have no name but that of their op.
    """
    if shared := with_shared_loops([*order, *outputs]):
        order, outputs = ([shared.get(v, v) for v in values] for values in (order, outputs))
        names = {shared.get(v, v): name for v, name in names.items()}
    needed: dict[Node, None] = {}
    for output in outputs:
        needed |= dict.fromkeys(nodes_made(output, needed))
    placed: dict[Node, None] = {}
    for value in (*order, *outputs):
        if value in needed:
            placed |= dict.fromkeys(nodes_made(value, placed))
    new: dict[Value, Value] = {}
    for node in placed:
        current = with_inputs(node, new)
        if node in names and node.name == node.op.name:
            current = replace(current, name=names[node])
        new[node] = current
    moved = tuple(cast(Node, new[n]) for n in placed)
    graph = Graph(name, tuple(inputs), moved, tuple(new.get(o, o) for o in outputs))
    verify(graph)
    return graph
