"""What `compile` takes, before sizes are known: a model file or a graph, as one kind of thing.

    source = open_source("model.onnx", shapes={"batch": 4})
    source.inputs, source.is_static                 # what is declared, and if that is all
    source.graph({"x": (4, 3)}, {"axes": array})    # the graph for these shapes and values

Reads what the caller gave, writes graphs. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from minidlc.calling import output_names
from minidlc.expr.index import Index, Var
from minidlc.expr.types import Array
from minidlc.frontend.onnx.importer import open_model
from minidlc.frontend.onnx.inputs import Declared, Shapes
from minidlc.graph import Graph, verify
from minidlc.graph.substitute import size_of, substitute, symbols
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, OptionError, nearest
from minidlc.support.locations import caller

if TYPE_CHECKING:
    from onnx import ModelProto

Model: TypeAlias = "Graph | str | os.PathLike[str] | bytes | ModelProto"
Shape: TypeAlias = tuple[int, ...]
Given: TypeAlias = Mapping[str, "int | Sequence[int] | Array"]  # Shapes, and values of inputs


class Source(Protocol):
    """A model whose graph can be made for any sizes."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """The inputs in order, with the dims that are known by now."""
        ...

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """The names of the outputs; None if they are known on import."""
        ...

    @property
    def symbols(self) -> Mapping[str, Var]:
        """The variable of each symbolic size, by the name the model gives it."""
        ...

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]) -> Graph:
        """The graph for these shapes, and values of inputs; ValueNeeded if a value is missing."""
        ...

    def check(self) -> None:
        """Refuse what no sizes can make right."""
        ...

    def kept(self) -> Source:
        """The model as it is now, also if the caller changes his."""
        ...


@dataclass(frozen=True)
class GraphSource:
    """A graph with symbolic sizes."""

    symbolic: Graph

    @property
    def name(self) -> str:
        """The graph's."""
        return self.symbolic.name

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """The graph's inputs."""
        inputs = self.symbolic.inputs
        return tuple(Declared(i.name, i.name, i.type.dtype, i.type.shape, i.loc) for i in inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names that the outputs have for callers."""
        return output_names(o.name for o in self.symbolic.outputs)

    @property
    def symbols(self) -> Mapping[str, Var]:
        """Those in the types of the inputs."""
        return {str(var): var for var in symbols(self.symbolic)}

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]) -> Graph:
        """The graph with its symbols replaced; no value is ever needed."""
        if is_static(self):
            return self.symbolic
        bound = Sizes(self)
        for d in self.inputs:
            bound.match(d, tuple(shapes[d.name]))
        return substitute(self.symbolic, bound.sizes)

    def check(self) -> None:
        """Verify it as it is."""
        verify(self.symbolic)

    def kept(self) -> GraphSource:
        """Itself: graphs do not change."""
        return self


def open_source(model: Model, shapes: Shapes | None) -> Source:
    """Read a model or take a graph; `shapes` fixes sizes by symbol or by input name."""
    if not isinstance(model, Graph):
        return open_model("compile", model, shapes)
    source = GraphSource(model)
    if not shapes:
        return source
    expect("compile", "shapes", shapes, Mapping, hint='{"N": 1} or {"x": (1, 3, 32, 32)}')
    if is_static(source):
        text = "shapes= is for models with open sizes, but all sizes of this graph are known"
        raise OptionError(text, loc=caller(), hint="leave it out", code="MDLC1006")
    return GraphSource(substitute(model, Sizes.of(source, shapes).sizes))


def is_static(source: Source) -> bool:
    """True if every dim of every input is a number."""
    return all(
        d.shape is not None and all(isinstance(n, int) for n in d.shape) for d in source.inputs
    )


@dataclass
class Sizes:
    """Sizes of symbols, collected from shapes; shapes and values that were given by input name."""

    source: Source
    sizes: dict[Var, int] = field(default_factory=dict[Var, int])
    shapes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    values: dict[str, Array] = field(default_factory=dict[str, Array])

    @staticmethod
    def of(source: Source, given: Given) -> Sizes:
        """What the caller said, by symbol or by input name; an array is an input's value.

        Raises OptionError (MDLC1025) for an unknown name or a size that is none, CallError for
        shapes that do not fit.
        """
        found = Sizes(source)
        inputs = {name: d for d in source.inputs for name in (d.onnx_name, d.name)}
        for name, thing in given.items():
            if isinstance(thing, np.ndarray) and name in inputs:
                found.values[inputs[name].name] = thing
                found.shapes[inputs[name].name] = thing.shape
            elif isinstance(thing, Sequence) and name in inputs:
                found.shapes[inputs[name].name] = tuple(_size(name, n) for n in thing)
            elif name in source.symbols:
                found.sizes[source.symbols[name]] = _size(name, thing)
            elif name in inputs:
                raise _bad_size(name, thing, "a shape such as (1, 3), or the input's value")
            else:
                text = f"{name!r} is no input and no symbol of {source.name}"
                hint = nearest(name, [*inputs, *source.symbols])
                raise OptionError(text, loc=caller(), hint=hint, code="MDLC1025")
        for d in source.inputs:
            if d.name in found.shapes:
                found.match(d, found.shapes[d.name])
        return found

    def match(self, declared: Declared, shape: Shape) -> None:
        """Bind the symbols of an input to the sizes of a shape.

        Raises CallError: MDLC0904 another rank or size than declared, 0910 a symbol with two sizes.
        """
        wanted = declared.shape
        if wanted is None:
            return
        fits = len(wanted) == len(shape)
        for dim, size in zip(wanted, shape, strict=False):
            found = size_of(dim, self.sizes)
            if isinstance(dim, Index) and dim.vars() and dim == Index.of(next(iter(dim.vars()))):
                self._bind(declared, next(iter(dim.vars())), size)
            elif isinstance(found, int):
                fits = fits and found == size
        if not fits:
            raise CallError(
                f"input {declared.name!r}: expected {declared}, got shape {shape}",
                loc=caller(),
                hint="the model declares it so",
                code="MDLC0904",
            )

    def _bind(self, declared: Declared, symbol: Var, size: int) -> None:
        if self.sizes.setdefault(symbol, size) == size:
            return
        raise CallError(
            f"input {declared.name!r}: {str(symbol)!r} is {size} here and {self.sizes[symbol]} "
            "elsewhere",
            loc=caller(),
            notes=[f"{d.name}: {d}" for d in self.source.inputs],
            hint="a symbol stands for one size in all inputs",
            code="MDLC0910",
        )

    def shape(self, declared: Declared) -> Shape:
        """The whole shape of an input; OptionError (MDLC1025) if a size is not known."""
        if declared.name in self.shapes:
            return self.shapes[declared.name]
        dims = [size_of(d, self.sizes) for d in declared.shape or ()]
        missing = [str(d) for d in dims if not isinstance(d, int)]
        if missing or declared.shape is None:
            what = f"the size {missing[0]!r}" if missing else "the shape"
            text = f"{what} of input {declared.name!r} is not given"
            hint = f"specialize({{{(missing or [declared.name])[0]!r}: …}})"
            raise OptionError(text, loc=caller(), hint=hint, code="MDLC1025")
        return tuple(d for d in dims if isinstance(d, int))


def _size(name: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise _bad_size(name, size, "a size of at least 0")
    return size


def _bad_size(name: str, got: object, wanted: str) -> OptionError:
    text = f"{name!r}: expected {wanted}, got {got!r:.60}"
    hint = "a symbol takes a number, an input a shape or its value"
    return OptionError(text, loc=caller(), hint=hint, code="MDLC1025")
