"""Scripting: capture a function from its source, so that `if` and loops may depend on tensors.

    def steps(x, n):
        while x.sum() < n:                          # a tensor decides: op loop
            x = x * 2.0 if x.max() > 0.0 else x + 1.0   # op if_
        return x
    g = mc.script(steps, mc.f32[3], mc.f32[()])

Reads the source of a function and types, runs it statement by statement on stand-ins as tracing
does (frame.py), but where a condition is a tensor it captures both branches, or the body of the
loop, as closed graphs (region.py). Conditions and ranges of Python values are decided at once, as
in tracing. Functions that the function calls are read from their source too. Every way to be
refused is a row of the catalogue in refusals.py. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from minidlc.frontend.script.frame import call
from minidlc.frontend.script.source import Program, read_source
from minidlc.frontend.trace import trace
from minidlc.graph import Graph
from minidlc.graph.value_ops import equality
from minidlc.support.arguments import expect

__all__ = ["script"]


def script(fn: Callable[..., object], /, *types: object, **named: object) -> Graph:
    """The graph of `fn` for these types; like `trace`, but `if`, `while`, `for` may read tensors.

    Raises TypeRuleError: MDLC0225 if there is no source to read, MDLC0226 for what cannot be
    captured, at its line, with the catalogue's reason and hint; and what `trace` raises.
    """
    expect("script", "fn", fn, Callable)  # pyright: ignore[reportArgumentType]
    program = read_source(fn)
    return trace(_scripted(fn, program), *types, **named)


def _scripted(fn: Callable[..., object], program: Program) -> Callable[..., object]:
    @functools.wraps(fn)
    def scripted(*args: object, **kwargs: object) -> object:
        with equality(of_elements=False):  # frames compare variables; `==` of the source is an op
            return call(program, args, kwargs)

    return scripted
