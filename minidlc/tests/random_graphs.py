"""Random valid graphs of 1 to 12 ops of all families, with inputs and the tolerance they deserve.

    @given(cases())
    def test(case): mc.compile(case.graph)(*case.arrays)

Every operation is drawn so that it fits: a partner that does not exist yet becomes a new input or
constant. So nothing is filtered and a failing graph shrinks op by op. What each op may do to the
numbers is tracked in facts.py's terms (random_facts.py): functions with a jump only follow values
that every right program computes to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401  (fills the registry)
from minidlc.expr.types import Array, DType, TensorType, bf16, bool_, f16, f32, f64, i32, i64, u8
from minidlc.graph import Constant, Graph, Input, Node, Value, apply
from minidlc.tests.random_facts import (
    UNIT,
    Fact,
    accumulate,
    arithmetic,
    cast,
    curve,
    limits,
    mean,
    settle,
    total,
    union,
)

SIZES = (2, 1, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 20)  # around the vector widths 4, 8, 16
ELEMENTS = (*[f32] * 16, f64, f64, f64, i32, i32, i32, i64, u8, bool_, f16, bf16)
MAX_SIZE, MAX_WORK = 3000, 60_000  # elements of a value; multiply-adds of an op: tests stay fast
SCALARS = (0.0, 1.0, -0.0, 2.0, -1.0, 0.5)  # constants that rewrite rules look for

ANYWHERE = (-math.inf, math.inf)
CURVES = {  # name: where it is well-conditioned, its steepest slope there, its range
    "tanh": (*ANYWHERE, 1.0, -1.0, 1.0), "sigmoid": (*ANYWHERE, 0.25, 0.0, 1.0),
    "sin": (-50, 50, 1.0, -1.0, 1.0), "cos": (-50, 50, 1.0, -1.0, 1.0),
    "atan": (*ANYWHERE, 1.0, -1.6, 1.6), "erf": (*ANYWHERE, 1.2, -1.0, 1.0),
    "hard_sigmoid": (*ANYWHERE, 0.2, 0.0, 1.0), "softsign": (*ANYWHERE, 1.0, -1.0, 1.0),
    "exp": (-20, 4, 55.0, 0.0, 55.0), "log": (0.1, 1e4, 10.0, -2.4, 9.3),
    "sqrt": (0.05, 1e4, 2.3, 0.2, 100.0), "reciprocal": (0.1, 1e4, 100.0, 0.0, 10.0),
    "sinh": (-4, 4, 28.0, -28.0, 28.0), "cosh": (-4, 4, 28.0, 0.0, 28.0),
    "tan": (-1.2, 1.2, 8.0, -2.6, 2.6), "asin": (-0.9, 0.9, 2.3, -1.2, 1.2),
    "acos": (-0.9, 0.9, 2.3, 0.4, 2.7), "atanh": (-0.9, 0.9, 5.3, -1.5, 1.5),
    "asinh": (-1e4, 1e4, 1.0, -10.0, 10.0), "acosh": (1.1, 1e4, 2.2, 0.4, 10.0),
}  # fmt: skip
GROWING = ("gelu", "softplus", "elu", "leaky_relu", "hard_swish")  # slope < 1.5, |f(x)| <= |x| + 1
JUMPS = ("floor", "ceil", "round", "sign")
COMPARISONS = ("less", "less_or_equal", "greater", "greater_or_equal", "equal")


@dataclass(frozen=True, eq=False)
class Case:
    """A graph, arrays for its inputs, and by how much each output may differ (0: not at all)."""

    graph: Graph
    arrays: tuple[Array, ...]
    tolerances: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Case(tolerances={self.tolerances})\n{self.graph}"

    def check(self, outputs: Sequence[Array], expected: Sequence[Array]) -> None:
        """Types, shapes and values of the outputs; NaN equals NaN."""
        assert len(outputs) == len(expected)
        for k, (got, want) in enumerate(zip(outputs, expected, strict=True)):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            where = f"output {k}, {self.graph.outputs[k].name}"
            if not self.tolerances[k]:
                np.testing.assert_array_equal(got, want, err_msg=where)
                continue
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=0,
                atol=self.tolerances[k],
                err_msg=where,
            )


@st.composite
def cases(draw: Any, max_ops: int = 12) -> Case:
    """A graph of at most `max_ops` ops (a composite op counts as one)."""
    maker = _Maker(draw)
    maker.leaf(draw(st.sampled_from(ELEMENTS)), maker.shape(), constant=False)
    for _ in range(draw(st.integers(1, max_ops))):
        draw(st.sampled_from(FAMILIES))(maker)
    values, nodes = maker.values, [v for v in maker.values if isinstance(v, Node)]
    outputs = [values[-1], *draw(st.lists(st.sampled_from(values), max_size=2))]
    graph = Graph.of("g", maker.arrays, outputs)
    if draw(st.booleans()):
        graph = replace(graph, nodes=tuple(nodes))  # those that nobody reads too
    tolerances = (2 * maker.facts[v].error for v in outputs)
    return Case(graph, tuple(maker.arrays.values()), tuple(tolerances))


class _Maker:
    """The values so far, and draws that suit them. A family adds one node, or leaves it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.values: list[Value] = []
        self.facts: dict[Value, Fact] = {}
        self.arrays: dict[Input, Array] = {}

    def one(self, *choices: Any) -> Any:
        """One of the choices; the first is the simplest."""
        return self.draw(st.sampled_from(choices))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Sizes of mostly rank 2 to 4; rarely one is 0."""
        rank = self.one(2, 1, 3, 4, 2, 3, 4, 0, 5) if rank is None else rank
        dims = [self.one(*SIZES) for _ in range(rank)]
        if dims and self.draw(st.integers(0, 40)) == 40:
            dims[self.one(*range(rank))] = 0
        while math.prod(dims) > MAX_SIZE:
            dims[dims.index(max(dims))] = 2
        return tuple(dims)

    def leaf(
        self,
        element: DType,
        shape: Sequence[int],
        low: float = -2.0,
        high: float = 2.0,
        constant: bool | None = None,
    ) -> Value:
        """A new input or constant, of small integers or any values between `low` and `high`."""
        whole = not element.is_float or self.draw(st.booleans())
        low = max(low, limits(element)[0]) if not element.is_float else low
        high = min(high, 1.0) if element == bool_ else high
        rng = np.random.default_rng(len(self.values))
        array = rng.uniform(low, high, tuple(shape))
        if whole:
            low, high = math.ceil(low), math.floor(high)
            array = rng.integers(low, high, tuple(shape), endpoint=True)
        array = np.asarray(array).astype(element.numpy)
        if self.draw(st.booleans()) if constant is None else constant:
            value: Value = Constant(f"c{len(self.values)}", array)
        else:
            value = Input(f"x{len(self.values)}", TensorType(element, tuple(shape)))
            self.arrays[value] = array
        return self.keep(value, Fact(low, high, 0.0, whole))

    def scalar(self, element: DType) -> Value:
        """A constant of one element, such as 0 or 1."""
        number = self.one(*SCALARS) if element.is_float else self.one(0, 1, 2)
        shape = self.one((), (1,), (1, 1))
        constant = Constant(f"c{len(self.values)}", np.full(shape, number, element.numpy))
        return self.keep(constant, Fact(number, number, 0.0, float(number).is_integer()))

    def keep(self, value: Value, fact: Fact) -> Value:
        """Remember a value that later operations may read."""
        self.values.append(value)
        self.facts[value] = fact
        return value

    def add(self, op: str, *inputs: Value | None, fact: Fact, **attributes: Any) -> None:
        """Remember a node, unless it is large or one of its inputs was."""
        node = apply(op, *inputs, **attributes)
        if tensor(node).size <= MAX_SIZE:
            self.keep(node, fact)

    def pick(self, fits: Callable[[TensorType, Fact], bool] = lambda t, f: True) -> Value | None:
        """A value that fits; the latest is as likely as all others, so that graphs grow deep."""
        found = [
            v
            for v in self.values
            if (self.facts[v].usable or not tensor(v).dtype.is_float)
            and fits(tensor(v), self.facts[v])
        ]
        return self.one(*found, *[found[-1]] * len(found)) if found else None

    def pick_float(self, *ranks: int) -> Value:
        """A float value of one of these ranks (any if none is named), new if there is none."""
        found = self.pick(lambda t, f: t.dtype.is_float and (not ranks or t.rank in ranks))
        return found or self.leaf(self.one(f32, f64), self.shape(self.one(*(ranks or (2,)))))

    def partner(self, x: Value, exact: bool = False) -> Value:
        """A value of x's element type that broadcasts with it: x, another, a number, a new one."""
        t = tensor(x)

        def fits(other: TensorType, fact: Fact) -> bool:
            return (
                other.dtype == t.dtype and (fact.exact or not exact) and broadcasts(other, t)
            )

        match self.one("other", "new", "other", "scalar"):
            case "other" if (found := self.pick(fits)) is not None:
                return found
            case "scalar":
                return self.scalar(t.dtype)
            case _:
                return self.leaf(t.dtype, self.broadcast_shape(t.dims))

    def broadcast_shape(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """`dims`, some of them 1, some 1 of them larger, fewer or one more in front."""
        shape = [self.one(d, d, d, 1) if d != 1 else self.one(1, *SIZES) for d in dims]
        extra = self.one(0, 0, 1, -1)
        return tuple(shape[-extra:] if extra < 0 else [2] * extra + shape)


def tensor(value: Value) -> TensorType:
    """The type of a value that is no tuple."""
    assert isinstance(value.type, TensorType)
    return value.type


def broadcasts(a: TensorType, b: TensorType) -> bool:
    """True if the shapes broadcast to one that is not too large."""
    try:
        return math.prod(np.broadcast_shapes(a.dims, b.dims)) <= MAX_SIZE
    except ValueError:
        return False


def unary(m: _Maker) -> None:
    """A function of one float where it is well-conditioned, or one of integers or bools."""
    x = m.pick()
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    if t.dtype == bool_:
        return m.add("logical_not", x, fact=f)
    if not t.dtype.is_float:
        name = m.one("relu" if t.dtype.kind == "int" else "bitwise_not", "neg", "abs", "bitwise_not")
        return m.add(name, x, fact=settle(t.dtype, *limits(t.dtype), 0.0, True))
    names = [n for n, (low, high, *_) in CURVES.items() if low <= f.low and f.high <= high]
    choices = ["relu", "neg", "abs", "identity", "clip", *names, *GROWING]
    name = m.one(*choices, *(JUMPS if f.exact else ()))
    if name in CURVES:
        return m.add(name, x, fact=curve(t.dtype, f, *CURVES[name][2:]))
    if name in GROWING:
        return m.add(name, x, fact=curve(t.dtype, f, 1.5, -f.size - 1, f.size + 1))
    if name == "clip":
        low, high = m.one((0.0, 6.0), (-1.0, 1.0), (None, 0.5), (0.5, None))
        limit = max(f.size, 6.0)
        whole = f.whole and low != 0.5 != high
        return m.add(name, x, min=low, max=high, fact=Fact(-limit, limit, f.error, whole))
    size = f.size + 1
    return m.add(name, x, fact=Fact(-size, size, f.error, f.whole or name in JUMPS))


def binary(m: _Maker) -> None:
    """Arithmetic of a value and something that broadcasts with it, in either order."""
    x = m.pick()
    if x is None:
        return
    t = tensor(x)
    if t.dtype == bool_:
        name = m.one("logical_and", "logical_or", "logical_xor", "equal")
        return m.add(name, x, m.partner(x), fact=Fact(0, 1, 0, True))
    a, b = (x, m.partner(x)) if m.one(True, False) else (m.partner(x), x)
    fa, fb = m.facts[a], m.facts[b]
    if not t.dtype.is_float:
        name = m.one("add", "sub", "mul", "div", "mod", "bitwise_and", "bitwise_xor", "minimum")
        return m.add(name, a, b, fact=settle(t.dtype, *limits(t.dtype), 0.0, True))
    name = m.one("add", "mul", "sub", "maximum", "minimum", "div")
    if name == "div":
        divisor = m.leaf(t.dtype, m.broadcast_shape(t.dims), low=0.5)
        return m.add(name, x, divisor, fact=curve(t.dtype, m.facts[x], 2.0, *_around(m.facts[x])))
    known = union(fa, fb) if name.endswith("imum") else arithmetic(t.dtype, name, fa, fb)
    return m.add(name, a, b, fact=known)


def _around(f: Fact) -> tuple[float, float]:
    return -2 * f.size, 2 * f.size


def compare(m: _Maker) -> None:
    """A comparison of two values that are exact: a bool."""
    x = m.pick(lambda t, f: f.exact and t.dtype != bool_)
    if x is None:
        return
    y = m.partner(x, exact=True)
    m.add(m.one(*COMPARISONS), x, y, fact=Fact(0.0, 1.0, 0.0, True))


def where(m: _Maker) -> None:
    """One of two values by a mask, new or computed."""
    x = m.pick()
    if x is None:
        return
    y, t = m.partner(x), tensor(x)
    mask = m.pick(lambda u, f: u.dtype == bool_ and broadcasts(u, t) and broadcasts(u, tensor(y)))
    mask = mask or m.leaf(bool_, m.broadcast_shape(t.dims))
    m.add("where", mask, x, y, fact=union(m.facts[x], m.facts[y]))


def convert(m: _Maker) -> None:
    """A cast; only what is exact becomes an integer."""
    x = m.pick()
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    targets = (f32, f64, i32, i64, u8, bool_) if f.exact else (f32, f64)
    to = m.one(*targets)
    m.add("cast", x, to=to, fact=cast(f, t.dtype, to))


def matmul(m: _Maker) -> None:
    """A product of matrices, batches or vectors."""
    a = m.pick(lambda t, f: t.rank >= 1 and t.dtype != bool_)
    a = a or m.leaf(f32, m.shape(2))
    t = tensor(a)
    k = t.dims[-1]

    def fits(u: TensorType, f: Fact) -> bool:
        return u.dtype == t.dtype and u.rank >= 1 and u.dims[max(u.rank - 2, 0)] == k and (
            u.rank <= 2 or t.rank <= 2 or u.dims[:-2] == t.dims[:-2]
        )  # fmt: skip

    b = m.pick(fits) if m.one(True, False) else None
    if b is None:
        column = m.one((m.one(*SIZES),), ())
        batch = m.one((), (), m.broadcast_shape(t.dims[:-2]), (2,)) if column else ()
        batch = batch if math.prod(batch) <= 8 and _fit(batch, t.dims[:-2]) else ()
        b = m.leaf(t.dtype, (*batch, k, *column))
    node = apply("matmul", a, b)
    if tensor(node).size * k <= MAX_WORK:
        m.add("matmul", a, b, fact=accumulate(t.dtype, m.facts[a], m.facts[b], k))


def _fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return broadcasts(TensorType(f32, a), TensorType(f32, b))


def gemm(m: _Maker) -> None:
    """gemm of a value and new weights: transposed or not, scaled or not."""
    a = m.pick_float(2)
    t, f = tensor(a), m.facts[a]
    left, right = m.one(False, True), m.one(False, True)
    rows, k = t.dims[::-1] if left else t.dims
    columns = m.one(*SIZES)
    b = m.leaf(t.dtype, (columns, k) if right else (k, columns))
    c = m.one(None, (columns,), (rows, 1), (), (rows, columns))
    bias = None if c is None else m.leaf(t.dtype, c)
    fact = accumulate(t.dtype, f, m.facts[b], k + 2)  # the bias is within two terms, scaled or not
    scales = {} if m.one(True, False) else {"alpha": 0.5, "beta": 2.0}
    inexact = scales and fact.exact
    fact = replace(
        fact,
        low=fact.low - 4,
        high=fact.high + 4,
        whole=fact.whole and not scales,
        error=UNIT[t.dtype.name] * (fact.size + 4) if inexact else fact.error * 2,
    )
    m.add("gemm", a, b, bias, transA=left, transB=right, fact=fact, **scales)


def window(m: _Maker, dims: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """kernel, strides, dilations and pads that fit spatial `dims`."""
    n = len(dims)
    kernel, pads = [m.one(1, 2, 3) for _ in dims], [m.one(0, 0, 1, 2) for _ in range(2 * n)]
    dilations = [m.one(1, 1, 2) for _ in dims]
    for d in range(n):
        extent = (kernel[d] - 1) * dilations[d] + 1
        pads[d], pads[n + d] = (min(p, extent - 1) for p in (pads[d], pads[n + d]))
        if extent > dims[d] + pads[d] + pads[n + d]:
            kernel[d], pads[d], pads[n + d] = 1, 0, 0
    return {
        "kernel": tuple(kernel),
        "pads": tuple(pads),
        "strides": tuple(m.one(1, 1, 2, 3) for _ in dims),
        "dilations": tuple(dilations),
    }


def conv(m: _Maker) -> None:
    """A convolution with new weights: groups, strides, dilations, borders, a bias or none."""
    x = m.pick_float(3, 4, 4, 5)
    t, f = tensor(x), m.facts[x]
    channels = t.dims[1]
    group = m.one(*(g for g in (1, channels, 2, 3) if g and channels % g == 0))
    outputs = group * m.one(1, 2, 3, 5, *(16,) * (group == 1))
    w = window(m, t.dims[2:])
    per_group = channels // group
    kernel = w.pop("kernel")
    if 0 in t.dims or outputs * per_group * math.prod(kernel) > MAX_SIZE:
        return
    weight = m.leaf(t.dtype, (outputs, per_group, *kernel))
    bias = m.leaf(t.dtype, (outputs,)) if m.one(True, False) else None
    terms = per_group * math.prod(kernel)
    node = apply("conv", x, weight, bias, group=group, **w)
    if tensor(node).size * terms <= MAX_WORK:
        fact = accumulate(t.dtype, f, m.facts[weight], terms)
        if bias is not None:
            fact = arithmetic(t.dtype, "add", fact, m.facts[bias])
        m.add("conv", x, weight, bias, group=group, **w, fact=fact)
