"""Random numbers as values: philox, random_uniform, random_normal, dropout.

    apply("random_uniform", shape=(3, 5), low=-1.0)             # the same numbers at every call
    apply("random_normal", key, shape=(3, 5), stream=2)         # others for each value of key
    y, mask = results_of(apply("dropout", x, ratio=0.1, stream=1))

A draw is a function of (seed, stream, key): no state, so its numbers depend on no order of
execution, and passes may merge, move and drop draws like any op. Only folding leaves them alone.
All of them read the words of one cipher, Philox4x32-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"), in integers: the same bits in NumPy and in machine code. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import DType, TensorType, bool_, dtype, f32, f64, i32, i64, u32
from minidlc.graph.graph import Node, Value, apply, getitem, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import TupleType
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.composing import cast_to, in_wide, narrowed, reshaped, scalar
from minidlc.ops.elementwise import wide, widened
from minidlc.ops.gradients import Grads
from minidlc.ops.nests import LANES, function, nest, serial, shared
from minidlc.ops.rules import Values

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # M0, M1 of the paper
WEYL = (0x9E3779B9, 0xBB67AE85)  # what the key grows by from round to round
WORD = 0xFFFFFFFF

# one block for each lane; a product of two words has 64 bits, its halves become two words
_BLOCKS = """for word in serial(0, 4):
    for lane in vectorized(0, {lanes}):
        c[word, lane] = u32(0)
for lane in vectorized(0, {lanes}):
    c[0, lane] = cast("u32", index({first} + lane))
    c[1, lane] = u32({stream})
{key}
for r in serial(0, {rounds}):
    for lane in vectorized(0, {lanes}):
        p[lane] = cast("u64", c[0, lane]) * u64({m0})
        q[lane] = cast("u64", c[2, lane]) * u64({m1})
        c[0, lane] = cast("u32", q[lane] >> u64(32)) ^ c[1, lane] ^ {key0}
        c[1, lane] = cast("u32", q[lane])
        c[2, lane] = cast("u32", p[lane] >> u64(32)) ^ c[3, lane] ^ {key1}
        c[3, lane] = cast("u32", p[lane])
for word in serial(0, 4):
    for lane in vectorized(0, {lanes}):
        y[word, {first} + lane] = c[word, lane]"""

_KEY = """for lane in vectorized(0, {lanes}):
    c[2, lane] = cast("u32", key[()])
    c[3, lane] = cast("u32", key[()] >> i64(32))"""


def encrypt(counter: Values, key: tuple[int, int]) -> Values:
    """Philox4x32-10 in NumPy: u32[4, n] counters, one block a column, to u32[4, n] words."""
    c0, c1, c2, c3 = counter.astype(np.uint64)
    m0, m1 = map(np.uint64, MULTIPLIERS)
    half, low = np.uint64(32), np.uint64(WORD)
    for r in range(ROUNDS):
        k0, k1 = (np.uint64((k + r * w) & WORD) for k, w in zip(key, WEYL, strict=True))
        p, q = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (q >> half) ^ c1 ^ k0, q & low, (p >> half) ^ c3 ^ k1, p & low
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


@dataclass(frozen=True)
class Draw(Op):
    """Base: which numbers are drawn, by `seed`, `stream` and the optional input `key`, i64[()].

    Two draws of one seed and stream are equal; whoever makes a graph numbers its streams.
    """

    drawn = True
    kind = OpKind.COMPOSITE
    seed: int = 0
    stream: int = 0

    def check_draw(self, key: TensorType | None) -> None:
        """The seed has 64 bits, the stream 32; the key is one i64."""
        for name, value, bits in (("seed", self.seed, 64), ("stream", self.stream, 32)):
            if not 0 <= value < 1 << bits:
                rules.fail(
                    self, f"{name} must be from 0 to 2**{bits} - 1, got {value}", rules.RANGE
                )
        if key is not None and key != i64[()]:
            rules.fail(self, f"the key must be i64[()], got {key}", rules.ELEMENT, "use cast")

    def words(self, key: Value | None, count: int) -> Value:
        """Graph side: the first `count` words of this draw, u32[count]."""
        blocks = -(-count // 4)
        given = {"blocks": blocks, "seed": self.seed, "stream": self.stream}
        flat = apply("reshape", apply("philox", key, **given), shape=(4 * blocks,))
        return apply("slice", flat, starts=(0,), ends=(count,), axes=(0,))

    def unit(
        self, key: Value | None, shape: tuple[int, ...], element: DType, first: int = 0
    ) -> Value:
        """Graph side: uniform numbers k * 2**-24 in [0, 1), of f64 k * 2**-53.

        `first`: how many numbers of this draw are taken already.
        """
        count = first + math.prod(shape)
        if element != f64:
            high = apply("shift_right", self.words(key, count), np.uint32(8))
            parts = cast_to(cast_to(high, i32), f32) * 2.0**-24
        else:
            pairs = apply("reshape", self.words(key, 2 * count), shape=(2, count))
            high, low = (
                cast_to(apply("shift_right", _row(pairs, r), np.uint32(s)), f64)
                for r, s in ((0, 5), (1, 6))
            )
            parts = (high * 2.0**26 + low) * 2.0**-53
        kept = apply("slice", parts, starts=(first,), ends=(count,), axes=(0,))
        return reshaped(kept, shape)


def _row(x: Value, row: int) -> Value:
    part = apply("slice", x, starts=(row,), ends=(row + 1,), axes=(0,))
    return apply("squeeze", part, axes=(0,))


@register_op
@dataclass(frozen=True)
class Philox(Draw):
    """philox(key)[:, b] = Philox4x32-10 of the counter (b, stream, key, key >> 32) under `seed`.

    u32[4, blocks]. A draw takes its words row by row: word n is [n // blocks, n % blocks].
    """

    kind = OpKind.COMPILED
    optional = (0,)
    blocks: int = 1

    def type_rule(self, key: TensorType | None = None) -> TensorType:
        self.check_draw(key)
        if not 0 <= self.blocks <= WORD:
            rules.fail(self, f"blocks must be from 0 to 2**32 - 1, got {self.blocks}", rules.RANGE)
        return u32[4, self.blocks]

    def reference(self, key: Values | None = None) -> Values:
        number = 0 if key is None else int(key) & (1 << 64) - 1
        counter = np.zeros((4, self.blocks), np.uint32)
        counter[0] = np.arange(self.blocks)
        counter[1], counter[2], counter[3] = self.stream, number & WORD, number >> 32
        return encrypt(counter, (self.seed & WORD, self.seed >> 32))

    def loops(self, key: TensorType | None = None) -> LoopFunction:
        params = (
            {"y": u32[4, self.blocks]} if key is None else {"key": key, "y": u32[4, self.blocks]}
        )
        if not self.blocks:
            return function(self.name, params, [])
        lanes = f"min({LANES}, {self.blocks} - {LANES} * chunk)"
        words = (self.seed & WORD, self.seed >> 32)
        key0, key1 = (
            f'cast("u32", index({k} + {w} * r))' for k, w in zip(words, WEYL, strict=True)
        )
        body = _BLOCKS.format(
            lanes=lanes, first=f"{LANES} * chunk", stream=self.stream, rounds=ROUNDS,
            key="" if key is None else _KEY.format(lanes=lanes),
            m0=MULTIPLIERS[0], m1=MULTIPLIERS[1], key0=key0, key1=key1,
        )  # fmt: skip
        scratch = [f'c = alloc(u32[4, {LANES}], "stack")']
        scratch += [f'{name} = alloc(u64[{LANES}], "stack")' for name in "pq"]
        chunks = serial(["chunk"], [-(-self.blocks // LANES)])
        lines = [line for line in body.splitlines() if line]
        return function(self.name, params, nest(shared(chunks, 40 * self.blocks), *scratch, *lines))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """No block, one, a vector and its neighbours; seeds, streams, keys of 64 bits."""
        for blocks in (0, 1, 15, 16, 17, 25):
            yield Example(cls(blocks=blocks, stream=blocks), (), 0, 0)
        yield Example(cls((1 << 64) - 1, WORD, 3), (), 0, 0)
        for key in (0, 1, -1, 1 << 40, -(1 << 63)):
            yield Example(cls(7, 2, 5), (np.array(key),), 0, 0)


@dataclass(frozen=True)
class ShapedDraw(Draw):
    """Base of draws of a `shape` and a float type `to`; f16 and bf16 are drawn as f32."""

    optional = (0,)
    shape: tuple[int, ...] = ()
    to: DType = f32

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", dtype(self.to))

    def type_rule(self, key: TensorType | None = None) -> TensorType:
        self.check_draw(key)
        if not self.to.is_float:
            rules.fail(self, f"the numbers are floats, not {self.to}", rules.ELEMENT, "use cast")
        if any(n < 0 for n in self.shape):
            rules.fail(self, f"sizes must not be negative, got {self.shape}", rules.RANGE)
        return TensorType(self.to, self.shape)

    def unit_array(self, key: Values | None, count: int) -> Values:
        """NumPy side of `unit`, flat."""
        if self.to != f64:
            return (_words(self, key, count) >> np.uint32(8)).astype(np.float32) * np.float32(
                2**-24
            )
        high, low = _words(self, key, 2 * count).reshape(2, count)
        wide_words = (high >> np.uint32(5)).astype(np.float64), (low >> np.uint32(6))
        return (wide_words[0] * 2.0**26 + wide_words[1]) * 2.0**-53


def _words(op: Draw, key: Values | None, count: int) -> Values:
    """NumPy side of `Draw.words`."""
    blocks = -(-count // 4)
    return Philox(op.seed, op.stream, blocks).reference(key).reshape(-1)[:count]


@register_op
@dataclass(frozen=True)
class RandomUniform(ShapedDraw):
    """random_uniform(key)[i] = low + u[i] * (high - low), u uniform in [0, 1) in steps of 2**-24.

    Rounding to the type `to` may give `high` itself. Steps of f64 are 2**-53.
    """

    finite = ("low", "high")
    low: float = 0.0
    high: float = 1.0

    def reference(self, key: Values | None = None) -> Values:
        u = self.unit_array(key, math.prod(self.shape))
        low, width = (u.dtype.type(v) for v in (self.low, self.high - self.low))
        return np.asarray((low + u * width).astype(self.to.numpy)).reshape(self.shape)

    def decompose(self, key: Value | None = None) -> Value:
        u = self.unit(key, self.shape, self.to)
        if self.high - self.low != 1.0:
            u = u * (self.high - self.low)
        return cast_to(u + self.low if self.low else u, self.to)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Rank 0, size 0, odd sizes; bounds; a key; element types."""
        for shape in ((), (0,), (3, 0), (1,), (7,), (3, 5), (2, 1, 4)):
            yield Example(cls(stream=1, shape=shape), (), 0, 0)
        yield Example(cls(stream=1, shape=(17,), low=-2.5, high=4.0), ())
        yield Example(cls(seed=9, shape=(5,)), (np.array(3),), 0, 0)
        for name in ("f64", "f16", "bf16"):
            bounds = samples.tolerance(name)
            yield Example(cls(9, 0, (17,), dtype(name), -1.0, 3.0), (), **bounds)


@register_op
@dataclass(frozen=True)
class RandomNormal(ShapedDraw):
    """random_normal(key)[i] = mean + scale * z[i], z of the standard normal distribution.

    By Box and Muller: sqrt(-2 * log(u)) times cos and sin of 2 * pi * v. As u is 2**-24 or more, no
    z is beyond 5.77 (f64: 8.58), where less than 8e-9 of the distribution lies.
    """

    finite = ("mean", "scale")
    mean: float = 0.0
    scale: float = 1.0

    @property
    def _half(self) -> int:
        """Pairs of numbers."""
        return -(-math.prod(self.shape) // 2)

    def reference(self, key: Values | None = None) -> Values:
        half, count = self._half, math.prod(self.shape)
        u = self.unit_array(key, 2 * half)
        one = u.dtype.type
        step = one(2.0**-53 if self.to == f64 else 2.0**-24)
        radius = np.sqrt(one(-2) * np.log(u[:half] + step))
        angle = u[half:] * one(2 * math.pi)
        z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
        y = z * one(self.scale) + one(self.mean)
        return np.asarray(y.astype(self.to.numpy)).reshape(self.shape)

    def decompose(self, key: Value | None = None) -> Value:
        half, count = self._half, math.prod(self.shape)
        both = self.unit(key, (2, half), self.to)
        step = 2.0**-53 if self.to == f64 else 2.0**-24
        radius = apply("sqrt", apply("log", _row(both, 0) + step) * -2.0)
        angle = _row(both, 1) * (2 * math.pi)
        pair = [radius * apply(turn, angle) for turn in ("cos", "sin")]
        z = apply("slice", apply("concat", *pair, axis=0), starts=(0,), ends=(count,), axes=(0,))
        y = reshaped(z, self.shape)
        y = y if self.scale == 1.0 else y * self.scale
        return cast_to(y + self.mean if self.mean else y, self.to)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Rank 0, size 0, odd and even sizes; mean and scale; a key; element types."""
        for shape in ((), (0,), (1,), (8,), (3, 5)):
            yield Example(cls(stream=1, shape=shape), (), 1e-5, 1e-5)
        yield Example(cls(stream=1, shape=(17,), mean=3.0, scale=0.25), (), 1e-5, 1e-5)
        yield Example(cls(seed=9, shape=(5,)), (np.array(-3),), 1e-5, 1e-5)
        for name in ("f64", "f16", "bf16"):
            yield Example(cls(9, 0, (17,), dtype(name)), (), **samples.tolerance(name))


@register_op
@dataclass(frozen=True)
class Dropout(Draw):
    """dropout(x, key) = (x * where(mask, 1 / (1 - ratio), 0), mask), mask[i] = u[i] >= ratio.

    u is uniform in [0, 1) in steps of 2**-24. The mask is a result so that whoever recomputes y, or
    goes backward, has the same one.
    """

    optional = (1,)
    ratio: float = 0.5

    def type_rule(self, x: TensorType, key: TensorType | None = None) -> TupleType:
        self.check_draw(key)
        rules.elements(self, "float", x)
        if not 0 <= self.ratio < 1:
            text = f"ratio must be 0 or more and less than 1, got {self.ratio}"
            rules.fail(self, text, rules.RANGE)
        return TupleType((x, x.with_dtype(bool_)))

    def _scale(self, element: DType) -> np.generic:
        return wide(element).numpy.type(1 / (1 - self.ratio))

    def reference(self, x: Values, key: Values | None = None) -> tuple[Values, Values]:
        u = ShapedDraw(self.seed, self.stream).unit_array(key, x.size)
        mask = (u >= np.float32(self.ratio)).reshape(x.shape)
        factor = np.where(mask, self._scale(dtype(x.dtype)), 0).astype(widened(x).dtype)
        return (widened(x) * factor).astype(x.dtype), mask

    def decompose(self, x: Value, key: Value | None = None) -> tuple[Value, Value]:
        type = tensor_type(x)
        mask = apply("greater_or_equal", self.unit(key, type.dims, f32), self.ratio)
        return self._thinned(x, mask), mask

    def _thinned(self, x: Value, mask: Value) -> Value:
        """x with what the mask drops set to 0, the rest scaled."""
        type = tensor_type(x)
        element = wide(type.dtype)
        kept, dropped = scalar(float(self._scale(type.dtype)), element), scalar(0.0, element)
        factor = apply("where", mask, kept, dropped)
        return narrowed(in_wide(x) * factor, x)

    def gradient(self, y: Node, dy: tuple[Value | None, ...]) -> Grads:
        """dy through the mask that was used forward: nothing is drawn again."""
        dx = None if dy[0] is None else self._thinned(dy[0], getitem(y, 1))
        return (dx, *[None] * (len(y.inputs) - 1))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Little dropped, much; rank 0, size 0; infinities; a key; element types."""
        for ratio in (0.1, 0.5, 0.9):
            yield Example(cls(stream=1, ratio=ratio), (samples.array((3, 7)),))
        for shape in ((), (0, 2), (1,)):
            yield Example(cls(stream=1), (samples.array(shape),))
        yield Example(cls(seed=4), (samples.special("f32"), np.array(5)))
        for name in ("f64", "f16", "bf16"):
            yield Example(cls(4), (samples.array((9,), name),), **samples.tolerance(name))
