"""Products of one value become one: what follows them, what stays apart, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f16, f32, i32
from minidlc.graph import Constant, Graph, Input, Value, apply, interpret, parse, verify, weights_of
from minidlc.transform import MergeProducts, Pipeline, Refusal, collecting

pytestmark = pytest.mark.ch02


def weights(*shape: int, seed: int = 0, dtype: str = "float32") -> Constant:
    rng = np.random.default_rng(seed)
    return Constant(f"w{seed}", (rng.standard_normal(shape) * 3).astype(dtype))


def merged(g: Graph) -> Graph:
    after = MergeProducts()(g)
    verify(after)
    assert parse(str(after), weights_of(after)) == after
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(i.type.dims) * 3).astype(i.type.dtype.numpy) for i in g.inputs]
    for a, b in zip(interpret(g, arrays), interpret(after, arrays), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=1e-5, atol=1e-4)
    return after


def ops(g: Graph) -> list[str]:
    return [n.op.name for n in g.nodes]


def three(x: Value, *, bias: bool = True, last: str = "relu") -> list[Value]:
    found: list[Value] = []
    for n in range(3):
        y: Value = apply("matmul", x, weights(8, 5, seed=n))
        y = y + weights(5, seed=10 + n) if bias else y
        found.append(apply(last, y) if last else y)
    return found


def test_products_their_biases_and_what_follows() -> None:
    x = Input("x", f32[2, 4, 8])
    after = merged(Graph.of("f", [x], three(x)))
    assert ops(after) == ["matmul", "add", "relu", *["slice", "squeeze"] * 3]
    assert str(after.nodes[2].type) == "f32[3, 2, 4, 5]"
    assert [str(c.type) for c in after.constants] == ["f32[3, 1, 8, 5]", "f32[3, 1, 1, 5]"]
    assert [o.name for o in after.outputs] == ["relu"] * 3


def test_one_bias_for_all_is_not_stacked() -> None:
    x, b = Input("x", f32[4, 8]), weights(5)
    g = Graph.of("f", [x], [apply("matmul", x, weights(8, 5, seed=n)) + b for n in (1, 2)])
    after = merged(g)
    assert [str(c.type) for c in after.constants] == ["f32[2, 8, 5]", "f32[5]"]


def test_equal_weights_are_two_products() -> None:
    x, w = Input("x", f32[4, 8]), weights(8, 5)
    after = merged(Graph.of("f", [x], [apply("matmul", x, w), apply("matmul", x, w)]))
    assert str(after.nodes[0].type) == "f32[2, 4, 5]"


def test_what_differs_ends_the_chain() -> None:
    x = Input("x", f32[4, 8])
    a, b = (apply("matmul", x, weights(8, 5, seed=n)) for n in (1, 2))
    after = merged(Graph.of("f", [x], [apply("relu", a), apply("exp", b)]))
    assert ops(after) == ["matmul", *["slice", "squeeze"] * 2, "relu", "exp"]


@pytest.mark.parametrize("read_twice", [True, False])
def test_other_readers_and_outputs(read_twice: bool) -> None:
    """FAULTS 90: a sibling that others read, or that is an output, is still a value of its own."""
    x = Input("x", f32[4, 8])
    a, b = (apply("matmul", x, weights(8, 5, seed=n)) for n in (1, 2))
    more = [apply("exp", a)] if read_twice else [a]
    after = merged(Graph.of("f", [x], [apply("relu", a), apply("relu", b), *more]))
    assert ops(after)[:5] == ["matmul", *["slice", "squeeze"] * 2]


def test_other_values_follow() -> None:
    """Only constants are stacked: y may not be known where the first product stands."""
    x, y = Input("x", f32[4, 8]), Input("y", f32[4, 5])
    g = Graph.of("f", [x, y], [apply("matmul", x, weights(8, 5, seed=n)) + y for n in (1, 2)])
    assert ops(merged(g)) == ["matmul", *["slice", "squeeze"] * 2, "add", "add"]


@pytest.mark.parametrize("element", [f16, i32])
def test_elements(element: object) -> None:
    x = Input("x", element[4, 8])  # type: ignore[index]
    name = str(element).replace("f", "float").replace("i", "int")
    both = [apply("matmul", x, weights(8, 5, seed=n, dtype=name)) for n in (1, 2)]
    assert ops(merged(Graph.of("f", [x], both)))[0] == "matmul"


def test_symbolic_rows() -> None:
    g = parse("""\
def f(x: f32["N", 2]):
    v: f32[2, 2] = const([[1.0, 2.0], [3.0, 4.0]])
    w: f32[2, 2] = const([[5.0, 6.0], [7.0, 8.0]])
    a = matmul(x, v)
    b = matmul(x, w)
    return a, b
""")
    after = MergeProducts()(g)
    verify(after)
    assert str(after.nodes[0].type) == 'f32[2, "N", 2]'


def test_two_families() -> None:
    """The second reads a part of the first."""
    x = Input("x", f32[4, 8])
    a, b = (apply("matmul", x, weights(8, 8, seed=n)) for n in (1, 2))
    c, d = (apply("matmul", a, weights(8, 8, seed=n)) for n in (3, 4))
    assert ops(merged(Graph.of("f", [x], [b, c, d]))).count("matmul") == 2


@pytest.mark.parametrize("case", ["one", "shapes", "input", "rank", "vector"])
def test_what_stays_apart(case: str) -> None:
    x, w = Input("x", f32[4, 8]), Input("w", f32[8, 5])
    vector = Input("v", f32[8])
    found: dict[str, list[Value]] = {
        "one": [apply("matmul", x, weights(8, 5))],
        "shapes": [apply("matmul", x, weights(8, n)) for n in (5, 6)],
        "input": [apply("matmul", x, w), apply("matmul", x, weights(8, 5))],
        "rank": [apply("matmul", x, weights(2, 8, 5, seed=n)) for n in (1, 2)],
        "vector": [apply("matmul", vector, weights(8, 5, seed=n)) for n in (1, 2)],
    }
    g = Graph.of("f", [x, w, vector], found[case])
    with collecting() as events:
        assert MergeProducts()(g) is g
    refused = [e for e in events if isinstance(e, Refusal)]
    assert len(refused) == (2 if case == "shapes" else 0)
    for e in refused:
        assert "those of its siblings are not" in str(e)


def test_limit() -> None:
    x, y = Input("x", f32[4, 8]), Input("y", f32[4, 8])
    g = Graph.of("f", [x, y], [*three(x), *three(y)])
    after, (record,) = Pipeline((MergeProducts(limit=1),)).run(g)
    assert ops(after).count("matmul") == 4
    assert [str(r) for r in record.done] == ["merge products x3 at matmul: done"]
