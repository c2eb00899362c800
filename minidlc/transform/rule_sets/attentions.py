"""Attention found again in its products: softmax(q @ k.T * scale + mask) @ v.

    matmul(softmax(matmul(q, transpose(k)) / 8), v) -> getitem(attention(q, k, v, scale=0.125), 0)

Exporters write it with a scale or scale q themselves, with a mask that is added or chosen by, and
with 0 in place of rows that are hidden as a whole. The pass `decompose` opens an attention into
such products again: it is for passes that look for the name, a back end that has the op, and
pictures. Of a row that is hidden as a whole `attention` makes 0, a chain without that step NaN.
A. Vaswani et al., "Attention Is All You Need", 2017. Treated in course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

from minidlc.graph.graph import Value, apply, getitem, tensor_type
from minidlc.ops import functional
from minidlc.transform.rule_sets.conditions import Verdict, both, number
from minidlc.transform.rules.rules import Rule, rule_set

isnan = functional("isnan")
matmul = functional("matmul")
softmax = functional("softmax")
where = functional("where")

Step = Callable[..., Any]

# (scores, c) -> scaled scores; (scores, m) -> masked scores; weights -> weights
SCALES: dict[str, Step] = {
    "unscaled": lambda scores, c: scores,
    "multiplied": lambda scores, c: scores * c,
    "divided": lambda scores, c: scores / c,
}
MASKS: dict[str, Step] = {
    "unmasked": lambda scores, m: scores,
    "added": lambda scores, m: scores + m,
    "chosen": lambda scores, m: where(m, scores, -math.inf),
}
ROWS: dict[str, Step] = {
    "plain": lambda weights: weights,
    "guarded": lambda weights: where(isnan(weights), 0, weights),
}


@rule_set("attention")
@cache
def attention_rules() -> tuple[Rule, ...]:
    """Attention of four axes in each spelling."""
    return tuple(map(spelling, *zip(*product(SCALES, MASKS, ROWS), strict=True)))


def spelling(scale: str, mask: str, rows: str) -> Rule:
    """The rule of one spelling; its holes are q, k, v, the scale c and the mask m it has."""

    def pattern(q: Any, k: Any, v: Any, c: Any = None, m: Any = None) -> Any:
        scores = MASKS[mask](SCALES[scale](matmul(q, k), c), m)
        return matmul(ROWS[rows](softmax(scores, axis=-1)), v)

    def replacement(q: Value, k: Value, v: Value, c: Any = None, m: Any = None) -> Value:
        factor = 1.0 if c is None else number(c) or 1.0
        keys = apply("transpose", k, perm=(0, 1, 3, 2))
        masks = () if m is None else (m,)
        by = 1 / factor if scale == "divided" else factor
        return getitem(apply("attention", q, keys, v, *masks, scale=by), 0)

    holes = ["q", "k", "v"]
    conditions = [four_axes]
    if scale != "unscaled":
        holes, conditions = [*holes, "c"], [*conditions, a_number]
    if mask != "unmasked":
        holes, conditions = [*holes, "m"], [*conditions, mask_fits]
    wanted, made = (_of(f, holes) for f in (pattern, replacement))
    return Rule(f"attention-{scale}-{mask}-{rows}", wanted, made, when=both(*conditions))


def _of(function: Step, holes: list[str]) -> Step:
    """The function, of these parameters alone."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    def call(*given: Any, **named: Any) -> Any:
        return function(**dict(zip(holes, given, strict=False)), **named)

    parameters = [inspect.Parameter(name, kind) for name in holes]
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return call


def four_axes(q: Value, k: Value, v: Value) -> Verdict:
    """q, k and v are [batch, heads, sequence, depth] with the same batch and heads."""
    types = [tensor_type(t) for t in (q, k, v)]
    if any(t.rank != 4 or not t.is_static for t in types):
        return "its values are not of four known axes"
    return len({t.shape[:2] for t in types}) == 1 or "batch or heads differ"


def a_number(c: Value) -> Verdict:
    """The scale is a constant number other than 0."""
    return bool(number(c)) or "the scale is no number"


def mask_fits(m: Value, q: Value, k: Value) -> Verdict:
    """The mask broadcasts to the scores and has every key."""
    scores = (*tensor_type(q).dims[:3], tensor_type(k).dims[3])
    own = tensor_type(m)
    if not own.is_static or not 2 <= own.rank <= 4 or own.dims[-1] != scores[-1]:
        return f"the mask {own} is none of scores {scores}"
    pairs = zip(reversed(own.dims), reversed(scores), strict=False)
    return all(d in (1, n) for d, n in pairs) or f"the mask {own} is none of scores {scores}"
