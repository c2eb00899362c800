"""Rewrite rules as data: a pattern and a replacement, both written in the ops' own syntax.

    Rule("double-neg", lambda x: -(-x), lambda x: x)
    Rule("mul-one", lambda x: x * 1, lambda x: x, when=lambda x, root: keeps_type(x, root))
    Rule("transpose-transpose",
         lambda x, p, q: apply("transpose", apply("transpose", x, perm=p), perm=q),
         lambda x, p, q: apply("transpose", x, perm=compose(p, q, x)))

The pattern is run once with a hole for each parameter. A hole stands for any value, or for any
attribute; the same hole twice is the same value twice; a number matches a constant that holds it
everywhere. `when` and `replacement` take what they need of the holes, and `root`, the whole match.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from minidlc.graph.graph import Constant, Input, Node, Staged, Value
from minidlc.graph.literals import write_attribute
from minidlc.graph.structure import constant_key
from minidlc.support import extension
from minidlc.support.errors import OptionError, PassError, nearest

Bindings: TypeAlias = dict[str, Any]  # hole -> value or attribute


@dataclass(frozen=True, eq=False)
class Hole(Staged):
    """A parameter of the pattern: matches any value, or any attribute."""

    name: str

    def staged(self, op: str, inputs: tuple[object, ...], attributes: dict[str, Any]) -> Applied:
        return Applied(op, tuple(map(_pattern, inputs)), attributes)


@dataclass(frozen=True, eq=False)
class Applied(Staged):
    """An op applied to patterns."""

    op: str
    inputs: tuple[Pattern, ...]
    attributes: dict[str, Any]

    def staged(self, op: str, inputs: tuple[object, ...], attributes: dict[str, Any]) -> Applied:
        return Applied(op, tuple(map(_pattern, inputs)), attributes)


@dataclass(frozen=True)
class Number:
    """A constant whose elements all are this number (0.0 is not -0.0)."""

    value: float | int | bool

    def matches(self, array: np.ndarray[Any, Any]) -> bool:
        """Every element equals the number, in value and sign; no elements match nothing."""
        same = array.size > 0 and bool(np.all(array == self.value))
        return same and not (
            array.dtype.kind not in "iub" and bool(np.any(np.signbit(array) != self._negative))
        )

    @property
    def _negative(self) -> bool:
        return bool(np.signbit(float(self.value)))


Pattern: TypeAlias = "Hole | Applied | Number | None"


def _pattern(thing: object) -> Pattern:
    if thing is None or isinstance(thing, (Hole, Applied)):
        return thing
    if isinstance(thing, (int, float)):
        return Number(thing)
    raise PassError(f"a pattern holds holes, ops and numbers, got {thing!r}", code="MDLC0504")


@dataclass(frozen=True)
class Rule:
    """`pattern` may be replaced by `replacement` where `when` holds.

    `when` returns True, False or, better, the reason against as a text. The type must stay.
    """

    name: str
    pattern: Callable[..., Any] = field(repr=False)
    replacement: Callable[..., Any] = field(repr=False)
    when: Callable[..., bool | str] | None = field(default=None, repr=False)

    @cached_property
    def root(self) -> Applied:
        """The traced pattern. Raises PassError (MDLC0504) if the rule is malformed."""
        holes = list(inspect.signature(self.pattern).parameters)
        root = self.pattern(*map(Hole, holes))
        if not isinstance(root, Applied):
            text = f"rule {self.name!r}: the pattern is no op, it would match everything"
            raise PassError(text, code="MDLC0504")
        for function in (self.replacement, self.when):
            for name in inspect.signature(function).parameters if function else ():
                if name not in (*holes, "root"):
                    text = f"rule {self.name!r}: {name!r} is not a hole of the pattern"
                    raise PassError(text, hint=nearest(name, holes), code="MDLC0504")
        return root

    def match(self, value: Value) -> Bindings | str:
        """What each hole stands for, and `root`; or the reason why the pattern does not fit."""
        bindings: Bindings = {"root": value}
        reason = _match(self.root, value, bindings)
        if reason is None and self.when is not None:
            verdict = call(self.when, bindings)
            if verdict is not True:
                reason = verdict or "its condition does not hold"
        return bindings if reason is None else reason


def call(function: Callable[..., Any], bindings: Bindings) -> Any:
    """Call with the bindings that the function has parameters for."""
    return function(**{n: bindings[n] for n in inspect.signature(function).parameters})


def _match(pattern: Pattern, value: Value | None, bindings: Bindings) -> str | None:
    match pattern, value:
        case None, None:
            return None
        case Hole(name), Input() | Constant() | Node():
            bound = bindings.setdefault(name, value)
            same = bound is value or _same_constant(bound, value)
            return None if same else f"{name} stands for two different values"
        case Number(), Constant():
            return None if pattern.matches(value.array) else f"constant is not {pattern.value}"
        case Applied(), Node():
            return _match_node(pattern, value, bindings)
        case _:
            return f"{_describe(value)} is not {_describe_pattern(pattern)}"


def _same_constant(a: object, b: Value) -> bool:
    both = isinstance(a, Constant) and isinstance(b, Constant)
    return both and constant_key(a) == constant_key(b)  # pyright: ignore


def _match_node(pattern: Applied, node: Node, bindings: Bindings) -> str | None:
    if node.op.name != pattern.op or len(node.inputs) != len(pattern.inputs):
        return f"{_describe(node)} is not {_describe_pattern(pattern)}"
    for f in fields(node.op):
        actual, wanted = getattr(node.op, f.name), pattern.attributes.get(f.name, f.default)
        if isinstance(wanted, Hole):
            wanted = bindings.setdefault(wanted.name, actual)
        if wanted is MISSING:
            return f"the pattern does not say which {f.name}"
        if _text(actual) != _text(wanted):
            return f"{f.name} is {_text(actual)}, not {_text(wanted)}"
    for inner, value in zip(pattern.inputs, node.inputs, strict=True):
        reason = _match(inner, value, bindings)
        if reason is not None:
            return reason
    return None


def _text(attribute: object) -> str:
    return write_attribute(attribute, lambda g: g.digest)


def _describe(value: Value | None) -> str:
    match value:
        case Node():
            return value.op.name
        case Constant():
            return "a constant"
        case Input():
            return "an input"
        case None:
            return "no input"


def _describe_pattern(pattern: Pattern) -> str:
    match pattern:
        case Applied():
            return pattern.op
        case Number(value):
            return f"the constant {value}"
        case Hole():
            return "a value"
        case None:
            return "no input"


def inner_nodes(root: Applied, node: Node) -> list[Node]:
    """The nodes below the root that the pattern names, each once."""
    found: dict[Node, None] = {}
    queue: list[tuple[Pattern, Value | None]] = [*zip(root.inputs, node.inputs, strict=True)]
    for pattern, value in queue:
        if isinstance(pattern, Applied) and isinstance(value, Node):
            found[value] = None
            queue += zip(pattern.inputs, value.inputs, strict=True)
    return list(found)


_sets: dict[str, Callable[[], tuple[Rule, ...]]] = {}

extension.declare(
    "rules.SET",
    "() -> tuple[Rule, ...]",
    "a named set of rules",
    lambda: _sets,
    returns=extension.items(Rule),
)


def rule_set(
    name: str,
) -> Callable[[Callable[[], tuple[Rule, ...]]], Callable[[], tuple[Rule, ...]]]:
    """Decorate the function that gives the rules of a set: it becomes `rules.NAME`."""

    def decorate(function: Callable[[], tuple[Rule, ...]]) -> Callable[[], tuple[Rule, ...]]:
        _sets[name] = function
        return function

    return decorate


def rules_of(name: str) -> tuple[Rule, ...]:
    """The rules of a set (extension point `rules.NAME`); OptionError (MDLC1012) if unknown."""
    if name not in _sets:
        raise OptionError(f"unknown rule set {name!r}", hint=nearest(name, _sets), code="MDLC1012")
    return tuple(extension.dispatch(f"rules.{name}", _sets[name])())


def rule_sets() -> Mapping[str, Callable[[], tuple[Rule, ...]]]:
    """Name -> the function that gives the rules."""
    return dict(_sets)
