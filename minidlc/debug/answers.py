"""What a graph answers on given arrays, and whether that is what was expected.

    graph, arrays = prepared("model.onnx", {"x": x})
    outputs = Memo().run(graph, arrays)     # as interpret, but nothing is computed twice
    wrong_output(outputs, expected, graph)  # "output y: 3 of 10 elements differ, …", or None

Reads models, graphs and arrays. A search runs many graphs that differ in one place: an op on inputs
of the same bytes is run once. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minidlc.calling import checked_array, match_arguments
from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import ValueNeeded
from minidlc.graph import Graph, Input, Node, Value, op_key, verify
from minidlc.graph.interpret import run_op
from minidlc.sources import Model, Sizes, open_source
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.support.locations import caller
from minidlc.support.names import Names

Arrays = Mapping[str, Array] | Sequence[Array]
_TOLERANCE = 1e-4  # of the largest value; passes may round otherwise
_TOLERANCE_OF_HALVES = 2e-2  # f16 and bf16


def prepared(model: Model, inputs: Arrays) -> tuple[Graph, dict[str, Array]]:
    """The graph of a model for the shapes of these arrays, and the arrays by input name.

    Raises CallError (MDLC09xx) for arrays that do not fit, as a call does, and what import raises.
    """
    expect("debug", "inputs", inputs, Mapping, list, tuple, hint="[x, y] or {'x': x, 'y': y}")
    source = open_source(model, None)
    given = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
    found = match_arguments(source.name, source.inputs, given, {})
    arrays = {d.name: checked_array(d.name, d.dtype, d, found[d.name]) for d in source.inputs}
    shapes = Sizes.of(source, arrays).shapes
    needed: dict[str, Array] = {}
    while True:
        try:
            graph = source.graph(shapes, needed)
            verify(graph)
            return graph, arrays
        except ValueNeeded as e:
            more = {i.name: arrays[i.name] for i in e.inputs if i.name not in needed}
            if not more:
                raise
            needed |= more


@dataclass(frozen=True)
class Known:
    """The results of a node, and a digest of each."""

    arrays: tuple[Array, ...]
    digests: tuple[str, ...]


@dataclass
class Memo:
    """Runs graphs by the ops' references, each op once for inputs of the same bytes."""

    max_bytes: int = 1 << 30
    results: OrderedDict[Hashable, Known] = field(default_factory=OrderedDict[Hashable, Known])
    digests: dict[Value, str] = field(default_factory=dict[Value, str])  # of constants
    held: int = 0

    def run(self, graph: Graph, arrays: Mapping[str, Array]) -> list[Array]:
        """The outputs of the graph; raises what `interpret` raises."""
        values = self.values(graph, arrays)
        return [values[o].arrays[0] for o in graph.outputs]

    def values(self, graph: Graph, arrays: Mapping[str, Array]) -> dict[Value, Known]:
        """The results of every input, constant and node."""
        found: dict[Value, Known] = {i: _known(arrays[i.name]) for i in graph.inputs}
        for constant in graph.constants:
            digest = self.digests.get(constant) or _digest(constant.array)
            self.digests[constant] = digest
            found[constant] = Known((constant.array,), (digest,))
        for node in graph.nodes:
            found[node] = self._node(node, found)
        return found

    def _node(self, node: Node, found: Mapping[Value, Known]) -> Known:
        read = [None if v is None else found[v] for v in node.inputs]
        if node.op.name == "getitem" and read[0] is not None:
            index: int = node.op.attributes()["index"]
            return Known(read[0].arrays[index : index + 1], read[0].digests[index : index + 1])
        key = (op_key(node.op), tuple(k and k.digests for k in read))
        if key in self.results:
            self.results.move_to_end(key)
            return self.results[key]
        inputs = [None if k is None else k.arrays[0] for k in read]
        result = run_op(node.op, inputs, node.type, node.loc, node.name)
        known = _known(*(result if isinstance(result, tuple) else (result,)))
        if node.op.pure:
            self._keep(key, known)
        return known

    def _keep(self, key: Hashable, known: Known) -> None:
        """Remember a result; what was not asked for longest makes room."""
        self.results[key] = known
        self.held += sum(a.nbytes for a in known.arrays)
        while self.held > self.max_bytes and len(self.results) > 1:
            _, oldest = self.results.popitem(last=False)
            self.held -= sum(a.nbytes for a in oldest.arrays)


def _known(*arrays: Array) -> Known:
    return Known(arrays, tuple(map(_digest, arrays)))


def _digest(array: Array) -> str:
    content = np.ascontiguousarray(array)
    digest = hashlib.blake2b(content.reshape(-1).view(np.uint8).data, digest_size=16)
    return f"{array.dtype} {array.shape} {digest.hexdigest()}"


def checked_expected(expected: Arrays | None, graph: Graph) -> list[Array] | None:
    """The expected outputs in order, given so or by name.

    Raises OptionError (MDLC1044) for another number of them, or other names.
    """
    if expected is None:
        return None
    taken = Names()
    names = [taken.fresh(o.name) for o in graph.outputs]  # as `run_dict` calls them
    missing = [n for n in names if isinstance(expected, Mapping) and n not in expected]
    if missing or len(expected) < len(names):
        got = ", ".join(expected) if isinstance(expected, Mapping) else f"{len(expected)} arrays"
        text = f"expected outputs: {graph.name} has {', '.join(names)}, got {got}"
        hint = "one array for each output, in order, or by name"
        raise OptionError(text, loc=caller(), hint=hint, code="MDLC1044")
    found = [expected[n] for n in names] if isinstance(expected, Mapping) else list(expected)
    return [np.asarray(a) for a in found]


def wrong_output(
    got: Sequence[Array], expected: Sequence[Array], graph: Graph, tolerance: float | None = None
) -> str | None:
    """The first output that is wrong, and how; None if all are right."""
    for output, a, b in zip(graph.outputs, got, expected, strict=True):
        reason = wrong_array(a, b, tolerance)
        if reason is not None:
            return f"output {output.name}: {reason}"
    return None


def wrong_array(got: Array, expected: Array, tolerance: float | None = None) -> str | None:
    """How an array is wrong, or None.

    Integers must be equal; floats may differ by `tolerance` times the largest expected one; NaN
    equals NaN, infinity itself.
    """
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"got {got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if got.dtype.kind in "iub":
        apart = got != expected
        worst = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    else:
        a, b = got.astype(np.float64), expected.astype(np.float64)
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or 1.0
        if tolerance is None:
            tolerance = _TOLERANCE_OF_HALVES if got.dtype.itemsize == 2 else _TOLERANCE
        with np.errstate(invalid="ignore"):
            worst = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        worst = np.where(same, 0.0, np.where(np.isnan(worst), np.inf, worst))
        apart = worst > tolerance * scale
    if not apart.any():
        return None
    at = np.unravel_index(int(np.argmax(np.where(apart, worst, -1.0))), got.shape)
    count = f"{int(apart.sum()):,} of {got.size:,} elements differ"
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return f"{count}, most{place}: got {got[at]}, expected {expected[at]}"


def feeds_for(inputs: Sequence[Input], seed: int = 0) -> dict[str, Array]:
    """An array for each input: random floats, small integers."""
    found: dict[str, Array] = {}
    for i in inputs:
        digits = int(hashlib.sha256(f"{seed} {i.name} {i.type}".encode()).hexdigest()[:8], 16)
        rng = np.random.default_rng(digits)
        kind = i.type.dtype.numpy
        if i.type.dtype.is_float:
            found[i.name] = rng.standard_normal(i.type.dims).astype(kind)
        else:
            found[i.name] = rng.integers(0, 2, i.type.dims).astype(kind)
    return found
