"""Rewrites the text one piece at a time: the first op whose inputs are names gets a name itself."""

import ast

from minidlc.support.source import Source

NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul", "**": "pow"}
SYMBOLS = dict(Add="+", Sub="-", Mult="*", Div="/", MatMult="@", Pow="**")


def parse_expressions(text, weights, file):
    """The graph of a text whose lines may hold expressions."""
    source = Source(file, text)
    for statement in statements(source.parse()):
        for root in roots(statement):
            check(source, root)
    number = 0
    while True:
        tree = Source(file, text).parse()
        found = [(s, p) for s in statements(tree) for p in pieces(s)]
        if not found:
            return mc.parse(text, weights, file=file)
        statement, (piece, named) = found[0]
        number += 1
        while f"inner_{number}" in text:
            number += 1
        lines = [line.encode() for line in Source(file, text).lines]
        line, first, last = lines[piece.lineno - 1], piece.col_offset, piece.end_col_offset
        if named:
            new, before = f"inner_{number}".encode(), f"inner_{number} = {call(piece)}; ".encode()
        else:
            new, before = call(piece).encode(), b""
        line = line[:first] + new + line[last:]
        lines[piece.lineno - 1] = (
            line[: statement.col_offset] + before + line[statement.col_offset :]
        )
        text = b"\n".join(lines).decode()


def statements(tree):
    """Assignments and returns, in the order of the text."""
    kinds = (ast.Assign, ast.AnnAssign, ast.Return)
    found = [n for n in ast.walk(tree) if isinstance(n, kinds) and n.value is not None]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def roots(statement):
    """The expressions of a statement."""
    value = statement.value
    if isinstance(statement, ast.Return) and isinstance(value, ast.Tuple):
        return value.elts
    is_const = isinstance(value, ast.Call) and ast.unparse(value.func) == "const"
    return [] if is_const else [value]


def is_none(e):
    return isinstance(e, ast.Constant) and e.value is None


def operands(e):
    """The inputs of one op, None among them; ValueError if it is none."""
    match e:
        case ast.BinOp(left=a, op=op, right=b) if type(op).__name__ in SYMBOLS:
            return [a, b]
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return [a]
        case ast.Call(func=ast.Name(id=name), args=args) if name != "const":
            return args
    raise ValueError


def check(source, e):
    """Refuse the first piece that is no expression."""
    if isinstance(e, ast.Name):
        return
    try:
        inputs = operands(e)
    except ValueError:
        raise source.error(e, "no expression", code="MDLC0314") from None
    for a in inputs:
        if not (isinstance(e, ast.Call) and is_none(a)):
            check(source, a)


def pieces(statement):
    """(piece, whether it needs a name): ops that are no flat line yet, in order of evaluation."""
    for root in roots(statement):
        yield from inner(root, isinstance(statement, ast.Return))


def inner(e, named):
    if isinstance(e, ast.Name) or is_none(e):
        return
    for a in operands(e):
        yield from inner(a, True)
    if named or not isinstance(e, ast.Call):
        yield e, named


def call(e):
    """The text of one op whose inputs are names."""
    match e:
        case ast.BinOp(op=op):
            name = NAMES[SYMBOLS[type(op).__name__]]
        case ast.UnaryOp():
            name = "neg"
        case _:
            return ast.unparse(e)
    return f"{name}({', '.join(map(ast.unparse, operands(e)))})"
