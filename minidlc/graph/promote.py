"""Constants that become inputs: the weights of a model that is to be trained.

    g = mc.load_onnx("model.onnx").promote(["conv1.weight"])
    weights = {c.name: c.array for c in model.constants}

Reads a graph, writes one with more inputs. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.graph.graph import PROMOTE, Constant, Graph, Input, Node, Value
from minidlc.graph.inline import with_inputs
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError, nearest


def promote(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these constants as inputs, in this order, behind the inputs it has."""
    expect("promote", "names", names, list, tuple, hint='["w", "b"]')
    new: dict[Value, Value] = {}
    for name in names:
        constant = _constant(graph, name)
        if constant in new:
            raise _error(f"{name!r} stands twice in the list", None)
        new[constant] = Input(name, constant.type, constant.loc)
    inputs = (*graph.inputs, *(i for i in new.values() if isinstance(i, Input)))
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(with_inputs(node, new))
        new[node] = nodes[-1]
    return Graph(graph.name, inputs, tuple(nodes), tuple(new.get(o, o) for o in graph.outputs))


def _constant(graph: Graph, name: str) -> Constant:
    found = [c for c in graph.constants if c.name == name]
    if not found:
        hint = nearest(name, (c.name for c in graph.constants), most=20)
        raise _error(f"{graph.name} has no constant {name!r}", hint)
    if len(found) > 1:
        text = f"{len(found)} constants of {graph.name} are named {name!r}"
        raise _error(text, "give each Constant a name of its own")
    if any(i.name == name for i in graph.inputs):
        raise _error(f"{graph.name} has an input {name!r} already", None)
    return found[0]


def _error(text: str, hint: str | None) -> OptionError:
    return OptionError(f"promote: {text}", hint=hint, code="MDLC1050")


PROMOTE.append(promote)
