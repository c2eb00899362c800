"""Rules, one graph each: where a rule fits, what is left of it, and a graph that it must not touch.

    RuleCase("c = const(1.0); y = mul(x, c)", "x", "c = const(0.0); y = mul(x, c)")     # mul-one

A body is statements with `; ` between them, x an f32[2, 3] unless it begins with `params | `.
`check_same_numbers` compares a graph before and after on hostile numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array, TensorType
from minidlc.graph import Graph, interpret, parse, verify
from minidlc.ops import samples
from minidlc.transform import Rule, rewrite


@dataclass(frozen=True)
class RuleCase:
    """A graph that a rule changes, what is left, a graph that it does not change."""

    body: str
    expected: str
    other: str
    tolerance: float = 0.0


def graph(body: str) -> Graph:
    """The graph of a body; constants without a type are f32 numbers."""
    params, _, rest = body.rpartition(" | ")
    text = re.sub(r"(^|; )(\w+) = const", r"\1\2: f32[()] = const", rest)
    head = f"def f({params or 'x: f32[2, 3]'}):"
    return parse("\n    ".join([head, *text.split("; "), "return y"]))


def calls(g: Graph) -> str:
    """The ops that are left, one after the other; constants are not shown."""
    texts = [line.split(" = ")[1] for line in str(g).splitlines() if " = " in line]
    return " ".join(t for t in texts if not t.startswith("const")) or g.outputs[0].name


def hostile(type: TensorType, seed: int) -> Array:
    """Elements with NaN, infinities, -0.0 and the ends of integer types among them."""
    rng = np.random.default_rng(seed)
    plain = samples.array(type.dims, type.dtype, -9, 9, seed)
    if type.dtype.is_float:
        special = np.array([*samples.SPECIAL, 3.4e38, -1e-42, 65504, 2.5, 3.5])
    elif type.dtype.kind == "bool":
        special = np.array([True, False])
    else:
        info = np.iinfo(type.dtype.numpy.name)
        special = np.array([info.min, info.max, 0, 1, 2], type.dtype.numpy)
    with np.errstate(all="ignore"):
        drawn = rng.choice(special, type.dims).astype(type.dtype.numpy)
    return np.where(rng.random(type.dims) < (0.5 if seed % 2 else 0), drawn, plain)


def check_same_numbers(before: Graph, after: Graph, tolerance: float = 0.0) -> None:
    """The same bits, NaN apart, or (of plain numbers) up to a relative tolerance."""
    for seed in range(6):
        seed = 2 * seed if tolerance else seed
        inputs = [hostile(i.type, seed + 2 * n) for n, i in enumerate(before.inputs)]
        expected, got = interpret(before, inputs), interpret(after, inputs)
        if not tolerance:
            check_same_bits(expected, got)
            continue
        for a, b in zip(expected, got, strict=True):
            wide = [v.astype(np.float64) for v in (a, b)]
            np.testing.assert_allclose(wide[1], wide[0], rtol=tolerance, atol=tolerance)


def check_same_bits(expected: Sequence[Array], got: Sequence[Array]) -> None:
    """Types, shapes and bits, the sign of zeros included; NaN is NaN."""
    for a, b in zip(expected, got, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.array_equal(a != a, b != b)
        signs = np.signbit(a.astype(float)) == np.signbit(b.astype(float))
        assert np.all(((a == b) & signs) | (a != a))


def check_fits(rule: Rule, case: RuleCase) -> None:
    """The rule changes the graph as expected, and no number."""
    g = graph(case.body)
    after = rewrite(g, [rule])
    verify(after)
    assert calls(after) == case.expected
    check_same_numbers(g, after, case.tolerance)


def check_does_not_fit(rule: Rule, case: RuleCase) -> None:
    """The other graph stays the same object."""
    g = graph(case.other)
    assert rewrite(g, [rule]) is g
