"""Rewrite rules as data: a pattern and a replacement, both written in the ops' own syntax.

    Rule("double-neg", lambda x: -(-x), lambda x: x)
    Rule("mul-one", lambda x: x * 1, lambda x: x, when=lambda x, root: keeps_type(x, root))
    Rule("transpose-transpose",
         lambda x, p, q: apply("transpose", apply("transpose", x, perm=p), perm=q),
         lambda x, p, q: apply("transpose", x, perm=compose(p, q, x)))

The pattern is run once with a hole for each parameter. A hole stands for any value, or for any
attribute; the same hole twice is the same value twice; `*xs` stands for the inputs that are left; a
number matches a constant that holds it everywhere, `near(0.79788)` also its neighbours. Inputs of
add, mul and their like match in either order. `when` and `replacement` take what they need of the
holes, `root`, the whole match, and `facts`, what analysis.py knows of a value: facts(x).low >= 0.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from minidlc.graph.graph import Constant, Input, Node, Staged, Value
from minidlc.graph.literals import write_attribute
from minidlc.graph.structure import constant_key
from minidlc.support import extension
from minidlc.support.errors import OptionError, PassError, nearest
from minidlc.transform.dataflow.analysis import fact_of

Bindings: TypeAlias = dict[str, Any]  # hole -> value or attribute


@dataclass(frozen=True, eq=False)
class Hole(Staged):
    """A parameter of the pattern: matches any value, or any attribute; `rest`: all inputs left."""

    name: str
    rest: bool = False

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
    """A constant whose elements all are this number (0.0 is not -0.0), up to `tolerance` of it."""

    value: float | int | bool
    tolerance: float = 0.0

    def matches(self, array: np.ndarray[Any, Any]) -> bool:
        """Every element equals the number, in value and sign; no elements match nothing."""
        same = array.size > 0 and bool(np.all(array == self.value))
        if self.tolerance and array.dtype.kind not in "iub":
            slack = self.tolerance * abs(self.value)
            same = array.size > 0 and bool(np.all(np.abs(array - self.value) <= slack))
        return same and not (
            array.dtype.kind not in "iub" and bool(np.any(np.signbit(array) != self._negative))
        )

    @property
    def _negative(self) -> bool:
        return bool(np.signbit(float(self.value)))


Pattern: TypeAlias = "Hole | Applied | Number | None"

# f(a, b) = f(b, a): a pattern matches either way. NaN wins in maximum and minimum on both sides.
COMMUTATIVE = frozenset(
    ("add", "mul", "maximum", "minimum", "equal", "logical_and", "logical_or", "logical_xor")
)


def near(value: float, tolerance: float = 1e-6) -> Any:
    """In a pattern: a constant that exporters round each in their way, such as sqrt(2 / pi)."""
    return Number(value, tolerance)


def _pattern(thing: object) -> Pattern:
    if thing is None or isinstance(thing, (Hole, Applied, Number)):
        return thing
    if isinstance(thing, (int, float)):
        return Number(thing)
    raise PassError(f"a pattern holds holes, ops and numbers, got {thing!r}", code="MDLC0504")


@dataclass(frozen=True)
class Rule:
    """`pattern` may be replaced by `replacement` where `when` holds.

    `when` returns True, False or, better, the reason against as a text. The type must stay. Of the
    rules that fit a node the one of the highest `benefit` is taken.
    """

    name: str
    pattern: Callable[..., Any] = field(repr=False)
    replacement: Callable[..., Any] = field(repr=False)
    when: Callable[..., bool | str] | None = field(default=None, repr=False)
    benefit: int = 1

    @cached_property
    def root(self) -> Applied:
        """The traced pattern. Raises PassError (MDLC0504) if the rule is malformed."""
        signature = inspect.signature(self.pattern).parameters
        holes = [Hole(p.name, p.kind is p.VAR_POSITIONAL) for p in signature.values()]
        root = self.pattern(*holes)
        if not isinstance(root, Applied):
            text = f"rule {self.name!r}: the pattern is no op, it would match everything"
            raise PassError(text, code="MDLC0504")
        names = [h.name for h in holes]
        for function in (self.replacement, self.when):
            for name in parameters(function) if function else ():
                if name not in (*names, "root", "facts"):
                    text = f"rule {self.name!r}: {name!r} is not a hole of the pattern"
                    raise PassError(text, hint=nearest(name, names), code="MDLC0504")
        return root

    def match(self, value: Value) -> Bindings | str:
        """What each hole stands for, and `root`; or the reason why the pattern does not fit."""
        reasons: list[Reason] = []
        found = next(_matches([(self.root, value)], Found({"root": value}), reasons), None)
        if found is None:
            return max(reasons, key=lambda reason: reason[0])[1]
        if self.when is not None:
            verdict = call(self.when, found.bindings)
            if verdict is not True:
                return verdict or "its condition does not hold"
        return found.bindings


def call(function: Callable[..., Any], bindings: Bindings) -> Any:
    """Call with the bindings that the function has parameters for."""
    known = {"facts": fact_of, **bindings}
    return function(**{n: known[n] for n in parameters(function)})


@lru_cache(4096)
def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters."""
    return tuple(inspect.signature(function).parameters)


@dataclass(frozen=True)
class Found:
    """A match, or the part of it that is known so far."""

    bindings: Bindings
    nodes: tuple[Node, ...] = ()  # those that the pattern names, the root first

    def plus(self, bindings: Bindings, *nodes: Node) -> Found:
        """With more that is known."""
        return Found({**self.bindings, **bindings}, (*self.nodes, *nodes))


Wanted: TypeAlias = "tuple[Pattern, Value | tuple[Value | None, ...] | None]"
Reason: TypeAlias = tuple[int, str]  # after how many nodes that fitted: the last one tells most


def _matches(pairs: Sequence[Wanted], found: Found, reasons: list[Reason]) -> Iterator[Found]:
    """Every way in which all values fit their patterns; why some do not goes to `reasons`."""
    if not pairs:
        yield found
        return
    (pattern, value), *rest = pairs
    if isinstance(pattern, Applied) and isinstance(value, Node):
        attributes = _match_attributes(pattern, value, found.bindings)
        if isinstance(attributes, str):
            reasons.append((len(found.nodes), attributes))
            return
        for inputs in _orders(pattern, value):
            inner = [*zip(pattern.inputs, inputs, strict=True)]
            yield from _matches([*inner, *rest], found.plus(attributes, value), reasons)
        return
    bound = _match_leaf(pattern, value, found.bindings)
    if isinstance(bound, str):
        reasons.append((len(found.nodes), bound))
    else:
        yield from _matches(rest, found.plus(bound), reasons)


def _match_leaf(pattern: Pattern, value: Any, bindings: Bindings) -> Bindings | str:
    """What a pattern that is no op adds to the bindings, or why it does not fit."""
    match pattern, value:
        case None, None:
            return {}
        case Hole(name), _ if value is not None:
            bound = bindings.get(name, value)
            same = bound == value or _same_constants(bound, value)
            return {name: bound} if same else f"{name} stands for two different values"
        case Number(), Constant():
            return {} if pattern.matches(value.array) else f"constant is not {pattern.value}"
        case _:
            return f"{_describe(value)} is not {_describe_pattern(pattern)}"


def _same_constants(a: Any, b: Any) -> bool:
    """Constants of the same type and bytes; of `*xs` each."""
    match a, b:
        case Constant(), Constant():
            return constant_key(a) == constant_key(b)
        case (*left,), (*right,):
            both = zip(left, right, strict=False)
            return len(left) == len(right) and all(x is y or _same_constants(x, y) for x, y in both)
        case _:
            return False


def _match_attributes(pattern: Applied, node: Node, bindings: Bindings) -> Bindings | str:
    """What the holes among the attributes stand for, or why op or attributes do not fit."""
    if node.op.name != pattern.op:
        return f"{_describe(node)} is not {_describe_pattern(pattern)}"
    if not _orders(pattern, node):
        return f"{node.op.name} has {len(node.inputs)} inputs, the pattern {len(pattern.inputs)}"
    new: Bindings = {}
    for f in fields(node.op):
        actual, wanted = getattr(node.op, f.name), pattern.attributes.get(f.name, f.default)
        if isinstance(wanted, Hole):
            name = wanted.name
            wanted = new.setdefault(name, bindings.get(name, actual))
        if wanted is MISSING:
            return f"the pattern does not say which {f.name}"
        if _text(actual) != _text(wanted):
            return f"{f.name} is {_text(actual)}, not {_text(wanted)}"
    return new


def _orders(pattern: Applied, node: Node) -> list[tuple[Any, ...]]:
    """The inputs of the node in each order that may match; none if it is another number."""
    inputs: tuple[Any, ...] = node.inputs
    last = pattern.inputs[-1] if pattern.inputs else None
    if isinstance(last, Hole) and last.rest:
        fixed = len(pattern.inputs) - 1
        return [(*inputs[:fixed], inputs[fixed:])] if len(inputs) >= fixed else []
    if len(inputs) != len(pattern.inputs):
        return []
    return [inputs, inputs[::-1]] if node.op.name in COMMUTATIVE else [inputs]


def _text(attribute: object) -> str:
    return write_attribute(attribute, lambda g: g.digest)


def _describe(value: object) -> str:
    match value:
        case Node():
            return value.op.name
        case Constant():
            return "a constant"
        case Input():
            return "an input"
        case _:
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
    found = next(_matches([(root, node)], Found({}), []))
    return [n for n in dict.fromkeys(found.nodes) if n is not node]


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
