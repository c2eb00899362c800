"""The toy accelerator: bit-exact to the interpreter, within its memory, its queues in order."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from minidlc import npu
from minidlc.expr.types import f32, i8, i32
from minidlc.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Region,
    apply,
    evaluate,
    interpret,
    parse,
    verify,
)
from minidlc.graph.text import save_text, weights_of
from minidlc.npu.tiles import boxes, footprint, operand_box, part_of, taken
from minidlc.support.errors import CallError, PassError
from minidlc.tests.npu.models import random_conv, random_linear, small_cnn
from minidlc.transform.decompose import Decompose
from minidlc.transform.partition.legalise import illegal
from minidlc.transform.pipeline import parse_pipeline

pytestmark = pytest.mark.ch02
SMALL = npu.Machine(name="small", sram=6 << 10, launch=0, dma_start=4, host_start=100000)


def image(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(i.type.dims).astype(np.float32) for i in graph.inputs]


def regions(graph):
    return [n for n in graph.nodes if isinstance(n.op, Region)]


def same(got, wanted):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def cnn():
    graph = small_cnn()
    return graph, npu.split(graph)


def test_the_convolutions_of_a_cnn_are_one_region(cnn):
    graph, split = cnn
    verify(split)
    (region,) = regions(split)
    inside = [n.op.name for n in region.op.body.nodes]
    assert inside.count("conv_integer") == 3
    assert inside.count("max_pool") == 1
    assert "conv" not in inside
    outside = {n.op.name for n in split.nodes}
    assert {"softmax", "global_average_pool", "region"} <= outside
    arrays = image(graph)
    (before,), (after,) = interpret(graph, arrays), interpret(split, arrays)
    np.testing.assert_allclose(after, before, atol=1e-3)
    assert before.argmax() == after.argmax()


def test_a_run_gives_the_bits_of_the_interpreter_and_a_report(cnn):
    graph, split = cnn
    arrays = image(graph)
    outputs, report = npu.run(split, arrays)
    same(outputs, interpret(split, arrays))
    (region,) = report.regions
    assert region.peak <= npu.Machine().sram
    weights = sum(c.array.nbytes for c in regions(split)[0].op.body.constants)
    assert region.bytes_in >= weights + arrays[0].nbytes
    assert report.nbytes == region.bytes_in + region.bytes_out
    assert report.cycles == region.cycles >= region.macs_cycles
    assert "softmax" in report.host_ops
    assert "conv" not in report.host_ops
    text = str(report)
    assert text.startswith("region")
    assert "npu_0" in text
    assert "1 softmax" in text


def test_the_text_of_a_split_graph_parses_back(cnn):
    _, split = cnn
    assert parse(str(split), weights_of(split)) == split


def check_queues(report):
    """Each queue does one thing at a time, in order; nothing begins before time 0."""
    for queue in ("dma", "compute"):
        events = [e for e in report.timeline if e.queue == queue]
        assert all(e.start <= e.end for e in events)
        assert all(a.end <= b.start for a, b in pairwise(events))
    for event in report.timeline:
        if event.queue == "compute":
            same = [e for e in report.timeline if (e.layer, e.tile) == (event.layer, event.tile)]
            assert all(e.end <= event.start for e in same if e.what == "in")
            assert all(e.start >= event.end for e in same if e.what == "out")


def test_transfers_and_arithmetic_overlap(cnn):
    graph, split = cnn
    _, report = npu.run(split, image(graph))
    (region,) = report.regions
    check_queues(region)
    moving = sum(e.end - e.start for e in region.timeline if e.queue == "dma")
    assert region.cycles < moving + region.macs_cycles


def test_a_machine_with_less_memory_moves_more(cnn):
    graph, split = cnn
    arrays = image(graph)
    less = npu.Machine(sram=24 << 10)
    outputs, report = npu.run(split, arrays, less)
    same(outputs, interpret(split, arrays))
    assert report.regions[0].peak <= less.sram
    _, full = npu.run(split, arrays)
    assert report.nbytes > full.nbytes
    assert report.regions[0].transfers > full.regions[0].transfers


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 100))]
)
@pytest.mark.parametrize("make", [random_conv, random_linear])
def test_random_tiles_give_the_bits_of_the_interpreter(make, seed):
    graph = make(seed)
    split = npu.split(graph, SMALL)
    verify(split)
    assert regions(split), "the host is slow: all that fits pays"
    arrays = image(graph, seed)
    outputs, report = npu.run(split, arrays, SMALL)
    same(outputs, interpret(split, arrays))
    for region in report.regions:
        assert region.peak <= SMALL.sram
        check_queues(region)
    for a, b in zip(outputs, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(a, b, atol=0.11)  # one step of the last quantisation


def test_the_host_may_be_anything(cnn):
    graph, split = cnn
    arrays = image(graph)
    graphs = []

    def host(g):
        graphs.append(g)
        return lambda *given: interpret(g, given)

    outputs, report = npu.run(split, arrays, host=host)
    same(outputs, interpret(split, arrays))
    assert sum(len(g.nodes) for g in graphs) == len(report.host_ops)


@pytest.mark.llvm
def test_the_host_compiles_and_so_does_the_whole(cnn):
    from minidlc.driver import compile

    graph, split = cnn
    arrays = image(graph)
    outputs, _ = npu.run(split, arrays, host=compile)
    (wanted,) = interpret(split, arrays)
    np.testing.assert_allclose(outputs[0], wanted, rtol=1e-5, atol=1e-7)
    (all_on_host,) = compile(split)(*arrays)  # regions are decomposed
    np.testing.assert_allclose(all_on_host, wanted, rtol=1e-5, atol=1e-5)


def product(rows=4, depth=8, columns=3):
    x = Input("x", i8[rows, depth])
    w = Constant("w", np.ones((depth, columns), np.int8))
    y = apply("matmul_integer", x, w)
    return Graph.of("g", [x], [y])


def by_hand(graph, backend="npu"):
    """The whole graph as one region."""
    node = apply("region", *graph.inputs, body=graph, backend=backend)
    return Graph.of("by_hand", graph.inputs, [node])


def test_a_region_by_hand_with_a_foreign_op_is_refused():
    x = Input("x", f32[3])
    g = by_hand(Graph.of("body", [x], [apply("exp", x)]))
    with pytest.raises(PassError, match="exp cannot run on npu: npu has no exp") as caught:
        npu.run(g, [np.zeros(3, np.float32)])
    assert caught.value.code == "MDLC0563"
    assert 'partition{backend="npu"} takes only what can' in str(caught.value)


def test_what_cannot_be_tiled_is_named_and_refused():
    g = product(depth=4096)
    tiny = npu.Machine(name="tiny", sram=8 << 10)
    ((node, reason),) = illegal(g, npu.back_end_of(tiny))
    assert node.op.name == "matmul_integer"
    assert reason == "matmul_integer: its smallest tile takes 16392 bytes of 4096"
    with pytest.raises(PassError, match="smallest tile takes 16392 bytes of 4096"):
        npu.run(by_hand(g, "tiny"), [np.ones((4, 4096), np.int8)], tiny)
    outputs, _ = npu.run(by_hand(g), [np.ones((4, 4096), np.int8)])
    same(outputs, [np.full((4, 3), 4096, np.int32)])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (apply("conv_integer", Input("x", i8[1, 2, 5]), np.ones((3, 2, 3), np.int8)), "of two dim"),
        (
            apply(
                "conv_integer", Input("x", i8[1, 2, 5, 5]), np.ones((2, 1, 3, 3), np.int8), group=2
            ),
            "groups of channels",
        ),
        (apply("matmul_integer", Input("x", i8[4]), np.ones((4, 2), np.int8)), "has one axis"),
        (apply("relu", Input("x", i8[4])), "relu takes i32 or f32 elements, not i8"),
        (apply("cast", Input("x", i32[4]), to="i8"), "cast gives f32 elements, not i8"),
        (
            apply(
                "matmul_integer", Input("x", i8[2, 4]), np.ones((4, 2), np.int8), Input("z", i8[()])
            ),
            "a zero point is no constant",
        ),
        (
            apply("quantize_linear", Input("x", f32[2, 4]), np.ones(4, np.float32), to="i8"),
            "a scale for each index of an axis",
        ),
        (
            apply("quantize_linear", Input("x", f32[2]), Input("s", f32[()]), to="i8"),
            "a scale that is no constant",
        ),
        (apply("softmax", Input("x", f32[2, 4])), "npu has no softmax"),
        (apply("add", Input("x", f32["N"]), 1.0), "its sizes are not known"),
    ],
)
def test_every_constraint_has_a_reason(node, reason):
    assert isinstance(node, Node)
    assert reason in (npu.NPU.reason_against(node) or "")


def test_other_inputs_are_refused():
    with pytest.raises(CallError, match="g takes 1 inputs, got 2"):
        npu.run(product(), [np.ones((4, 8), np.int8)] * 2)
    with pytest.raises(CallError, match=r"input 'x' must be i8\[4, 8\], got f32\[4, 9\]"):
        npu.run(product(), [np.ones((4, 9), np.float32)])


def test_rows_that_lie_in_the_border():
    """A window of one pixel with three rows of border: tiles that read no row of the input."""
    x = np.arange(2 * 3 * 4, dtype=np.int8).reshape(1, 2, 3, 4)
    w = np.ones((2, 2, 1, 1), np.int8)
    node = apply("conv_integer", Input("x", i8[1, 2, 3, 4]), w, np.int8(5), pads=(3, 0, 2, 0))
    whole = evaluate(node.op, [x, w, np.int8(5)])
    for box in boxes(whole.shape, (1, 2), (1, 1)):
        given = [taken(a, operand_box(node, n, box)) for n, a in enumerate((x, w))]
        np.testing.assert_array_equal(part_of(node, box, [*given, np.int8(5)]), taken(whole, box))


def test_an_operand_that_stays_is_moved_once():
    """Columns outside, rows inside: weights come once, rows once for each cut of columns."""
    g = product(rows=64, depth=32, columns=40)
    machine = npu.Machine(sram=6 << 10)
    _, report = npu.run(by_hand(g), [np.ones((64, 32), np.int8)], machine)
    plan = npu.plan_of(g, machine)
    (layer,) = plan.layers
    assert layer.axes == (1, 0)
    cuts = -(-40 // layer.steps[0])
    assert cuts > 1
    assert layer.steps[1] < 64
    assert report.regions[0].bytes_in == 32 * 40 + cuts * 64 * 32
    assert report.regions[0].bytes_out == 4 * 64 * 40


def test_a_residual_is_added_tile_by_tile(cnn):
    """What the branch brings is no layer of its own: it would go out and come in as floats."""
    _, split = cnn
    plan = npu.plan_of(regions(split)[0].op.body, npu.Machine())
    starts = [layer.nodes[0].op.name for layer in plan.layers]
    assert starts == ["quantize_linear", *["conv_integer"] * 2, "max_pool", "conv_integer"]
    assert [n.op.name for n in plan.layers[2].nodes].count("dequantize_linear") == 3
    assert set(plan.order) == set(plan.body.nodes)


def test_a_tile_counts_all_that_lies_beside_it():
    """Two operands of 64 bytes with a scale each, both as floats and their sum, all of it twice."""
    x, y = Input("x", i8[64]), Input("y", i8[64])
    a, b = (apply("dequantize_linear", v, np.float32(0.5)) for v in (x, y))
    nodes = (a, b, apply("add", a, b))
    assert footprint(nodes, ((0, 64),)) == 2 * (2 * (64 + 4) + 2 * 256)
    assert footprint((b,), ((0, 64),)) == 2 * (64 + 4 + 256)


def test_a_result_leaves_the_chip_after_its_last_reader():
    """Eight layers of 4096 bytes each, all kept on a chip of 24 KiB, as two live at a time."""
    x = Input("x", i8[64, 64])
    value = x
    for _ in range(8):
        sums = apply("matmul_integer", value, np.ones((64, 64), np.int8))
        value = apply("quantize_linear", apply("cast", sums, to="f32"), np.float32(64), to="i8")
    plan = npu.plan_of(Graph.of("g", [x], [value]), npu.Machine(sram=24 << 10))
    assert [layer.kept for layer in plan.layers] == [True] * 7 + [False]
    assert max(layer.held for layer in plan.layers) == 2 * 4096
    assert plan.peak <= 24 << 10


@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (5, 7)])
def test_boxes_cover_every_element_once(steps):
    seen = np.zeros((2, 5, 7), int)
    for box in boxes(seen.shape, (1, 2), steps):
        seen[tuple(slice(*side) for side in box)] += 1
    assert (seen == 1).all()


def test_results_of_no_elements():
    x = Input("x", i8[0, 8])
    y = apply("matmul_integer", x, np.ones((8, 3), np.int8))
    outputs, _ = npu.run(by_hand(Graph.of("g", [x], [y])), [np.ones((0, 8), np.int8)])
    assert outputs[0].shape == (0, 3)


def test_as_text_of_a_pipeline():
    graph = small_cnn()
    text = 'legalise{backend="npu"},dce,partition{backend="npu"}'
    result, records = parse_pipeline(text).run(graph)
    assert result == npu.split(graph)
    assert [len(r.done) for r in records][::2] == [5, 1]  # three convolutions, gemm and its matmul
    refused = [str(e) for e in records[0].refusals]
    assert refused == [
        "legalise at global_average_pool: npu has no global_average_pool",
        "legalise at softmax: npu has no softmax",
    ]
    (after,) = interpret(Decompose()(result), image(graph))
    np.testing.assert_array_equal(after, interpret(result, image(graph))[0])


@pytest.mark.llvm
def test_on_the_command_line(cnn, tmp_path):
    graph, split = cnn
    save_text(graph, tmp_path / "cnn.dlc")
    passes = 'legalise{backend="npu"},dce,partition{backend="npu"}'
    command = [sys.executable, "-m", "minidlc", "opt", str(tmp_path / "cnn.dlc")]
    done = subprocess.run(
        [*command, "--passes", passes], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert "def npu_0(" in done.stdout
    assert done.stdout.count("region(") == len(regions(split)) == 1


def test_a_region_is_drawn_open(cnn, tmp_path):
    from minidlc.viz import graph

    graph(cnn[1]).save(tmp_path / "cnn.svg")
    drawn = (tmp_path / "cnn.svg").read_text(encoding="utf-8")
    assert "region npu_0" in drawn
    assert drawn.count("conv_integer") >= 3
