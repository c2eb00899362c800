"""The memory plan: never two live buffers on one byte, and close to the lower bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidlc.lower.memory import BufferRequest, greedy_by_size, plan_memory
from minidlc.support.errors import MemoryLimitError

LIMIT = 1 << 40


def requests(*rows):
    return tuple(BufferRequest(f"b{i}", *row) for i, row in enumerate(rows))


def test_buffers_that_never_meet_share_bytes():
    plan = plan_memory(requests((640, 0, 1), (640, 2, 3)), LIMIT)
    assert [b.offset for b in plan.buffers] == [0, 0]
    assert (plan.arena_bytes, plan.naive_bytes) == (640, 1280)


def test_buffers_that_meet_in_one_step_do_not():
    plan = plan_memory(requests((640, 0, 1), (640, 1, 2)), LIMIT)
    assert plan.arena_bytes == 1280


def test_a_gap_between_two_living_buffers_is_used():
    plan = plan_memory(requests((128, 0, 9), (64, 0, 2), (128, 0, 9), (64, 3, 9)), LIMIT)
    assert plan.arena_bytes == 128 + 128 + 64


def test_sizes_are_not_cut_to_32_bits():
    """FAULTS row 141: two gigabyte-sized products; plan only."""
    huge = 8192 * 14336 * 8192 * 2
    with pytest.raises(MemoryLimitError, match="1,924,145,348,608"):
        plan_memory(requests((huge, 0, 1)), 8 << 30)


buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 6)), max_size=24
).map(lambda rows: requests(*((n, first, first + life) for n, first, life in rows)))


@given(buffers)
def test_random_plans_are_disjoint_and_not_above_the_naive_size(reqs):
    plan = plan_memory(reqs, LIMIT)  # plan_memory proves disjointness; checked here once more
    for i, a in enumerate(plan.buffers):
        assert a.offset % 64 == 0
        for b in plan.buffers[:i]:
            if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    assert plan.arena_bytes <= plan.naive_bytes


@given(buffers)
def test_the_arena_is_at_least_the_largest_live_set(reqs):
    plan = plan_memory(reqs, LIMIT)
    steps = range(30)
    live = max(sum(r.nbytes for r in reqs if r.first <= s <= r.last) for s in steps)
    assert plan.arena_bytes >= live


def test_greedy_is_a_function_of_its_input():
    reqs = requests((100, 0, 3), (100, 0, 3), (50, 1, 2))
    assert greedy_by_size(reqs) == greedy_by_size(reqs)
