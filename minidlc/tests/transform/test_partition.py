"""Regions for a back end: convex, as large as can be, cost-based; the graph means the same."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from minidlc.expr.types import bool_, f32
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import Graph, Input, Region, apply, interpret, parse, verify
from minidlc.graph.op import registered_ops
from minidlc.graph.text import weights_of
from minidlc.support.errors import PassError
from minidlc.tests.random_graphs import case_of
from minidlc.transform.decompose import Decompose
from minidlc.transform.log import Refusal, Rewrite, collecting
from minidlc.transform.partition.backend import (
    BackEnd,
    Chain,
    Takes,
    register_backend,
    unregister_backend,
)
from minidlc.transform.partition.partition import Partition, find_regions
from minidlc.transform.pipeline import parse_pipeline

pytestmark = pytest.mark.ch02
X = Input("x", f32[4])


def back_end(*ops, **costs):
    """A back end of these ops, by which everything gains unless costs are given."""
    costs = {"host_cycles": lambda node: 1.0, **costs}
    return register_backend(BackEnd("toy", tuple(Takes(op) for op in ops), **costs))


@pytest.fixture(autouse=True)
def forget():
    yield
    unregister_backend("toy")


def split(graph):
    with collecting() as events:
        result = Partition(backend="toy")(graph)
    verify(result)
    return result, list(events)


def bodies(graph):
    """The ops of each region, in order."""
    return [[n.op.name for n in r.op.body.nodes] for r in regions(graph)]


def regions(graph):
    return [n for n in graph.nodes if isinstance(n.op, Region)]


def chain(*ops):
    value, values = X, [X]
    for op in ops:
        value = apply(op, value)
        values.append(value)
    return Graph.of("g", [X], [value])


def test_neighbours_join_and_others_stay():
    back_end("relu", "neg")
    g = chain("relu", "neg", "exp", "neg", "relu", "relu")
    result, events = split(g)
    assert bodies(result) == [["relu", "neg"], ["neg", "relu", "relu"]]
    assert [n.op.name for n in result.nodes] == ["region", "exp", "region"]
    assert [e for e in events if isinstance(e, Rewrite)] == [
        Rewrite("region of 2 nodes", "neg", g.nodes[1].loc),
        Rewrite("region of 3 nodes", "relu", g.nodes[5].loc),
    ]
    (refused,) = [e for e in events if isinstance(e, Refusal)]
    assert str(refused) == "partition at exp: toy has no exp"


def test_a_path_around_keeps_two_regions_apart():
    """relu -> exp -> add and relu -> add: one region would wait for exp, and exp for it."""
    back_end("relu", "add")
    a = apply("relu", X)
    g = Graph.of("g", [X], [apply("add", a, apply("exp", a))])
    result, _ = split(g)
    assert bodies(result) == [["relu"], ["add"]]


def test_a_path_around_through_a_region_counts():
    """a -> exp -> q, p -> q, p -> b, a -> b: in by q, out by p, as p and q run together."""
    back_end("relu", "add", "neg")
    y = Input("y", f32[4])
    a, p = apply("relu", X), apply("neg", y)
    q = apply("add", p, apply("exp", a))
    b = apply("add", a, p)
    result, _ = split(Graph.of("g", [X, y], [q, b]))
    assert bodies(result) == [["relu"], ["neg", "add", "add"]]


def test_a_path_that_comes_to_lie_inside_is_no_reason():
    """a -> c directly and by b: whoever is asked first, all three join."""
    back_end("relu", "add", "neg")
    a = apply("relu", X)
    for inputs in ((a, apply("neg", a)), (apply("neg", a), a)):
        result, _ = split(Graph.of("g", [X], [apply("add", *inputs)]))
        assert [sorted(b) for b in bodies(result)] == [["add", "neg", "relu"]]


def test_values_read_outside_are_outputs():
    back_end("relu", "neg", "abs")
    a = apply("relu", X)
    b = apply("neg", a)
    g = Graph.of("g", [X], [b, apply("exp", a), apply("abs", b), a])
    result, _ = split(g)
    (region,) = regions(result)
    assert len(region.op.body.outputs) == 3
    x = np.array([-1, 0, 2, 3], np.float32)
    for got, want in zip(interpret(result, [x]), interpret(g, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_weights_are_inside_and_inputs_are_read_once():
    back_end("matmul", "add")
    x = Input("x", f32[2, 3])
    g = Graph.of("g", [x], [apply("add", x, apply("matmul", x, np.eye(3, dtype=np.float32)))])
    result, _ = split(g)
    (region,) = regions(result)
    assert [i.name for i in region.op.body.inputs] == ["x"]
    assert len(region.op.body.constants) == 1


def chained(*ops, when=None, table=()):
    chain = Chain(ops, when)
    rows = tuple(Takes(op) for op in table)
    backend = BackEnd("toy", rows, chains=(chain,), host_cycles=lambda node: 1.0)
    return register_backend(backend)


def test_a_chain_is_taken_where_its_ops_alone_are_not():
    chained("relu", "neg", table=("exp",))
    result, events = split(chain("neg", "relu", "neg", "exp", "relu", "tanh"))
    assert bodies(result) == [["relu", "neg", "exp"]]
    refused = [str(e) for e in events if isinstance(e, Refusal)]
    assert refused == [f"partition at {op}: toy has no {op}" for op in ("neg", "relu", "tanh")]


def test_a_chain_with_another_reader_or_an_output_inside_is_none():
    chained("relu", "neg")
    a = apply("relu", X)
    for more in (a, apply("exp", a)):
        g = Graph.of("g", [X], [apply("neg", a), more])
        assert split(g)[0] is g


def test_a_chain_has_a_condition():
    chained("relu", "neg", when=lambda nodes: "never" if len(nodes) == 2 else None)
    g = chain("relu", "neg")
    assert split(g)[0] is g


def test_a_region_is_kept_only_if_it_pays():
    costs = {"cycles": lambda n: 1.0, "host_cycles": lambda n: 11.0, "launch_cycles": 5.0}
    costs["transfer_cycles"] = lambda nbytes: nbytes / 2  # 16 bytes in, 16 out: 16 cycles
    back_end("relu", "neg", **costs)
    g = chain("relu", "neg", "exp", "neg", "relu", "relu")
    result, events = split(g)
    assert bodies(result) == [["neg", "relu", "relu"]]
    assert "partition at neg: 2 nodes on toy would cost 1 cycles more" in map(str, events)


def test_limit_and_no_name():
    back_end("relu", "neg")
    g = chain("relu", "exp", "neg")
    result = parse_pipeline('partition{backend="toy", limit=1}').passes[-1](g)
    assert [n.op.name for n in result.nodes] == ["region", "exp", "neg"]
    assert Partition()(g) is g
    back_end("tanh")
    assert Partition(backend="toy")(g) is g


def test_an_unknown_back_end():
    back_end("relu")
    with pytest.raises(PassError, match="unknown back end 'tyo'") as caught:
        Partition(backend="tyo")(chain("relu"))
    assert caught.value.code == "MDLC0562"
    assert "did you mean 'toy'?" in str(caught.value)


def test_bodies_of_branches_are_split_too():
    back_end("relu", "neg")

    def branch(name, *ops):
        x = Input("x", f32[4])
        value = x
        for op in ops:
            value = apply(op, value)
        return Graph.of(name, [x], [value])

    p = Input("p", bool_[()])
    node = apply(
        "if_", p, X, then_branch=branch("a", "relu", "neg"), else_branch=branch("b", "exp")
    )
    g = Graph.of("g", [p, X], [node])
    result, _ = split(g)
    yes = result.nodes[0].op.attributes()["then_branch"]
    assert [n.op.name for n in yes.nodes] == ["region"]
    x = np.array([-1, 0, 2, 3], np.float32)
    for flag in (True, False):
        given = [np.array(flag), x]
        np.testing.assert_array_equal(interpret(result, given)[0], interpret(g, given)[0])


def test_a_region_prints_parses_exports_and_decomposes():
    back_end("relu", "neg", "matmul")
    x = Input("x", f32[2, 3])
    y = apply("relu", apply("matmul", x, np.eye(3, dtype=np.float32)))
    g = Graph.of("g", [x], [apply("exp", apply("neg", y)), y])
    result, _ = split(g)
    assert 'backend="toy"' in str(result)
    assert parse(str(result), weights_of(result)) == result
    assert Decompose()(result) == g
    assert load_onnx(to_onnx(result).SerializeToString()) == g


def test_a_region_takes_what_its_body_takes():
    body = chain("relu")
    with pytest.raises(Exception, match=r"region: g takes \(f32\[4\]\), got \(f32\[5\]\)"):
        apply("region", Input("y", f32[5]), body=body, backend="toy")


@pytest.mark.parametrize("block", range(10))
def test_two_hundred_random_graphs(block):
    """No circle (verify, and a run), no two regions that could be one, and the same meaning."""
    for seed in range(20 * block, 20 * block + 20):
        case = case_of(seed, max_ops=16)
        rng = random.Random(seed)
        names = [name for name in sorted(registered_ops()) if rng.random() < 0.6]
        backend = back_end(*names)
        result, _ = split(case.graph)
        found = find_regions(case.graph, backend)
        users = case.graph.users()
        for a in found:
            for b in found:
                near = any(r in b for n in a for r in users.get(n, ()))
                assert a is b or not near or joined_by_others(case.graph, found, a, b), seed
        # not to the bit: NumPy sums in another order where an array lies otherwise in memory
        case.check(interpret(result, case.arrays), interpret(case.graph, case.arrays))


def joined_by_others(graph, found, a, b):
    """True if the two cannot be one: a path leads around, where a region is one step."""
    region_of = {n: r for r in found for n in r}
    users, start, end = graph.users(), set(a), set(b)
    stack = [r for n in a for r in users.get(n, ()) if r not in start and r not in end]
    seen = set()
    while stack:
        node = stack.pop()
        group = region_of.get(node, (node,))
        seen.update(group)
        for reader in (r for n in group for r in users.get(n, ())):
            if reader in end:
                return True
            if reader not in seen:
                stack.append(reader)
    return False


def test_long_chains_are_quick():
    back_end("relu")
    result, _ = split(chain(*["relu"] * 700))
    assert bodies(result) == [["relu"] * 700]
    assert all(a.name != b.name for a, b in pairwise(result.nodes))
