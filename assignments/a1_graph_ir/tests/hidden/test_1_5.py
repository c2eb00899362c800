"""Hidden tests of task 1.5, a parser for one construct."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import minidlc as mc
from grader import expect

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}
CALLS = ("relu(a)", "maximum(a, b)", "softmax(a, axis=-2)", "where(p, a, b)", "clip(a, min=-1.0)")
HEAD = "def f(a: f32[2], b: f32[2], c: f32[2]):\n"


def same(student, text, flat, weights=None, file="<text>"):
    """`text` gives the graph that the shipped parser reads from `flat`."""
    got = student.call("1.5", text, weights or {}, file)
    expect.same_graph(got, mc.parse(flat, weights, file=file), given=text)
    return got


def place(text, piece, file="<text>"):
    """Where the piece begins, as an error shows it."""
    before = text[: text.index(piece)]
    return f"{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def random_tree(rng, names, depth):
    """A random expression of square matrices, as Python's syntax tree."""
    kind = rng.integers(4) if depth else 0
    if kind == 0:
        return ast.Name(str(rng.choice(names)))

    def inner():
        return random_tree(rng, names, depth - 1)

    if kind == 1:
        call = ast.parse(str(rng.choice(CALLS)), mode="eval").body
        call.args = [a if getattr(a, "id", "") == "p" else inner() for a in call.args]
        return call
    if kind == 2 and rng.integers(2):
        return ast.UnaryOp(ast.USub(), inner())
    operator = list(BINARY)[rng.integers(len(BINARY))]
    return ast.BinOp(inner(), operator(), inner())


def flat(e, lines):
    """The name of the value of a tree; one line a node, as Python would evaluate it."""
    match e:
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(operand=a):
            call = f"neg({flat(a, lines)})"
        case ast.BinOp(left=a, op=op, right=b):
            call = f"{BINARY[type(op)]}({flat(a, lines)}, {flat(b, lines)})"
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            inputs = [flat(a, lines) for a in args]
            call = f"{name}({', '.join(inputs + [ast.unparse(k) for k in keywords])})"
    lines.append(f"    flat_{len(lines)} = {call}\n")
    return f"flat_{len(lines) - 1}"


@pytest.mark.points(4)
@pytest.mark.parametrize("round", range(2))
def test_random_expressions(student, rng, round):
    """Random expressions: one node per operator in Python's order, and the same numbers."""
    names = ["x", "y", "z"]
    rng = np.random.default_rng([round, *rng.integers(1 << 30, size=2)])
    head = f"def f({', '.join(f'{n}: f32[3, 3]' for n in names)}, p: bool[3, 3]):\n"
    text, lines = head, []
    for number in range(5):
        tree = random_tree(rng, names, depth=3)
        while isinstance(tree, ast.Name):  # a line `v = x` is no op
            tree = random_tree(rng, names, depth=3)
        spaces = "  " if number % 2 else ""
        text += f"    v{number}: f32[3, 3] = {spaces}{ast.unparse(tree)}\n"
        last = flat(tree, lines)
        lines[-1] = lines[-1].replace(last, f"v{number}", 1)
        names.append(f"v{number}")
    got = same(student, f"{text}    return v3, v4\n", f"{head}{''.join(lines)}    return v3, v4\n")
    inputs = [rng.normal(size=(3, 3)).astype(np.float32) for _ in range(3)]
    inputs.append(rng.normal(size=(3, 3)) > 0)
    values = student.evaluate(got, inputs)
    for value, want in zip(values, mc.interpret(got, inputs), strict=True):
        expect.close(value, want, given=text)


@pytest.mark.points(0.5)
@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        ("a ** b ** c", ["pow(b, c)", "pow(a, t0)"]),
        ("-a ** b", ["pow(a, b)", "neg(t0)"]),
        ("(-a) ** -b", ["neg(a)", "neg(b)", "pow(t0, t1)"]),
        ("-a * b", ["neg(a)", "mul(t0, b)"]),
        ("a / b * c", ["div(a, b)", "mul(t0, c)"]),
        ("a - (b - c)", ["sub(b, c)", "sub(a, t0)"]),
        ("--a", ["neg(a)", "neg(t0)"]),
        ("((a + b))", ["add(a, b)"]),
    ],
)
def test_precedence(student, expression, steps):
    """Powers bind tighter than minus and from the right; the others from the left."""
    lines = [f"    t{n} = {step}\n" for n, step in enumerate(steps)]
    text = f"{HEAD}    return {expression}"
    same(student, text, f"{HEAD}{''.join(lines)}    return t{len(steps) - 1}")


def test_same_piece_twice(student):
    """A piece that is written twice makes two nodes, and lines that nobody reads stay."""
    text = HEAD + "    n: f32[2] = -(a * b)\n    y: f32[2] = a * b + a * b\n    return y"
    same(
        student,
        text,
        HEAD + "    t0 = mul(a, b)\n    t1 = neg(t0)\n    t2 = mul(a, b)\n    t3 = mul(a, b)\n"
        "    t4 = add(t2, t3)\n    return t4",
    )


def test_inner_calls_keep_their_attributes(student):
    """Attributes of calls inside expressions stay as written; None stays an omitted input."""
    head = "def f(x: f32[1, 2, 5, 5], w: f32[2, 2, 3, 3]):\n"
    text = head + (
        "    y = reshape(conv(x * x, -w, None, pads=(1, 1, 1, 1)), shape=(2, -1)) + "
        "sum(x, axes=(-1, -2, 1, 0), keepdims=False)\n    return cast(y, to=f16)"
    )
    flat = head + (
        "    a = mul(x, x)\n    b = neg(w)\n    c = conv(a, b, None, pads=(1, 1, 1, 1))\n"
        "    d = reshape(c, shape=(2, -1))\n"
        "    e = sum(x, axes=(-1, -2, 1, 0), keepdims=False)\n"
        "    g = add(d, e)\n    h = cast(g, to=f16)\n    return h"
    )
    same(student, text, flat)


def test_names_of_inner_nodes(student):
    """Whatever you call inner nodes, a text that uses just these names means the same."""
    text = HEAD + "    y: f32[2] = relu(a * b + c) - exp(-a)\n    return y * y, y + a"
    flat = HEAD + (
        "    t0 = mul(a, b)\n    t1 = add(t0, c)\n    t2 = relu(t1)\n    t3 = neg(a)\n"
        "    t4 = exp(t3)\n    y = sub(t2, t4)\n    t5 = mul(y, y)\n    t6 = add(y, a)\n"
        "    return t5, t6"
    )
    got = same(student, text, flat)
    names = [n.name for n in got.nodes if n.name != "y"]  # what this solution calls inner nodes
    names = [*dict.fromkeys([*names, "e1", "t1", "tmp", "tmp1", "t_1", "_1", "h_1", "e2"])]
    head = HEAD.replace("a:", f"{names[0]}: f32[2], a:")
    later = "".join(f"    {name} = abs(y)\n" for name in names[1:])
    lines = flat.replace("t", "inner_of_flat").replace("reinner_of_flaturn", "return")
    lines = lines.removeprefix(HEAD).splitlines(keepends=True)
    text = head + text.removeprefix(HEAD).replace("    return", f"{later}    return")
    same(student, text, "".join([head, *lines[:6], later, *lines[6:]]))


def test_nested_functions(student):
    """Lines of nested functions may hold expressions as well."""
    text = """
def f(c: bool[()], x: f32[2], y: f32[2]):
    def yes(x: f32[2], y: f32[2]):
        return x * y + x

    def no(x: f32[2], y: f32[2]):
        d: f32[2] = -x / y
        return d
    z: f32[2] = if_(c, x + y, y, then_branch=yes, else_branch=no)
    return z - x
"""
    flat = """
def f(c: bool[()], x: f32[2], y: f32[2]):
    def yes(x: f32[2], y: f32[2]):
        m = mul(x, y)
        s = add(m, x)
        return s
    def no(x: f32[2], y: f32[2]):
        n = neg(x)
        d: f32[2] = div(n, y)
        return d
    t = add(x, y)
    z: f32[2] = if_(c, t, y, then_branch=yes, else_branch=no)
    u = sub(z, x)
    return u
"""
    same(student, text, flat)


def test_layout_of_the_text(student):
    """Several statements on a line, results unpacked, comments, calls over several lines."""
    text = """
def f(
    x: f32[2, 4],  # the parameters, a + b
    y: f32[2, 4],
):
    u: f32[2, 4] = x + y; w: f32[2, 4] = u * -x  # u * x
    v: f32[2, 2]; i: i64[2, 2]; v, i = topk(w - u, k=2)
    s: f32[2, 2] = softmax(
        v,
        axis=0,
    )
    return (s @ v, i)
"""
    flat = """
def f(x: f32[2, 4], y: f32[2, 4]):
    u = add(x, y)
    n = neg(x)
    w = mul(u, n)
    d = sub(w, u)
    v: f32[2, 2]; i: i64[2, 2]; v, i = topk(d, k=2)
    s = softmax(v, axis=0)
    m = matmul(s, v)
    return m, i
"""
    same(student, text, flat)
    same(student, "def f(x: f32[2]): return x + x", "def f(x: f32[2]):\n y = add(x, x)\n return y")


def test_large_constants(student, rng):
    """Weights reach the shipped parser by name."""
    text = 'def f(x: f32[3, 6]):\n    w: f32[6, 6] = const("w0")\n    return relu(x @ w)'
    flat = 'def f(x: f32[3, 6]):\n  w: f32[6, 6] = const("w0")\n  a = matmul(x, w)\n'
    weights = {"w0": rng.normal(size=(6, 6)).astype(np.float32)}
    same(student, text, flat + "  b = relu(a)\n  return b", weights)


@pytest.mark.points(0.3)
@pytest.mark.parametrize(
    "piece",
    ["b[0]", "b < c", "b // c", "2.0", "+b", "*b", "const(1.0)", "b.T", "(b, c)", "b and c"],
)
def test_no_expression(student, piece):
    """A piece that is not in the table is MDLC0314 where it begins, however deep it stands."""
    if piece[0] in "*(":
        text = HEAD + f"    y: f32[2] = relu(a)\n    z: f32[2] = a - relu({piece})\n    return y"
    else:
        text = HEAD + f"    y: f32[2] = relu(a)\n    z: f32[2] = a * exp(({piece}))\n    return y"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, place(text, piece, "g.dlc"), "the place", given=text)
    expect.equal(raised.kind, "ParseError", "the class of the error", given=text)


def test_first_error_counts(student):
    """The outermost of nested pieces, and the first one that evaluation meets."""
    text = HEAD + "    y: f32[2] = a + (b % c[1])\n    return y - 1.0"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, place(text, "b % c", "g.dlc"), "the place", given=text)
    for item in ("2.0", "const(1.0)"):
        text = HEAD + f"    return a + b, {item}\n"
        raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
        expect.equal(raised.place, place(text, item, "g.dlc"), "the place", given=text)
    text = HEAD + "    return exp(a % b) * relu(c[0])\n"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, place(text, "a % b", "g.dlc"), "the place", given=text)


def test_letters_outside_ascii(student):
    """Names may have any letters; columns count characters, not bytes."""
    head = "def f(größe: f32[2], β: f32[2]):\n"
    text = head + "    ñ = größe * β + β; μ = -ñ\n    return μ - ñ"
    flat = head + "    m = mul(größe, β)\n    ñ = add(m, β)\n    μ = neg(ñ)\n    d = sub(μ, ñ)\n"
    same(student, text, flat + "    return d")
    text = head + "    ñ = softmax(größe * β, axis=-1) - clip(β, min=-1.0)\n    return -ñ"
    flat = head + "    m = mul(größe, β)\n    s = softmax(m, axis=-1)\n    c = clip(β, min=-1.0)\n"
    same(student, text, flat + "    ñ = sub(s, c)\n    n = neg(ñ)\n    return n")
    text = head + "    μ = größe * β; y = (β + μ) / μ[0]\n    return y"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, place(text, "μ[0]", "g.dlc"), "the place", given=text)


def test_ends_of_lines(student):
    """A form feed or U+2028 in a comment ends no line; `\\r\\n` ends one."""
    comment, lines = "    # a\x0cb \u2028 c \x85 d\n", "    y: f32[2] = a * b + c\n    return -y\n"
    flat = "    m = mul(a, b)\n    y = add(m, c)\n    n = neg(y)\n    return n"
    same(student, HEAD + comment + lines, HEAD + flat)
    same(student, (HEAD + lines).replace("\n", "\r\n"), HEAD + flat)
    text = HEAD + comment + "    y: f32[2] = a * b\n    return y + c[0]\n"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, "g.dlc:4:16", "the place", given=text)


@pytest.mark.points(0.4)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("y: f32[2] = a + q * b", "MDLC0307"),
        ("y: f32[3] = a + b * c", "MDLC0310"),
        ("y: f32[2] = a * relo(b + c)", "MDLC0305"),
        ("y: f32[2] = softmax(a - b, axes=0)", "MDLC0306"),
        ("a: f32[2] = a - b - c", "MDLC0308"),
        ("y: f32[2] = (a @ b) + reshape(c * c, shape=(3,))", "MDLC0203"),
    ],
)
def test_other_errors_keep_their_line(student, line, code):
    """What the shipped parser refuses has its code, and the line of the text that was given."""
    text = HEAD + f"    u: f32[2] = a * b + c; w: f32[2] = -a * b\n    {line}\n    return a + b"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), code, given=text)
    expect.equal(raised.place.rsplit(":", 1)[0], "g.dlc:3", "file and line", given=text)


def test_flat_lines_keep_their_columns(student):
    """On a line without expressions an error has its column too."""
    text = HEAD + "    u: f32[2] = a * b + c\n    y: f32[2] = maximum( u,   q)\n    return y - u"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0307", given=text)
    expect.equal(raised.place, place(text, "q)", "g.dlc"), "the place", given=text)
    text = HEAD + "    u: f32[2] = a * b\n    y = u\n    return u"
    raised = expect.refused(student.raises("1.5", text, {}, "g.dlc"), "MDLC0314", given=text)
    expect.equal(raised.place, "g.dlc:3:9", "the place", given=text)
