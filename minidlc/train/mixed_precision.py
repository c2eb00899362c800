"""Mixed precision: products in f16 or bf16, sums and functions in f32, as a table of ops says.

    g = mc.train.autocast(loss, "f16")              # same inputs and outputs, casts in between
    print(g)                                        # y: f16[8, 4] = matmul(cast, cast_1)

Reads a graph, writes a graph. Parameters stay inputs of f32, the masters that an optimiser updates;
differentiated, the casts turn round, so the gradients of the masters are f32 too (Micikevicius et
al., "Mixed Precision Training", 2018). Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minidlc.autodiff.reverse import assembled
from minidlc.expr.types import DType, TensorType, bf16, f16, f32
from minidlc.graph.graph import Graph, Node, Value, apply, build, located, tensor_type
from minidlc.graph.types import result_types
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError, nearest
from minidlc.support.locations import Derived, caller

LOW_TYPES = {"f16": f16, "bf16": bf16}

PRODUCTS = frozenset({"attention", "conv", "conv_transpose", "einsum", "gemm", "matmul"})
"""Half of the bytes, and on machines with such units twice the speed or more; they sum in f32."""

FOLLOWERS = frozenset(
    {
        # move or choose elements
        "clip", "concat", "depth_to_space", "dropout", "expand", "flatten", "gather", "getitem",
        "global_max_pool", "identity", "max", "max_pool", "maximum", "min", "minimum", "pad",
        "reshape", "slice", "space_to_depth", "squeeze", "stop_gradient", "tile", "transpose",
        "trilu", "unsqueeze", "where",
        # compare
        "equal", "greater", "greater_or_equal", "less", "less_or_equal",
        # one rounding for each element, of values that products gave
        "abs", "add", "average_pool", "elu", "gelu", "hard_sigmoid", "hard_swish", "leaky_relu",
        "mul", "neg", "relu", "sigmoid", "sub", "tanh",
    }
)  # fmt: skip
"""They take the type of what they read. All other ops, sums and exp first of all, keep theirs."""


def autocast(graph: Graph, to: str) -> Graph:
    """The graph with its products in `to`, "f16" or "bf16"; inputs and outputs keep their types.

    Between products values stay in `to`: a follower that reads one is computed there, and what
    comes straight from inputs and constants, as biases do, is rounded for it; beside a value that
    was computed in f32 it is f32. Behind the last product, where the loss is, all is f32: squares
    of small errors would be 0. Each value is cast once; f64, and what branches and loops hold, is
    left alone. Raises TrainError (MDLC1257) for another type.
    """
    expect("autocast", "graph", graph, Graph)
    expect("autocast", "to", to, str, hint="'f16' or 'bf16'")
    low = LOW_TYPES.get(to)
    if low is None:
        hint = nearest(to, LOW_TYPES)
        text = f"autocast: {to!r} is no type to compute in, expected 'f16' or 'bf16'"
        raise TrainError(text, loc=caller(), hint=hint, code="MDLC1257")
    walk = _Walk(low, _before_products(graph))
    for node in graph.nodes:
        walk.visit(node)
    if not walk.casts:
        return graph
    outputs = tuple(walk.as_type(o, tensor_type(o).dtype) for o in graph.outputs)
    return assembled(graph.name, graph.inputs, [*walk.new.values()], outputs, {})


def _before_products(graph: Graph) -> set[Value]:
    """The values that some product needs."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        if node in found or node.op.name in PRODUCTS:
            found.update(v for v in node.inputs if v is not None)
    return found


@dataclass
class _Walk:
    """What became of each value so far, and the casts that were made."""

    low: DType
    before_products: set[Value]
    new: dict[Value, Value] = field(default_factory=dict[Value, Value])
    casts: dict[tuple[Value, DType], Value] = field(
        default_factory=dict[tuple[Value, DType], Value]
    )
    full: set[Value] = field(default_factory=set[Value])  # computed in f32: only a product rounds

    def visit(self, node: Node) -> None:
        """Make the node again, on values of the types that the table gives it."""
        inputs = [None if v is None else self.new.get(v, v) for v in node.inputs]
        follows = node.op.name in FOLLOWERS and node in self.before_products
        reads_full = any(v in self.full for v in inputs)
        low = follows and not reads_full and any(map(self._is_low, inputs))
        wanted = self.low if low or node.op.name in PRODUCTS else f32
        read = [
            v if old is None or v is None or _element(old) != f32 else self._cast(v, wanted)
            for old, v in zip(node.inputs, inputs, strict=True)
        ]
        made = node
        if any(new is not old for new, old in zip(read, node.inputs, strict=True)):
            made = build(node.op, read, name=node.name, loc=node.loc)
        self.new[node] = made
        if (reads_full or not follows) and any(t.dtype == f32 for t in result_types(made.type)):
            self.full.add(made)

    def as_type(self, old: Value, element: DType) -> Value:
        """What became of a value, in this type."""
        return self._cast(self.new.get(old, old), element)

    def _cast(self, v: Value, to: DType) -> Value:
        if _element(v) == to:
            return v
        if (v, to) not in self.casts:
            with located(Derived("autocast", v.loc)):
                self.casts[v, to] = apply("cast", v, to=to)
        return self.casts[v, to]

    def _is_low(self, v: Value | None) -> bool:
        return v is not None and _element(v) == self.low


def _element(v: Value) -> DType | None:
    """The element type of a tensor; None for the results of an op with several."""
    return v.type.dtype if isinstance(v.type, TensorType) else None
