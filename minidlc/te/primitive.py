"""A schedule primitive as a record: applied to a State, printed as a line of text, stored as JSON.

    step = Split("C", "i", 14, ("io", "ii"))
    str(step)                       # 'split("C", "i", 14, ["io", "ii"], tail="cut")'
    step.to_list()                  # ['split', 'C', 'i', 14, ['io', 'ii'], 'cut']
    parse_trace(str(step)) == (step,)

Each primitive is a frozen dataclass whose fields are its arguments, registered by name. Fields
with a default are printed as keywords. Where a number stands, a knob may stand (knob.py): `14` or
`knob("MR")`, in JSON `{"knob": "MR"}`. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar, cast

from minidlc.expr.source import Source, parse_python
from minidlc.support.arguments import expect, expect_each, plain_int
from minidlc.support.errors import ParseError, ScheduleError, nearest
from minidlc.support.extension import declare, dispatch, instance
from minidlc.support.locations import caller
from minidlc.support.options import convert, hints
from minidlc.te.knob import Knob, chosen
from minidlc.te.stage import State

_registry: dict[str, type[Primitive]] = {}
P = TypeVar("P", bound="Primitive")

declare(
    "primitive.NAME",
    "(primitive: Primitive, state: State) -> State",
    "apply one schedule primitive",
    members=lambda: _registry,
    returns=instance(State),
)


@dataclass(frozen=True)
class Primitive:
    """Base of all primitives; every one names the stage it works on first."""

    name: ClassVar[str]
    stage: str

    def apply(self, state: State) -> State:
        """The state after this step; ScheduleError if the step is illegal there."""
        raise AssertionError(f"{type(self).__name__} does not say what it does")

    def to_list(self) -> list[Any]:
        """`[name, argument, ...]` of strings, numbers, knobs and lists: what JSON holds."""
        return [self.name, *(_plain(getattr(self, f.name)) for f in fields(self))]

    @staticmethod
    def from_list(items: Sequence[object], knobs: Mapping[str, Knob] | None = None) -> Primitive:
        """The primitive of a `to_list`; ParseError (MDLC0341, MDLC0342) if it is none."""
        if not items or not isinstance(items[0], str):
            raise ParseError(f"not a schedule primitive: {items!r}", code="MDLC0341")
        return make(items[0], [_with_knobs(x, knobs or {}) for x in items[1:]], {})

    def with_numbers(self, number: Callable[[Knob], int]) -> Primitive:
        """The same step with `number(knob)` for every knob."""
        new = {f.name: _mapped(getattr(self, f.name), number) for f in fields(self)}
        return type(self)(**cast("dict[str, Any]", new))

    def __str__(self) -> str:
        parts = [_text(f.name, f.default, getattr(self, f.name)) for f in fields(self)]
        return f"{self.name}({', '.join(parts)})"


def _text(name: str, default: object, value: object) -> str:
    text = _literal(value)
    return text if default is MISSING else f"{name}={text}"


def _literal(value: object) -> str:
    items = _items(value)
    if items is not None:
        return f"[{', '.join(map(_literal, items))}]"
    if isinstance(value, Knob):
        return f'knob("{value.name}")'
    return json.dumps(value, ensure_ascii=False)


def _plain(value: object) -> object:
    """Tuples as lists, knobs by name: JSON's vocabulary."""
    items = _items(value)
    if items is not None:
        return [_plain(item) for item in items]
    return {"knob": value.name} if isinstance(value, Knob) else value


def _with_knobs(value: object, knobs: Mapping[str, Knob]) -> object:
    """A value of JSON with knobs in place of their names."""
    items = _items(value)
    if items is not None:
        return [_with_knobs(item, knobs) for item in items]
    if isinstance(value, dict):
        return _knob(cast("dict[object, object]", value).get("knob"), knobs)
    return value


def _knob(name: object, knobs: Mapping[str, Knob]) -> Knob:
    if isinstance(name, str) and name in knobs:
        return knobs[name]
    hint = nearest(str(name), knobs)
    raise ParseError(f"no knob {name!r} is declared", hint=hint, code="MDLC0342")


def _mapped(value: object, number: Callable[[Knob], int]) -> object:
    items = _items(value)
    if items is not None:
        return tuple(_mapped(item, number) for item in items)
    return number(value) if isinstance(value, Knob) else value


def _knobs_in(value: object) -> Iterator[Knob]:
    if isinstance(value, Knob):
        yield value
    for item in _items(value) or ():
        yield from _knobs_in(item)


def _frozen(value: object) -> object:
    """Lists as tuples, NumPy's integers as ints: what fields hold."""
    items = _items(value)
    return plain_int(value) if items is None else tuple(_frozen(item) for item in items)


def _items(value: object) -> Sequence[object] | None:
    """The elements of a list or tuple."""
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else None


def register(name: str) -> Callable[[type[P]], type[P]]:
    """Class decorator: the primitive's name in texts and in the extension point primitive.NAME."""

    def decorate(cls: type[P]) -> type[P]:
        cls.name = name
        _registry[name] = cls
        return cls

    return decorate


def apply_primitive(primitive: Primitive, state: State) -> State:
    """Apply a primitive through its extension point; knobs are plain numbers there."""
    step = primitive.with_numbers(int)
    return dispatch(f"primitive.{step.name}", type(step).apply)(step, state)


def checked_step(step: object) -> Primitive:
    """The step, once its arguments have the types of its fields; else ScheduleError (MDLC0604)."""
    if not isinstance(step, Primitive):
        raise ScheduleError(
            f"{reprlib.repr(step)} is no primitive",
            loc=caller(),
            hint='such as Split("C", "i", 4, ("io", "ii")) of minidlc.te.primitives',
            code="MDLC0604",
        )
    try:
        return _build(type(step), {f.name: getattr(step, f.name) for f in fields(step)})
    except ValueError as error:
        takes = ", ".join(f"{f.name}: {f.type}" for f in fields(step))
        hint = f"{step.name} takes ({takes})"
        raise ScheduleError(str(error), loc=caller(), hint=hint, code="MDLC0604") from None


def _build(cls: type[P], values: Mapping[str, object]) -> P:
    """A primitive of these arguments; ValueError for one that has not the type of its field."""
    made: dict[str, Any] = {}
    for f in fields(cls):
        if f.name in values:
            value = _frozen(values[f.name])
            try:
                made[f.name] = convert(value, hints(cls)[f.name])
            except ValueError:
                message = f"{cls.name}: {f.name} is {reprlib.repr(value)}, expected {f.type}"
                raise ValueError(message) from None
    return cls(**made)


def make(name: str, args: Sequence[object], keywords: Mapping[str, object]) -> Primitive:
    """Build a primitive of given arguments; ParseError for a wrong name, number or type of them."""
    cls = _registry.get(name)
    if cls is None:
        hint = nearest(name, _registry)
        raise ParseError(f"no primitive {name!r}", hint=hint, code="MDLC0341")
    names = [f.name for f in fields(cls)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    given = {**dict(zip(names, args, strict=False)), **keywords}
    if len(args) > len(names) or set(given) - set(names) or set(needed) - set(given):
        raise ParseError(
            f"{name} takes ({', '.join(names)})",
            notes=(f"got {len(args)} arguments and keywords {sorted(keywords)}",),
            code="MDLC0342",
        )
    try:
        return _build(cls, given)
    except ValueError as error:
        raise ParseError(str(error), code="MDLC0342") from None


class Trace(tuple[Primitive, ...]):
    """Primitives in order: what a schedule is. `str(trace)` is its text, one primitive a line.

    The knobs of the primitives come first, each with its value and its candidates.
    """

    __slots__ = ()

    def __new__(cls, steps: Iterable[Primitive] = ()) -> Trace:
        return super().__new__(cls, expect_each("Trace", "steps", steps, Primitive))

    @property
    def knobs(self) -> dict[str, Knob]:
        """The knobs that the primitives take, by name, in the order of use."""
        found = (k for step in self for f in fields(step) for k in _knobs_in(getattr(step, f.name)))
        return {knob.name: knob for knob in found}

    def with_knobs(self, **values: int) -> Trace:
        """The trace with other values of knobs; ScheduleError (MDLC0630, MDLC0631) for wrong ones.

        Replay it: `Schedule(outputs, trace)` says whether it is still legal.
        """
        new = chosen(self.knobs, values)
        return Trace(step.with_numbers(lambda knob: new[knob.name]) for step in self)

    def __str__(self) -> str:
        return "\n".join((*(k.declaration for k in self.knobs.values()), *map(str, self)))

    def to_json(self) -> str:
        """The trace as one line of JSON: the steps, or {"knobs": …, "steps": …}."""
        steps = [step.to_list() for step in self]
        knobs = {k.name: [int(k), list(k.candidates)] for k in self.knobs.values()}
        return json.dumps({"knobs": knobs, "steps": steps} if knobs else steps, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of a `to_json`; ParseError (MDLC0340, MDLC0341, MDLC0342) if it is none."""
        expect("from_json", "text", text, str)
        try:
            steps = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ParseError(f"not JSON: {e}", code="MDLC0340") from None
        knobs: dict[str, Knob] = {}
        if isinstance(steps, dict):
            whole = cast("dict[object, object]", steps)
            knobs, steps = _declared(whole.get("knobs")), whole.get("steps")
        items = _items(steps)
        if items is None:
            raise ParseError("a trace in JSON is a list of lists", code="MDLC0340")
        return Trace(Primitive.from_list(_items(step) or (), knobs) for step in items)


def _declared(table: object) -> dict[str, Knob]:
    """The knobs of a trace in JSON: name → [value, candidates]."""
    if not isinstance(table, dict):
        raise ParseError("knobs in JSON are {name: [value, [candidates]]}", code="MDLC0340")
    return {
        str(name): _new_knob([name, *(_items(parts) or ())])
        for name, parts in cast("dict[object, object]", table).items()
    }


def _new_knob(parts: Sequence[object]) -> Knob:
    match parts:
        case [str(name), int(value), candidates] if isinstance(candidates, list):
            try:
                return Knob(name, value, cast("list[int]", candidates))
            except ScheduleError as error:
                raise ParseError(error.message, notes=error.notes, code="MDLC0342") from None
        case _:
            message = "a knob has a name, a value and a list of candidates"
            raise ParseError(message, code="MDLC0342")


def parse_trace(text: str, file: str = "<trace>") -> Trace:
    """The primitives of a text, one a line, their knobs first; `#` starts a comment.

    Raises ParseError: not Python (MDLC0301), not calls of literals (MDLC0340), no such primitive
    (MDLC0341), wrong arguments (MDLC0342).
    """
    expect("parse_trace", "text", text, str)
    module, source = parse_python(text, file)
    knobs: dict[str, Knob] = {}
    steps = [_parse_step(statement, source, knobs) for statement in module.body]
    return Trace(step for step in steps if step is not None)


def _parse_step(node: ast.stmt, source: Source, knobs: dict[str, Knob]) -> Primitive | None:
    """The primitive of a line; None for the declaration of a knob, which joins `knobs`."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
            try:
                values = [_parse_value(arg, knobs) for arg in args]
                named = {str(k.arg): _parse_value(k.value, knobs) for k in keywords}
            except (ValueError, TypeError):
                message = f"{name}: arguments are strings, numbers, knobs and lists of them"
                raise source.error(node, message, "MDLC0340") from None
            except ParseError as error:
                raise error.at(source.loc(node)) from None
            try:
                if name == "knob":
                    made = _new_knob([*values, *named.values()])
                    knobs[made.name] = made
                    return None
                return make(name, values, named)
            except ParseError as error:
                raise error.at(source.loc(node)) from None
        case _:
            message = "a trace holds one primitive a line"
            hint = 'such as split("C", "i", 14, ["io", "ii"], tail="cut")'
            raise source.error(node, message, "MDLC0340", hint)


def _parse_value(node: ast.expr, knobs: Mapping[str, Knob]) -> object:
    """A literal that may hold knobs by name; ValueError or TypeError for anything else."""
    match node:
        case ast.Call(func=ast.Name(id="knob"), args=[ast.Constant(value=name)], keywords=[]):
            return _knob(name, knobs)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_parse_value(item, knobs) for item in items]
        case _:
            return ast.literal_eval(node)
