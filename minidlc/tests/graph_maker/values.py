"""Growing a random graph: the values so far, and draws that suit them.

    m = Maker(random.Random(7).randrange)           # choose(n) gives 0 … n - 1
    x = m.leaf(f32, m.shape()); y = m.partner(x)    # y broadcasts with x: old, new or a number
    m.add("mul", x, y, fact=…)

A partner that does not exist yet becomes a new input or constant, so nothing need be filtered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minidlc.ops  # noqa: F401  (fills the registry)
from minidlc.expr.types import Array, DType, TensorType, bool_, f32, f64
from minidlc.graph import Constant, Input, Value, apply
from minidlc.tests.graph_maker.facts import Fact, limits

SIZES = (2, 1, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 20, 33)  # around the vector widths 4, 8, 16
MAX_SIZE = 3000  # elements of a value
SCALARS = (0.0, 1.0, -0.0, 2.0, -1.0, 0.5)  # constants that rewrite rules look for


class Maker:
    """The values so far, and draws that suit them. A family adds one node, or leaves it."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose
        self.values: list[Value] = []
        self.facts: dict[Value, Fact] = {}
        self.arrays: dict[Input, Array] = {}

    def one(self, *choices: Any) -> Any:
        """One of the choices; the first is the simplest."""
        return choices[self.choose(len(choices))] if len(choices) > 1 else choices[0]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Sizes of mostly rank 2 to 4; rarely one is 0."""
        rank = self.one(2, 1, 3, 4, 2, 3, 4, 0, 5) if rank is None else rank
        dims = [self.one(*SIZES) for _ in range(rank)]
        if dims and self.choose(40) == 39:
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
        whole = not element.is_float or self.one(True, False)
        low = max(low, limits(element)[0]) if not element.is_float else low
        high = min(high, 1.0) if element == bool_ else high
        rng = np.random.default_rng(len(self.values))
        array = rng.uniform(low, high, tuple(shape))
        if whole:
            low, high = math.ceil(low), math.floor(high)
            array = rng.integers(low, high, tuple(shape), endpoint=True)
        array = np.asarray(array).astype(element.numpy)
        if self.one(False, True) if constant is None else constant:
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
        """Remember a node, unless it is large and its inputs are not."""
        node = apply(op, *inputs, **attributes)
        limit = max(MAX_SIZE, *(tensor(v).size for v in inputs if v is not None))
        if tensor(node).size <= limit:
            self.keep(node, fact)

    def pick(
        self, fits: Callable[[TensorType, Fact], bool] = lambda t, f: True, latest: bool = False
    ) -> Value | None:
        """A value that fits; the latest is as likely as all others, so that graphs grow deep."""
        found = [v for v in self.values if self.usable(v) and fits(tensor(v), self.facts[v])]
        if not found:
            return None
        return found[-1] if latest else self.one(*found, *[found[-1]] * len(found))

    def usable(self, value: Value) -> bool:
        """False for floats that would make the comparison vague."""
        return self.facts[value].usable or not tensor(value).dtype.is_float

    def pick_float(self, *ranks: int) -> Value:
        """A float value of one of these ranks (any if none is named), new if there is none."""
        found = self.pick(lambda t, f: t.dtype.is_float and (not ranks or t.rank in ranks))
        if found is not None:
            return found
        return self.leaf(self.one(f32, f64), self.shape(self.one(*(ranks or (2,)))))

    def partner(self, x: Value, exact: bool = False) -> Value:
        """A value of x's element type that broadcasts with it: x, another, a number, a new one."""
        t = tensor(x)

        def fits(other: TensorType, fact: Fact) -> bool:
            return other.dtype == t.dtype and (fact.exact or not exact) and broadcasts(other, t)

        match self.one("other", "new", "other", "scalar"):
            case "other" if (found := self.pick(fits)) is not None:
                return found
            case "scalar":
                return self.scalar(t.dtype)
            case _:
                return self.leaf(t.dtype, self.broadcast_shape(t.dims))

    def permutation(self, rank: int) -> tuple[int, ...]:
        """An order of `rank` axes."""
        rest = list(range(rank))
        return tuple(rest.pop(self.choose(len(rest))) for _ in range(rank))

    def broadcast_shape(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """`dims`, some of them 1, some 1 of them larger, fewer or one more in front."""
        shape = [self.one(d, d, d, 1) if d != 1 else self.one(1, *SIZES) for d in dims]
        extra = self.one(0, 0, 1, -1)
        shape = shape[-extra:] if extra < 0 else [2] * extra + shape
        return tuple(shape) if math.prod(shape) <= MAX_SIZE else dims


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
