"""Random valid graphs of 1 to 12 ops of all families, with inputs and the tolerance they deserve.

    @given(cases())
    def test(case: Case) -> None:
        case.check(mc.compile(case.graph)(*case.arrays), mc.interpret(case.graph, case.arrays))

Diamonds, values read twice, unused nodes, outputs that are also read inside, inputs and constants
as outputs, sizes around the vector widths and now and then 0. In graph_maker, families.py draws the
ops, values.py their operands, and facts.py says how far two right programs may differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidlc.expr.types import Array, bf16, bool_, f16, f32, f64, i32, i64, u8
from minidlc.graph import Graph, Node, TupleType, Value
from minidlc.tests.graph_maker.families import FAMILIES
from minidlc.tests.graph_maker.values import Maker

ELEMENTS = (*[f32] * 16, f64, f64, f64, i32, i32, i32, i64, u8, bool_, f16, bf16)


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, arrays for its inputs, and by how much each output may differ (0: not at all)."""

    graph: Graph
    arrays: tuple[Array, ...]
    tolerances: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Case(tolerances={self.tolerances})\n{self.graph}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print the fields of every node

    def check(self, outputs: Sequence[Array], expected: Sequence[Array]) -> None:
        """Types, shapes and values of the outputs; NaN equals NaN."""
        assert len(outputs) == len(expected)
        for k, (got, want) in enumerate(zip(outputs, expected, strict=True)):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            where = f"output {k}, {self.graph.outputs[k].name}"
            if not self.tolerances[k]:
                np.testing.assert_array_equal(got, want, err_msg=where)
                continue
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=0,
                atol=self.tolerances[k],
                err_msg=where,
            )


@st.composite
def cases(draw: Any, max_ops: int = 12) -> Case:
    """A graph of at most `max_ops` ops (a composite op counts as one)."""
    return make_case(lambda n: draw(st.integers(0, n - 1)), max_ops)


def case_of(seed: int, max_ops: int = 12) -> Case:
    """The same without hypothesis: every choice by a generator of random numbers."""
    return make_case(random.Random(seed).randrange, max_ops)


def make_case(choose: Callable[[int], int], max_ops: int) -> Case:
    """A case by the choices of `choose(n)`, numbers from 0, the simplest, to n - 1."""
    maker = Maker(choose)
    maker.leaf(maker.one(*ELEMENTS), maker.shape(), constant=False)
    for _ in range(1 + choose(max_ops)):
        maker.one(*FAMILIES)(maker)
    values, nodes = maker.values, nodes_of(maker.values)
    read = {v for node in nodes for v in node.inputs}
    ends = [node for node in nodes if node not in read and node in maker.facts]
    some = [maker.one(*values) for _ in range(choose(3))]
    outputs = maker.one(ends[-1:], ends, [*some, *ends[-1:]]) or values[-1:]
    graph = Graph.of("g", maker.arrays, outputs)
    if maker.one(False, True):
        graph = replace(graph, nodes=tuple(nodes))  # those that nobody reads too
    tolerances = (2 * maker.facts[v].error for v in outputs)
    return Case(graph, tuple(maker.arrays.values()), tuple(tolerances))


def nodes_of(values: Sequence[Value]) -> list[Node]:
    """The nodes among the values in order; before their parts, those with several results."""
    nodes: dict[Node, None] = {}
    for value in values:
        if isinstance(value, Node):
            several = (v for v in value.inputs if v is not None and isinstance(v.type, TupleType))
            nodes.update(dict.fromkeys(several))  # type: ignore[arg-type]
            nodes[value] = None
    return list(nodes)
