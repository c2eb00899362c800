"""A part of a function that a tensor decides about: captured as a closed graph.

    region = Region.of(variables, Names())          # every tensor of a variable has a stand-in
    … run statements on region.variables …
    captures, inputs = captured(place, [region], [results])  # what is read of the outside

Variables are copied, containers too, so that what a branch does to a list is seen by that branch
only. Two branches are merged leaf by leaf (`merged`). Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np

from minidlc.expr.types import Array, DType, TensorType, f64
from minidlc.frontend.pytree import is_container, items, leaves, like, structure
from minidlc.frontend.script.refusals import refuse
from minidlc.graph import Constant, Input, Node, Value, toposort
from minidlc.graph.eager import Tensor
from minidlc.support.locations import Loc
from minidlc.support.names import Names, identifier


class Missing:
    """In place of a variable that exists on one way only: reading it is refused by `rule`."""

    def __init__(self, rule: str, why: str) -> None:
        self.rule, self.why = rule, why


def is_tensor(thing: object) -> bool:
    """True for a value of the graph that is one tensor."""
    return isinstance(thing, (Input, Constant, Node)) and isinstance(thing.type, TensorType)


@dataclass
class Twin:
    """A list or dict, its copy in a region, and what the copy held at first."""

    original: object
    copy: object
    before: tuple[str, list[object]]

    @property
    def changed(self) -> bool:
        """True if the region did something to the copy."""
        return differs(self.copy, self.before)


def contents(tree: object) -> tuple[str, list[object]]:
    """The containers as text, and the leaves: what `differs` compares with."""
    return structure(tree), leaves(tree)


def differs(tree: object, before: tuple[str, list[object]]) -> bool:
    """True if a tree has other containers or other leaves than before."""
    text, new = contents(tree)
    return text != before[0] or any(a is not b for a, b in zip(new, before[1], strict=True))


def copied(
    tree: object, new: Callable[[object], object], twins: list[Twin], memo: dict[int, object]
) -> object:
    """The same containers around new leaves; what was one container stays one (`memo`)."""
    if not is_container(tree):
        return new(tree)
    name = id(tree)
    if name not in memo:
        if isinstance(tree, tuple):
            parts = {k: copied(v, new, twins, memo) for k, v in items(cast(object, tree))}
            memo[name] = like(cast(object, tree), parts)
        else:
            memo[name] = twin = cast("dict[object, object]", copy(tree))
            for key, part in items(tree):
                twin[key] = copied(part, new, twins, memo)
            twins.append(Twin(tree, twin, contents(twin)))
    return memo[name]


def unpacked(tree: object) -> object:
    """The tree with an op's several results as a tuple."""
    several = isinstance(tree, Node) and not is_tensor(tree)
    return tuple(cast("Iterable[object]", tree)) if several else tree


def mutables(tree: object) -> list[object]:
    """Every list and dict of a tree, in order."""
    if not is_container(tree):
        return []
    inner = [m for _, part in items(tree) for m in mutables(part)]
    return inner if isinstance(tree, tuple) else [tree, *inner]


def written(
    tree: object, new: Iterator[object], place: Mapping[int, object], memo: dict[int, object]
) -> object:
    """The tree around the next leaves of `new`.

    `place`: id of a list or dict → the one to write it into, so that whoever holds it sees that.
    """
    if not is_container(tree):
        return next(new)
    parts = {key: written(part, new, place, memo) for key, part in items(tree)}
    if isinstance(tree, tuple):
        return like(cast(object, tree), parts)
    name = id(tree)
    if name not in memo:
        memo[name] = original = place[name] if name in place else copy(tree)
        if isinstance(original, list):
            cast("list[object]", original)[:] = parts.values()
        else:
            cast("dict[object, object]", original).clear()
            cast("dict[object, object]", original).update(parts)
    return memo[name]


def one_to_one(place: Loc, pairs: Iterable[tuple[object, object]]) -> None:
    """Refuse names that hold one list on one way and two on the other."""
    first: dict[int, object] = {}
    second: dict[int, object] = {}
    for a, b in pairs:
        if first.setdefault(id(a), b) is not b or second.setdefault(id(b), a) is not a:
            text = f"two variables hold one {type(a).__name__} on one way and two on the other"
            refuse(place, "alias", text)


@dataclass
class Region:
    """Copies of the variables; `outer` says what each stand-in stands for."""

    variables: dict[str, object] = field(default_factory=dict[str, object])
    outer: dict[Input, Value] = field(default_factory=dict[Input, Value])
    twins: list[Twin] = field(default_factory=list[Twin])
    foreign: list[tuple[object, tuple[str, list[object]]]] = field(default_factory=list[Any])
    before: dict[str, tuple[str, list[object]]] = field(init=False)

    @staticmethod
    def of(variables: Mapping[str, object], names: Names, *, shared: bool = True) -> Region:
        """A region in which every tensor is an input.

        `shared`: two variables that are the same tensor have one input; not so in a loop, where one
        of them may go on to be another tensor in the next run.
        """
        region, memo = Region(), dict[int, object]()
        inside: dict[Value, Input] = {}

        def stand_in(leaf: object, name: str) -> object:
            if not is_tensor(leaf):
                return leaf
            value = cast(Value, leaf)
            if value not in inside or not shared:
                new = Input(names.fresh(identifier(name)), cast(TensorType, value.type))
                inside[value] = new
                region.outer[new] = value
            return inside[value]

        for name, tree in variables.items():
            make = partial(stand_in, name=name)
            region.variables[name] = copied(tree, make, region.twins, memo)
        region.before = {name: contents(tree) for name, tree in region.variables.items()}
        return region

    def changed(self, name: str, now: Mapping[str, object]) -> bool:
        """True if a variable is not what it was; containers are compared part by part."""
        if name not in now or name not in self.before:
            return (name in now) != (name in self.before)
        return differs(now[name], self.before[name])

    def watch(self, things: Iterable[object]) -> None:
        """Note what lists and dicts of outside hold, in objects too: nothing may change them."""
        for thing in things:
            if isinstance(thing, (list, dict)):
                self.foreign.append((cast(object, thing), contents(cast(object, thing))))
            elif not isinstance(thing, (type, ModuleType, FunctionType, Input, Constant, Node)):
                held = vars(thing).values() if hasattr(thing, "__dict__") else ()
                self.foreign += [(m, contents(m)) for h in held for m in mutables(h)]

    def originals(self) -> dict[int, object]:
        """id of a copied list or dict → the one outside."""
        return {id(twin.copy): twin.original for twin in self.twins}

    def check_written(self, place: Loc, into: Mapping[int, object], seen: Set[int]) -> None:
        """Refuse a change that did not reach a list or dict which others see (by their ids)."""
        for thing, before in self.foreign:
            if differs(thing, before):
                text = f"a {type(thing).__name__} of outside changes where a tensor decides"
                refuse(place, "side-effect", text)
        reached = {id(original) for original in into.values()}
        for twin in self.twins:
            if twin.changed and id(twin.original) in seen - reached:
                text = f"a {type(twin.original).__name__} changes that no variable holds afterwards"
                refuse(place, "side-effect", text)


def used(
    place: Loc, region: Region, results: Sequence[Value], own: Sequence[Input] = ()
) -> list[Input]:
    """The stand-ins that the results read; `own` inputs of the body may be read, too."""
    read = _inputs(results)
    for value in read:
        if value not in region.outer and value not in own:
            text = f"{value.name!r}: {value.type} of outside is read, and is in no variable"
            refuse(place, "foreign", text)
    return [i for i in region.outer if i in read]


def captured(
    place: Loc, regions: Sequence[Region], results: Sequence[Sequence[Value]]
) -> tuple[list[Value], list[list[Input]]]:
    """What any region reads of the outside, and each region's inputs for it, in one order."""
    reads = [used(place, r, values) for r, values in zip(regions, results, strict=True)]
    captures = list(
        dict.fromkeys(r.outer[i] for r, read in zip(regions, reads, strict=True) for i in read)
    )
    inside = [{value: i for i, value in region.outer.items()} for region in regions]
    return captures, [[stand_ins[v] for v in captures] for stand_ins in inside]


def _inputs(values: Sequence[Value]) -> dict[Input, None]:
    """Every input that the values read, in order."""
    read = [v for node in toposort(values) for v in node.inputs] + list(values)
    return dict.fromkeys(v for v in read if isinstance(v, Input))


def as_tensor(leaf: object, like: object = None, floats: DType = f64) -> Value | None:
    """A leaf as a graph value; None: it is no tensor.

    A number takes the element type of `like`; where that is no tensor, a float is of `floats`.
    """
    if is_tensor(leaf):
        return cast(Value, leaf)
    if isinstance(leaf, Tensor) and isinstance(leaf.type, TensorType):
        return Constant("c", leaf.array)
    if isinstance(leaf, (bool, int, float)):
        number = floats if isinstance(leaf, float) else None
        wanted = cast(TensorType, cast(Value, like).type).dtype if is_tensor(like) else number
        return Constant("c", np.asarray(leaf, None if wanted is None else wanted.numpy))
    if isinstance(leaf, (np.ndarray, np.generic)):
        return Constant("c", np.asarray(cast(Array, leaf)))
    return None


def float_type(variables: Iterable[object]) -> DType:
    """The element type that a Python float takes: that of the variables, f64 if they have several.

    So `k = 0.1 if c else 0.01` fits the f32 of a function of f32, as 0.1 does in a trace.
    """
    tensors = [leaf for tree in variables for leaf in leaves(tree) if is_tensor(leaf)]
    dtypes = {cast(TensorType, cast(Value, leaf).type).dtype for leaf in tensors}
    floats = [dtype for dtype in dtypes if dtype.is_float]
    return floats[0] if len(floats) == 1 else f64


def same(a: object, b: object) -> bool:
    """True for equal Python values (1 is not 1.0), and for one and the same object."""
    return a is b or (
        type(a) is type(b) and isinstance(a, (bool, int, float, str)) and repr(a) == repr(b)
    )


def merged(
    place: Loc, what: str, a: object, b: object, floats: DType
) -> tuple[Value, Value] | None:
    """Both leaves as tensors of one type; None if they are the same Python value on both ways."""
    if same(a, b) and not is_tensor(a):
        return None
    x, y = as_tensor(a, b, floats), as_tensor(b, a, floats)
    if x is None or y is None:
        kinds = " and ".join(type(v).__name__ for v in (a, b))
        refuse(place, "branch-value", f"{what} depends on a tensor and is a {kinds}")
    if x.type != y.type:
        refuse(place, "branch-type", f"{what} is {x.type} on one way and {y.type} on the other")
    return x, y
