"""Public tests of 1.1, a type rule with broadcasting."""

from __future__ import annotations

import pytest
from a1_public import array

import minidlc as mc
from grader import expect

f16, bf16, f32, i8, i16, i32, u8 = mc.f16, mc.bf16, mc.f32, mc.i8, mc.i16, mc.i32, mc.u8
SHAPES = {
    "same": (f32[4, 3], f32[4, 3], f32[4, 3]),
    "both_repeat": (f32[4, 1], f32[1, 3], f32[4, 3]),
    "missing_axes": (f32[2, 4, 3], f32[3], f32[2, 4, 3]),
    "scalar": (f32[()], f32[7], f32[7]),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes(student, case):
    """Shapes are aligned at the right; a 1 or a missing axis takes the other size."""
    a, b, want = SHAPES[case]
    expect.equal(student.call("1.1", a, b), want, "the type", f"{a} + {b}")


def test_elements(student):
    """Mixed element types give the element type of the table."""
    for a, b, want in [(i32, f16, f16), (u8, i8, i16), (f16, bf16, f32), (mc.bool_, u8, u8)]:
        got = student.call("1.1", a[4], b[4])
        expect.equal(got, want[4], "the type", f"{a[4]} + {b[4]}")


def test_symbols(student):
    """A symbol stays beside itself and beside 1; beside another number it gives way."""
    for a, b, want in [("N", "N", "N"), (1, "N", "N"), ("N", 8, 8)]:
        got = student.call("1.1", f32[a, 4], f32[b, 4])
        expect.equal(got, f32[want, 4], "the type", f"{f32[a, 4]} + {f32[b, 4]}")


def test_every_fault(student):
    """All axes that do not fit are reported in one error, from the right."""
    a, b = f32[2, 5, 4], f32[3, 5, 7]
    raised = expect.refused(student.raises("1.1", a, b), "TypeRuleError", given=f"{a} + {b}")
    notes = ["axis -1: 4 and 7", "axis -3: 2 and 3"]
    expect.equal(list(raised.notes), notes, "the notes", f"{a} + {b}")
    expect.equal(raised.code, "MDLC0203", "the code", f"{a} + {b}")


def test_in_the_compiler(student):
    """As the type rule of add in a graph, it types x + y, and the graph runs in that type."""
    x, y = array([2, 3], "int32"), array([3], "float32") / 2
    type, got = student.call("1.1", i32[2, 3], f32[3], arrays=[x, y])
    expect.equal(type, f32[2, 3], "the type of x + y", "x: i32[2, 3], y: f32[3]")
    expect.close(got, x.astype("float32") + y, given=f"x = {x.tolist()}, y = {y.tolist()}")
