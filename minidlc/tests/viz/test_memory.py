"""The picture of a memory plan."""

from __future__ import annotations

import itertools

import pytest

from minidlc.lower.memory import BufferRequest, plan_memory
from minidlc.runtime.plan import Lying, MemoryPlan, PlannedBuffer
from minidlc.tests.viz.geometry import meet, read_svg
from minidlc.viz import memory
from minidlc.viz.drawing import SMALLEST

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
    assert PLAN.peak_step == 1
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


def value(name: str, place: tuple[int, int, int, int, int], how: str = "") -> Lying:
    return Lying(name, *place, how)


SHARED = MemoryPlan(
    (PlannedBuffer("a", 8192, 0, 0, 7), PlannedBuffer("cat", 8192, 8192, 2, 7)),
    16384,
    30000,
    (
        value("a", (0, 0, 8192, 0, 3)),
        value("b", (0, 0, 8192, 3, 7), "in place"),
        value("row", (0, 4096, 4096, 4, 6), "view"),
        value("cat", (1, 0, 8192, 2, 7), "whole"),
        value("left", (1, 0, 4096, 2, 7), "part"),
        value("right", (1, 4096, 4096, 5, 7), "part"),
    ),
    tuple(f"k{t}" for t in range(8)),
)


def test_what_shares_bytes_is_marked() -> None:
    SHARED.check()
    svg = memory(SHARED).svg
    seen = read_svg(svg)
    texts = [w.text for w in seen.all_words]
    assert {"a  8.2 kB", "b  8.2 kB", "cat  8.2 kB"} <= set(texts)  # one value after the other
    assert {"view", "in place: a result on an input", "parts of a concat"} <= set(texts)
    assert "row: view, 4.1 kB" in svg
    (hatched,) = seen.areas["view"]
    a, _ = seen.areas["buffer"]
    assert a[0] < hatched[0] < hatched[2] < a[2]  # steps 4 to 6 of 0 to 7
    assert a[1] <= hatched[1] + 3  # the upper half of its bytes
    assert hatched[3] < (a[1] + a[3]) / 2 + 3
    assert "a: 8.2 kB at 0, steps 0 to 7; b, in place; row, view" in svg


def test_who_makes_the_peak_is_said() -> None:
    texts = [w.text for w in read_svg(memory(SHARED).svg).all_words]
    assert "peak: 16 kB at step 2, k2: a 8.2 kB, cat 8.2 kB" in texts
    texts = [w.text for w in read_svg(memory(PLAN).svg).all_words]
    assert "peak: 6.1 kB at step 1: h1 4.1 kB, h2 2.0 kB" in texts


def large(steps: int) -> MemoryPlan:
    """Buffers of many sizes, two or three alive at a time, as in a deep network."""
    requests = tuple(
        BufferRequest(f"convolution_number_{t}", 64 * (1 + t * 7919 % 997), t, t + 1 + t % 3)
        for t in range(steps)
    )
    return plan_memory(requests, 1 << 30)


@pytest.mark.long
@pytest.mark.parametrize("steps", [30, 700])
def test_a_large_model_stays_legible(steps: int) -> None:
    """Labels of bars, beside bars, on both axes and at the lines: none meets another."""
    seen = read_svg(memory(large(steps)).svg)
    assert len(seen.areas["buffer"]) == steps
    assert all(left < right for left, _, right, _ in seen.areas["buffer"])
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    assert all(w.area[0] >= 0 and w.area[2] <= seen.width for w in seen.all_words)


def test_lines_close_to_each_other_have_labels_apart() -> None:
    near = MemoryPlan((PlannedBuffer("a", 4000, 0, 0, 1),), 4032, 4032)
    words = [
        w for w in read_svg(memory(near).svg).all_words if w.text.startswith(("arena", "alive"))
    ]
    assert [w.text for w in words][:2] == ["arena 4.0 kB", "alive at once 4.0 kB"]
    assert not meet(words[0].area, words[1].area, 0)


def test_a_plan_before_is_drawn_on_the_same_scale() -> None:
    """What a transformation such as remat brings: the line of the old plan stands over the bars."""
    less = MemoryPlan((PlannedBuffer("h1", 2048, 0, 0, 1), PlannedBuffer("h2", 2048, 2048, 1, 2)),
                      4096, 4096)  # fmt: skip
    picture = memory(less, before=PLAN)
    assert picture.title == "memory: arena 4.1 kB for 2 buffers, 8.2 kB before"
    seen, alone = read_svg(picture.svg), read_svg(memory(less).svg)
    (now, *_), (then, *_) = seen.areas["buffer"], alone.areas["buffer"]
    assert abs((then[3] - then[1]) / (now[3] - now[1]) - 2) < 0.01  # 8192 bytes fill the height
    words = {w.text: w.area for w in seen.all_words}
    assert words["alive before 6.1 kB"][1] < words["arena 4.1 kB = peak"][1]
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    for same in (memory(PLAN, before=PLAN), memory(PLAN, before=less)):
        seen = read_svg(same.svg)
        for a, b in itertools.combinations(seen.all_words, 2):
            assert not meet(a.area, b.area, 1), (a.text, b.text)
