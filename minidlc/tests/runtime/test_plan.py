from __future__ import annotations

import pytest

from minidlc.runtime.plan import MemoryPlan, PlannedBuffer
from minidlc.support.errors import VerifyError


def plan(*buffers: PlannedBuffer, arena: int = 1024) -> MemoryPlan:
    return MemoryPlan(buffers, arena, sum(b.nbytes for b in buffers))


def test_sharing_by_buffers_that_are_never_alive_together() -> None:
    p = plan(
        PlannedBuffer("a", 256, 0, 0, 1),
        PlannedBuffer("b", 256, 256, 1, 2),
        PlannedBuffer("c", 200, 0, 2, 3),
    )
    p.check()
    assert p.peak_bytes == 512
    assert str(p).splitlines()[0].split() == ["buffer", "bytes", "offset", "alive"]
    assert "arena 1024 bytes; without sharing 712" in str(p)


def test_overlap() -> None:
    p = plan(PlannedBuffer("a", 256, 0, 0, 2), PlannedBuffer("b", 64, 192, 2, 3))
    with pytest.raises(VerifyError) as error:
        p.check()
    assert error.value.code == "MDLC0480"
    assert "'a' and 'b' are alive together and overlap" in str(error.value)
    assert "b: bytes 192..256, alive 2..3" in str(error.value)


def test_overlap_with_a_buffer_that_lives_long() -> None:
    short = [PlannedBuffer(f"s{t}", 64, 64, t, t) for t in range(1, 5)]
    p = plan(PlannedBuffer("long", 64, 0, 0, 9), *short, PlannedBuffer("x", 64, 0, 6, 7))
    with pytest.raises(VerifyError, match="'long' and 'x'"):
        p.check()


@pytest.mark.parametrize(
    "buffer",
    [
        PlannedBuffer("a", 64, 32, 0, 1),
        PlannedBuffer("a", 2000, 0, 0, 1),
        PlannedBuffer("a", 64, -64, 0, 1),
        PlannedBuffer("a", 64, 0, 3, 1),
    ],
)
def test_misplaced(buffer: PlannedBuffer) -> None:
    with pytest.raises(VerifyError) as error:
        plan(buffer).check()
    assert error.value.code == "MDLC0481"


def test_empty() -> None:
    empty = MemoryPlan((), 0, 0)
    empty.check()
    assert empty.peak_bytes == 0
    plan(PlannedBuffer("a", 0, 0, 0, 1), PlannedBuffer("b", 64, 0, 0, 1)).check()
