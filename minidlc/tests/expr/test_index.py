"""The index algebra against plain evaluation, thousands of random positions at a time."""

from __future__ import annotations

import itertools
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.expr.index import (
    Cond,
    Index,
    Ranges,
    Var,
    bounds,
    decide,
    evaluate,
    evaluate_cond,
    maximum,
    minimum,
    simplify,
    simplify_cond,
    substitute,
    value_range,
)
from minidlc.support.errors import LoweringError
from minidlc.support.extension import counting, use

i, j, k = Var("i"), Var("j"), Var("k")
io, ii, jo = Var("io"), Var("ii"), Var("jo")
VARS = (i, j, k)


def random_index(rng: random.Random, depth: int, names: tuple[Var, ...] = VARS) -> Index:
    """A position over `names`, atoms nested up to `depth`."""
    total = Index.of(rng.randint(-20, 20) if rng.random() < 0.7 else 0)
    for _ in range(rng.randint(1, 3)):
        factor = rng.choice((-16, -12, -4, -3, -2, -1, 1, 1, 1, 2, 3, 4, 6, 12, 16))
        if depth == 0 or rng.random() < 0.5:
            total = total + factor * rng.choice(names)
            continue
        a = random_index(rng, depth - 1, names)
        match rng.randint(0, 4):
            case 0:
                total = total + factor * (a // rng.choice((1, 2, 3, 4, 12)))
            case 1:
                total = total + factor * (a % rng.choice((1, 2, 3, 4, 12)))
            case 2:  # what simplify may put together again
                c = rng.choice((2, 3, 4))
                both = rng.choice((1, c)) * (a // c) + rng.choice((1, 2)) * (a % c)
                total = total + factor * both
            case 3:
                total = total + factor * minimum(a, random_index(rng, depth - 1, names))
            case _:
                total = total + factor * maximum(a, random_index(rng, depth - 1, names))
    return total


def random_ranges(rng: random.Random) -> dict[Var, tuple[int, int]]:
    ends = ((v, rng.randint(-6, 6)) for v in VARS)
    return {v: (low, low + rng.choice((0, 1, 3, 11))) for v, low in ends}


def samples(rng: random.Random, ranges: Ranges, n: int) -> list[dict[Var, int]]:
    return [{v: rng.randint(*ranges[v]) for v in VARS} for _ in range(n)]


seeds = st.integers(0, 2**32)


@pytest.mark.long
@settings(max_examples=700, deadline=None)
@given(seeds)
def test_simplify_and_range_agree_with_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    e, ranges = random_index(rng, 2), random_ranges(rng)
    simple, span = simplify(e, ranges), value_range(e, ranges)
    assert span is not None
    for values in samples(rng, ranges, 12):
        assert evaluate(simple, values) == evaluate(e, values), (str(e), str(simple), values)
        assert span[0] <= evaluate(e, values) <= span[1]


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_operators_agree_with_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    a, b, c = random_index(rng, 1), random_index(rng, 1), rng.randint(1, 13)
    for values in samples(rng, random_ranges(rng), 6):
        x, y = evaluate(a, values), evaluate(b, values)
        for e, expected in (
            (a + b, x + y), (a - b, x - y), (-c * a, -c * x), (a // c, x // c), (a % c, x % c),
            (minimum(a, b), min(x, y)), (maximum(a, b), max(x, y)),
        ):  # fmt: skip
            assert evaluate(e, values) == expected
        for cond, holds in ((a < b, x < y), (a <= b, x <= y), (a > b, x > y), (a >= b, x >= y)):
            assert evaluate_cond(cond, values) == holds


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(seeds)
def test_substitute_agrees_with_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    e, new = random_index(rng, 2), {i: random_index(rng, 1, (j, k)), j: random_index(rng, 0)}
    for values in samples(rng, random_ranges(rng), 6):
        inner = {v: evaluate(substitute(Index.of(v), new), values) for v in VARS}
        assert evaluate(substitute(e, new), values) == evaluate(e, inner)


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_conditions_simplify_to_the_same_truth(seed: int) -> None:
    rng = random.Random(seed)
    ranges = random_ranges(rng)
    cond = Cond(tuple(random_index(rng, 1) for _ in range(rng.randint(0, 3))))
    simple, decided = simplify_cond(cond, ranges), decide(cond, ranges)
    for values in samples(rng, ranges, 8):
        assert evaluate_cond(simple, values) == evaluate_cond(cond, values)
        assert decided is None or decided == evaluate_cond(cond, values)


def points(loops: list[tuple[Var, Index]], outer: dict[Var, int]) -> list[dict[Var, int]]:
    """Every assignment the loops reach."""
    if not loops:
        return [outer]
    (var, extent), rest = loops[0], loops[1:]
    return [p for n in range(evaluate(extent, outer)) for p in points(rest, {**outer, var: n})]


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_bounds_hold_for_every_iteration(seed: int) -> None:
    rng = random.Random(seed)
    f, size = rng.randint(1, 5), rng.randint(1, 12)
    loops = [
        (i, Index.of(-(-size // f))),
        (j, minimum(f, size - f * i)),
        (k, Index.of(rng.randint(1, 4))),
    ]
    inner = loops[rng.randint(0, 2) :]
    around = {v: (0, 40) for v, _ in loops if all(v != w for w, _ in inner)}
    e = random_index(rng, 2)
    low, high = bounds(e, inner, around)
    assert not (low.vars() | high.vars()) & {v for v, _ in inner}
    for values in points(loops, {}):
        assert evaluate(low, values) <= evaluate(e, values) <= evaluate(high, values)


def test_split_loops_have_exact_bounds() -> None:
    loops = [(io, Index.of(10)), (ii, minimum(14, 127 - 14 * io))]
    assert bounds(14 * io + ii, loops) == (Index.of(0), Index.of(126))
    low, high = bounds(14 * io + ii, loops[1:], {io: (0, 9)})
    assert low == 14 * io
    assert simplify(high - low + 1, {io: (0, 9)}) == minimum(14, 127 - 14 * io)


def test_split_of_a_split_has_exact_bounds() -> None:
    im = Var("im")
    whole = minimum(12, 100 - 12 * io)
    loops = [(io, Index.of(9)), (im, (whole + 3) // 4), (ii, minimum(4, whole - 4 * im))]
    assert bounds(12 * io + 4 * im + ii, loops) == (Index.of(0), Index.of(99))


@pytest.mark.parametrize(("n", "f", "m"), list(itertools.product((1, 5, 12), (1, 2, 4), (1, 3, 6))))
def test_fuse_undoes_itself(n: int, f: int, m: int) -> None:
    """Fused loops divided and taken together again give the fused variable."""
    fused = Var("f")
    e = m * f * (fused // (m * f)) + f * (fused // f % m) + fused % f
    assert simplify(e, {}) == Index.of(fused)
    parts = simplify((f * i + j) // f, {i: (0, n), j: (0, f - 1)})
    assert parts == Index.of(i)
    assert simplify((f * i + j) % f, {j: (0, f - 1)}) == simplify(Index.of(j), {j: (0, f - 1)})


@given(n=st.integers(2, 9), f=st.integers(2, 9), outer=st.integers(0, 40))
def test_fuse_undoes_itself_after_a_split(n: int, f: int, outer: int) -> None:
    """The remainder has lost multiples of the divisor, the quotient has not."""
    o, v = Var("o"), Var("v")
    fused = outer * o + v
    e = n * f * (fused // (n * f)) + f * (fused // f % n) + fused % f
    assert simplify(e, {}) == fused


def test_division_and_remainder_are_read_together() -> None:
    assert bounds(i - 4 * (i // 4), [(i, Index.of(99))]) == (Index.of(0), Index.of(3))
    assert bounds(4 * (i // 4) + 3, [(i, Index.of(10))]) == (Index.of(3), Index.of(11))
    e = 8 * (i // 4) + i % 4
    assert simplify(e, {}) == e, "only k*c*(a//c) + k*(a%c) is k*a"


def test_the_stages_can_be_replaced() -> None:
    def exact(e: Index, ranges: Ranges) -> Index:
        return e

    def whole(e: Index, loops: object, ranges: object = None) -> tuple[Index, Index]:
        return Index.of(0), Index.of(99)

    with counting() as calls, use(simplify=exact, bounds=whole):
        assert str(simplify(i // 16, {i: (0, 15)})) == "i//16"
        assert bounds(i + 0, [(i, Index.of(4))]) == (Index.of(0), Index.of(99))
    assert calls == {"simplify": 1, "bounds": 1}
    assert simplify(i // 16, {i: (0, 15)}) == Index.of(0)


def test_a_remainder_stays_when_the_range_leaves_it() -> None:
    """A wrong default range once made this `%` vanish (schedule_pitfalls.md, 4)."""
    e = (4 * io + ii) % 8
    assert simplify(e, {io: (0, 3), ii: (0, 3)}) == 4 * (Index.of(io) % 2) + ii
    assert simplify(e, {io: (0, 1), ii: (0, 3)}) == 4 * io + ii
    assert simplify(e, {}) == e


def test_floor_division_of_negative_numbers() -> None:
    """A sum may be split under //, a minus sign may not leave it (reported faults 7 and 9)."""
    assert (241 + 48 * i) // 16 == 15 + 3 * i
    for x, d in itertools.product(range(-12, 13), (1, 2, 3)):
        values = {i: x}
        assert evaluate((241 + 48 * i) // 16, values) == (241 + 48 * x) // 16
        assert evaluate(-(i // d), values) == -(x // d)
        assert evaluate(-i // d, values) == -x // d


def test_remainder_times_a_stride() -> None:
    """((x+1) mod 2)*8192 (reported fault 11)."""
    e = ((i + 1) % 2) * 8192
    for ranges in ({}, {i: (0, 1)}):
        assert [evaluate(simplify(e, ranges), {i: x}) for x in (0, 1)] == [8192, 0]


def test_equal_values_have_one_form() -> None:
    assert (i + j) - i == Index.of(j)
    assert minimum(i, j) == minimum(j, i)
    assert minimum(minimum(i, j), i) == minimum(i, j)
    assert (i // 4) // 3 == i // 12
    assert (6 * i + 3) % 4 == 2 * ((3 * i + 1) % 2) + 1
    assert hash(i + j) == hash(j + i)
    assert pickle.loads(pickle.dumps(minimum(i, j) + 3)) == minimum(i, j) + 3


def test_order_of_text_does_not_depend_on_history() -> None:
    late, early = Var("z_made_first"), Var("a_made_last")
    assert str(late + early) == str(early + late) == "a_made_last + z_made_first"


def test_correlated_minimum_is_not_widened() -> None:
    e = 14 * io + minimum(14, 127 - 14 * io) - 1
    assert value_range(e, {io: (0, 9)}) == (13, 126)
    assert value_range(i - 4 * (i // 4), {i: (0, 99)}) == (0, 3)
    assert value_range(i % 4 + j, {j: (0, 1)}) == (0, 4)
    assert value_range(i + j, {i: (0, 3)}) is None


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (14 * io + ii, "14*io + ii"),
        (127 - 14 * jo, "127 - 14*jo"),
        (ii - 14 * io - 1, "ii - 14*io - 1"),
        (-i // 4, "(-i)//4"),
        (-(i // 4), "-(i//4)"),
        (4 * (i // 4) + i % 4, "4*(i//4) + i%4"),
        ((i + 1) // 4, "(i + 1)//4"),
        (minimum(14, 127 - 14 * io), "min(14, 127 - 14*io)"),
        (-2 * maximum(i, j), "-2*max(i, j)"),
        (Index.of(0), "0"),
        (Index.of(-7), "-7"),
    ],
)
def test_text(e: Index, text: str) -> None:
    assert str(e) == text


def _product() -> object:
    return i * j


def _truth() -> object:
    return 0 <= i < 4


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        (_product, "MDLC0710", "not affine: (i) * (j)"),
        (lambda: Index.of(i) + 1.5, "MDLC0715", "not a position: 1.5 (float)"),  # type: ignore
        (lambda: (i + 2) % j, "MDLC0711", "(i + 2) % (j): the divisor must be a positive integer"),
        (lambda: (i + 2) // 0, "MDLC0711", "(i + 2) // (0): the divisor must be an integer other"),
        (lambda: i // -2, "MDLC0711", "(i) // (-2): the divisor must be a positive integer"),
        (lambda: Var("a b"), "MDLC0712", "not a name for a variable: 'a b'"),
        (lambda: (i + 1).value, "MDLC0713", "not a constant: i + 1"),
        (lambda: evaluate(i + j, {i: 1}), "MDLC0713", "no value for variable j in 'i + j'"),
        (_truth, "MDLC0714", "the truth of 'i >= 0' depends on"),
    ],
)
def test_errors(wrong: object, code: str, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(LoweringError) as error:
        wrong()
    assert error.value.code == code
    assert message in str(error.value)
