"""`minidlc check`: what is found, with its place and reason, and what is not."""

# ruff: noqa: E501  (a table reads better with a case a line)

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, parse
from minidlc.support.errors import OptionError
from minidlc.tests.transform.rule_cases import graph
from minidlc.transform import Fact
from minidlc.transform.dataflow.check import findings

pytestmark = pytest.mark.ch02


def texts(g: Graph, inputs: dict[str, Fact] | None = None) -> list[str]:
    return [f"{f.kind}: {f.value}: {f.text}" for f in findings(g, inputs)]


UNIT, SIGNED = {"x": Fact(0.5, 1.0)}, {"x": Fact(-2.0, 1.0, False, True)}
FOUND = {
    "log": ("y = log(x)", "domain: y: log: an element may be 0 or below: it is in [-2.0, 1.0]"),
    "sqrt": ("y = sqrt(x)", "domain: y: sqrt: an element may be below 0: it is in [-2.0, 1.0]"),
    "acosh": ("y = acosh(x)", "domain: y: acosh: an element may be below 1: it is in [-2.0, 1.0]"),
    "asin": ("y = asin(x)", "domain: y: asin: an element may be outside [-1, 1]: it is in [-2.0, 1.0]"),
    "div": ("y = div(x, x)", "domain: y: div: a divisor may be 0: it is in [-2.0, 1.0]"),
    "mod": ("y = mod(x, x)", "domain: y: mod: a divisor may be 0: it is in [-2.0, 1.0]"),
    "reciprocal": ("y = reciprocal(x)", "domain: y: reciprocal: a divisor may be 0: it is in [-2.0, 1.0]"),
    "pow": ("c = const(0.5); y = pow(x, c)", "domain: y: pow: a negative base in [-2.0, 1.0] may have an exponent that is no integer"),
    "pow of 0": ("a = abs(x); c = const(-2.0); y = pow(a, c)", "domain: y: pow: a base in [0.0, 2.0] may be 0, its exponent in [-2.0, -2.0] negative"),
    "cast": ("y = cast(x, to=u8)", "cast: y: an element in [-2.0, 1.0] saturates as u8"),
    "constant": ("c = const(9.0); a = minimum(x, c); y = maximum(a, c)", "constant: y: every element of this output is 9.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name: str) -> None:
    body, expected = FOUND[name]
    assert texts(graph(body), SIGNED) == [expected]


@pytest.mark.parametrize("name", [n for n in FOUND if n not in ("acosh", "constant")])
def test_what_a_known_range_excludes(name: str) -> None:
    """The same graphs with x in [0.5, 1]."""
    assert texts(graph(FOUND[name][0]), UNIT) == []


def test_casts_of_integers_and_to_narrow_floats() -> None:
    wraps = graph("x: i64[3] | y = cast(x, to=i32)")
    assert texts(wraps) == [f"cast: y: an element in [{-(2**63)}, {2**63 - 1}] wraps as i32"]
    assert texts(wraps, {"x": Fact(0, 10)}) == []
    infinite = graph("y = cast(x, to=f16)")
    assert texts(infinite, {"x": Fact(0.0, 1e5)}) == [
        "cast: y: an element in [0.0, 100000.0] becomes infinite as f16"
    ]
    assert texts(infinite, {"x": Fact(0.0, 6e4)}) == []
    nan = graph("x: f32[3] | a = log(x); y = cast(a, to=i32)")
    assert texts(nan)[1] == "cast: y: NaN becomes 0 as i32"


def test_positions() -> None:
    g = parse("""\
def f(table: f32[10, 4], ids: i64[3]):
    y = gather(table, ids, axis=0)
    return y
""")
    (found,) = texts(g, {"ids": Fact(0, 10)})
    assert found == "position: y: gather: a position in [0, 10] may be outside [-10, 9]"
    assert texts(g, {"ids": Fact(-10, 9)}) == []


def test_dead_code_unused_inputs_and_constant_outputs() -> None:
    g = parse("""\
def f(x: f32[3], spare: f32[3]):
    a = exp(spare)
    c: f32[3] = const([1.0, 2.0, 3.0])
    b = neg(c)
    return x, b
""")
    assert texts(g) == [
        "unused: spare: no result depends on this input",
        "dead: a: no output needs this exp",
        "constant: b: this output depends on no input",
    ]


def test_bodies_are_looked_at() -> None:
    g = parse("""\
def f(c: bool[()], x: f32[3]):
    def yes(x: f32[3]):
        a = log(x)
        return a
    def no(x: f32[3]):
        return x
    y = if_(c, x, then_branch=yes, else_branch=no)
    return y
""")
    (found,) = findings(g)
    assert str(found).startswith("domain: a: log: an element may be 0 or below")
    assert str(found).endswith(f"({found.loc})")


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(OptionError, match="f has no input 'z'") as caught:
        findings(graph("y = log(x)"), {"z": Fact(0, 1)})
    assert (caught.value.code, caught.value.hint) == ("MDLC1008", "known: x")


def test_what_is_not_found_does_not_happen() -> None:
    """Numbers inside the range given make no NaN where nothing is reported."""
    g = graph("a = mul(x, x); c = const(1e-5); b = add(a, c); d = sqrt(b); y = div(x, d)")
    assert findings(g) == []
    for scale in (0, 1e-30, 1, 1e15):
        [y] = mc.interpret(g, [np.full((2, 3), scale, np.float32)])
        assert np.isfinite(y).all()
