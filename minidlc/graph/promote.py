"""Constants that become inputs: the weights of a model that is to be trained.

    g = mc.load_onnx("model.onnx").promote(["conv1.weight"])
    weights = {c.name: c.array for c in model.constants}
    g = mc.trace(lambda x: x * 2.0 + 1.0, mc.f32[3]).promote(["c_1"])   # as print(g) names it

Reads a graph, writes one with more inputs. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.graph.graph import PROMOTE, Constant, Graph, Input, Node, Value
from minidlc.graph.inline import with_inputs
from minidlc.graph.printer import value_names
from minidlc.graph.value_ops import equality
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError, nearest


@equality(of_elements=False)
def promote(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these constants as inputs, in this order, behind the inputs it has.

    A constant is called by its own name, or as the text of the graph calls it.
    """
    expect("promote", "names", names, list, tuple, hint='["w", "b"]')
    new: dict[Value, Value] = {}
    for name in names:
        constant = constant_named(graph, name)
        if constant in new:
            raise _error(f"{name!r} stands twice in the list", None)
        new[constant] = Input(name, constant.type, constant.loc)
    inputs = (*graph.inputs, *(i for i in new.values() if isinstance(i, Input)))
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(with_inputs(node, new))
        new[node] = nodes[-1]
    return Graph(graph.name, inputs, tuple(nodes), tuple(new.get(o, o) for o in graph.outputs))


def constant_named(graph: Graph, name: str) -> Constant:
    """The constant that `promote` finds under a name; OptionError (MDLC1050) if it finds none."""
    found = [c for c in graph.constants if c.name == name]
    if len(found) > 1:
        others = ", ".join(
            t for t, c in _printed(graph).items() if c is not found[0] and c in found
        )
        text = f"{len(found)} constants of {graph.name} are named {name!r}"
        hint = f"print(g) calls the others {others}; Constant(name, array) gives a name of its own"
        raise _error(text, hint)
    if not found:
        printed = _printed(graph)
        if name not in printed:
            hint = nearest(name, printed, most=20)
            raise _error(f"{graph.name} has no constant {name!r}", hint)
        found = [printed[name]]
    if any(i.name == name for i in graph.inputs):
        raise _error(f"{graph.name} has an input {name!r} already", None)
    return found[0]


def _printed(graph: Graph) -> dict[str, Constant]:
    """The constants by the names that the text of the graph gives them."""
    return {name: v for v, name in value_names(graph).items() if isinstance(v, Constant)}


def _error(text: str, hint: str | None) -> OptionError:
    return OptionError(f"promote: {text}", hint=hint, code="MDLC1050")


PROMOTE.append(promote)
