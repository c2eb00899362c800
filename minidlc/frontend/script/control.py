"""`if` that a tensor decides about, as op if_; and what a block of statements ends with.

    conditional(frame, statement, test, rest)       # if_(test, captures…): both branches are run

Each branch runs on a frame of stand-ins; what it assigned is the result, what it read of the
outside is captured. Lists and dicts that both branches know are written in place, so that others
who hold them see it, as in Python. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from minidlc.expr.types import bool_
from minidlc.frontend.pytree import leaves, shown, structure, walk
from minidlc.frontend.script.refusals import refuse
from minidlc.frontend.script.region import (
    Missing,
    captured,
    float_type,
    is_tensor,
    merged,
    mutables,
    one_to_one,
    unpacked,
    written,
)
from minidlc.graph import Constant, Graph, Input, Node, TupleType, Value, apply, located, results_of
from minidlc.support.locations import Loc

if TYPE_CHECKING:
    from minidlc.frontend.script.frame import Frame


class Flow(Enum):
    """How a block ended, other than by `return`."""

    NEXT = "next"
    BREAK = "break"
    CONTINUE = "continue"


@dataclass(frozen=True)
class Returned:
    """A block ended with `return value`."""

    value: object


Outcome: TypeAlias = Flow | Returned


def is_value(thing: object) -> TypeGuard[Value]:
    """True for a value of the graph: known only when the model runs."""
    return isinstance(thing, (Input, Constant, Node))


def truth(place: Loc | None, test: object) -> bool | Value:
    """What `if test` asks: a Python bool now, or one element of bool[()] when the model runs."""
    if not is_value(test):
        return bool(test)
    type = test.type
    if isinstance(type, TupleType) or not type.is_static or type.size != 1:
        refuse(place, "condition", f"the condition is {type}, expected one element")
    with located(place):
        if type.dtype != bool_:
            test = apply("logical_not", apply("equal", test, 0))
        return test if type.rank == 0 else apply("reshape", test, shape=())


def conditional(frame: Frame, statement: ast.If, test: Value, rest: Sequence[ast.stmt]) -> Outcome:
    """Both branches, each followed by `rest` (what comes after an early return)."""
    place = frame.program.place(statement)
    _check_jumps(frame, statement)
    frames = frame.inside(), frame.inside()
    ways = statement.body, statement.orelse
    outcomes = [f.block([*way, *rest]) for f, way in zip(frames, ways, strict=True)]
    match outcomes:
        case [Returned(a), Returned(b)]:
            pairs = {**_pairs(frames, seen=True), "the result": (a, b)}
            return Returned(branches(frame, place, test, frames, pairs)["the result"])
        case [Returned(), _] | [_, Returned()]:
            refuse(place, "one-return", "the function returns in one branch and not in the other")
        case _:
            pairs = _pairs(frames)
            frame.scope.update(branches(frame, place, test, frames, pairs))
            return Flow.NEXT


_NONE = Missing("one-branch", "is assigned in one branch of an `if` on a tensor only")


def _pairs(frames: Sequence[Frame], *, seen: bool = False) -> dict[str, tuple[object, object]]:
    """Variables that a branch changed, as they are after each (`seen`: lists that others hold)."""

    def wanted(frame: Frame, name: str) -> bool:
        known = not seen or any(id(m) in frame.seen for m in mutables(frame.scope.get(name)))
        return known and changed(frame, name)

    names = (n for n in frames[0].program.names if any(wanted(f, n) for f in frames))
    return {n: (frames[0].scope.get(n, _NONE), frames[1].scope.get(n, _NONE)) for n in names}


def changed(frame: Frame, name: str) -> bool:
    """True if the frame's region changed a variable."""
    assert frame.region is not None
    return frame.region.changed(name, frame.scope)


def branches(
    frame: Frame,
    place: Loc,
    test: Value,
    frames: Sequence[Frame],
    pairs: Mapping[str, tuple[object, object]],
) -> dict[str, object]:
    """Each pair (what it is in one branch, in the other) as what it is after the if_."""
    regions = [cast(Any, frame.region) for frame in frames]
    pairs = {name: (unpacked(a), unpacked(b)) for name, (a, b) in pairs.items()}
    floats = float_type(frames[0].variables().values())
    yes: list[Value] = []
    no: list[Value] = []
    after: dict[str, list[object]] = {}  # leaves: Python values, or the number of a result
    for name, (a, b) in pairs.items():
        if isinstance(a, Missing) or isinstance(b, Missing):
            continue
        if structure(a) != structure(b):
            text = f"{name} is {structure(a)} on one way and {structure(b)} on the other"
            refuse(place, "branch-structure", text)
        after[name] = []
        for (path, x), y in zip(walk(a, (name,)), leaves(b), strict=True):
            outer = regions[0].outer.get(x) if is_tensor(x) else None
            both = merged(place, shown(path), x, y, floats)
            if outer is not None and is_tensor(y) and regions[1].outer.get(y) is outer:
                after[name].append(outer)
            elif both is None:
                after[name].append(x)
            else:
                after[name].append(_Result(len(yes)))
                yes.append(both[0])
                no.append(both[1])
    results = _if(place, test, regions, yes, no) if yes else []
    into = _agreed(place, frames, [tuple(map(mutables, pairs[name])) for name in after])
    memo: dict[int, object] = {}
    new: dict[str, object] = {name: _NONE for name in pairs}
    for name, filled in after.items():
        leaf = (results[x.number] if isinstance(x, _Result) else x for x in filled)
        new[name] = written(pairs[name][0], leaf, into, memo)
    for region in regions:
        region.check_written(place, into, frame.seen)
    return new


def _agreed(
    place: Loc, frames: Sequence[Frame], pairs: Sequence[tuple[list[object], ...]]
) -> dict[int, object]:
    """id of a list or dict → the one of outside that it is on both ways."""
    yes, no = (cast(Any, frame.region).originals() for frame in frames)
    both = [(a, b) for x, y in (*pairs, *held(*frames)) for a, b in zip(x, y, strict=True)]
    one_to_one(place, both)
    return {id(a): yes[id(a)] for a, b in both if id(a) in yes and yes[id(a)] is no.get(id(b))}


def held(one: Frame, other: Frame) -> Iterator[tuple[list[object], list[object]]]:
    """The lists and dicts of each variable in two frames, where they are alike."""
    for name, tree in one.variables().items():
        if name in other.scope and structure(tree) == structure(other.scope[name]):
            yield mutables(tree), mutables(other.scope[name])


@dataclass(frozen=True)
class _Result:
    number: int


def _if(
    place: Loc, test: Value, regions: Sequence[Any], yes: Sequence[Value], no: Sequence[Value]
) -> list[Value]:
    captures, inputs = captured(place, regions, [yes, no])
    with located(place):
        node = apply(
            "if_", test, *captures,
            then_branch=Graph.of("then", inputs[0], yes),
            else_branch=Graph.of("otherwise", inputs[1], no),
        )  # fmt: skip
        return results_of(node)


def _check_jumps(frame: Frame, statement: ast.If) -> None:
    """Under a tensor nothing may leave a loop that Python runs."""
    for jump in jumps(statement.body + statement.orelse, around=frame.loops > 0):
        word = type(jump).__name__.lower()
        rule = "return" if isinstance(jump, ast.Return) else "break"
        refuse(frame.program.place(jump), rule, f"`{word}` under a condition that is a tensor")


def jumps(statements: Sequence[ast.stmt], *, around: bool) -> Iterator[ast.stmt]:
    """break and continue of the loop around, and return if it would leave one."""
    for statement in statements:
        match statement:
            case ast.Break() | ast.Continue():
                yield statement
            case ast.Return() if around:
                yield statement
            case ast.If():
                yield from jumps(statement.body + statement.orelse, around=around)
            case ast.For() | ast.While():
                inner = [n for n in ast.walk(statement) if isinstance(n, ast.Return)]
                yield from inner if around else ()
            case _:
                pass
