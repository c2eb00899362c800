"""Ops at points where they have a derivative: the examples of each in f64, and random shapes.

    for case in cases(op_class("relu")):            # f64 for f32, ordinary numbers for NaN and inf
        case.graph, case.gradient, case.gradients   # the loss, mc.grad of it, its numbers

checks.py says what must hold of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.expr.types import DType, TensorType, f64
from minidlc.graph import (
    Example,
    Graph,
    Input,
    Op,
    TupleType,
    Value,
    apply,
    build,
    evaluate,
    getitem,
    interpret,
)
from minidlc.graph.graph import Constant, Node
from minidlc.ops.composite_reduction import CompositeReduction
from minidlc.ops.control_flow import Loop
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.reduction import AlongAxis, Reduction
from minidlc.ops.scans import Scan
from minidlc.tests.ops.checks import describe, results, type_of

# ops that jump: between the jumps the derivative is compared, so examples are moved off them
JUMPS = (
    "ceil",
    "floor",
    "hardmax",
    "lp_normalization",
    "max_pool_gradient",
    "max_pool_tangent",
    "mean_variance_normalization",
    "mod",
    "round",
    "sign",
    "topk",  # of equal elements the second largest is neither convex nor concave
)
POLES = ("div", "mod", "pow", "reciprocal")  # ops that divide by an input: it keeps away from 0

# ops of real numbers that have no gradient, and why
NO_GRADIENT = {
    "bit_cast": "bits read as another type are no function of numbers",
    "custom_result": "what somebody said its gradient is was lost on the way",
}
COUNTED = ("loop",)  # its gradient must know how often it runs: integers become constants
IN_F32 = ("dequantize_linear",)  # f64 is not among the results that ONNX allows it
NOT_IN_F16 = ("dequantize_linear", "index_add")


@dataclass(frozen=True)
class Case:
    """One op at one point in f64, and how the loss changes with each of its results."""

    op: Op
    inputs: tuple[Any, ...]
    dys: tuple[Any, ...]  # None for a result that is not of real numbers

    @property
    def moving(self) -> list[int]:
        """Which inputs are of real numbers."""
        return [n for n, x in enumerate(self.inputs) if x is not None and x.dtype.kind == "f"]

    @property
    def places(self) -> list[int]:
        """Which inputs of the op are inputs of the graph: neither omitted nor constants."""
        known = self.op.name in COUNTED
        found = ((n, x) for n, x in enumerate(self.inputs) if x is not None)
        return [n for n, x in found if is_float(x) or not known]

    @property
    def given(self) -> list[Any]:
        """The arrays that the graph takes."""
        return [self.inputs[n] for n in self.places]

    def loss(self, *inputs: Any) -> float:
        """The sum of dy * y over all results, computed by the op's reference."""
        ys = results(evaluate(self.op, inputs))
        return sum(
            float(np.sum(dy * y)) for y, dy in zip(ys, self.dys, strict=True) if dy is not None
        )

    @cached_property
    def scale(self) -> float:
        """How large the terms of the loss are: rounding is in proportion to it."""
        ys = results(evaluate(self.op, self.inputs))
        pairs = ((y, dy) for y, dy in zip(ys, self.dys, strict=True) if dy is not None)
        return sum(float(np.sum(np.abs(dy * y))) for y, dy in pairs)

    @cached_property
    def graph(self) -> Graph:
        """The loss as a graph of the inputs x0, x1, …"""
        inputs = {n: Input(f"x{n}", type_of(self.inputs[n])) for n in self.places}
        known = {n: Constant("c", x) for n, x in enumerate(self.inputs) if x is not None}
        node = build(self.op, [(known | inputs).get(n) for n in range(len(self.inputs))])
        several = isinstance(node.type, TupleType)
        ys = [getitem(node, n) for n in range(len(self.dys))] if several else [node]
        parts = [weighted(y, dy) for y, dy in zip(ys, self.dys, strict=True) if dy is not None]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return Graph.of("loss", list(inputs.values()), [total])

    @cached_property
    def gradient(self) -> Graph:
        """The gradient of that graph."""
        return mc.grad(self.graph)

    @cached_property
    def gradients(self) -> list[Any]:
        """What `mc.grad` says, one array for each input of real numbers."""
        return interpret(self.gradient, self.given)

    def __str__(self) -> str:
        return describe(Example(self.op, self.inputs))


def weighted(y: Value, dy: Any) -> Node:
    """The sum of dy * y, a scalar."""
    return apply("sum", apply("mul", y, Constant("dy", dy)), keepdims=False)


def cases(cls: type[Op], *, jitter: bool = False) -> Iterator[Case]:
    """The examples of an op that have a derivative, with f64 for f32, at ordinary numbers.

    Those of f16 and bf16 would be the same once more. With `jitter` no input lies on a kink.
    """
    for number, example in enumerate(cls.examples()):
        if any(x is not None and x.dtype.name in ("float16", "bfloat16") for x in example.inputs):
            continue
        case = case_of(example, jitter=jitter or cls.name in JUMPS, seed=number)
        if case is not None:
            yield case


def some(found: Iterator[Case], most: int = 5) -> list[Case]:
    """At most so many of the cases, evenly spaced."""
    every = list(found)
    return every[:: -(-len(every) // most) or 1]


def random_examples(cls: type[Op], rng: np.random.Generator) -> Iterator[Example]:
    """Examples of other shapes, for the families in which any shape fits: nothing for others."""
    for _ in range(3):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
        axis = int(rng.integers(-len(shape), len(shape)))
        x = rng.uniform(0.5, 1.5, shape)
        if cls.name == "matmul":
            left, right = (*shape[:-1], 3, shape[-1]), (*_broadcast(shape[:-1], rng), shape[-1], 4)
            yield Example(cls(), (rng.uniform(-1, 1, left), rng.uniform(-1, 1, right)))
        elif issubclass(cls, Elementwise) and "float" in cls.takes and cls.name != "where":
            shapes = [shape] + [_broadcast(shape, rng) for _ in range(cls.arity - 1)]
            rng.shuffle(shapes)
            yield Example(cls(), tuple(rng.uniform(*cls.domain, s) for s in shapes))
        elif issubclass(cls, (Reduction, CompositeReduction)):
            chosen = rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)]
            yield Example(cls(tuple(map(int, chosen)), bool(rng.integers(2))), (x,))
        elif issubclass(cls, AlongAxis):
            yield Example(cls(axis), (x,))
        elif issubclass(cls, Scan):
            yield Example(cls(axis, bool(rng.integers(2)), bool(rng.integers(2))), (x,))


def _broadcast(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """A shape that broadcasts to this one."""
    dims = tuple(1 if rng.integers(3) == 0 else n for n in shape)
    return dims[rng.integers(len(dims) + 1) :]


def case_of(example: Example, *, jitter: bool = False, seed: int = 0) -> Case | None:
    """The example in f64 at ordinary numbers; None if it has no derivative.

    That is so if nothing of it is of real numbers, or if the op itself is NaN or infinite there.
    """
    rng = np.random.default_rng(seed)
    single = example.op.name in IN_F32
    op = example.op if single else in_f64(example.op)
    inputs = tuple(
        ordinary(op, x, rng, jitter=jitter).astype(np.float32 if single else np.float64)
        if is_float(x)
        else x
        for x in example.inputs
    )
    ys = results(evaluate(op, inputs))
    if not any(map(is_float, inputs)) or not any(map(is_float, ys)):
        return None
    if isinstance(op, Loop) and op.trips is None and inputs[0] is None:
        return None  # data alone say how often it runs: tests/autodiff/test_control_flow.py
    dys = tuple(rng.uniform(0.5, 1.5, y.shape).astype(y.dtype) if is_float(y) else None for y in ys)
    case = Case(op, inputs, dys)
    return case if np.isfinite(case.loss(*inputs)) else None


def is_float(x: Any) -> bool:
    """Of real numbers; bf16 is none of NumPy's own kinds."""
    return x is not None and type_of(x).dtype.is_float


def in_f64(thing: Any) -> Any:
    """An op, graph, type or attribute with f64 in place of every other real type."""
    return retyped(thing, f64)


def retyped(thing: Any, element: DType) -> Any:
    """An op, graph, type or attribute with this type in place of every other real type."""
    match thing:
        case DType():
            return element if thing.is_float else thing
        case TensorType():
            return thing.with_dtype(retyped(thing.dtype, element))
        case Op():
            changed = {name: retyped(v, element) for name, v in thing.attributes().items()}
            return replace(thing, **changed) if changed else thing
        case Graph():
            return _retyped_graph(thing, element)
        case tuple():
            return tuple(retyped(item, element) for item in thing)
        case _:
            return thing


def _retyped_graph(graph: Graph, element: DType) -> Graph:
    new: dict[Value | None, Value | None] = {None: None}
    for x in graph.inputs:
        new[x] = Input(x.name, retyped(x.type, element))

    def value(v: Value | None) -> Value | None:
        if isinstance(v, Constant) and v not in new:
            new[v] = Constant(v.name, v.array.astype(element.numpy)) if is_float(v.array) else v
        return new[v]

    for node in graph.nodes:
        inputs = [value(v) for v in node.inputs]
        new[node] = build(retyped(node.op, element), inputs, name=node.name)
    return Graph.of(graph.name, [new[x] for x in graph.inputs], [value(o) for o in graph.outputs])


def ordinary(op: Op, x: Any, rng: np.random.Generator, *, jitter: bool) -> Any:
    """The array with numbers in place of NaN, infinities, denormals and what is out of domain."""
    x = x.astype(np.float64)
    low, high = op.domain if isinstance(op, Elementwise) else (0.5, 1.5)
    margin = (high - low) / 50
    with np.errstate(invalid="ignore"):
        odd = ~np.isfinite(x) | (np.abs(x) > 1e30) | ((x != 0) & (np.abs(x) < 1e-4))
        if isinstance(op, Elementwise) and op.domain != Elementwise.domain:
            odd |= (x < low + margin) | (x > high - margin)
    x = np.where(odd, rng.uniform(low + margin, high - margin, x.shape), x)
    if jitter:
        x = x + rng.uniform(0.01, 0.05, x.shape)
    if op.name in POLES:
        x = np.where(np.abs(x) < 0.25, np.copysign(0.25 + np.abs(x), x), x)
    return x
