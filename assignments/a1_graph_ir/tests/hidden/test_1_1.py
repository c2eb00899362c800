"""Hidden tests of 1.1, a type rule with broadcasting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minidlc as mc
from grader import expect
from minidlc.expr.types import DTYPES, TensorType
from minidlc.graph import op_class
from minidlc.support.errors import TypeRuleError

f32 = mc.f32
ADD = op_class("add")()


def outcome(reference, *types):
    """What the reference says: a type, or the code and the notes."""
    try:
        return reference.add_type(ADD, *types)
    except TypeRuleError as error:
        return error.code, list(error.notes)


def check(student, reference, a, b):
    """The same type, or the same code and notes."""
    given, want = f"{a} + {b}", outcome(reference, a, b)
    if isinstance(want, TensorType):
        expect.equal(student.call("1.1", a, b), want, "the type", given)
        return
    raised = expect.refused(student.raises("1.1", a, b), "TypeRuleError", given=given)
    expect.equal(list(raised.notes), want[1], "the notes", given)
    expect.equal(raised.code, want[0], "the code", given)


@pytest.mark.points(2)
def test_all_elements(student, reference, rng):
    """Every pair of element types gives what the table says, in either order."""
    for pair in itertools.combinations_with_replacement(DTYPES.values(), 2):
        a, b = rng.permutation(2)
        check(student, reference, pair[a][2], pair[b][2])


@pytest.mark.points(2)
def test_shapes_that_fit(student, reference, rng):
    """Random shapes that broadcast give NumPy's shape."""
    for _ in range(12):
        whole = rng.integers(0, 5, rng.integers(0, 5))
        a, b = (
            tuple(int(n) if rng.random() < 0.7 else 1 for n in whole[rng.integers(0, 3) :])
            for _ in range(2)
        )
        want = f32.__getitem__(np.broadcast_shapes(a, b))
        got = student.call("1.1", TensorType(f32, a), TensorType(f32, b))
        expect.equal(got, want, "the type", f"f32{list(a)} + f32{list(b)}")


@pytest.mark.points(2)
def test_random_faults(student, reference, rng):
    """Random shapes with several faults: all of them, from the right."""
    for _ in range(12):
        a, b = (tuple(map(int, rng.integers(1, 4, rng.integers(1, 6)))) for _ in range(2))
        check(student, reference, TensorType(f32, a), TensorType(mc.f16, b))


def test_sizes_of_zero(student, reference):
    """A size of 0 beside 1 gives 0; beside another number it is a fault."""
    check(student, reference, f32[0, 4], f32[1, 4])
    check(student, reference, f32[1, 4], f32[0, 4])
    check(student, reference, f32[0, 4], f32[3, 4])


@pytest.mark.points(2)
def test_random_symbols(student, reference, rng):
    """Symbols beside symbols, ones and numbers, in random shapes and in both orders."""
    sizes = ["N", "M", 1, 0, 7]
    for _ in range(12):
        a, b = (
            f32[tuple(sizes[n] for n in rng.integers(0, 5, rng.integers(1, 4)))] for _ in range(2)
        )
        check(student, reference, a, b)


def test_elements_and_axes(student, reference):
    """A fault of the element types stands before those of the axes, and decides the code."""
    check(student, reference, mc.u64[2, 3], mc.i64[4, 5])
    check(student, reference, mc.bool_[2, "N", 3], mc.bool_["M", 5])
    check(student, reference, mc.i32[2, 3], mc.f16[4, 3])


def test_ranks(student, reference):
    """The shorter shape may be the first one or the second one, and may have no axis."""
    for a, b in [(f32[3], f32[2, 4, 3]), (f32[2, 4, 3], f32[4, 1]), (f32[()], f32[()])]:
        check(student, reference, a, b)
    check(student, reference, f32[2, 3], f32[5, 4, 3, 4])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_number_of_inputs(student, count):
    """Other than two inputs are refused with MDLC0201."""
    raised = student.raises("1.1", *[f32[4]] * count)
    expect.refused(raised, "MDLC0201", given=f"{count} inputs")


def test_name_of_the_op(student):
    """The message begins with the name of the op that the rule is used for."""
    for name in ("add", "sub"):
        raised = student.raises("1.1", f32[4], f32[3], op=name)
        raised = expect.refused(raised, "MDLC0203", given=f"{name} of f32[4] and f32[3]")
        begins = raised.message.startswith(f"{name}:")
        expect.that(begins, "the message begins with another name", name, name, raised.message)


def test_in_a_graph(student, reference, rng):
    """In a graph that runs, x + y has the promoted type and the right elements."""
    for a, b in [("i8", "u8"), ("f16", "bf16"), ("i64", "f32"), ("bool", "i32")]:
        shape = (int(rng.integers(2, 5)), 1)
        types = DTYPES[a][shape], DTYPES[b][3]
        x, y = (rng.integers(0, 50, t.shape).astype(t.dtype.numpy) for t in types)
        type, got = student.call("1.1", *types, arrays=[x, y])
        want = outcome(reference, *types)
        expect.equal(type, want, "the type of x + y", types)
        element = want.dtype.numpy
        expect.close(got, x.astype(element) + y.astype(element), given=types)
