"""The proof of live ranges finds every range that is a step too short."""

from __future__ import annotations

from dataclasses import replace

import pytest

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.codegen.control import Branch, KernelCall, Operand, Repeat
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Graph, Input, apply, getitem
from minidlc.lower import program
from minidlc.lower.lifetimes import check_lifetimes
from minidlc.lower.memory import BufferRequest
from minidlc.support.errors import VerifyError
from minidlc.target import Target

A, B, S, RUN, GO = (Operand("arena", n) for n in range(5))
X, Y = Operand("input", 0), Operand("output", 0)


def call(reads, writes, symbol="k"):
    return KernelCall(f"{symbol}{len(reads)}", (*reads, *writes), Operand("arena", -1))


def lives(*ranges):
    return [BufferRequest(f"b{n}", 64, *r) for n, r in enumerate(ranges)]


def check(steps, *ranges):
    check_lifetimes(tuple(steps), lives(*ranges), {"k0": 0, "k1": 1, "k2": 2})


def refuse(match, steps, *ranges):
    with pytest.raises(VerifyError, match=match) as e:
        check(steps, *ranges)
    assert e.value.code == "MDLC0417"


LINE = [call([X], [A]), call([A], [B]), call([B], [Y])]


def test_a_line_of_calls():
    check(LINE, (0, 1), (1, 2))
    refuse("'b0' is used at 1", LINE, (0, 0), (1, 2))
    refuse("'b1' is used at 1", LINE, (0, 1), (2, 2))
    refuse("'b1' is read before a step writes it", LINE[2:], (0, 9), (0, 9))


def test_a_branch_writes_only_what_both_sides_write():
    both = [Branch(X, (call([X], [A]),), (call([X], [A]),)), call([A], [Y])]
    check(both, (0, 3))
    one = [Branch(X, (call([X], [A]),), (call([X], [B]),)), call([A], [Y])]
    refuse("'b0' is read before", one, (0, 3), (0, 3))


def repeat(steps, loop=0, proceed=None):
    return Repeat(loop, 5, X if proceed else None, proceed, RUN, GO, tuple(steps))


def test_what_a_run_hands_to_the_next_lives_through_the_loop():
    # the state S is read, then written; A lives inside one run
    steps = [call([X], [S]), repeat([call([S], [A]), call([A], [S])]), call([S], [Y])]
    fine = (2, 3), (0, 0), (0, 5), (1, 4), (1, 4)
    check(steps, *fine)
    refuse("'b2' is used at 4", steps, *fine[:2], (0, 3), *fine[3:])
    refuse("'b3' is used at 4", steps, *fine[:3], (1, 3), fine[4])
    refuse("'b2' is read before", steps[1:], *[(0, 4)] * 5)


def test_rows_and_conditions_live_through_the_loop():
    row = replace(S, moves=((0, 64),))
    steps = [repeat([call([X], [row]), call([X], [A])], proceed=A), call([S], [Y])]
    check(steps, (2, 3), (0, 0), (0, 4), (0, 3), (0, 3))
    refuse("'b2' is used at 0", steps, (2, 3), (0, 0), (1, 4), (0, 3), (0, 3))
    refuse("'b0' is used at 3", steps, (2, 2), (0, 0), (0, 4), (0, 3), (0, 3))


def nested():
    """A loop in a loop with a branch inside, and a value from before read at the very end."""
    i, c, h, w = (Input(*p) for p in zip("ichw", (i64[()], bool_[()], f32[4], f32[4]), strict=True))
    yes, no = Graph.of("yes", [h, w], [h + w, w]), Graph.of("no", [h, w], [h * w, h])
    both = apply("if_", c, h, w, then_branch=yes, else_branch=no)
    inner = Graph.of("inner", [i, c, h, w], [c, getitem(both, 0) * getitem(both, 1), h])
    i, c, h, w = (Input(*p) for p in zip("ichw", (i64[()], bool_[()], f32[4], f32[4]), strict=True))
    e = apply("exp", w)
    node = apply("loop", None, None, h, e, body=inner, carried=1, trips=3)
    outer = Graph.of("outer", [i, c, h, w], [c, getitem(node, 0) + w, getitem(node, 1)])
    x, w = Input("x", f32[4]), Input("w", f32[4])
    before = apply("tanh", w)
    node = apply("loop", None, None, before, apply("exp", x), body=outer, carried=1, trips=2)
    return Graph.of("g", [x, w], [getitem(node, 0) + before, getitem(node, 1) * 2.0])


def test_every_life_that_lowering_gives_is_needed(monkeypatch):
    """The live ranges of a nested program, cut by one step at either end, are refused."""
    seen = []
    check = program.check_lifetimes
    monkeypatch.setattr(program, "check_lifetimes", lambda *given: seen.append(given))
    program.lower_graph(
        nested(), Target("x86_64", "generic", ""), fast=False, max_bytes=1 << 20,
        workspace_bytes=lambda kernel: 0,
    )  # fmt: skip
    ((steps, requests, inputs),) = seen
    requests = list(requests)
    check(steps, requests, inputs)
    unneeded = []
    for n, r in enumerate(requests):
        for shorter in (replace(r, first=r.first + 1), replace(r, last=r.last - 1)):
            cut = [*requests[:n], shorter, *requests[n + 1 :]]
            try:
                check(steps, cut, inputs)
                unneeded.append((r, shorter))
            except VerifyError:
                pass
    # results of branches and loops get their places before the first step that writes them
    early = [r.name for r, shorter in unneeded if shorter.last == r.last]
    assert len(early) == len(unneeded)
    assert set(early) <= {"loop", "if_"}
