"""decompose, fold_constants, cse, dce: text before, text expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32
from minidlc.graph import (
    Constant,
    Fused,
    Graph,
    Input,
    Op,
    OpKind,
    TupleType,
    apply,
    build,
    getitem,
    interpret,
    parse,
    register_op,
    unregister_op,
    verify,
)
from minidlc.support.errors import PassError
from minidlc.transform import Cse, Dce, Decompose, FoldConstants, Pass, collecting

pytestmark = pytest.mark.ch02


def check(p: Pass, before: str, expected: str) -> None:
    g = parse(before)
    after = p(g)
    verify(after)
    assert str(after) == expected.strip("\n")
    assert p(after) is after, "a second run changes something"


def test_decompose_gemm() -> None:
    check(
        Decompose(),
        """
def f(a: f32[2, 3], b: f32[4, 3], c: f32[4]):
    y: f32[2, 4] = gemm(a, b, c, alpha=2.0, transB=True)
    return y
""",
        """
def f(a: f32[2, 3], b: f32[4, 3], c: f32[4]):
    transpose_1: f32[3, 4] = transpose(b, perm=(1, 0))
    matmul_1: f32[2, 4] = matmul(a, transpose_1)
    c_1: f32[()] = const(2.0)
    mul_1: f32[2, 4] = mul(matmul_1, c_1)
    y: f32[2, 4] = add(mul_1, c)
    return y
""",
    )


def test_decompose_keeps_places_and_reports() -> None:
    g = parse("def f(a: f32[2, 3], b: f32[3, 4]):\n    y = gemm(a, b, None)\n    return y")
    with collecting() as events:
        after = Decompose()(g)
    assert [str(e) for e in events] == ["decompose gemm at y: done"]
    assert str(after.nodes[0].loc) == "decompose gemm of <text>:2:9"


@pytest.fixture
def registered() -> Iterator[Any]:
    """Register composite (or other) ops for one test."""
    names: list[str] = []

    def add(name_: str, decompose: Any = None, type: Any = f32[3], **members: Any) -> type[Op]:
        members |= {"name": name_, "type_rule": lambda self, *x: type, "examples": lambda: ()}
        members.setdefault("reference", lambda self, *x: np.zeros(3, np.float32))
        if decompose is not None:
            members |= {"kind": OpKind.COMPOSITE, "decompose": decompose}
        members.setdefault("compute", lambda self, *x: x[0])
        names.append(name_)
        return register_op(dataclass(frozen=True)(type_(name_, members)))

    def type_(name: str, members: dict[str, Any]) -> Any:
        return type.__call__(type, name, (Op,), {**members, "__annotations__": {}})

    yield add
    for name in names:
        unregister_op(name)


def test_decompose_goes_through_several_levels(registered: Any) -> None:
    registered("twice", lambda self, x: x + x)
    registered("four_times", lambda self, x: apply("twice", apply("twice", x)))
    check(
        Decompose(),
        "def f(x: f32[3]):\n    y = four_times(x)\n    return y",
        """
def f(x: f32[3]):
    twice: f32[3] = add(x, x)
    y: f32[3] = add(twice, twice)
    return y
""",
    )


def test_decompose_to_an_input(registered: Any) -> None:
    registered("same", lambda self, x: x)
    check(
        Decompose(),
        "def f(x: f32[3]):\n    y = same(x)\n    z = relu(y)\n    return y, z",
        "def f(x: f32[3]):\n    z: f32[3] = relu(x)\n    return x, z",
    )


def test_decompose_several_results(registered: Any) -> None:
    both = TupleType((f32[3], f32[3]))
    registered("both", lambda self, x: (apply("relu", x), x), type=both)
    check(
        Decompose(),
        "def f(x: f32[3]):\n    a, b = both(x)\n    return b, a",
        "def f(x: f32[3]):\n    relu_1: f32[3] = relu(x)\n    return x, relu_1",
    )


def test_decompose_that_breaks_its_promise(registered: Any) -> None:
    registered("wide", lambda self, x: apply("cast", x, to="f64"))
    registered("odd", lambda self, x: 3)
    registered("endless", lambda self, x: apply("endless", x))
    for op, part in (
        ("wide", r"gives f64\[3\], not f32\[3\]"),
        ("odd", r"not f32\[3\]"),
        ("endless", "still composite after 50 rounds: endless"),
    ):
        with pytest.raises(PassError, match=part) as caught:
            Decompose()(parse(f"def f(x: f32[3]):\n    y = {op}(x)\n    return y"))
        assert caught.value.code == "MDLC0508"


def test_fold() -> None:
    check(
        FoldConstants(),
        """
def f(x: f32[2]):
    a: f32[2] = const([1.0, nan])
    b: f32[2] = const([2.0, -0.0])
    c: f32[2] = mul(a, b)
    d: f32[2] = neg(c)
    y: f32[2] = add(x, d)
    return y, c
""",
        """
def f(x: f32[2]):
    d: f32[2] = const([-2.0, nan])
    y: f32[2] = add(x, d)
    c: f32[2] = const([2.0, nan])
    return y, c
""".replace("-2.0, nan", "-2.0, nan(0xffc00000)"),
    )


def test_fold_makes_of_several_results_what_is_taken() -> None:
    body = Graph.of("b", [x := Input("x", f32[2])], [apply("relu", x), apply("neg", x)])
    c = Constant("c", np.float32([1, -2]))
    g = Graph.of("f", [], [getitem(build(Fused(body), [c]), 1)])
    after = Dce()(FoldConstants()(g))
    assert str(after) == ("def f():\n    getitem: f32[2] = const([-1.0, 2.0])\n    return getitem")


def folded(g: Graph, **options: Any) -> tuple[Graph, list[str]]:
    with collecting() as events:
        return FoldConstants(**options)(g), [str(e) for e in events]


def test_fold_leaves_what_is_too_large() -> None:
    g = parse(
        "def f():\n    c: f32[1] = const([1.0])\n    y = expand(c, shape=(100,))\n    return y"
    )
    same, events = folded(g, max_bytes=399)
    assert same is g
    assert events == ["fold at y: 400 bytes are more than 399"]
    assert folded(g, max_bytes=400)[0].nodes == ()


def test_fold_leaves_what_raises_and_what_is_not_pure(registered: Any) -> None:
    def raises(self: Any, x: Any) -> Any:
        raise IndexError("out of range")

    registered("raises", reference=raises)
    registered("random", pure=False)
    registered("wrong", reference=lambda self, x: np.zeros(4, np.float32))
    for op, reason in (
        ("raises", "its reference raises IndexError: out of range"),
        ("random", "random gives another result each time"),
        ("wrong", "its reference returns f32[4], not f32[3]"),
    ):
        text = f"def f():\n    c: f32[3] = const([1.0, 2.0, 3.0])\n    y = {op}(c)\n    return y"
        g = parse(text)
        same, events = folded(g)
        assert same is g
        assert events == [f"fold at y: {reason}"]


def test_cse() -> None:
    check(
        Cse(),
        """
def f(x: f32[2], y: f32[2]):
    c: f32[2] = const([1.0, 0.0])
    d: f32[2] = const([1.0, 0.0])
    e: f32[2] = const([1.0, -0.0])
    a: f32[2] = add(x, c)
    b: f32[2] = add(x, d)
    g: f32[2] = add(x, e)
    h: f32[2] = exp(a)
    i: f32[2] = exp(b)
    j: f32[2] = sub(h, i)
    k: f32[2] = sub(i, h)
    return j, k, g, b
""",
        """
def f(x: f32[2], y: f32[2]):
    c: f32[2] = const([1.0, 0.0])
    a: f32[2] = add(x, c)
    e: f32[2] = const([1.0, -0.0])
    g: f32[2] = add(x, e)
    h: f32[2] = exp(a)
    j: f32[2] = sub(h, h)
    return j, j, g, a
""",
    )


def test_cse_looks_at_attributes_and_bodies() -> None:
    text = """\
def f(x: f32[2, 2]):
    a: f32[2, 2] = softmax(x, axis=0)
    b: f32[2, 2] = softmax(x)
    def g(x: f32[2, 2]):
        y: f32[2, 2] = relu(x)
        return y
    c: f32[2, 2] = fused(x, body=g)
    def h(z: f32[2, 2]):
        w: f32[2, 2] = relu(z)
        return w
    d: f32[2, 2] = fused(x, body=h)
    return a, b, c, d"""
    after = Cse()(parse(text))
    assert [n.name for n in after.nodes] == ["a", "b", "c"]
    assert after.outputs[3] is after.outputs[2]


def test_cse_keeps_ops_that_are_not_pure(registered: Any) -> None:
    registered("random", pure=False)
    g = parse("def f(x: f32[3]):\n    a = random(x)\n    b = random(x)\n    return a, b")
    assert Cse()(g) is g


def test_dce() -> None:
    check(
        Dce(),
        """
def f(x: f32[2], unused: f32[2]):
    a: f32[2] = exp(x)
    b: f32[2] = relu(x)
    c: f32[2] = exp(a)
    return b
""",
        """
def f(x: f32[2], unused: f32[2]):
    b: f32[2] = relu(x)
    return b
""",
    )


def test_dce_keeps_ops_that_are_not_pure(registered: Any) -> None:
    registered("send", pure=False)
    g = parse("def f(x: f32[3]):\n    a = relu(x)\n    b = send(a)\n    c = exp(a)\n    return x")
    after = Dce()(g)
    assert [n.name for n in after.nodes] == ["a", "b"]


def test_a_folded_view_does_not_change_when_it_runs_again() -> None:
    """FAULTS 99: a folded reshape kept a pointer into an initializer that was freed."""
    array = np.arange(6, dtype=np.float32)
    x = Input("x", f32[2, 3])
    g = Graph.of("f", [x], [x + apply("reshape", Constant("c", array), shape=(2, 3))])
    after = FoldConstants()(g)
    assert [n.op.name for n in after.nodes] == ["add"]
    del g
    array[:] = np.nan
    for _ in range(2):
        [y] = interpret(after, [np.zeros((2, 3), np.float32)])
        assert y.tolist() == [[0, 1, 2], [3, 4, 5]]
        y[:] = -1
