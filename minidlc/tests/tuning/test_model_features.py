"""Features of lowered loops: ratios that are right, finite, and the same for larger shapes."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from minidlc.graph import registered_ops
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.lower.kernels import lower_node
from minidlc.support.errors import CompileError
from minidlc.target import Target
from minidlc.tests.ops.checks import node_of
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.model import FEATURES, loop_features
from minidlc.tuning.model.features import MEANING

pytestmark = pytest.mark.ch06
TARGET = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", vector_bits=256, registers=16)


def tile(rows: int, steps: int = 64, blocks: int = 8) -> LoopFunction:
    """A product in tiles of `rows` by 16."""
    return parse_function(f"""
def product(a: f32[{blocks * rows}, {steps}], b: f32[{steps}, 16], y: f32[{blocks * rows}, 16]):
    for io in parallel(0, {blocks}):
        c = alloc(f32[{rows}, 16], "register")
        for i in unrolled(0, {rows}):
            for jv in unrolled(0, 2):
                for jl in vectorized(0, 8):
                    c[i, 8*jv + jl] = 0.0
        for k in serial(0, {steps}):
            for i in unrolled(0, {rows}):
                for jv in unrolled(0, 2):
                    for jl in vectorized(0, 8):
                        c[i, 8*jv + jl] = c[i, 8*jv + jl] + a[{rows}*io + i, k] * b[k, 8*jv + jl]
        for i in unrolled(0, {rows}):
            for jv in unrolled(0, 2):
                for jl in vectorized(0, 8):
                    y[{rows}*io + i, 8*jv + jl] = c[i, 8*jv + jl]
""")


def named(fn: LoopFunction, threads: int = 1) -> dict[str, float]:
    return dict(zip(FEATURES, loop_features(fn, TARGET, threads).tolist(), strict=True))


def test_every_feature_has_a_name_and_a_meaning() -> None:
    row = loop_features(tile(4), TARGET, 1)
    assert row.shape == (len(FEATURES),)
    assert row.dtype == np.float64
    assert len(set(FEATURES)) == len(FEATURES)
    assert all(len(text) > 10 for text in MEANING.values())


def test_the_ratios_of_a_tile_of_four_rows() -> None:
    f = named(tile(4))
    work = 8 * 64 * 4 * 2  # vector multiply-adds
    assert f["work"] == np.log2(work)
    assert f["vector"] == 1
    assert f["vector_loads"] == 2 / 8
    assert f["broadcasts"] == 4 / 8
    assert f["vector_stores"] == 8 * 8 / work
    assert f["iterations"] == (1 + 8 + 8 * 64) / work
    assert f["registers"] == (8 + 2 + 1) / 16
    assert f["trips"] == 6
    assert f["unrolled"] == np.log2(1 + 14)
    assert f["chain"] == 8 * 64 / work
    assert f["spills"] == 0
    assert f["lanes"] == 1
    assert f["least_lines"] == (32 * 64 / 16 + 64 + 32) / work


def test_more_rows_load_less_until_they_do_not_fit() -> None:
    found = [named(tile(rows)) for rows in (1, 2, 4, 6, 8)]
    loads = [f["vector_loads"] + f["broadcasts"] for f in found]
    assert loads == sorted(loads, reverse=True)
    assert len(set(loads)) == 5
    assert [f["spills"] > 0 for f in found] == [False, False, False, False, True]


def test_a_larger_product_has_the_same_ratios() -> None:
    small, large = named(tile(4)), named(tile(4, blocks=64))
    same = ("vector", "vector_loads", "broadcasts", "trips", "unrolled", "registers", "lanes")
    assert {n: small[n] for n in same} == {n: large[n] for n in same}
    assert large["work"] == small["work"] + 3


def test_threads_share_what_is_parallel() -> None:
    assert named(tile(4), threads=1)["balance"] == 1
    assert named(tile(4), threads=2)["balance"] == 1
    assert named(tile(4), threads=3)["balance"] == 8 / 9
    assert named(tile(4), threads=3)["forks"] == 1
    serial = parse_function(str(tile(4)).replace("parallel", "serial"))
    assert named(serial, threads=4)["balance"] == 0.25
    assert named(serial, threads=4)["forks"] == 0


def test_a_copy_has_work_too() -> None:
    f = named(
        parse_function("""
def copy(x: f32[4096], y: f32[4096]):
    for i in serial(0, 512):
        for l in vectorized(0, 8):
            y[8*i + l] = x[8*i + l]
""")
    )
    assert (f["work"], f["vector"], f["vector_loads"], f["vector_stores"]) == (9, 0, 1, 1)


def test_rows_of_every_way_to_compute_a_kernel_are_finite() -> None:
    task, rng = task_of(product(37, 50, 19)), Random(0)
    rows = [loop_features(task.lower(c).loops, task.target, 1) for c in task.space.distinct(8, rng)]
    assert np.isfinite(rows).all()
    assert len({row.tobytes() for row in rows}) > 1


def test_an_empty_kernel_has_a_row() -> None:
    fn = parse_function("""
def nothing(x: f32[0], y: f32[0]):
    for i in serial(0, 0):
        y[i] = x[i]
""")
    assert np.isfinite(loop_features(fn, TARGET, 1)).all()


@pytest.mark.long
def test_kernels_of_every_op_have_finite_rows_and_no_negative_counts() -> None:
    seen = 0
    for op in registered_ops().values():
        for example in itertools.islice(op.examples(), 2):
            try:
                loops = lower_node(node_of(example), "k", TARGET, fast=True).loops
            except CompileError:  # views and composites have no kernel
                continue
            row = loop_features(loops, TARGET, 2)
            assert np.isfinite(row).all(), loops
            counts = [row[FEATURES.index(n)] for n in ("vector", "gathers", "waits", "l1_lines")]
            assert min(counts) >= 0, loops
            seen += 1
    assert seen > 150
