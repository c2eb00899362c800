"""Cuts the attributes of a call out of the line by characters where ast counts bytes."""

import ast
import itertools

from minidlc.support.source import Source


def parse_expressions(text, weights, file):
    """The graph of a text whose lines may hold expressions: `h: f32[4, 3] = relu(x @ w + b)`.

    Signature of the extension point `parse`: `weights` are large constants by name, `file` is the
    name that errors show. Raises ParseError MDLC0314 for a piece that is no expression.
    """
    source = Source(file, text)
    tree = source.parse()
    statements = [
        n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign | ast.Return)
    ]
    free = free_names(tree)
    edits = []  # (line, first column, last column, new text), in bytes as ast counts
    for statement in sorted(statements, key=lambda s: (s.lineno, s.col_offset)):
        steps, whole = [], not isinstance(statement, ast.Return)
        for e in expressions(statement):
            new = flat(source, e, free, steps, whole)
            if new != ast.unparse(e):  # flat already: left as it stands
                edits.append((e.lineno, e.col_offset, e.end_col_offset, new))
        if steps:  # on the same line, so that errors keep theirs
            at = statement.col_offset
            edits.append((statement.lineno, at, at, "; ".join(steps) + "; "))
    lines = [line.encode() for line in source.lines]
    for number, first, last, new in sorted(edits, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:first] + new.encode() + line[last:]
    return mc.parse(b"\n".join(lines).decode(), weights, file=file)


OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul",
    ast.Pow: "pow",
}  # fmt: skip


def free_names(tree):
    """Names that stand nowhere in the text."""
    taken = {getattr(n, key, None) for n in ast.walk(tree) for key in ("id", "arg", "name")}
    return (f"e{n}" for n in itertools.count(1) if f"e{n}" not in taken)


def expressions(statement):
    """The right side, or the items of `return`; nothing for constants and declared types."""
    value = statement.value
    if isinstance(statement, ast.Return):
        return value.elts if isinstance(value, ast.Tuple) else [value] if value else []
    constant = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "const"
    return [] if value is None or constant else [value]


def piece(source, k):
    """The text of an attribute as it stands."""
    if k.lineno != k.end_lineno:
        return ast.unparse(k)
    return source.lines[k.lineno - 1][k.col_offset : k.end_col_offset]


def flat(source, e, free, steps, whole=False):
    """The name of the value of `e`, or the call that makes it if it is the `whole` right side."""
    match e:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATORS:
            inputs = [flat(source, part, free, steps) for part in (a, b)]
            call = f"{OPERATORS[type(op)]}({', '.join(inputs)})"
        case ast.UnaryOp(op=ast.USub(), operand=a):
            call = f"neg({flat(source, a, free, steps)})"
        case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords) if op != "const":
            none = [isinstance(a, ast.Constant) and a.value is None for a in args]
            parts = ["None" if n else flat(source, a, free, steps) for a, n in zip(args, none)]
            call = f"{op}({', '.join(parts + [piece(source, k) for k in keywords])})"
        case _:
            text = f"not a piece of an expression: {ast.unparse(e)}"
            raise source.error(e, text, code="MDLC0314")
    if whole:
        return call
    name = next(free)
    steps.append(f"{name} = {call}")
    return name
