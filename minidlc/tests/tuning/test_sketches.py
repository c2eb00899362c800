"""Sketches of kernels of every kind: which there are, why not others, odd kernels, machine code."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import numpy as np
import pytest

import minidlc as mc
import minidlc.ops
from minidlc import te
from minidlc.expr.types import f32, i32
from minidlc.graph import op_class, registered_ops
from minidlc.lower.express import Expressed, express_node
from minidlc.lower.kernels import lower_node
from minidlc.schedules import Choice, Group
from minidlc.target import Target
from minidlc.tests.ops import checks
from minidlc.tests.tuning.kernels import product
from minidlc.tests.tuning.sketch_kernels import (
    AVX2,
    KERNELS,
    STRICT,
    bytes_product,
    interpreted,
    plain,
    sketch_points,
    task,
    values,
)
from minidlc.transform import Pipeline
from minidlc.tuning.sketch import explain_sketches, sketches
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task

pytestmark = [pytest.mark.ch06, pytest.mark.long]

GOLDEN = Path(__file__).parents[1] / "golden" / "sketch_tile_pack1.txt"


def names(name: str, target: Target = AVX2) -> list[str]:
    kernel = task(name, target)
    return [way.name for way in sketches(kernel.group, kernel.kind, target)]


def why(name: str, rule: str, axis: str = "", target: Target = AVX2) -> str:
    """The reason of the one row of a rule about an axis, with + or - for taken or refused."""
    kernel = task(name, target)
    found = explain_sketches(kernel.group, kernel.kind, target).of(rule)
    row = next(r for r in found if r.axis == axis or not axis)
    return f"{'+' if row.taken else '-'} {row.why}"


# which


def test_which_sketches_there_are() -> None:
    packs = ["sketch_tile_pack0", "sketch_tile_pack0_at", "sketch_tile_pack1"]
    assert names("matmul")[:4] == ["sketch_tile", *packs]
    assert "sketch_tile_pack1_at" in names("matmul")
    assert "sketch_tile_pack1_at" not in names("constant")
    assert names("pool") == ["sketch_tile", "sketch_tile_at"]
    assert names("softmax") == names("layer_norm") == names("reduce") == ["sketch_rows"]
    assert names("chain") == ["sketch_stream"]
    assert names("transpose") == ["sketch_turn", "sketch_turn_held"]
    assert names("bytes")[-1] == "sketch_tile_dot4"
    assert "sketch_tile_dot4" not in names("matmul")


def test_dot4_computes_the_sums() -> None:
    kernel = task("bytes")
    point = next(p for p in sketch_points(kernel, 1) if p.way == "sketch_tile_dot4")
    candidate = kernel.lower(point)
    assert "dot4(" in str(candidate.loops)
    assert "tensorize" in str(candidate.schedule.trace)


def test_copies_at_blocks_are_inside_the_loops_of_the_last_stage() -> None:
    kernel = task("matmul")
    knobs = kernel.ways["sketch_tile_pack1_at"].defaults(kernel.group, AVX2)
    at = kernel.schedule(Config.of("sketch_tile_pack1_at", knobs)).state
    root = kernel.schedule(Config.of("sketch_tile_pack1", knobs)).state
    (copy,) = (s for s in at.stages if s.name.endswith("_p"))
    assert copy.at is not None
    assert copy.at.stage == "relu"
    assert root.stage(copy.name).at is None


def test_constant_operands_are_packed_at_compile_time() -> None:
    kernel = task("constant")
    knobs = kernel.ways["sketch_tile_pack1"].defaults(kernel.group, AVX2)
    assert len(kernel.lower(Config.of("sketch_tile_pack1", knobs)).init) == 1


def test_threads_get_blocks_where_the_work_is_enough() -> None:
    for size, wanted in ((32, 0), (128, 1)):
        kernel = Task(product(size, size, size), "matmul", AVX2, 2)
        knobs = kernel.ways["sketch_tile"].defaults(kernel.group, AVX2)
        trace = str(kernel.schedule(Config.of("sketch_tile", knobs)).trace)
        assert trace.count("parallel(") == wanted


@pytest.mark.parametrize("name", KERNELS)
def test_the_workload_has_the_same_points(name: str) -> None:
    """A worker gets the text of the kernel, where tensors have other names, and a point."""
    kernel = task(name)
    again = Task(kernel.workload.group, kernel.kind, AVX2, 1)
    assert again.space.ways == kernel.space.ways
    for config in sketch_points(kernel, 1):
        steps, others = (len(t.schedule(config).trace) for t in (kernel, again))
        assert steps == others


def test_ways_can_be_sent_to_another_process() -> None:
    kernel = task("matmul")
    for way in sketches(kernel.group, kernel.kind, AVX2):
        again = pickle.loads(pickle.dumps(way))
        assert again.name == way.name
        assert again.knobs(kernel.group, AVX2) == way.knobs(kernel.group, AVX2)


def test_one_long_row_is_cut_into_pieces_for_threads() -> None:
    kernel = Task(_sum_of(1 << 17), "reduction", AVX2, 2)
    knobs = kernel.space.ways["sketch_rows"]
    assert list(knobs) == ["sums_0", "piece_0"]
    point = Config.of("sketch_rows", {name: values[0] for name, values in knobs.items()})
    loops = str(kernel.lower(point).loops)
    assert "in parallel(0, 16)" in loops
    strict = Task(_sum_of(1 << 17), "reduction", STRICT, 2)
    assert strict.space.ways["sketch_rows"] == {}


def test_the_compiler_takes_a_sketch_it_is_told() -> None:
    weights = np.ones((40, 48), np.float32)
    graph = mc.trace(lambda a: mc.softmax(mc.relu(a @ weights), axis=-1), mc.f32[30, 40])

    def told(expressed: Expressed) -> Choice:
        kernel = Task(expressed.group, expressed.kind, AVX2, 1)
        name = next(n for n in kernel.ways if n in ("sketch_tile_pack01_at", "sketch_rows"))
        way = kernel.ways[name]
        knobs = way.defaults(way.variant(expressed.group), AVX2)
        return kernel.choice(Config.of(name, knobs), "a test")

    nodes = Pipeline.default(3, AVX2).run(graph)[0].nodes
    made = [lower_node(node, "k", AVX2, fast=True, tuned=told) for node in nodes]
    names = [(kernel.implementation, kernel.refused) for kernel in made]
    assert names == [("sketch_tile_pack01_at", ()), ("sketch_rows", ())]


def test_golden_trace() -> None:
    kernel = Task(product(512, 512, 512), "matmul", AVX2, 1)
    point = {"tile_i": 6, "tile_j": 16, "block_i": 8, "block_j": 4, "unroll_k": 2}
    trace = kernel.schedule(Config.of("sketch_tile_pack1", point)).trace
    assert f"{trace}\n" == GOLDEN.read_text(encoding="utf-8")


# why


def test_why_an_axis_is_vectorised_or_not() -> None:
    assert why("matmul", "vectorize", "i") == "- neighbours lie 21 elements apart"
    wanted = "+ neighbours lie side by side; a: one element for all lanes; b: side by side"
    assert why("matmul", "vectorize", "j") == wanted
    assert why("softmax", "vectorize", "i") == "- along it x: 45 elements apart"
    assert why("softmax", "vectorize", "r0") == "+ along it x: side by side"


def test_why_not_dot4() -> None:
    assert why("bytes", "tensorize").startswith("+ dot4: four products")
    assert why("matmul", "tensorize").startswith("- dot4: products are of f32 and f32")
    assert why("pool", "tensorize") == "- dot4: the reduction is a max, not a sum"
    short = bytes_product(6, 19, 3)
    (row,) = explain_sketches(short, "matmul", AVX2).of("tensorize")
    assert row.why == "dot4: k runs 3 times, not 4 or more"
    assert "no stage reduces" in why("chain", "tensorize")


def test_why_not_rfactor() -> None:
    assert why("mean", "rfactor").startswith("+ terms lie side by side")
    assert why("mean", "rfactor", "", STRICT).startswith("- strict precision")
    assert "reads its rows again along j" in why("matmul", "rfactor")
    assert why("columns", "rfactor") == "- terms of sum_1 along r0 do not lie side by side"


def test_why_something_is_not_packed() -> None:
    assert why("conv", "pack", "pad").startswith("- it is computed here")
    assert "once" in why("columns", "pack", "x")
    a = te.placeholder(f32[16, 16], "a")
    k = te.reduce_axis(16, "k")
    square = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * a[j, k], k), "square")
    group = Group((square,), square)
    (row,) = explain_sketches(group, "matmul", AVX2).of("pack")
    assert (row.taken, row.why) == (False, "it is read at 2 places")


def test_where_copies_can_be_made() -> None:
    assert why("conv", "compute_at", "w") == "+ blocks of w need a part of it"
    assert why("matmul", "compute_at", "j") == "+ blocks of j need a part of its copy"
    assert why("constant", "compute_at", "j").startswith("- it is constant")


def test_an_explanation_as_text() -> None:
    kernel = task("matmul")
    text = str(explain_sketches(kernel.group, kernel.kind, AVX2))
    head, *lines = text.splitlines()
    assert head.split() == ["rule", "stage", "axis", "taken", "why"]
    assert lines[-1].startswith("sketches: sketch_tile, ")
    assert "vectorize    relu    i     no     neighbours lie 21 elements apart" in lines


# odd kernels


def _sum_of(*shape: int) -> Group:
    x = te.placeholder(f32[shape], "x")
    k = te.reduce_axis(shape[-1], "k")
    s = te.compute(shape[:-1], lambda *i: te.sum(x[(*i, k)], k), "s")
    return Group((s,), s)


def _two_outputs() -> Group:
    x = te.placeholder(f32[8, 8], "x")
    a = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, "a")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, "b")
    return Group((a, b))


def _lookup() -> Group:
    x, n = te.placeholder(f32[9, 7], "x"), te.placeholder(i32[5], "n")
    return Group((te.compute((5, 7), lambda i, j: te.lookup(x, te.cast("i64", n[i]), j), "y"),))


def _number() -> Group:
    x = te.placeholder(f32[()], "x")
    return Group((te.compute((), lambda: x[()] + 1.0, "y"),))


ODD = {
    "no rows": lambda: product(0, 8, 8),
    "no columns": lambda: product(8, 0, 8),
    "no depth": lambda: product(8, 8, 0),
    "depth 1": lambda: product(8, 8, 1),
    "one element": lambda: product(1, 1, 8),
    "one row": lambda: product(1, 23, 8),
    "one column": lambda: product(23, 1, 8),
    "primes": lambda: product(17, 19, 13),
    "one": lambda: product(1, 1, 1),
    "sum of none": lambda: _sum_of(5, 0),
    "sum of one": lambda: _sum_of(5, 1),
    "sum of nothing": lambda: _sum_of(0, 5),
    "one sum": lambda: _sum_of(31),
    "sums": lambda: _sum_of(2, 1, 3, 29),
    "outputs": _two_outputs,
    "lookup": _lookup,
    "number": _number,
}


@pytest.mark.parametrize("target", [AVX2, STRICT], ids=["default", "strict"])
@pytest.mark.parametrize("name", ODD)
def test_odd_kernels(name: str, target: Target) -> None:
    group = ODD[name]()
    kind = "matmul" if group.anchor and group.anchor.name == "matmul" else "reduction"
    kernel = Task(group, kind if group.anchor else "injective", target, 1)
    assert str(explain_sketches(group, kernel.kind, target))
    if name in ("no rows", "no columns", "sum of nothing", "outputs", "number"):
        assert not sketches(group, kernel.kind, target)
    given = values(kernel)
    want = plain(kernel, given)
    for config in sketch_points(kernel, 1):
        got = interpreted(kernel, kernel.lower(config), given)
        np.testing.assert_array_equal(got[0], want[0], err_msg=str(config))


OPS = [name for name in registered_ops() if name != "getitem"]


@pytest.mark.long
@pytest.mark.parametrize("name", OPS)
def test_every_op_lowers(name: str) -> None:
    """The first example of each op: a random point of each of its sketches is legal."""
    example = next(iter(op_class(name).examples()))
    if not checks.has_kernel(example.op) or hasattr(type(example.op), "loops"):
        return
    expressed = express_node(checks.node_of(example))
    for target in (AVX2, STRICT):
        kernel = Task(expressed.group, expressed.kind, target, 1)
        assert str(explain_sketches(kernel.group, kernel.kind, target))
        for config in sketch_points(kernel, 1):
            kernel.lower(config)


# machine code

COMPILED = (
    "matmul", "constant", "polynomials", "halves", "conv", "blocked", "depthwise", "bytes",
    "bytes_constant", "softmax", "layer_norm", "mean", "columns", "chain", "transpose",
)  # fmt: skip


@pytest.mark.llvm
@pytest.mark.parametrize("name", COMPILED)
def test_machine_code(name: str) -> None:
    from minidlc.target import host
    from minidlc.tests.tuning.sketch_compiled import compiled

    kernel = task(name, host())
    given = values(kernel)
    want = plain(kernel, given)
    points = sketch_points(kernel, 4)
    for config in Random(0).sample(points, min(4, len(points))):
        got = compiled(kernel, config, given)
        for mine, other in zip(got, want, strict=True):
            scale = float(np.abs(other.astype(np.float64)).max())
            bound = 2e-3 if name == "halves" else 2e-6
            np.testing.assert_allclose(
                mine.astype(np.float64), other, rtol=bound, atol=bound * scale, err_msg=str(config)
            )
