"""The roofs of this machine are plausible: measured, not guessed."""

from __future__ import annotations

import pytest

from minidlc.peaks import measure_peaks
from minidlc.target import host

pytestmark = pytest.mark.llvm


def test_roofs_are_measured_by_level() -> None:
    peaks = measure_peaks(host(), threads=1)
    assert peaks.threads == 1
    assert 0.5 < peaks.gflops < 2000
    assert [name for name, _ in peaks.bandwidths] == ["L2", "memory"]
    assert all(0.1 < speed < 2000 for _, speed in peaks.bandwidths)


def test_the_roof_is_the_lower_of_two() -> None:
    peaks = measure_peaks(host(vector_width=4), threads=1)
    slope = dict(peaks.bandwidths)["memory"]
    assert peaks.roof(1e9) == peaks.gflops
    assert peaks.roof(peaks.gflops / slope / 2) == pytest.approx(peaks.gflops / 2)
