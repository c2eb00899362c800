"""What rules ask before they apply: conditions that several families share, and their replacements.

    Rule("mul-one", lambda x: x * 1, lambda x: x, when=same_type)
    Rule("sub-itself", lambda x: x - x, filled_with(0), when=both(is_static, integer))

A condition takes holes, `root` or `facts`, and gives True or the reason against. Reads values,
changes nothing. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.support.locations import Derived
from minidlc.transform.dataflow.fact import Fact

Verdict: TypeAlias = "bool | str"  # True, or the reason against
Facts: TypeAlias = Callable[[Value], Fact]
Condition: TypeAlias = Callable[..., Verdict]


def both(*conditions: Condition) -> Condition:
    """All of the conditions; the first reason against counts."""
    names = [(c, tuple(inspect.signature(c).parameters)) for c in conditions]

    def check(**given: Any) -> Verdict:
        for condition, wanted in names:
            verdict = condition(**{n: given[n] for n in wanted})
            if verdict is not True:
                return verdict
        return True

    return _takes(check, *(n for _, wanted in names for n in wanted))


def _takes(check: Condition, *names: str) -> Condition:
    """The condition, as a function of these parameters: what a rule binds by name."""
    kind = inspect.Parameter.KEYWORD_ONLY
    each = [inspect.Parameter(n, kind) for n in dict.fromkeys(names)]
    check.__signature__ = inspect.Signature(each)  # pyright: ignore[reportFunctionMemberAccess]
    return check


def same_type(x: Value, root: Node) -> Verdict:
    """The op does not change the type (a constant, say, does not broadcast x)."""
    return x.type == root.type or f"the type changes from {x.type} to {root.type}"


def integer(root: Node) -> Verdict:
    """Integers, which wrap: every reordering gives the same bits."""
    element = tensor_type(root).dtype
    return element.is_integer or f"not exact on {element}"


def is_float(x: Value) -> Verdict:
    """Elements of x are floats."""
    return tensor_type(x).dtype.is_float or "its elements are no floats"


def is_signed(x: Value) -> Verdict:
    """Elements of x have a sign: of the others neg wraps around, and abs does nothing."""
    element = tensor_type(x).dtype
    return element.is_float or element.name.startswith("i") or f"{element} has no sign"


def is_static(root: Node) -> Verdict:
    """The shape of the result is known, so that an attribute or a constant can have it."""
    known = isinstance(root.type, TensorType) and root.type.is_static
    return known or "the shape is symbolic"


def known(root: Node, facts: Facts) -> Verdict:
    """The analysis says which number every element of the result is."""
    return facts(root).constant is not None or "its elements are not known"


def constants(*names: str) -> Condition:
    """The values of these holes are constants."""

    def check(**given: Any) -> Verdict:
        others = [n for n in names if not isinstance(given[n], Constant)]
        return not others or f"{others[0]} is no constant"

    return _takes(check, *names)


def filled_with(number: float) -> Callable[[Node], Constant]:
    """A replacement: a constant of the type of the match that holds the number everywhere."""

    def constant(root: Node) -> Constant:
        type = tensor_type(root)
        loc = Derived(f"always {number}", root.loc)
        return Constant(root.name, np.full(type.dims, number, type.dtype.numpy), loc)

    return constant


def what_is_known(root: Node, facts: Facts) -> Constant:
    """A replacement: the constant that the analysis found."""
    number = facts(root).constant
    assert number is not None, "the condition `known` asked"
    return filled_with(number)(root)


def to_shape(x: Value, root: Node) -> Value:
    """A replacement: one reshape of x to the shape of the match."""
    return apply("reshape", x, shape=tensor_type(root).dims)


def number(value: Value | None) -> float | None:
    """The number that a constant of one element holds, if it is finite."""
    if not isinstance(value, Constant) or value.array.size != 1:
        return None
    found = value.array.item() if value.array.dtype.kind in "iub" else float(value.array.item())
    return found if math.isfinite(found) else None
