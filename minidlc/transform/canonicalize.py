"""Local simplifications, as rules: double negation, x * 1, reshape of reshape, constants right.

    g = Canonicalize()(g)
    with mc.use(**{"rules.canonicalize": lambda: (*canonical_rules(), my_rule)}): ...

Each rule holds for every value of every element type it admits, to the bit: x * 0, x - x and x / x
are no rules (NaN, infinity); x + 0.0 is none (it turns -0.0 into 0.0), x + -0.0 is one. The set
`fast` has them, for compile(precision="fast").
Treated in course chapter 02_frontend_opt.
"""

# Rules are lambdas over holes, which stand for values of any kind: nothing to infer from.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from minidlc.expr.types import DType, TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.ops import functional
from minidlc.support.locations import Derived
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rewriter import rewrite
from minidlc.transform.rules import Rule, rule_set, rules_of

Verdict: TypeAlias = "bool | str"  # True, or the reason against

cast = functional("cast")
clip = functional("clip")
concat = functional("concat")
expand = functional("expand")
flatten = functional("flatten")
identity = functional("identity")
logical_not = functional("logical_not")
neg = functional("neg")
reshape = functional("reshape")
squeeze = functional("squeeze")
transpose = functional("transpose")
unsqueeze = functional("unsqueeze")


@register_pass
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Apply the rules of the set `rules` to a fixpoint."""

    name = "canonicalize"
    rules: str = "canonicalize"

    def run(self, graph: Graph) -> Graph:
        """The graph in which no rule fits."""
        return rewrite(graph, rules_of(self.rules))


@rule_set("canonicalize")
def canonical_rules() -> tuple[Rule, ...]:
    """The first rule set: one rule a line, holes named for what they stand for."""
    return (
        constant_right("add"),
        constant_right("mul"),
        *map(idempotent, ("relu", "abs", "floor", "ceil", "round", "sign")),
        Rule("add-zero", lambda x: x + 0, lambda x: x, when=integer_and_same_type),
        Rule("add-minus-zero", lambda x: x + -0.0, lambda x: x, when=same_type),
        Rule("sub-zero", lambda x: x - 0, lambda x: x, when=same_type),
        Rule("mul-one", lambda x: x * 1, lambda x: x, when=same_type),
        Rule("div-one", lambda x: x / 1, lambda x: x, when=same_type),
        Rule("double-neg", lambda x: neg(neg(x)), lambda x: x),
        Rule("add-neg", lambda x, y: x + (-y), lambda x, y: x - y),
        Rule("sub-neg", lambda x, y: x - (-y), lambda x, y: x + y),
        Rule("double-not", lambda x: logical_not(logical_not(x)), lambda x: x),
        Rule("identity", lambda x: identity(x), lambda x: x),
        Rule("clip-unbounded", lambda x: clip(x), lambda x: x),
        Rule("concat-of-one", lambda x, a: concat(x, axis=a), lambda x: x),
        Rule("expand-to-same", lambda x, s: expand(x, shape=s), lambda x: x, when=same_type),
        Rule("cast-to-same", lambda x, t: cast(x, to=t), lambda x: x, when=casts_to_own),
        Rule("flatten-as-reshape", lambda x, a: flatten(x, axis=a), to_shape, when=is_static),
        Rule("squeeze-as-reshape", lambda x, a: squeeze(x, axes=a), to_shape, when=is_static),
        Rule("unsqueeze-as-reshape", lambda x, a: unsqueeze(x, axes=a), to_shape, when=is_static),
        Rule("reshape-to-same", lambda x, s: reshape(x, shape=s), lambda x: x, when=same_type),
        Rule("reshape-of-reshape", reshaped_twice, to_shape, when=is_static),
        Rule("transpose-nothing", lambda x, p: transpose(x, perm=p), lambda x: x, when=moves_none),
        Rule("transpose-of-transpose", transposed_twice, transposed_once),
    )


@rule_set("fast")
def fast_rules() -> tuple[Rule, ...]:
    """The canonical rules and those that hold for finite numbers only (precision="fast")."""
    return (
        *canonical_rules(),
        Rule("mul-zero", lambda x: x * 0, filled_with(0), when=is_static),
        Rule("sub-itself", lambda x: x - x, filled_with(0), when=is_static),
        Rule("div-itself", lambda x: x / x, filled_with(1), when=is_static),
        Rule("add-zero-float", lambda x: x + 0, lambda x: x, when=same_type),
    )


def filled_with(number: int) -> Callable[[Node], Constant]:
    """A replacement: a constant of the type of the match that holds the number everywhere."""

    def constant(root: Node) -> Constant:
        assert isinstance(root.type, TensorType), "elementwise ops have one result"
        array = np.full(root.type.dims, number, root.type.dtype.numpy)
        return Constant(root.name, array, Derived("fast", root.loc))

    return constant


def constant_right(op: str) -> Rule:
    """c + x = x + c, so that other rules need to look for constants on one side only."""
    apply_op: Callable[..., Any] = functional(op)
    return Rule(
        f"{op}-constant-right",
        lambda c, x: apply_op(c, x),
        lambda c, x: apply_op(x, c),
        when=constant_on_the_left_only,
    )


def idempotent(op: str) -> Rule:
    """f(f(x)) = f(x)."""
    f: Callable[..., Any] = functional(op)
    return Rule(f"{op}-of-{op}", lambda x: f(f(x)), lambda x: f(x))


def reshaped_twice(x: Any, s: Any, t: Any) -> Any:
    """Pattern: reshape of reshape."""
    return reshape(reshape(x, shape=s), shape=t)


def to_shape(x: Value, root: Node) -> Value:
    """Replacement: one reshape of x to the shape of the match."""
    shape = root.type.dims if isinstance(root.type, TensorType) else ()
    return reshape(x, shape=shape)


def transposed_twice(x: Any, p: Any, q: Any) -> Any:
    """Pattern: transpose of transpose."""
    return transpose(transpose(x, perm=p), perm=q)


def transposed_once(x: Value, p: Any, q: Any) -> Value:
    """Replacement: axis d of the result is axis p[q[d]] of x."""
    first, second = axis_order(p, x), axis_order(q, x)
    return transpose(x, perm=tuple(first[a] for a in second))


def axis_order(perm: tuple[int, ...] | None, x: Value) -> tuple[int, ...]:
    """The permutation of a transpose, None (reversed) and negative axes resolved."""
    rank = x.type.rank if isinstance(x.type, TensorType) else 0
    return tuple(reversed(range(rank))) if perm is None else tuple(a % rank for a in perm)


def same_type(x: Value, root: Node) -> Verdict:
    """Condition: the op does not change the type (a constant, say, does not broadcast x)."""
    return x.type == root.type or f"the type changes from {x.type} to {root.type}"


def integer_and_same_type(x: Value, root: Node) -> Verdict:
    """Condition: the rule is exact on integers only."""
    if not (isinstance(x.type, TensorType) and x.type.dtype.is_integer):
        return "not exact on floats: -0.0 + 0.0 is 0.0"
    return same_type(x, root)


def constant_on_the_left_only(c: Value, x: Value) -> Verdict:
    """Condition: the left input is a constant, the right one is not."""
    if not isinstance(c, Constant):
        return "its left input is no constant"
    return not isinstance(x, Constant) or "both inputs are constants: fold_constants takes them"


def is_static(root: Node) -> Verdict:
    """Condition: the shape of the result is known, so that one reshape can name it."""
    known = isinstance(root.type, TensorType) and root.type.is_static
    return known or "the shape is symbolic"


def casts_to_own(x: Value, t: DType) -> Verdict:
    """Condition: a cast to the element type that x has."""
    own = x.type.dtype if isinstance(x.type, TensorType) else None
    return own == t or f"it converts {own} to {t}"


def moves_none(x: Value, p: tuple[int, ...] | None) -> Verdict:
    """Condition: the transpose leaves every axis in place."""
    order = axis_order(p, x)
    return order == tuple(range(len(order))) or f"it moves axes: {order}"
