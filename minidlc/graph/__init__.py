"""Graph IR: types, values, ops, text, verifier, interpreter (course chapter 01_graph_ir).

Reading order: types, op, value_ops, graph, literals, printer, parser, structure, verify, interpret,
fused, region, eager.
"""

from minidlc.graph.fused import Fused
from minidlc.graph.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Value,
    apply,
    bodies,
    build,
    getitem,
    located,
    results_of,
    tensor_type,
    toposort,
)
from minidlc.graph.interpret import interpret
from minidlc.graph.op import (
    Example,
    Op,
    OpKind,
    Pattern,
    evaluate,
    infer,
    op_class,
    register_op,
    registered_ops,
    unregister_op,
)
from minidlc.graph.promote import promote
from minidlc.graph.region import Region
from minidlc.graph.structure import constant_key, difference, op_key
from minidlc.graph.text import load_text, parse, print_graph, save_text, weights_of
from minidlc.graph.types import TupleType, Type, result_types
from minidlc.graph.verify import verify

__all__ = [
    "Constant",
    "Example",
    "Fused",
    "Graph",
    "Input",
    "Node",
    "Op",
    "OpKind",
    "Pattern",
    "Region",
    "TupleType",
    "Type",
    "Value",
    "apply",
    "bodies",
    "build",
    "constant_key",
    "difference",
    "evaluate",
    "getitem",
    "infer",
    "interpret",
    "load_text",
    "located",
    "op_class",
    "op_key",
    "parse",
    "print_graph",
    "promote",
    "register_op",
    "registered_ops",
    "result_types",
    "results_of",
    "save_text",
    "tensor_type",
    "toposort",
    "unregister_op",
    "verify",
    "weights_of",
]
