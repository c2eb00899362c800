"""Rules of shapes: chains of views become one reshape, transposes meet and cancel.

    squeeze(unsqueeze(x)) -> x          transpose(transpose(x, perm=(1, 0)), perm=(1, 0)) -> x

A transpose that moves only axes of size 1 is a reshape, which has no kernel. All are exact: no rule
here computes an element. Treated in course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

from minidlc.graph.graph import Node, Value, tensor_type
from minidlc.ops import functional
from minidlc.transform.rule_sets.conditions import Verdict, both, is_static, same_type, to_shape
from minidlc.transform.rules.rules import Rule, rule_set

expand = functional("expand")
flatten = functional("flatten")
identity = functional("identity")
reshape = functional("reshape")
squeeze = functional("squeeze")
tile = functional("tile")
transpose = functional("transpose")
unsqueeze = functional("unsqueeze")


@rule_set("shapes")
def shape_rules() -> tuple[Rule, ...]:
    """Exact rules of views, transposes and repetitions."""
    return (
        Rule("identity", lambda x: identity(x), lambda x: x),
        Rule("expand-to-same", lambda x, s: expand(x, shape=s), lambda x: x, when=same_type),
        Rule("expand-of-expand", expanded_twice, expanded_once, when=is_static),
        Rule("tile-once", lambda x, r: tile(x, repeats=r), lambda x: x, when=same_type),
        Rule("flatten-as-reshape", lambda x, a: flatten(x, axis=a), to_shape, when=is_static),
        Rule("squeeze-as-reshape", lambda x, a: squeeze(x, axes=a), to_shape, when=is_static),
        Rule("unsqueeze-as-reshape", lambda x, a: unsqueeze(x, axes=a), to_shape, when=is_static),
        Rule("reshape-to-same", lambda x, s: reshape(x, shape=s), lambda x: x, when=same_type),
        Rule("reshape-of-reshape", reshaped_twice, to_shape, when=is_static),
        Rule("squeeze-of-unsqueeze", unsqueezed_first, lambda x: x, when=same_type, benefit=2),
        Rule("unsqueeze-of-squeeze", squeezed_first, lambda x: x, when=same_type, benefit=2),
        Rule("transpose-nothing", lambda x, p: transpose(x, perm=p), lambda x: x, when=moves_none),
        Rule("transpose-of-transpose", transposed_twice, transposed_once, benefit=2),
        Rule(
            "transpose-as-reshape",
            lambda x, p: transpose(x, perm=p),
            to_shape,
            when=both(is_static, moves_ones),
        ),
    )


def reshaped_twice(x: Any, s: Any, t: Any) -> Any:
    """Pattern: reshape of reshape."""
    return reshape(reshape(x, shape=s), shape=t)


def unsqueezed_first(x: Any, a: Any, b: Any) -> Any:
    """Pattern: squeeze of unsqueeze; of the same type, it is x, whatever the axes."""
    return squeeze(unsqueeze(x, axes=a), axes=b)


def squeezed_first(x: Any, a: Any, b: Any) -> Any:
    """Pattern: unsqueeze of squeeze."""
    return unsqueeze(squeeze(x, axes=a), axes=b)


def expanded_twice(x: Any, s: Any, t: Any) -> Any:
    """Pattern: expand of expand."""
    return expand(expand(x, shape=s), shape=t)


def expanded_once(x: Value, root: Node) -> Value:
    """Replacement: one expand to the shape of the match."""
    return expand(x, shape=tensor_type(root).dims)


def transposed_twice(x: Any, p: Any, q: Any) -> Any:
    """Pattern: transpose of transpose."""
    return transpose(transpose(x, perm=p), perm=q)


def transposed_once(x: Value, p: Any, q: Any) -> Value:
    """Replacement: axis d of the result is axis p[q[d]] of x."""
    first, second = axis_order(p, x), axis_order(q, x)
    return transpose(x, perm=tuple(first[a] for a in second))


def axis_order(perm: tuple[int, ...] | None, x: Value) -> tuple[int, ...]:
    """The permutation of a transpose, None (reversed) and negative axes resolved."""
    rank = tensor_type(x).rank
    return tuple(reversed(range(rank))) if perm is None else tuple(a % rank for a in perm)


def moves_none(x: Value, p: tuple[int, ...] | None) -> Verdict:
    """The transpose leaves every axis in place."""
    order = axis_order(p, x)
    return order == tuple(range(len(order))) or f"it moves axes: {order}"


def moves_ones(x: Value, p: tuple[int, ...] | None) -> Verdict:
    """The transpose leaves the axes that are longer than 1 in their order."""
    long = [a for a in axis_order(p, x) if tensor_type(x).dims[a] != 1]
    return long == sorted(long) or f"it moves axes: {axis_order(p, x)}"
