"""What a pass changed: recognised, marked, and drawn so that what stays keeps its place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, Node, Value, apply, parse
from minidlc.graph.text import weights_of
from minidlc.support.errors import OptionError
from minidlc.tests.random_graphs import Case, cases
from minidlc.tests.viz.geometry import check_legible, read_svg
from minidlc.tests.viz.graphs import (
    branch,
    lenet,
    nested,
    recurrent,
    resnet,
    step,
    weight,
    wide,
    without_repeats,
)
from minidlc.transform import Cse, Dce, FoldConstants, Fuse, Pipeline, Record, Rule, rewrite
from minidlc.transform.layout.layout import Layout
from minidlc.viz import changes
from minidlc.viz.boxes import chart_of
from minidlc.viz.changes import Shown
from minidlc.viz.compare import Change, compare
from minidlc.viz.drawing import Group, Rect, flat

GRAPHS = {"lenet": lenet(), "resnet": resnet(3), "wide": wide(), "branch": branch()}
GRAPHS |= {"recurrent": recurrent(), "nested": nested(), "deep": resnet(20)}
GRAPHS |= {"long": without_repeats(100)}


def changed(g: Graph) -> list[Record]:
    return [r for r in Pipeline.default().run(g)[1] if r.changed]


RECORDS = {f"{name} {r.name}": r for name, g in GRAPHS.items() for r in changed(g)}


def of_kind(found: tuple[Change, ...], kind: str) -> list[Change]:
    return [c for c in found if c.kind == kind]


def named(value: Value, name: str) -> Value:
    assert isinstance(value, Node)
    return replace(value, name=name)


# what became what


def test_what_cse_merges_becomes_the_first() -> None:
    x = Input("x", f32[4])
    twice = [named(apply("exp", x), f"e{n}") for n in range(3)]
    g = Graph.of("g", [x], [twice[0] + twice[1] * twice[2]])
    found = compare(g, Cse()(g))
    (one,) = found.changes
    assert (one.kind, one.old, one.new) == ("merged", ("e0", "e1", "e2"), ("e0",))
    assert one.note == "e1 is the same as e0; e2 is the same as e0"
    assert found.counts() == {"merged": 3, "into": 1}


def test_dead_and_folded_ops_are_removed_with_a_reason() -> None:
    x = Input("x", f32[4])
    dead = named(apply("exp", named(apply("neg", x), "n")), "dead")
    g = Graph("g", (x,), (*Graph.of("d", [x], [dead]).nodes, y := apply("relu", x)), (y,))
    notes = {c.old[0]: c.note for c in compare(g, Dce()(g)).changes}
    assert notes == {"n": "only dead read it", "dead": "nothing reads it"}
    folded = named(apply("add", weight("a", 4), weight("b", 4)), "sum")
    g = Graph.of("g", [x], [x * folded])
    (gone,) = compare(g, FoldConstants()(g)).changes
    assert (gone.kind, gone.new, gone.note) == ("removed", (), "is the constant sum now")


def test_a_rule_that_makes_one_of_several_merges_them() -> None:
    x = Input("x", f32[4])
    g = Graph.of("g", [x], [apply("relu", named(apply("abs", named(apply("neg", x), "a")), "b"))])
    rule = Rule("abs-neg", lambda x: apply("abs", -x), lambda x: apply("exp", x))
    (one,) = compare(g, rewrite(g, (rule,))).changes
    assert (one.kind, one.old, one.new) == ("merged", ("a", "b"), ("b",))
    assert one.note == "neg a, abs b became exp"


def test_a_rule_that_makes_several_of_one_replaces_it() -> None:
    x = Input("x", f32[4])
    g = Graph.of("g", [x], [apply("relu", named(apply("abs", x), "a"))])
    rule = Rule("abs", lambda x: apply("abs", x), lambda x: apply("sqrt", x * x))
    found = compare(g, rewrite(g, (rule,)))
    (one,) = found.changes
    assert (one.kind, one.old) == ("removed", ("a",))
    assert len(one.new) == 2
    assert one.note == "abs a became 2 ops"
    assert found.counts() == {"removed": 1, "added": 2}


def test_what_is_dropped_says_what_is_read_instead() -> None:
    x = Input("x", f32[4])
    g = Graph.of("g", [x], [apply("relu", apply("neg", -x))])
    rule = Rule("double-neg", lambda x: apply("neg", -x), lambda x: x)
    found = compare(g, rewrite(g, (rule,)))
    assert [c.kind for c in found.changes] == ["removed", "removed"]
    assert found.changes[1].note == "its readers read x"
    assert found.kept == {"relu_1": "relu_1"}


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda x: apply("softmax", x, axis=0), "axis=1 → axis=0"),
        (lambda x: apply("softmax", -x, axis=1), ""),
    ],
    ids=["attribute", "operand put between"],
)
def test_other_attributes_are_a_change_of_the_op(make, note: str) -> None:
    x = Input("x", f32[4, 8])
    before, after = (
        Graph.of("g", [x], [replace(y, name="y", loc=None)])
        for y in (apply("softmax", x, axis=1), make(x))
    )
    found = compare(before, after).changes
    assert [c.note for c in of_kind(found, "changed")] == ([note] if note else [])
    assert len(of_kind(found, "added")) == (0 if note else 1)


def test_operands_that_change_places_are_a_change() -> None:
    x, y = Input("x", f32[4]), Input("y", f32[4])
    before, after = (
        Graph.of("g", [x, y], [named(apply("sub", *pair), "d")]) for pair in ((x, y), (y, x))
    )
    notes = {c.note for c in compare(before, after).changes}
    assert notes == {"reads y instead of x; reads x instead of y"}


def test_equal_names_and_lines_do_not_confuse() -> None:
    """Every relu of this graph is called relu, and comes from one of two lines."""
    g = resnet(3)
    after = Layout()(g)
    found = compare(g, after)
    pairs = [(c.old, c.new) for c in of_kind(found.changes, "changed")]
    assert [old for old, _ in pairs] == [new for _, new in pairs]  # nth relu with nth relu
    assert {old[0].rstrip("_1234567") for old, _ in pairs} == {"relu", "add"}
    convs = [c for c in of_kind(found.changes, "removed") if c.old[0].startswith("conv")]
    assert len(convs) == 7
    assert all(len(c.old) == 1 for c in convs)


def test_groups_are_merged_into_kernels() -> None:
    g = resnet(1)
    after = Fuse()(g)
    found = compare(g, after)
    kernels = [n for n in after.nodes if n.op.name == "fused"]
    assert len(found.changes) == len(kernels) > 0
    for change in found.changes:
        assert change.kind == "merged"
        assert change.frame
        assert change.note == f"{len(change.old)} ops run as one kernel"
    assert compare(after, after).changes == ()


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_text_have_no_difference(name: str) -> None:
    g = GRAPHS[name]
    back = parse(str(g), weights_of(g))
    assert compare(g, back).changes == ()


def accounted(before: Graph, after: Graph) -> None:
    """Every op of both sides stayed, or is in a change."""
    found = compare(before, after)
    gone = {key for c in found.changes if not c.frame for key in c.old}
    came = {key for c in found.changes if not c.frame for key in c.new}
    assert ops_of(before) == set(found.kept) | gone
    assert ops_of(after) == set(found.kept.values()) | came
    assert len(set(found.kept.values())) == len(found.kept)


def ops_of(g: Graph) -> set[str]:
    return {box.key for box in chart_of(g).boxes if box.node is not None}


@pytest.mark.parametrize("name", RECORDS)
def test_every_op_is_accounted_for(name: str) -> None:
    accounted(RECORDS[name].before, RECORDS[name].after)


@pytest.mark.long  # random graphs
@settings(max_examples=15, deadline=None)
@given(cases())
def test_random_graphs_are_accounted_for(case: Case) -> None:
    for record in changed(case.graph):
        accounted(record.before, record.after)
    assert compare(case.graph, case.graph).changes == ()


# the picture


QUICK = {"lenet canonicalize", "lenet layout", "resnet fuse", "wide cse", "branch fuse"}
QUICK |= {"nested fuse", "deep layout"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in RECORDS]
)
def test_the_picture_is_legible(name: str) -> None:
    record = RECORDS[name]
    check_legible(read_svg(changes(record.before, record.after).svg))


def boxes_of(items: tuple, found: dict[str, list[tuple[float, float]]]) -> None:
    """Key -> left ends and middles of its boxes, in the order in which they are painted."""
    for item in items:
        if isinstance(item, Group) and item.kind == "box":
            body = next(r for r in flat(item.items) if isinstance(r, Rect) and r.fill)
            found.setdefault(item.key, []).append((body.x, body.y + body.height / 2))
        elif isinstance(item, Group):
            boxes_of(item.items, found)


@pytest.mark.parametrize("name", ["lenet layout", "resnet layout", "resnet fuse", "nested fuse"])
def test_what_stays_keeps_its_place(name: str) -> None:
    record = RECORDS[name]
    shown = Shown.of(record.before, record.after)
    assert shown.both.whole is not None
    found: dict[str, list[tuple[float, float]]] = {}
    boxes_of(shown.drawing().items, found)
    pairs = [places for places in found.values() if len(places) == 2]
    assert len(pairs) >= len(shown.found.kept)
    assert all(abs(a[0] - b[0]) < 12 for a, b in pairs)  # badges hang below: no matter
    below = {round(b[1] - a[1], 0) for a, b in pairs}
    assert max(below) - min(below) <= 8


def test_an_order_that_turns_round_is_drawn_all_the_same() -> None:
    """a before b, then b before a: no layout in common."""
    x, a, b = Input("x", f32[4]), "a", "b"
    first = named(apply("exp", named(apply("tanh", x), a)), b)
    second = named(apply("tanh", named(apply("exp", x), b)), a)
    before, after = (Graph.of("g", [x], [named(apply("relu", y), "r")]) for y in (first, second))
    shown = Shown.of(before, after)
    assert shown.both.whole is None
    check_legible(read_svg(changes(before, after).svg))


def test_signs_say_the_kind_without_colour() -> None:
    x = Input("x", f32[4])
    twice = named(apply("exp", x), "e0") + named(apply("exp", x), "e1")
    g = Graph.of("g", [x], [twice])
    words = [w.text for w in read_svg(changes(g, Cse()(g)).svg).words["box"]]
    assert words.count("⇉1") == 3  # two before, one after
    record = RECORDS["lenet layout"]
    words = [w.text for w in read_svg(changes(record.before, record.after).svg).words["box"]]
    assert {"−1", "+1", "≠"} <= set(words)


def test_the_title_counts() -> None:
    x = Input("x", f32[4])
    g = Graph.of("g", [x], [apply("exp", x) + apply("exp", x)])
    assert changes(g, Cse()(g)).title == "g: 2 merged into 1, 3 ops → 2 ops"
    assert changes(g, g).title == "g: no op changed, 3 ops → 3 ops"
    assert changes(g, g, title="mine").title == "mine"


def test_large_graphs_are_summed_up_alike_and_their_blocks_open() -> None:
    record = RECORDS["deep fuse"]
    picture = changes(record.before, record.after)
    seen = read_svg(picture.svg)
    assert len(seen.areas["box"]) < 40
    assert any("×⇉" in w.text for w in seen.words["box"])  # marks are counted on blocks
    assert picture.parts
    for part in picture.parts:
        check_legible(read_svg(part.svg))
    full = read_svg(changes(record.before, record.after, expand=True).svg)
    assert len(full.areas["box"]) >= 2 * len(record.before.nodes)


def with_node(g: Graph, old: Node, new: Node) -> Graph:
    """The graph with another node in the place of one."""
    swap: dict[Value, Value] = {old: new}
    for node in g.nodes:
        if node is not old:
            inputs = tuple(None if v is None else swap.get(v, v) for v in node.inputs)
            swap[node] = replace(node, inputs=inputs)
    nodes = tuple(swap[node] for node in g.nodes)
    return Graph(g.name, g.inputs, nodes, tuple(swap[v] for v in g.outputs))  # pyright: ignore


def test_one_changed_op_of_many_stays_to_be_seen() -> None:
    g = without_repeats(150)
    at = next(n for n, node in enumerate(g.nodes) if node.op.name == "sigmoid" and n > 60)
    erf = replace(g.nodes[at], op=apply("erf", g.inputs[0]).op)
    seen = read_svg(changes(g, with_node(g, g.nodes[at], erf)).svg)
    assert [w.text for w in seen.words["box"]].count("erf") == 1
    assert len(seen.areas["box"]) < 80


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError, match=r"viz\.changes: after is a str, expected Graph") as error:
        changes(lenet(), "x")  # pyright: ignore[reportArgumentType]
    assert error.value.code == "MDLC1001"
    with pytest.raises(OptionError, match="unknown theme"):
        changes(lenet(), lenet(), theme="drak")  # pyright: ignore[reportArgumentType]


def test_bodies_are_compared_too() -> None:
    """A rule inside the body of a loop."""
    g = recurrent()
    inner = step()
    rule = Rule("tanh", lambda x: apply("tanh", x), lambda x: apply("erf", x))
    body = rewrite(inner, (rule,))
    (loop,) = (n for n in g.nodes if n.op.name == "loop")
    after = with_node(g, loop, replace(loop, op=replace(loop.op, body=body)))  # pyright: ignore
    (one,) = compare(g, after).changes
    assert (one.old, one.new) == (("loop_1.body.tanh_1",), ("loop_1.body.tanh",))
