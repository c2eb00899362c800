"""Lines touched by loops, and lines that come into a cache: hand-made loops, counted exactly."""

from __future__ import annotations

import pytest

from minidlc.loop.footprint import nest, traffic
from minidlc.loop.text import parse_function

pytestmark = pytest.mark.ch06

PRODUCT = """
def product(a: f32[64, 64], b: f32[64, 64], c: f32[64, 64]):
    for i in serial(0, 64):
        for j in serial(0, 64):
            for k in serial(0, 64):
                c[i, j] = c[i, j] + a[i, k] * b[k, j]
"""


def test_a_product_touches_each_matrix_once() -> None:
    tree = nest(parse_function(PRODUCT))
    assert dict(tree.lines) == {"a": 256, "b": 256, "c": 256}


def test_a_cache_that_holds_one_row_keeps_what_the_next_row_needs() -> None:
    """One i: a row of a and of c (4 lines each), all of b (256)."""
    tree = nest(parse_function(PRODUCT))
    assert traffic(tree, 64 * 264) == {"a": 256, "b": 256, "c": 256}
    assert traffic(tree, 64 * 263) == {"a": 256, "b": 256 * 64, "c": 256}


def test_a_cache_that_holds_one_element_loads_b_line_by_line() -> None:
    """One j: a row of a, 64 lines of b, one of c; one k: three lines."""
    tree = nest(parse_function(PRODUCT))
    assert traffic(tree, 64 * 69)["b"] == 256 * 64  # neighbouring columns share their lines
    assert traffic(tree, 64 * 8) == {"a": 4 * 64**2, "b": 64 * 64**2, "c": 64**2}


def test_windows_that_overlap_are_loaded_once() -> None:
    fn = parse_function("""
def windows(x: f32[130], y: f32[128]):
    for i in serial(0, 128):
        for k in serial(0, 3):
            y[i] = y[i] + x[i + k]
""")
    assert traffic(nest(fn), 256) == {"x": 9, "y": 8}


def test_columns_touch_a_line_for_each_element() -> None:
    fn = parse_function("""
def column(x: f32[32, 64], y: f32[32]):
    for i in serial(0, 32):
        y[i] = x[i, 0]
""")
    assert dict(nest(fn).lines) == {"x": 32, "y": 2}


def test_a_step_within_the_line_touches_all_lines() -> None:
    fn = parse_function("""
def every_second(x: f32[128], y: f32[64]):
    for i in serial(0, 64):
        y[i] = x[2*i]
""")
    assert dict(nest(fn).lines) == {"x": 8, "y": 4}


def test_fused_loops_touch_what_the_two_did() -> None:
    fn = parse_function("""
def fused(x: f32[8, 64], y: f32[512]):
    for f in serial(0, 512):
        y[f] = x[f // 64, f % 64]
""")
    assert dict(nest(fn).lines) == {"x": 32, "y": 32}


def test_a_lookup_may_touch_any_line_and_no_more_than_it_reads() -> None:
    fn = parse_function("""
def lookup(ids: i64[3], x: f32[100, 16], y: f32[3, 16]):
    for i in serial(0, 3):
        for j in serial(0, 16):
            y[i, j] = x[at(ids[i], 100), j]
""")
    assert dict(nest(fn).lines) == {"ids": 1, "x": 3, "y": 3}


def test_registers_are_no_memory_and_two_passes_load_twice() -> None:
    fn = parse_function("""
def twice(x: f32[4096], y: f32[4096]):
    for i in serial(0, 4096):
        c = alloc(f32[1], "register")
        c[0] = x[i]
        y[i] = c[0]
    for i in serial(0, 4096):
        y[i] = y[i] + x[i]
""")
    assert dict(nest(fn).lines) == {"x": 256, "y": 256}
    assert traffic(nest(fn), 4096) == {"x": 512, "y": 512}


def test_an_empty_loop_moves_nothing() -> None:
    fn = parse_function("""
def nothing(x: f32[4], y: f32[4]):
    for i in serial(0, 0):
        y[i] = x[i]
""")
    assert traffic(nest(fn), 1024) == {}
