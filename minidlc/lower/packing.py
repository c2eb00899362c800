"""Constants packed at compile time: the loops of prepacked stages, run once on the weights.

    packing = Packing()
    fn, = sch.lower_init("conv")                    # def conv_init_w_p(w, w_p): …
    packing.constants([fn], {"w": w})               # {'w_p': a Constant in blocks}

Reads the init loops of a schedule and graph constants, writes graph constants that take the place
of those in the model. Who runs the loops is for the caller to say: machine code, or Python.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from minidlc.expr.types import Array
from minidlc.graph import Constant, Graph, Value, bodies
from minidlc.loop.inside import check_inside
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.verify import verify_function
from minidlc.support.names import Names

RunLoops: TypeAlias = Callable[[LoopFunction, dict[str, Array]], None]


@dataclass
class Packing:
    """The packed constants of a program; what is packed twice in the same way is one constant.

    `run(fn, arrays)` runs loops on an array for each parameter.
    """

    run: RunLoops = interpret
    names: Names = field(default_factory=Names)
    made: dict[tuple[tuple[Constant, ...], str], Constant] = field(
        default_factory=dict[tuple[tuple[Constant, ...], str], Constant]
    )

    @staticmethod
    def of(graph: Graph, run: RunLoops) -> Packing:
        """No constant yet; none will have the name of one of the graph."""
        return Packing(run, Names(c.name for c in _constants(graph)))

    def constants(
        self, functions: Iterable[LoopFunction], values: Mapping[str, Value]
    ) -> dict[str, Constant]:
        """The prepacked stages by name. `values` are those of the placeholders."""
        known = {name: v for name, v in values.items() if isinstance(v, Constant)}
        packed: dict[str, Constant] = {}
        for fn in functions:
            *read, result = (p.name for p in fn.params)
            packed[result] = self._constant(fn, tuple(known[name] for name in read))
            known[result] = packed[result]
        return packed

    def within(self, block: Array, offsets: Mapping[Constant, int]) -> dict[Constant, Constant]:
        """Each packed constant as the same bytes in the block of all: none is kept twice."""
        moved: dict[Constant, Constant] = {}
        for old in self.made.values():
            if old in offsets:
                start, size = offsets[old], old.array.nbytes
                bytes = block[start : start + size]
                array = bytes.view(old.array.dtype).reshape(old.array.shape)
                moved[old] = Constant(old.name, array, old.loc)
        return moved

    def _constant(self, fn: LoopFunction, sources: tuple[Constant, ...]) -> Constant:
        key = (sources, str(replace(fn, name="init")))
        if key not in self.made:
            array = self._computed(fn, [c.array for c in sources])
            name = self.names.fresh(f"{sources[0].name}_packed" if sources else fn.params[-1].name)
            self.made[key] = Constant(name, array, sources[0].loc if sources else None)
        return self.made[key]

    def _computed(self, fn: LoopFunction, inputs: list[Array]) -> Array:
        """What the function stores."""
        verify_function(fn)
        check_inside(fn)
        type = fn.params[-1].type
        result = np.zeros(type.dims, type.dtype.numpy)
        if result.size:
            names = (p.name for p in fn.params)
            self.run(fn, dict(zip(names, [*inputs, result], strict=True)))
        result.flags.writeable = False
        return result


def _constants(graph: Graph) -> Iterable[Constant]:
    """The constants of a graph and of the bodies in it."""
    yield from graph.constants
    for node in graph.nodes:
        for body in bodies(node):
            yield from _constants(body)
