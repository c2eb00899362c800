"""The catalogue of what scripting refuses: a rule, what was found, and what to write in its place.

    refuse(place, "break", "leaves a loop that a tensor decides about")
    # error[MDLC0226]: script: `break` … [rule break]

`STATEMENTS` are refused wherever they stand; `WHERE_TENSORS_DECIDE` only under a condition or in a
loop that depends on a tensor. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
from typing import Never

from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import Loc

# Rule: the nodes, what is said, what to do in its place.
STATEMENTS: dict[str, tuple[tuple[type[ast.AST], ...], str, str]] = {
    "try": (
        (ast.Try, ast.TryStar),
        "an exception cannot be caught in a graph",
        "check what is known, such as x.shape, with `if`; or call a function that tries",
    ),
    "with": ((ast.With, ast.AsyncWith), "`with` has no graph", "put it around the call of script"),
    "yield": ((ast.Yield, ast.YieldFrom), "a generator has no graph", "return a tuple or a list"),
    "async": (
        (ast.AsyncFunctionDef, ast.AsyncFor, ast.Await),
        "a coroutine has no graph",
        "write a plain function",
    ),
    "def": (
        (ast.FunctionDef, ast.ClassDef),
        "a function or class defined inside is not captured",
        "define it outside and call it: its source is read too",
    ),
    "lambda": ((ast.Lambda,), "a lambda is not captured", "define a function outside and call it"),
    "generator": (
        (ast.GeneratorExp,),
        "a generator may run after its variables have changed",
        "use a list: [f(x) for x in xs]",
    ),
    "global": (
        (ast.Global, ast.Nonlocal),
        "a graph cannot assign variables outside the function",
        "return the value",
    ),
    "del": ((ast.Delete,), "`del` has no graph", "assign None, or use another name"),
    "match": ((ast.Match,), "`match` is not captured", "use if and elif"),
    "walrus": ((ast.NamedExpr,), "`:=` inside an expression is not captured", "assign it before"),
}

# Rule: what to do. What was found is said where it is found.
WHERE_TENSORS_DECIDE: dict[str, str] = {
    "loop-else": "put the statements after the loop",
    "condition": "make it one element: x.sum() > 0, (x > 0).max(); mc.where chooses elementwise",
    "logical": "use mc.logical_and, mc.logical_or or mc.logical_not, which work elementwise",
    "break": "make it part of the condition: while (n < 10) and not done",
    "return": "assign the result to a variable and return it after the loop",
    "one-return": "return in both branches, or after the if",
    "raise": "a graph raises nothing: return a tensor that says so",
    "side-effect": "assign the result to a variable",
    "branch-type": "convert with astype or reshape, so that both branches give the same type",
    "branch-structure": "give the container the same keys and length on both ways",
    "branch-value": "only tensors and numbers can depend on a tensor",
    "alias": "give each variable a list of its own: list(xs), dict(d), or use tuples",
    "one-branch": "assign it in both branches, or before the if",
    "loop-type": "give it that type before the loop: zeros of the shape, or astype",
    "loop-structure": "a list cannot grow with a loop of tensors; keep a tensor of the full size",
    "loop-local": "assign it before the loop, which may run zero times",
    "for-tensor": "loop over the rows by number: for i in range(len(x)), or compute on all of them",
    "for-target": "use one plain name: for i in range(n)",
    "range": "range takes integers of one element; its step is a Python number other than 0",
    "foreign": "give the tensor to the function as a parameter and keep it in a plain variable",
    "unrolled": "make the bound an argument that is a tensor: the loop then stays a loop",
    "recursion": "write a loop",
}


def refuse(place: Loc | None, rule: str, found: str) -> Never:
    """Raise the TypeRuleError (MDLC0226) of a row of the catalogue."""
    hint = STATEMENTS[rule][2] if rule in STATEMENTS else WHERE_TENSORS_DECIDE[rule]
    raise TypeRuleError(
        f"script: {found}", loc=place, notes=(f"rule: {rule}",), hint=hint, code="MDLC0226"
    )
