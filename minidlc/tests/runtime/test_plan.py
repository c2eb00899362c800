from __future__ import annotations

import pytest

from minidlc.runtime.plan import Lying, MemoryPlan, PlannedBuffer
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


def sharing(*values: Lying) -> MemoryPlan:
    buffers = (PlannedBuffer("a", 256, 0, 0, 3), PlannedBuffer("b", 128, 256, 1, 2))
    return MemoryPlan(buffers, 384, 384, values, ("k0", "k1", "k2", "k3"))


FIRST = Lying("first", 0, 0, 128, 0, 2)
FINE = {
    "beside": Lying("second", 0, 128, 128, 0, 3),
    "in another buffer": Lying("second", 1, 0, 128, 1, 2),
    "later": Lying("second", 0, 0, 128, 3, 3),
    "in place": Lying("second", 0, 0, 128, 2, 3, "in place"),
    "a view": Lying("second", 0, 64, 32, 1, 2, "view"),
    "the whole": Lying("second", 0, 0, 256, 0, 3, "whole"),
}
WRONG = {
    "on the same bytes": Lying("second", 0, 64, 64, 2, 3),
    "in place of what is read later": Lying("second", 0, 0, 128, 1, 3, "in place"),
    "two parts on one byte": Lying("second", 0, 127, 128, 0, 3, "part"),
}


@pytest.mark.parametrize("how", FINE)
def test_values_that_may_share_a_buffer(how: str) -> None:
    sharing(FIRST, FINE[how]).check()
    sharing(FINE[how], FIRST).check()


@pytest.mark.parametrize("how", WRONG)
def test_values_that_may_not(how: str) -> None:
    with pytest.raises(VerifyError, match="'first' and 'second' lie on the same bytes") as e:
        sharing(FIRST, WRONG[how]).check()
    assert e.value.code == "MDLC0483"
    assert e.value.notes == ("first: bytes 0..128 of its buffer, steps 0..2",)


@pytest.mark.parametrize("place", [(0, 200, 128, 0, 1), (0, -64, 64, 0, 1), (1, 0, 64, 0, 1)])
def test_values_outside_their_buffer(place: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(VerifyError, match="'v' does not lie in buffer"):
        sharing(Lying("v", *place)).check()


def test_the_proof_goes_step_by_step() -> None:
    text = sharing(FIRST, FINE["in place"], Lying("row", 0, 64, 32, 1, 1, "view")).proof()
    assert text.splitlines() == [
        "step 0 k0: 1 alive, 256 bytes, no two overlap",
        "             0..256        a",
        "step 1 k1: 2 alive, 384 bytes, no two overlap",
        "             0..256        a",
        "                64..96         row, view",
        "           256..384        b",
        "step 2 k2: 2 alive, 384 bytes, no two overlap",
        "             0..256        a",
        "                 0..128        second, in place of first",
        "           256..384        b",
        "step 3 k3: 1 alive, 256 bytes, no two overlap",
        "             0..256        a",
        "                 0..128        second, in place of first",
        "peak 384 bytes at step 1; arena 384, 0.0 % over it",
    ]
    assert "values: 1 view, 1 in place" in str(sharing(FIRST, FINE["in place"], FINE["a view"]))
    part = sharing(Lying("whole", 0, 0, 256, 0, 3, "whole"), Lying("p", 0, 64, 64, 1, 3, "part"))
    assert "                64..128        p, part of whole" in part.proof()
    assert part.about("p") == ("64 bytes at 64, steps 1 to 3, part of whole",)
    assert part.about("q") == ()
    with pytest.raises(VerifyError, match="overlap"):
        plan(PlannedBuffer("a", 256, 0, 0, 2), PlannedBuffer("b", 64, 192, 2, 3)).proof()
    assert MemoryPlan((), 0, 0).proof() == "peak 0 bytes at step 0; arena 0, nothing is over it"
