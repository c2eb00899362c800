"""Layouts of neighbours: what is planned is the least of all that the layout pass can do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, Node, interpret, tensor_type
from minidlc.graph.printer import value_names
from minidlc.target import host
from minidlc.tests.transform.test_layout import arrays_for, conv, depthwise
from minidlc.transform import Layout, Pipeline
from minidlc.transform.layout.layout import candidates
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import (
    PLAIN,
    chosen,
    layout_of,
    layout_record,
    mixed,
    model_workload,
    point_of,
    variants,
    with_layout,
)
from minidlc.tuning.neighbours import BYTE, Plan, Prices, plan, prices
from minidlc.tuning.records import Record
from minidlc.tuning.space import Config

pytestmark = pytest.mark.ch06
B = 4
BEFORE = Pipeline.default().without("layout", "fuse")


def chain(x: Any) -> Any:
    return conv(mc.relu(conv(mc.relu(conv(x, 8)), 8)), 8)


def residual(x: Any) -> Any:
    y = mc.relu(conv(x, 8))
    y = mc.relu(conv(mc.relu(conv(y, 8)), 8) + y)
    return conv(y, 8) + y


def pools_and_branches(x: Any) -> Any:
    y = mc.max_pool(conv(x, 8), kernel_shape=(2, 2), strides=(1, 1))
    return mc.concat(conv(y, 8), depthwise(y), axis=1), mc.softmax(y, axis=1)


def read_by_many(x: Any) -> Any:
    y = mc.relu(x)
    return conv(y, 8), conv(mc.exp(mc.clip(y, max=1.0)), 8) * y, conv(y, 4)


def few_channels(x: Any) -> Any:
    y = mc.relu(conv(x, 3))
    return conv(y, 8) + mc.mean(conv(y, 8), axes=(2, 3))


def gate(x: Any) -> Any:
    y = conv(x, 8)
    return conv(y * mc.sigmoid(conv(mc.mean(y, axes=(2, 3)), 8, 1)), 8)


NETS = {
    "chain": (chain, 8),
    "residual": (residual, 8),
    "pools and branches": (pools_and_branches, 3),
    "read by many": (read_by_many, 8),
    "few channels": (few_channels, 8),
    "gate": (gate, 8),
}


def before_layout(net: Callable[..., object], channels: int = 8) -> Graph:
    return BEFORE.run(mc.trace(net, mc.f32[1, channels, 6, 5]))[0]


def random_prices(g: Graph, rng: np.random.Generator) -> Prices:
    """Of every node; a byte costs so much that a move is about as dear as a node."""
    sides = [{n: float(rng.random()) for n in g.nodes} for _ in range(2)]
    return Prices(*sides, byte=float(rng.random()) / 1000)


def cost_of(g: Graph, after: Graph, seconds: Prices) -> float:
    """Of what the pass made of the candidates and of what may be in blocks, counted in its graph.

    `after` has the nodes of `g` in their order, and moves between.
    """
    total, places = 0.0, iter(g.nodes)
    may_be_blocked = {
        id(n) for n in connected_nodes(g)
    }  # others cost the same in every choice: they are in no sum
    for node in after.nodes:
        match node.op.name:
            case "pack":
                image = tensor_type(node)
                total += move_cost(image.size, image.dims[2:4], seconds)
            case "unpack":
                (blocked,) = node.inputs
                assert blocked is not None
                total += move_cost(tensor_type(blocked).size, tensor_type(node).dims[2:4], seconds)
            case "reshape" | "where":
                pass
            case _:
                old = next(places)
                if id(old) in may_be_blocked:
                    side = seconds.blocked if tensor_type(node).rank == 5 else seconds.plain
                    total += side[old]
    assert next(places, None) is None
    return total


def connected_nodes(g: Graph) -> set[Node]:
    from minidlc.transform.layout.layout import connected

    return {n for n in connected(g, B, candidates(g, B)) if isinstance(n, Node)}


def move_cost(elements: int, pixels: tuple[Any, ...], seconds: Prices) -> float:
    return 0.0 if math.prod(pixels) == 1 else 2 * elements * 4 * seconds.byte


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NETS)
def test_the_plan_is_the_least_of_all_choices_as_the_pass_carries_them_out(
    name: str, seed: int
) -> None:
    g = before_layout(*NETS[name])
    seconds = random_prices(g, np.random.default_rng(seed))
    found = plan(g, B, seconds)
    assert found is not None
    names = [value_names(g)[c] for c in candidates(g, B)]
    assert len(names) > 1
    costs = {
        plain: cost_of(g, Layout(block=B, plain=plain)(g), seconds)
        for count in range(len(names) + 1)
        for plain in itertools.combinations(names, count)
    }
    assert costs[found.plain] == pytest.approx(found.seconds)
    assert found.seconds == pytest.approx(min(costs.values()))
    assert found.uniform == pytest.approx(min(costs[()], costs[tuple(names)]))


def test_a_mixed_layout_wins_where_one_convolution_is_far_better_plain() -> None:
    """The middle one costs 9 in blocks and 1 plain, its neighbours the other way round."""
    g = before_layout(chain)
    first, middle, last = candidates(g, B)
    plain, blocked = {first: 9.0, middle: 1.0, last: 9.0}, {first: 1.0, middle: 9.0, last: 1.0}
    cheap, dear = (plan(g, B, Prices(plain, blocked, byte)) for byte in (1e-6, 1.0))
    assert cheap is not None
    assert cheap.plain == (value_names(g)[middle],)
    assert (3 < cheap.seconds < 3.1, 11 < cheap.uniform < 11.1) == (True, True)
    assert dear is not None
    assert dear.plain == tuple(value_names(g)[c] for c in (first, middle, last))  # no move at all
    assert dear.seconds == dear.uniform == 19.0


def test_what_was_measured_in_one_layout_only_is_estimated_in_the_other() -> None:
    g = before_layout(chain)
    conv_node = candidates(g, B)[0]
    relu = next(n for n in g.nodes if n.op.name == "relu")
    assert Prices({conv_node: 3.0}, {}).of(conv_node, B) == (3.0, 2.0)  # GAIN is 1.5
    assert Prices({}, {conv_node: 2.0}).of(conv_node, B) == (3.0, 2.0)
    assert Prices({relu: 1.0}, {}).of(relu, B) == (1.0, 0.0)  # fused in the other


def test_graphs_without_a_choice_or_with_bodies_have_no_plan() -> None:
    nothing = Prices({}, {})
    assert plan(before_layout(lambda x: mc.relu(x)), B, nothing) is None
    many = before_layout(lambda x: mc.concat(*[conv(x, 4) for _ in range(20)], axis=1))
    assert plan(many, B, nothing) is None  # 20 read one image
    x = mc.Input("x", mc.f32[1, 8, 6, 5])
    yes, no = mc.Graph.of("yes", [x], [conv(x, 8)]), mc.Graph.of("no", [x], [mc.relu(x)])
    flag, x = mc.Input("flag", mc.bool_[()]), mc.Input("x", mc.f32[1, 8, 6, 5])
    y = conv(mc.if_(flag, x, then_branch=yes, else_branch=no), 8)
    assert plan(mc.Graph.of("g", [flag, x], [y]), B, nothing) is None


def test_points_and_pipelines() -> None:
    passes = Pipeline.default(3, host())
    for point in (PLAIN, point_of(16), point_of(16, ()), point_of(8, ("conv_1", "block"))):
        made = with_layout(passes, point)
        assert layout_of(made) == point
        assert mc.transform.parse_pipeline(str(made)).passes == made.passes
    assert str(point_of(8, ("a",))) == "layout(block=8, weighed=0, a.block=1)"


def test_a_record_of_a_mixed_layout_is_taken_and_one_of_a_foreign_block_is_not() -> None:
    g, target = mc.trace(chain, mc.f32[1, 8, 6, 5]), host()
    passes = Pipeline.default(3, target)
    default = layout_of(passes)
    work = model_workload(g, target, 1)
    for block, is_taken in ((target.lanes(32), True), (10**9, False), (-1, False)):
        point = point_of(block, ("conv_2",))
        record = layout_record(work, "net", (point, (1e-3,)), (default, (2e-3,)))
        assert Record.parse(record.line) == record
        found = chosen(passes, record, target)
        assert layout_of(found) == (point if is_taken else default)
    other = layout_record(work, "net", (Config("elsewhere"), (1e-3,)), (default, (2e-3,)))
    assert chosen(passes, other, target) is passes


@pytest.mark.llvm
def test_kernels_say_what_their_convolutions_cost_and_the_mixed_model_answers_the_same() -> None:
    """Seconds by construction: the second convolution alone is slow in blocks."""
    g, target = mc.trace(residual, mc.f32[1, 8, 6, 5]), host(vector_width=4)
    passes = Pipeline.default(3, target)
    before, _ = Pipeline(passes.passes[: passes.names.index("layout")]).run(g)
    names = [value_names(before)[c] for c in candidates(before, 4)]
    uniform = {
        point: mc.compile(g, target=target, threads=1, pipeline=with_layout(passes, point))
        for point in (point_of(4, ()), point_of(4, tuple(names)))
    }
    timed = {}
    for point, exe in uniform.items():
        kernels = [k for k in exe.program.kernels if k.kind.startswith("conv")]
        assert len(kernels) == len(names) == 4
        usual = 1.0 if point == point_of(4, ()) else 2.0
        timed[point] = [(k, 9.0 if usual == 1 and i == 1 else usual) for i, k in enumerate(kernels)]
    seconds = prices(before, 4, timed.values())
    assert [seconds.blocked[c] for c in candidates(before, 4)] == [1.0, 9.0, 1.0, 1.0]
    assert [seconds.plain[c] for c in candidates(before, 4)] == [2.0] * 4
    assert seconds.byte == BYTE
    point = mixed(g, passes, target, timed)
    assert point == point_of(4, (names[1],))
    database, default = Database(), layout_of(passes)
    work = model_workload(g, target, 1)
    database.append(layout_record(work, "net", (point, (1e-3,)), (default, (2e-3,))))
    exe = mc.compile(g, target=target, threads=1, database=database)
    ops = [n.op.name for n in exe.passes[passes.names.index("layout")].after.nodes]
    assert (ops.count("conv"), ops.count("conv2d_nchwc")) == (1, 3)
    assert f"layout of images: {point}, record " in str(exe.report())
    arrays = arrays_for(g)
    np.testing.assert_allclose(exe(*arrays)[0], interpret(g, arrays)[0], rtol=1e-4, atol=1e-5)


def test_a_mixed_layout_must_promise_more_than_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    g, target = mc.trace(chain, mc.f32[1, 8, 6, 5]), host()
    passes = Pipeline.default(3, target)
    for promised, is_taken in ((0.99, False), (0.9, True)):
        planned = Plan(("conv_2",), promised, 1.0)
        monkeypatch.setattr("minidlc.tuning.layouts.plan", lambda *_, found=planned: found)
        assert (mixed(g, passes, target, {}) is not None) == is_taken
    assert mixed(g, passes.without("layout"), target, {}) is None
    assert variants(passes.without("layout"), target).keys() == {PLAIN}
