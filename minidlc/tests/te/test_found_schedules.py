"""Schedules that random drawing found to go wrong once: each by what was wrong."""

from __future__ import annotations

import pytest

from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule, parse_trace
from minidlc.tests.te.families import Kernel, conv

pytestmark = pytest.mark.ch04

SMALL = conv(2, (3, 5), 4, (3, 3), 1, 2, "i8", True, True)


def refused(kernel: Kernel, trace: str) -> ScheduleError:
    """How lowering refuses a trace."""
    schedule = Schedule(
        kernel.outputs, parse_trace(trace), constants=kernel.constants, checked=False
    )
    with pytest.raises(ScheduleError) as caught:
        schedule.lower()
    return caught.value


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ('compute_at("p", "y", "v")\nprefetch("y", "p", "h", 2)', "computes its own"),
        ('prefetch("y", "p", "h", 2)\ncompute_at("p", "y", "v")', "computes its own"),
        ('prefetch("y", "p", "h", 2)\ncompute_inline("p")', "nothing inside it reads it"),
        ('prefetch("y", "p", "h", 2)\ncache_read("p", ["y"])', "nothing inside it reads it"),
    ],
)
def test_prefetching_what_each_iteration_computes_is_refused(trace: str, why: str) -> None:
    error = refused(SMALL, trace)
    assert error.code == "MDLC0634"
    assert why in str(error)
