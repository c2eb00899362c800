from __future__ import annotations

import minidlc as mc
from grader import expect


def test_two(student):
    """relu(x) + relu(x): one of two is merged."""
    graph = mc.trace(lambda x: mc.relu(x) + mc.relu(x), mc.f32[4])
    got, merged = student.call("9.3", graph)
    assert len(graph.nodes) == 3
    expect.equal(merged, 1, "the number of merged nodes")
    expect.equal(len(expect.a_graph(got).nodes), 2, "the number of nodes")
