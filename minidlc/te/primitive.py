"""A schedule primitive as a record: applied to a State, printed as a line of text, stored as JSON.

    step = Split("C", "i", 14, ("io", "ii"))
    str(step)                       # 'split("C", "i", 14, ["io", "ii"], tail="cut")'
    step.to_list()                  # ['split', 'C', 'i', 14, ['io', 'ii'], 'cut']
    parse_trace(str(step)) == (step,)

Each primitive is a frozen dataclass whose fields are its arguments, registered by name. Fields
with a default are printed as keywords. Treated in course chapter 04_schedule.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar, cast

from minidlc.expr.source import Source, parse_python
from minidlc.support.errors import ParseError, nearest
from minidlc.support.extension import declare, dispatch, instance
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
        """`[name, argument, ...]` of strings, numbers and lists: what JSON holds."""
        return [self.name, *(_plain(getattr(self, f.name)) for f in fields(self))]

    @staticmethod
    def from_list(items: Sequence[object]) -> Primitive:
        """The primitive of a `to_list`; ParseError (MDLC0341, MDLC0342) if it is none."""
        if not items or not isinstance(items[0], str):
            raise ParseError(f"not a schedule primitive: {items!r}", code="MDLC0341")
        return make(items[0], items[1:], {})

    def __str__(self) -> str:
        parts = [_text(f.name, f.default, getattr(self, f.name)) for f in fields(self)]
        return f"{self.name}({', '.join(parts)})"


def _text(name: str, default: object, value: object) -> str:
    text = json.dumps(_plain(value), ensure_ascii=False)
    return text if default is MISSING else f"{name}={text}"


def _plain(value: object) -> object:
    """Tuples as lists: JSON's vocabulary."""
    items = _items(value)
    return value if items is None else [_plain(item) for item in items]


def _frozen(value: object) -> object:
    """Lists as tuples: what fields hold."""
    items = _items(value)
    return value if items is None else tuple(_frozen(item) for item in items)


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
    """Apply a primitive through its extension point."""
    return dispatch(f"primitive.{primitive.name}", type(primitive).apply)(primitive, state)


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
    values = {key: _frozen(value) for key, value in given.items()}
    for f in fields(cls):
        if f.name in values and not _fits(values[f.name], str(f.type)):
            raise ParseError(
                f"{name}: {f.name} is {values[f.name]!r}, expected {f.type}",
                code="MDLC0342",
            )
    return cls(**cast("dict[str, Any]", values))


def _fits(value: object, annotation: str) -> bool:
    """Whether a literal has the type of a field, as annotated."""
    match annotation:
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "tuple[str, str]":
            return _fits(value, "tuple[str, ...]") and len(_items(value) or ()) == 2
        case "tuple[str, ...]":
            items = _items(value)
            return items is not None and all(isinstance(x, str) for x in items)
        case "tuple[tuple[int, int], ...]":
            items = _items(value)
            return items is not None and all(_is_pair(x) for x in items)
        case _:
            raise AssertionError(f"a primitive's field of type {annotation}")


def _is_pair(value: object) -> bool:
    items = _items(value)
    return items is not None and len(items) == 2 and all(_fits(n, "int") for n in items)


class Trace(tuple[Primitive, ...]):
    """Primitives in order: what a schedule is. `str(trace)` is its text, one primitive a line."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def to_json(self) -> str:
        """The trace as one line of JSON."""
        return json.dumps([step.to_list() for step in self], ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of a `to_json`; ParseError (MDLC0340, MDLC0341, MDLC0342) if it is none."""
        try:
            steps = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ParseError(f"not JSON: {e}", code="MDLC0340") from None
        items = _items(steps)
        if items is None:
            raise ParseError("a trace in JSON is a list of lists", code="MDLC0340")
        return Trace(Primitive.from_list(_items(step) or ()) for step in items)


def parse_trace(text: str, file: str = "<trace>") -> Trace:
    """The primitives of a text, one a line; `#` starts a comment.

    Raises ParseError: not Python (MDLC0301), not calls of literals (MDLC0340), no such primitive
    (MDLC0341), wrong arguments (MDLC0342).
    """
    module, source = parse_python(text, file)
    return Trace(_parse_step(statement, source) for statement in module.body)


def _parse_step(node: ast.stmt, source: Source) -> Primitive:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
            try:
                values = [ast.literal_eval(arg) for arg in args]
                named = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
            except (ValueError, TypeError):
                message = f"{name}: arguments are strings, numbers and lists of them"
                raise source.error(node, message, "MDLC0340") from None
            try:
                return make(name, values, named)
            except ParseError as error:
                raise error.at(source.loc(node)) from None
        case _:
            message = "a trace holds one primitive a line"
            hint = 'such as split("C", "i", 14, ["io", "ii"], tail="cut")'
            raise source.error(node, message, "MDLC0340", hint)
