"""The roofline picture."""

from __future__ import annotations

import itertools

from minidlc.runtime.profile import KernelTime, Peaks, Profile
from minidlc.tests.viz.geometry import meet, read_svg
from minidlc.viz import roofline
from minidlc.viz.drawing import SMALLEST

PEAKS = Peaks(1, 100.0, (("L2", 80.0), ("memory", 20.0)))


def profiled(*kernels: KernelTime) -> Profile:
    return Profile("net", 1, 10, 1e-5, kernels, lambda: PEAKS)


MIXED = profiled(
    KernelTime("conv_relu", 1, 6e-4, 48_000_000, 1_000_000),
    KernelTime("copy", 1, 1e-5, 0, 400_000),
    KernelTime("add", 1, 1e-4, 200_000, 800_000),
    KernelTime("gemm_bias_with_a_name_that_is_long", 2, 2e-4, 8_000_000, 100_000),
)


def test_the_headline_gives_the_speed_and_its_share() -> None:
    assert roofline(MIXED, PEAKS).title == (
        "roofline of net: 61.1 GFLOP/s, 61 % of what 1 thread can do"
    )


def test_kernels_lie_by_intensity_and_speed() -> None:
    seen = read_svg(roofline(MIXED, PEAKS).svg)
    conv, gemm, add = seen.areas["kernel"]  # slowest first; the copy does no arithmetic
    assert conv[2] - conv[0] > gemm[2] - gemm[0] > add[2] - add[0]  # by time

    def middle(area: tuple[float, float, float, float]) -> tuple[float, float]:
        return (area[0] + area[2]) / 2, (area[1] + area[3]) / 2

    assert middle(add)[0] < middle(conv)[0] < middle(gemm)[0]  # 1/4, 48, 80 for each byte
    assert middle(add)[1] > middle(gemm)[1] > middle(conv)[1]  # 2, 40, 80 GFLOP/s


def test_all_is_legible_and_nothing_overlaps() -> None:
    seen = read_svg(roofline(MIXED, PEAKS).svg)
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    assert all(w.area[2] <= seen.width for w in seen.all_words)
    texts = [w.text for w in seen.all_words]
    for text in ("L2 80 GB/s", "memory 20 GB/s", "arithmetic 100 GFLOP/s", "conv_relu", "80 %"):
        assert text in texts


def test_numbers_of_kernels_in_one_place_are_not_written_over_each_other() -> None:
    same = profiled(*(KernelTime(f"k{n}", 1, 1e-4, 1_000_000, 100_000) for n in range(20)))
    seen = read_svg(roofline(same, PEAKS).svg)
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    assert "and 8 more" in [w.text for w in seen.all_words]


def test_a_model_without_arithmetic_can_be_drawn() -> None:
    picture = roofline(profiled(KernelTime("copy", 1, 1e-5, 0, 400)), PEAKS)
    assert "kernel" not in read_svg(picture.svg).areas


def test_what_comes_from_a_cache_is_explained() -> None:
    fast = profiled(KernelTime("add", 1, 1e-6, 1_000_000, 4_000_000))
    words = [w.text for w in read_svg(roofline(fast, PEAKS).svg).all_words]
    assert "above 100 %: what it reads was in a cache" in words


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert roofline(MIXED, PEAKS).svg == roofline(MIXED, PEAKS).svg
