from __future__ import annotations

import minidlc as mc
from grader import expect


def test_chain(student, rng):
    """A chain of sums of equal sums."""
    depth = int(rng.integers(3, 6))

    def sums(x):
        for _ in range(depth):
            x = mc.relu(x) + mc.relu(x)
        return x

    got, merged = student.call("9.3", mc.trace(sums, mc.f32[4]))
    expect.equal(merged, depth, "the number of merged nodes")
    expect.equal(len(expect.a_graph(got).nodes), 2 * depth, "the number of nodes")
