"""Malformed graph text, construct by construct: code, place, hint."""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401
from minidlc.graph import load_text, parse
from minidlc.support.errors import CompileError, ParseError, TypeRuleError

pytestmark = pytest.mark.ch01


def in_f(*lines: str) -> str:
    return "\n".join(["def f(x: f32[4]):", *(f"    {line}" for line in lines)])


def nested(*lines: str, use: str = "y = fused(x, body=b)") -> str:
    return in_f("def b(z: f32[4]):", *(f"    {line}" for line in lines), use, "return y")


# (text, code without MDLC, line, the source under the carets, part of message or hint)
CASES = {
    "not python": ("def f(x: f32[4]:\n", "0301", 1, None, "not Python syntax"),
    "empty": ("", "0302", 1, None, "empty"),
    "no def": ("x = 1", "0302", 1, "x = 1", "expected `def`"),
    "two defs": (in_f("return x") + "\n" + in_f("return x"), "0302", 3, "def f(x: f32[4]):", "one"),
    "null byte": ("def f():\0", "0301", 1, None, "null"),
    "expression": (in_f("relu(x)", "return x"), "0302", 2, "relu(x)", "not a statement"),
    "loop": (in_f("for i in x: y = relu(x)", "return x"), "0302", 2, None, "not a statement"),
    "attribute target": (in_f("x.y = relu(x)", "return x"), "0302", 2, "x.y = relu(x)", "not a"),
    "default": ("def f(x: f32[4] = 1):\n    return x", "0303", 1, "1", "name: type"),
    "varargs": ("def f(*x: f32[4]):\n    return x", "0303", 1, "x: f32[4]", "name: type"),
    "keyword only": ("def f(*, x: f32[4]):\n    return x", "0303", 1, "x: f32[4]", "name: type"),
    "result type": ("def f(x: f32[4]) -> f32:\n    return x", "0303", 1, "f32", "name: type"),
    "decorator": ("@jit\ndef f(x: f32[4]):\n    return x", "0303", 1, "jit", "name: type"),
    "no annotation": ("def f(x):\n    return x", "0303", 1, "x", "x: f32[4, 8]"),
    "unknown element": ("def f(x: f23[4]):\n    return x", "0304", 1, "f23[4]", "'f32'"),
    "not a type": ("def f(x: f32):\n    return x", "0304", 1, "f32", "f32[()]"),
    "negative dim": ("def f(x: f32[-1]):\n    return x", "0304", 1, "-1", "not a dim"),
    "float dim": ("def f(x: f32[1.5]):\n    return x", "0304", 1, "1.5", "not a dim"),
    "bool dim": ("def f(x: f32[True]):\n    return x", "0304", 1, "True", "not a dim"),
    "bad symbol": ('def f(x: f32["N +"]):\n    return x', "0304", 1, '"N +"', "not a dim"),
    "not affine": ('def f(x: f32["N*M"]):\n    return x', "0304", 1, '"N*M"', "not affine"),
    "odd symbol": ('def f(x: f32["f(N)"]):\n    return x', "0304", 1, '"f(N)"', "not a dim"),
    "unknown op": (in_f("y = relo(x)", "return y"), "0305", 2, "relo", "'relu'"),
    "unknown attribute": (
        in_f("y = softmax(x, axs=0)", "return y"), "0306", 2, "axs=0", "'axis'",
    ),
    "attribute of none": (in_f("y = relu(x, axis=0)", "return y"), "0306", 2, None, "no attribute"),
    "attribute kind": (
        in_f('y = softmax(x, axis="last")', "return y"), "0306", 2, '"last"', "expected int",
    ),
    "attribute item": (
        in_f("y = reshape(x, shape=(2, 2.5))", "return y"), "0306", 2, "(2, 2.5)", "tuple of int",
    ),
    "attribute value": (
        in_f("y = softmax(x, axis=1 + 1)", "return y"), "0306", 2, "1 + 1", "not an attribute",
    ),
    "attribute missing": (in_f("y = reshape(x)", "return y"), "0306", 2, "reshape(x)", "'shape'"),
    "attribute twice": (
        in_f("y = softmax(x, axis=0, axis=0)", "return y"), "0306", 2, "axis=0", "given twice",
    ),
    "double star": (in_f("y = softmax(x, **a)", "return y"), "0306", 2, "**a", "no attribute"),
    "undefined": (in_f("y = relu(xx)", "return y"), "0307", 2, "xx", "'x'"),
    "undefined output": (in_f("return y"), "0307", 2, "y", "not defined"),
    "used too early": (in_f("y = relu(z)", "z = relu(x)", "return y"), "0307", 2, "z", "not def"),
    "declared only": (in_f("y: f32[4]", "return x"), "0307", 2, "y", "no line defines it"),
    "defined twice": (in_f("x = relu(x)", "return x"), "0308", 2, "x", "twice"),
    "two parameters": ("def f(x: f32[4], y: f32[4], z: f32[4]):\n    z = relu(x)\n    return z",
                       "0308", 2, "z", "twice"),
    "value and function": (nested("return z", use="b = relu(x)"), "0308", 4, "b", "twice"),
    "no return": (in_f("y = relu(x)"), "0309", 2, "y = relu(x)", "last line must be `return`"),
    "bare return": (in_f("return"), "0309", 2, "return", "lists names"),
    "return of a call": (in_f("return relu(x)"), "0309", 2, "return relu(x)", "lists names"),
    "after return": (in_f("return x", "y = relu(x)", "return y"), "0309", 2, "return x", "after"),
    "wrong type": (
        in_f("y: f32[5] = relu(x)", "return y"), "0310", 2, "f32[5]", "but it is f32[4]",
    ),
    "wrong unpacking": (
        in_f("a, b = relu(x)", "return a"), "0310", 2, "a", "relu has 1 result, not 2",
    ),
    "const without type": (in_f("c = const(1.0)", "return c"), "0311", 2, "c", "needs the type"),
    "const shape": (
        in_f("c: f32[2] = const([1.0])", "return c"), "0311", 2, "[1.0]", "a list of 2",
    ),
    "const depth": (
        in_f("c: f32[1] = const(1.0)", "return c"), "0311", 2, "1.0", "a list of 1",
    ),
    "const of const": (
        in_f("c: f32[1] = const([[1.0]])", "return c"), "0311", 2, "[1.0]", "not an element",
    ),
    "const element": (
        in_f('c: f32[1] = const([x])', "return c"), "0313", 2, "x", "unknown function 'x'",
    ),
    "const float in int": (
        in_f("c: i32[1] = const([1.5])", "return c"), "0311", 2, "1.5", "not an element of i32",
    ),
    "const bool in int": (
        in_f("c: i32[1] = const([True])", "return c"), "0311", 2, "True", "not an element",
    ),
    "const range": (
        in_f("c: u8[1] = const([256])", "return c"), "0311", 2, "256", "does not fit into u8",
    ),
    "const huge": (
        in_f(f"c: f32[()] = const(1{'0' * 400})", "return c"), "0311", 2, None, "does not fit",
    ),
    "const symbolic": (
        in_f('c: f32["N"] = const([1.0])', "return c"), "0311", 2, "[1.0]", "static",
    ),
    "const nan bits": (
        in_f("c: i8[()] = const(nan(1))", "return c"), "0306", 2, "nan(1)", "not an attribute",
    ),
    "const keyword": (
        in_f('c: f32[1] = const("w", sha1="0")', "return c"), "0311", 2, 'sha1="0"', "sha256",
    ),
    "const arguments": (in_f("c: f32[1] = const()", "return c"), "0311", 2, "const()", "malformed"),
    "no weights": (
        in_f('c: f32[1] = const("w", sha256="0")', "return c"), "0312", 2, None, "named 'w'",
    ),
    "unused function": (nested("return z", use="y = relu(x)"), "0313", 2, None, "never used"),
    "unknown function": (in_f("y = fused(x, body=b)", "return y"), "0313", 2, "b", "before its"),
    "not a call": (in_f("y = x", "return y"), "0314", 2, "x", "expected a call"),
    "operator": (in_f("y = x + x", "return y"), "0314", 2, "x + x", "add(x, y)"),
    "number": (in_f("y = mul(x, 2.0)", "return y"), "0314", 2, "2.0", "const(2.0)"),
    "starred": (in_f("y = relu(*x)", "return y"), "0314", 2, "*x", "name of a value"),
    "inner scope": (nested("y = relu(x)", "return y"), "0307", 3, "x", "not defined"),
    "unicode": (in_f("ü = relu(x); ö = relu(ä)", "return ö"), "0307", 2, "ä", "not defined"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fault(name: str) -> None:
    text, code, line, source, message = CASES[name]
    with pytest.raises(ParseError) as caught:
        parse(text, file="f.dlc")
    e = caught.value
    assert e.code == f"MDLC{code}", str(e)
    assert message in str(e)
    assert f"--> f.dlc:{line}:" in str(e)
    if source is not None:
        shown, carets = str(e).splitlines()[2:4]
        start = carets.index("^")
        assert shown[start : start + carets.count("^")] == source, str(e)


def test_every_code_of_the_parser_has_a_case() -> None:
    assert {c[1] for c in CASES.values()} == {f"03{n:02}" for n in range(1, 15)}


def test_inputs_that_do_not_fit_an_op_are_its_own_error() -> None:
    text = "def mlp(x: f32[4, 8], w: f32[7, 3]):\n    h: f32[4, 3] = matmul(x, w)\n    return h"
    with pytest.raises(TypeRuleError) as caught:
        parse(text, file="mlp.dlc")
    lines = str(caught.value).splitlines()
    assert lines[1] == "  --> mlp.dlc:2:20"
    assert lines[3] == "    |                    ^^^^^^^^^^^^"
    assert "  = input 0: x: f32[4, 8]" in lines
    assert "  = input 1: w: f32[7, 3]" in lines


def test_weights_are_checked() -> None:
    text = in_f('w: f32[20] = const("w", sha256="{}")', "return w")
    good = np.ones(20, np.float32)
    ok = parse(text.format(""), {"w": good})
    digest = ok.outputs[0].sha256  # pyright: ignore
    assert parse(text.format(digest[:16]), {"w": good}) == ok
    for weights, part in (
        ({"w": good + 1}, "have checksum"),
        ({"w": good.astype(np.float64)}, r"are f64\[20\], not f32\[20\]"),
        ({"w": good[:5]}, r"are f32\[5\]"),
        ({"v": good}, "no weights named 'w'"),
    ):
        with pytest.raises(ParseError, match=part) as caught:
            parse(text.format(digest[:16]), weights)
        assert caught.value.code == "MDLC0312"


DEEP = {
    "brackets": in_f(f"c: f32[1] = const({'[' * 5000}{']' * 5000})", "return c"),
    "signs": in_f(f"c: f32[()] = const({'-' * 20000}1.0)", "return c"),
    "dims": f'def f(x: f32["{"N+" * 20000}N"]):\n    return x',
    "products": in_f(f"y = relu({'x + ' * 20000}x)", "return y"),
    "calls": in_f(f"y = {'relu(' * 3000}x{')' * 3000}", "return y"),
    "functions": "".join(f"{' ' * n}def f{n}(x: f32[1]):\n" for n in range(90))
    + " " * 90
    + "return x",
    "rank": f"def f(x: f32[{'1, ' * 20000}]):\n    c: f32[{'1, ' * 100}] = const([])\n    return x",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_a_parse_error(name: str) -> None:
    with pytest.raises(ParseError, match=r"error\[MDLC03"):
        parse(DEEP[name])


PIECES = (
    *("(", ")", "[", "]", ",", ":", "=", "-", ".", '"', "'", "\n", "    ", "\\", "\0", "é", "#"),
    *("nan", "inf", "None", "const", "return", "def", "f32", "i8", "x", "y", "relu", "1e999", "*"),
    *("lambda: 0", "x if x else y", "f(x)", "True", "1j", "b''", "...", "body=b", "axis=0", "[[]]"),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.sampled_from(PIECES))))
def test_damaged_text_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = nested("return z", use="t: f32[2] = const([1.0, nan])") + "\n"
    text = text.replace("t: f32[2]", "k = softmax(x, axis=0); q = fused(x, body=b); t: f32[2]", 1)
    for at, cut, piece in edits:
        at %= len(text) + 1
        text = text[:at] + piece + text[at + cut :]
    with contextlib.suppress(CompileError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own on odd literals
        parse(text)


def test_what_python_nests_we_read() -> None:
    text = f'def f(x: f32["{"(" * 100}N{")" * 100}"]):\n    return x'
    assert str(parse(text).inputs[0].type) == 'f32["N"]'


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "f.dlc"
    with pytest.raises(ParseError, match="cannot be read") as caught:
        load_text(path)
    assert caught.value.code == "MDLC0315"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ParseError, match="cannot be read"):
        load_text(path)
    path.write_text(in_f("return x"))
    assert load_text(path).name == "f"
    (tmp_path / "f.npz").write_bytes(b"PK\x03\x04 truncated")
    with pytest.raises(ParseError, match="cannot be read"):
        load_text(path)
    with zipfile.ZipFile(tmp_path / "f.npz", "w") as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x01\x00 nonsense")
    with pytest.raises(ParseError, match="cannot be read"):
        load_text(path)
    assert issubclass(ParseError, CompileError)
