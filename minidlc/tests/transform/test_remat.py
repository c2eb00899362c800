"""Rematerialisation: less alive at once, the same numbers, and no pass undoes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import minidlc as mc
from minidlc.expr.types import Array, f32
from minidlc.graph import Graph, apply, interpret, parse
from minidlc.graph.graph import results_of
from minidlc.support.errors import CompileError, GradientError, OptionError
from minidlc.tests.random_graphs import Case, cases
from minidlc.train.step_graph import Plan, step_graph
from minidlc.transform import Cse, Pipeline, Remat, collecting, limited, rematerialise
from minidlc.transform.dataflow.recompute import Lives, again
from minidlc.transform.fusion.fuse import Fuse

pytestmark = pytest.mark.ch03

RNG = np.random.default_rng(0)
LAYERS = 16


def mlp(width: int = 64, batch: int = 64, layers: int = LAYERS) -> Graph:
    """The gradient of a deep MLP: w and b of each layer."""

    def loss(x, *params):
        h = x
        for n in range(layers):
            h = mc.relu(h @ params[2 * n] + params[2 * n + 1])
        return mc.mean(h * h)

    types = [f32[width, width], f32[width]] * layers
    g = mc.trace(loss, f32[batch, width], *types)
    return mc.value_and_grad(g, [i.name for i in g.inputs[1:]])


def arrays_for(g: Graph) -> list[Array]:
    return [
        np.asarray(RNG.standard_normal(i.type.dims) * 0.2, i.type.dtype.numpy) for i in g.inputs
    ]


def same(a: list[Array], b: list[Array]) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


def kernels(budget: int | None) -> Pipeline:
    return Pipeline.default(3).insert_after("fuse", Remat(budget=budget))


def test_the_values_of_a_deep_network_are_computed_again() -> None:
    """Half the memory for a quarter more work, bit for bit the same."""
    g = mlp(32, 32)
    found = rematerialise(g)
    assert found.before >= LAYERS * 32 * 32 * 4
    assert 2 * found.after < found.before
    assert found.flops is not None
    assert found.of is not None
    assert 0 < found.flops < found.of / 4
    arrays = arrays_for(g)
    same(interpret(found.graph, arrays), interpret(g, arrays))
    assert parse(str(found.graph)) == found.graph
    assert str(found).startswith(f"peak {found.before:,} bytes → {found.after:,}; ")


def test_nearer_aims_find_a_lower_peak() -> None:
    """A search that aims at 0 bytes takes steps too large here: it ends at 29,696."""

    def loss(x, *params):
        for w in params:
            x = mc.tanh(x @ w)
        return mc.mean(x * x)

    g = mc.trace(loss, f32[64, 16], *[f32[16, 16]] * 8)
    g = mc.value_and_grad(g, [i.name for i in g.inputs[1:]])
    assert rematerialise(g).after <= 25_600


def test_a_copy_is_not_merged_with_its_original() -> None:
    g = mc.remat(mlp(32, 32))
    merged = Cse()(g)
    assert products(merged) == products(g) > products(mlp(32, 32))
    peak = max(Lives(Pipeline.default(1).run(g)[0]).alive())
    assert 2 * peak < max(Lives(Pipeline.default(1).run(mlp(32, 32))[0]).alive())


def products(g: Graph) -> int:
    return sum(n.op.name == "matmul" for n in g.nodes)


@pytest.mark.llvm
def test_the_arena_halves_and_the_numbers_stay() -> None:
    """The pass behind `fuse` copies kernels: the same code on the same numbers."""
    g = mlp()
    plain, again_ = mc.compile(g), mc.compile(g, pipeline=kernels(None))
    assert 2 * again_.memory_plan.arena_bytes <= plain.memory_plan.arena_bytes
    assert len(plain.kernels) < len(again_.kernels) < len(plain.kernels) + LAYERS
    arrays = arrays_for(g)
    same(again_(*arrays), plain(*arrays))
    raw = mc.compile(mc.remat(g))
    assert 2 * raw.memory_plan.arena_bytes <= plain.memory_plan.arena_bytes
    same(raw(*arrays), plain(*arrays))


@pytest.mark.long
def test_a_budget_is_met_and_no_more_is_repeated_than_it_asks_for() -> None:
    g = mlp(32, 32)
    least, most = rematerialise(g), rematerialise(g, 1 << 40)
    assert most.graph is g
    assert not most.values
    costs: list[int] = []
    for budget in np.linspace(least.after, least.before, 5).astype(int).tolist():
        found = rematerialise(g, budget)
        assert found.after <= budget
        costs.append(found.flops or 0)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    with pytest.raises(GradientError, match=f"needs {least.after:,} bytes at least") as e:
        mc.remat(g, least.after - 1)
    assert e.value.code == "MDLC1240"
    assert e.value.hint == f"budget={least.after}, or a smaller batch"


@pytest.mark.long
@pytest.mark.parametrize("fused", [False, True])
def test_the_smallest_peak_is_met_when_it_is_asked_for(fused: bool) -> None:
    """Whatever way the search takes with a budget: every one from the smallest peak on is met."""

    def loss(x, y, *params):
        for w in params:
            x = results_of(apply("dropout", mc.relu(x @ w), ratio=0.3))[0]
        return mc.train.mse(x, y)

    traced = mc.trace(loss, f32[16, 32], f32[16, 32], *[f32[32, 32]] * 4)
    start = {i.name: np.zeros((32, 32), np.float32) for i in traced.inputs[2:]}
    g = step_graph(traced, start, Plan(mc.train.adam())).graph
    if fused:
        g, _ = Pipeline.default(3).replace("fuse", Fuse(style="stitch")).run(g)
    least = rematerialise(g)
    for budget in np.linspace(least.after, least.before, 6).astype(int).tolist():
        assert rematerialise(g, budget).after <= budget
    for budget in (0, least.after // 2, least.after - 1):
        with pytest.raises(GradientError, match=f"needs {least.after:,} bytes at least"):
            rematerialise(g, budget)


@pytest.mark.llvm
def test_a_step_of_training_stays_the_same() -> None:
    """With donated parameters: three steps give the same parameters, bit for bit."""

    def loss(x, *params):
        h = x
        for w in params:
            h = mc.tanh(h @ w)
        return mc.mean(h * h)

    g = mc.trace(loss, f32[64, 32], *[f32[32, 32]] * 8)
    start = {i.name: a for i, a in zip(g.inputs[1:], arrays_for(g)[1:], strict=True)}
    x = arrays_for(g)[0]
    steps = [
        mc.compile_train_step(g, start, optimizer=mc.train.adam(0.1), pipeline=p)
        for p in (None, kernels(None))
    ]
    for _ in range(3):
        plain, less = (step(x)[0] for step in steps)
        np.testing.assert_array_equal(plain, less)
    for name, array in steps[0].params.items():
        np.testing.assert_array_equal(array, steps[1].params[name])
    assert all("in place" in str(u) for u in steps[1].executable.memory_plan.updates)


@pytest.mark.llvm
def test_a_draw_made_again_is_the_same_draw() -> None:
    """FAULTS 105: the mask of a dropout is computed twice, and is one mask."""

    def loss(x, *params):
        h = x
        for n, w in enumerate(params):
            h, _ = results_of(apply("dropout", mc.relu(h @ w), ratio=0.5, stream=n + 1))
        return mc.mean(h * h)

    g = mc.trace(loss, f32[32, 32], *[f32[32, 32]] * 8)
    g = mc.value_and_grad(g, [i.name for i in g.inputs[1:]])
    arrays = arrays_for(g)
    plain = mc.compile(g)
    for found in (mc.compile(g, pipeline=kernels(None)), mc.compile(mc.remat(g))):
        same(found(*arrays), plain(*arrays))
        assert found.memory_plan.arena_bytes < plain.memory_plan.arena_bytes
    twice = [k.name for k in mc.compile(g, pipeline=kernels(None)).kernels if "_again" in k.name]
    assert twice


LONG = parse("""
def g(x: f32[8, 8], i: i64[2]):
    a: f32[8, 8] = exp(x)
    rows: f32[2, 8] = gather(a, i, axis=0)
    b: f32[8, 8] = sin(a)
    flat: f32[64] = reshape(b, shape=(64,))
    c: f32[8, 8] = matmul(b, b)
    d: f32[8, 8] = matmul(c, c)
    e: f32[8, 8] = matmul(d, d)
    s: f32[8, 8] = reshape(flat, shape=(8, 8))
    y: f32[8, 8] = add(e, s)
    z: f32[8, 8] = mul(y, a)
    return z, rows
""")


def test_what_a_copy_reads() -> None:
    """b comes again from a, which is alive; c from b, which is not, and from a through it."""
    by_name = {n.name: n for n in LONG.nodes}
    lives = Lives(LONG)
    assert lives.root(by_name["s"]) is by_name["b"]
    assert lives.gap(by_name["b"]) == (4, 8)
    found = again(LONG, lives, {by_name["b"]}).graph
    assert [n.name for n in found.nodes] == [
        *("a", "rows", "b", "c", "d", "e", "after", "b_again", "flat_again", "s_again", "y", "z")
    ]
    after = next(n for n in found.nodes if n.name == "after")
    assert [v.name for v in after.inputs if v is not None] == ["a", "e"]
    both = again(LONG, lives, {by_name["a"], by_name["b"]}).graph
    assert [n.name for n in both.nodes][6:] == [
        *("after", "a_again", "b_again", "flat_again", "s_again", "y", "z")
    ]
    arrays = [arrays_for(LONG)[0], np.array([1, 7])]
    for g in (found, both):
        same(interpret(g, arrays), interpret(LONG, arrays))


def test_every_copy_is_a_rewrite() -> None:
    """Named, counted, and limited as those of any pass are."""
    g = mlp(32, 32)
    with collecting() as events, limited(2) as count:
        fewer = Remat()(g)
    assert [e.rule for e in count.done] == ["remat", "remat"]
    assert {str(e) for e in events} == {f"remat at {e.node}: done" for e in count.done}
    assert products(fewer) == products(g) + 2
    arrays = arrays_for(g)
    same(interpret(fewer, arrays), interpret(g, arrays))


def test_sizes_that_are_open() -> None:
    g = parse('def g(x: f32["N", 4]):\n    y: f32["N", 4] = exp(x)\n    return y')
    assert Remat()(g) is g
    with pytest.raises(GradientError, match="not known") as e:
        mc.remat(g)
    assert e.value.code == "MDLC1241"


@pytest.mark.parametrize(
    ("budget", "code"),
    [("8", "MDLC1001"), (1.5, "MDLC1001"), (True, "MDLC1001"), (-1, "MDLC1015")],
)
def test_budgets_that_are_none(budget: object, code: str) -> None:
    for make in (lambda: mc.remat(LONG, budget), lambda: Remat(budget)):  # pyright: ignore[reportArgumentType]
        with pytest.raises(OptionError) as e:
            make()
        assert e.value.code == code


def test_a_budget_that_a_pipeline_cannot_meet() -> None:
    """It is no fault of the pass: no PassError with the graph, but what can be met."""
    g = mlp(32, 32, 2)
    least = rematerialise(Pipeline.default(3).run(g)[0]).after
    with pytest.raises(GradientError, match="bytes at least, the budget is 10") as e:
        kernels(10).run(g)
    assert e.value.code == "MDLC1240"
    assert e.value.hint == f"budget={least}, or a smaller batch"


def test_nothing_is_done_where_nothing_waits() -> None:
    g = parse("def g(x: f32[4]):\n    y: f32[4] = exp(x)\n    return y")
    assert mc.remat(g) is g
    with pytest.raises(CompileError):
        mc.remat("g")  # pyright: ignore[reportArgumentType]


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_random_graphs_compute_the_same_with_copies(case: Case) -> None:
    """All that can be forgotten is forgotten; then only what lowers the peak."""
    lives = Lives(case.graph)
    waiting = {n for n in lives.uses if lives.gap(n)[1] - lives.gap(n)[0] > 1}
    expected = interpret(case.graph, list(case.arrays))
    same(interpret(again(case.graph, lives, waiting).graph, list(case.arrays)), expected)
    found = rematerialise(case.graph)
    same(interpret(found.graph, list(case.arrays)), expected)
    assert found.after <= found.before
    assert rematerialise(case.graph, found.after).after <= found.after
