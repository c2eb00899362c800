"""Messages of if_, loop and scan: bodies that do not fit, loops that nothing ends."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import bool_, f32, i32, i64
from minidlc.graph import Constant, Graph, Input, apply, parse
from minidlc.support.errors import CompileError, TypeRuleError

pytestmark = pytest.mark.ch01

RUN, C = Input("i", i64[()]), Input("c", bool_[()])
X, N, GO = Input("x", f32[3]), Input("n", i64[()]), Input("go", bool_[()])


def body(*outputs, inputs=(X,)):
    return Graph.of("body", [RUN, C, *inputs], outputs)


STEP = body(C, apply("neg", X))
STACK = body(C, X, X)


def refused(match, code, *inputs, **attributes):
    with pytest.raises(TypeRuleError, match=match) as e:
        apply("loop", *inputs, **attributes)
    assert e.value.code == code


def test_branches_and_captures_fit():
    yes, no = Graph.of("yes", [X], [X]), Graph.of("no", [X], [apply("sum", X)])
    with pytest.raises(TypeRuleError, match=r"give \(f32\[3\]\) and \(f32\[1\]\)") as e:
        apply("if_", GO, X, then_branch=yes, else_branch=no)
    assert e.value.code == "MDLC0218"
    with pytest.raises(TypeRuleError, match=r"yes takes \(f32\[3\]\), the captures are \(\)"):
        apply("if_", GO, then_branch=yes, else_branch=yes)
    with pytest.raises(TypeRuleError, match="the condition must be one element of bool, got i64"):
        apply("if_", N, X, then_branch=yes, else_branch=yes)


def test_a_body_fits_its_loop():
    y = Input("y", f32[4])
    refused(r"body takes \(i64\[\(\)\], bool\[\(\)\], f32\[3\]\), it is given .*f32\[4\]\)",
            "MDLC0218", N, None, y, body=STEP, carried=1)  # fmt: skip
    wrong = body(C, apply("sum", X))
    refused(r"gives .*f32\[1\]\), expected .*f32\[3\]\) first", "MDLC0218", N, None, X, body=wrong,
            carried=1)  # fmt: skip
    refused("2 carried and 0 scanned values of 1 inputs", "MDLC0218", N, None, X, body=STEP,
            carried=2)  # fmt: skip
    refused("it has no result", "MDLC0218", N, None, X, body=body(C), carried=0)
    m = Input("m", i32[()])
    refused("number of runs must be one element of i64", "MDLC0218", m, None, X, body=STEP,
            carried=1)  # fmt: skip


def test_something_ends_a_loop_and_only_once():
    refused("nothing ends it", "MDLC0219", None, None, X, body=STEP, carried=1)
    refused("trips stands in place of n and c", "MDLC0219", N, None, X, body=STEP, carried=1,
            trips=3)  # fmt: skip
    refused("trips must be at least 0, got -1", "MDLC0219", None, None, X, body=STEP, carried=1,
            trips=-1)  # fmt: skip
    refused("1 results to stack: how many rows", "MDLC0219", N, None, X, body=STACK, carried=1)
    stops = body(apply("logical_not", C), X)
    refused("the body decides when to stop", "MDLC0219", None, None, X, body=stops, carried=1,
            trips=3)  # fmt: skip
    never = body(Constant("f", np.array(False)), X)
    refused("the body decides when to stop", "MDLC0219", None, None, X, body=never, carried=1,
            trips=3)  # fmt: skip
    refused("one row for each run, got f32\\[3\\] for 4 runs", "MDLC0219", None, None, X,
            body=STEP, scanned=1, trips=4)  # fmt: skip


def test_sequences_of_a_scan_fit():
    s, v = Input("s", f32[()]), Input("v", f32[()])
    total = Graph.of("total", [s, v, Input("w", f32[()])], [apply("add", s, v), v])
    a, b = Input("a", f32[3]), Input("b", f32[4])
    for inputs, attributes, match in (
        ((a, b), {"states": 0, "scanned": 2}, "the sequences have 3 and 4 steps"),
        ((s, a), {"states": 1}, r"total takes \(f32.*\), it is given"),
        ((s,), {"states": 1}, "at least one sequence"),
        ((s, a, s), {"states": 1, "input_axes": (1,)}, "axis"),
        ((s, a, s), {"states": 1, "output_axes": (0, 1)}, "output_axes has 2 numbers, expected 1"),
        ((s, a, s), {"states": 1, "input_directions": (2,)}, "are 0 or 1"),
    ):
        with pytest.raises(TypeRuleError, match=match):
            apply("scan", *inputs, body=total, **attributes)


def test_the_text_of_bodies_is_checked():
    text = """
    def f(c: bool[()], x: f32[3]):
        def yes(x: f32[3]):
            return x
        def no(x: f32[3]):
            y: f32[3] = neg(x)
            return y
        z: f32[3] = if_(c, x, then_branch=yes, else_branch=no)
        return z
    """
    good = "\n".join(line[4:] for line in text.strip("\n").splitlines())
    assert parse(str(parse(good))) == parse(good)
    for old, new, match in (
        ("else_branch=no", "else_branch=maybe", "unknown function 'maybe'"),
        (", else_branch=no", "", "'no' is never used|needs the attribute 'else_branch'"),
        ("y: f32[3] = neg(x)", "y: f32[3] = nag(x)", "unknown op 'nag'"),
    ):
        with pytest.raises(CompileError, match=match):
            parse(good.replace(old, new))
