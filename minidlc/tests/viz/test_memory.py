"""The picture of a memory plan."""

from __future__ import annotations

import itertools

from minidlc.runtime.plan import MemoryPlan, PlannedBuffer
from minidlc.tests.viz.geometry import meet, read_svg
from minidlc.viz import memory
from minidlc.viz.drawing import SMALLEST
from minidlc.viz.memory import peak_step

PLAN = MemoryPlan(
    (
        PlannedBuffer("h1", 4096, 0, 0, 1),
        PlannedBuffer("h2", 2048, 4096, 1, 2),
        PlannedBuffer("h2.workspace", 64, 6144, 2, 2),
        PlannedBuffer("h3", 1024, 0, 2, 4),
    ),
    8192,
    7232,
)


def test_bars_lie_where_the_plan_says() -> None:
    seen = read_svg(memory(PLAN).svg)
    h1, h2, scratch, h3 = seen.areas["buffer"]
    assert h1[1] < h2[3] + 1  # h2 lies above h1: higher addresses are up
    assert h1[3] == h3[3]  # both at address 0
    assert h1[2] < h3[0]  # one after the other
    assert (h1[3] - h1[1]) / (h2[3] - h2[1]) == 2
    assert scratch[2] - scratch[0] < h2[2] - h2[0]
    for a, b in itertools.combinations(seen.areas["buffer"], 2):
        assert not meet(a, b)


def test_every_buffer_is_named_and_nothing_overlaps() -> None:
    seen = read_svg(memory(PLAN).svg)
    texts = [w.text for w in seen.all_words]
    for name in ("h1  4.1 kB", "h2  2.0 kB", "h2.workspace  64 B", "h3  1.0 kB"):
        assert name in texts
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    assert all(w.area[2] <= seen.width for w in seen.all_words)


def test_the_peak_is_marked() -> None:
    assert peak_step(PLAN) == 1
    picture = memory(PLAN)
    assert picture.title == "memory: arena 8.2 kB for 4 buffers, 7.2 kB without sharing"
    texts = [w.text for w in read_svg(picture.svg).all_words]
    assert "alive at step 1, the peak" in texts
    assert "alive at once 6.1 kB" in texts
    assert "arena 8.2 kB" in texts


def test_steps_can_be_named() -> None:
    names = ["conv", "relu", "pool", "gemm", "softmax"]
    texts = [w.text for w in read_svg(memory(PLAN, steps=names).svg).all_words]
    assert set(names) <= set(texts)


def test_an_empty_plan_can_be_drawn() -> None:
    picture = memory(MemoryPlan((), 0, 0))
    assert picture.title == "memory: arena 0 B for 0 buffers, 0 B without sharing"
    assert read_svg(picture.svg).width > 0
