"""The picture of a graph: legible, nothing overlaps, the same on every run."""

from __future__ import annotations

import pytest

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.autodiff import value_and_grad
from minidlc.expr.types import TensorType, bool_, dtype, f32
from minidlc.graph import Constant, Graph, Input, Value, apply, getitem
from minidlc.graph.graph import build
from minidlc.graph.op import op_class
from minidlc.graph.types import result_types
from minidlc.support.errors import OptionError
from minidlc.tests.viz.geometry import (
    Seen,
    check_boxes_do_not_overlap,
    check_everything_is_on_the_page,
    check_frames,
    check_free_labels,
    check_labels_are_large_enough,
    check_legible,
    check_lines_do_not_run_through_boxes,
    check_text_stays_in_its_box,
    read_svg,
)
from minidlc.tests.viz.graphs import (
    branch,
    gradient_of_a_layer,
    gradient_of_where,
    in_a_loop,
    lenet,
    many_kinds,
    nested,
    recurrent,
    resnet,
    weight,
    wide,
    without_repeats,
)
from minidlc.transform import Pipeline
from minidlc.viz import graph
from minidlc.viz.boxes import chart_of
from minidlc.viz.collapse import collapse
from minidlc.viz.drawing import SMALLEST

GRAPHS = {"lenet": lenet(), "resnet": resnet(3), "wide": wide(), "deep": resnet(20)}
GRAPHS |= {"branch": branch(), "recurrent": recurrent(), "nested": nested()}
GRAPHS |= {"branches of a gradient": gradient_of_where(), "gradient": gradient_of_a_layer()}
GRAPHS |= {"long body": recurrent(8), "huge body": recurrent(30)}
FUSED = {f"{name} fused": Pipeline.default().run(g)[0] for name, g in GRAPHS.items()}


@pytest.fixture(scope="module", params=[*GRAPHS, *FUSED])
def seen(request: pytest.FixtureRequest) -> Seen:
    return read_svg(graph((GRAPHS | FUSED)[request.param]).svg)


def test_labels_are_large_enough_on_a_slide(seen: Seen) -> None:
    check_labels_are_large_enough(seen)


def test_boxes_do_not_overlap(seen: Seen) -> None:
    assert len(seen.areas["box"]) > 3
    check_boxes_do_not_overlap(seen)


def test_frames_do_not_overlap_and_hold_their_boxes_whole(seen: Seen) -> None:
    check_frames(seen)


def test_labels_cross_neither_boxes_nor_each_other_nor_lines(seen: Seen) -> None:
    check_free_labels(seen)


def test_text_stays_in_its_box(seen: Seen) -> None:
    check_text_stays_in_its_box(seen)


def test_lines_do_not_run_through_boxes(seen: Seen) -> None:
    check_lines_do_not_run_through_boxes(seen)


def test_everything_is_on_the_page(seen: Seen) -> None:
    check_everything_is_on_the_page(seen)


def test_a_box_has_at_most_two_lines_and_its_badges() -> None:
    chart = chart_of(lenet())
    assert [b.badges for b in chart.boxes if b.title == "conv"] == [
        ("w: 6×1×5×5", "b: 6"),
        ("w_1: 16×6×5×5", "b_1: 16"),
    ]
    assert not any("\n" in text for b in chart.boxes for text in (b.title, b.detail, *b.badges))


def test_many_weights_are_counted_and_numbers_are_shown() -> None:
    x = Input("x", f32[4])
    h = apply("concat", x, weight("a", 4), weight("b", 4), weight("c", 4), axis=0)
    boxes = chart_of(Graph.of("g", [x], [h * 0.5])).boxes
    assert [b.badges for b in boxes if b.badges] == [("3 weights, 48 B",), ("c_1 = 0.5",)]


def test_types_stand_where_they_change() -> None:
    arrows = {(a.tail, a.head): a.label for a in chart_of(resnet(1)).arrows}
    assert arrows["conv_1", "relu_1"] == "f32[1, 8, 16, 16]"
    assert arrows["relu_1", "conv_2"] == ""
    assert arrows["flatten_1", "matmul_1"] == "f32[1, 512]"


def test_fused_groups_are_opened_and_linked_through() -> None:
    chart = chart_of(FUSED["resnet fused"])
    framed = [b for b in chart.boxes if b.frame]
    assert {"conv2d_nchwc", "relu"} <= {b.title for b in framed}
    assert not any(b.title == "fused" for b in chart.boxes)
    groups = [n for n in FUSED["resnet fused"].nodes if n.op.name == "fused"]
    assert len(chart.frames) == len(groups) > 1
    keys = {b.key for b in chart.boxes}
    assert all(a.tail in keys and a.head in keys for a in chart.arrows)
    reached = {a.head for a in chart.arrows}
    assert all(b.key in reached for b in chart.boxes if b.kind != "value" or b.extra == "output")


def test_names_are_those_of_the_text() -> None:
    g = resnet(2)
    text = str(g)
    for box in chart_of(g).boxes:
        if box.kind != "value":
            assert f"{box.detail or box.title}: " in text


def test_title_counts_ops_kernels_and_weights() -> None:
    assert graph(lenet()).title == "lenet: 15 ops, 247 kB of weights"
    fused = FUSED["lenet fused"]
    kernels = sum(not node.op.is_view for node in fused.nodes)
    assert f" ops in {kernels} kernels, " in graph(fused).title


@pytest.mark.long  # starts Python twice
def test_same_bytes_on_every_run() -> None:
    first, second = graph(lenet()), graph(lenet())
    assert first.svg == second.svg
    assert first.png(480) == second.png(480)


def test_both_themes_have_the_same_layout() -> None:
    light, dark = (read_svg(graph(lenet(), theme=t).svg) for t in ("light", "dark"))
    assert light == dark
    with pytest.raises(OptionError) as error:
        graph(lenet(), theme="drak")  # pyright: ignore[reportArgumentType]
    assert error.value.code == "MDLC1021"
    assert "did you mean 'dark'?" in str(error.value)


def test_odd_graphs_can_be_drawn() -> None:
    x = Input("x", f32[2])
    two = apply("add", x, x)
    twice = Constant("k", two.type.dtype.numpy.type(3).reshape(1))
    for g in (
        Graph.of("nothing", [], []),
        Graph.of("identity", [x], [x]),
        Graph.of("unused", [x], []),
        Graph.of("constant", [x], [twice]),
        Graph.of("same twice", [x], [two, two]),
    ):
        assert read_svg(graph(g).svg).width >= 960


def test_large_graphs_are_summed_up_unless_expanded() -> None:
    g = resnet(20)
    assert len(g.nodes) > 100
    short, full = read_svg(graph(g).svg), read_svg(graph(g, expand=True).svg)
    assert any(w.text.startswith("×20") for w in short.words["box"])
    assert len(short.areas["box"]) < 12
    assert len(full.areas["box"]) == len(g.nodes) + 2
    assert min(full.pixels(w) for w in full.all_words) >= SMALLEST


def test_a_long_chain_without_repeats_is_summed_up_as_well() -> None:
    seen = read_svg(graph(many_kinds(200)).svg)
    assert len(seen.areas["box"]) <= 62
    assert any(w.text.endswith(" ops") for w in seen.words["box"])


def frames_of(g: Graph) -> dict[str, list[str]]:
    """Frame -> the boxes that lie in it directly, in order."""
    chart = chart_of(g)
    return {f: [b.title for b in chart.boxes if b.frame == f] for f in chart.frames}


def arrows_of(g: Graph) -> set[tuple[str, str]]:
    return {(a.tail, a.head) for a in chart_of(g).arrows}


def test_branches_are_frames_with_captures_going_in_and_results_to_the_op() -> None:
    g = branch()
    headlines = [f.headline for f in chart_of(g).frames.values()]
    assert headlines == ["then of if_ (if__1)", "else of if_ (if__1)"]
    then, other = "if__1.then", "if__1.else"
    assert frames_of(g) == {then: ["matmul", "relu", "y"], other: ["tanh", "mul"]}
    assert arrows_of(g) == {
        ("in x", "exp_1"),
        ("exp_1", f"{then}.matmul_1"),
        (f"{then}.matmul_1", f"{then}.relu_1"),
        (f"{then}.relu_1", "if__1"),
        ("exp_1", f"{then}.returned as it is y"),
        (f"{then}.returned as it is y", "if__1"),
        ("exp_1", f"{other}.tanh_1"),
        (f"{other}.tanh_1", "if__1"),
        ("exp_1", f"{other}.mul_1"),
        (f"{other}.mul_1", "if__1"),
        ("in c", "if__1"),
        ("if__1", "add_1"),
        ("add_1", "out 0"),
    }
    badges = {b.title: b.badges for b in chart_of(g).boxes if b.badges}
    assert badges == {"matmul": ("w: 8×8",), "mul": ("c = 2",)}  # none at the if_ itself


def test_a_loop_shows_what_goes_from_run_to_run_and_how_many_there_are() -> None:
    chart = chart_of(recurrent())
    (frame,) = chart.frames.values()
    assert frame.headline == "body of loop (loop_1), 6 runs"
    values = [(b.title, b.extra) for b in chart.boxes if b.frame and b.kind == "value"]
    assert values == [("h", "carried"), ("row", "one row a run")]  # no i, no condition: unused
    arrows = {(a.tail, a.head) for a in chart.arrows}
    assert ("in h0", "loop_1.body.carried h") in arrows
    assert ("in x", "loop_1.body.one row a run row") in arrows
    assert ("loop_1.body.tanh_1", "loop_1") in arrows


def test_frames_nest_and_what_decides_goes_to_the_op_that_it_decides() -> None:
    g = nested()
    chart = chart_of(g)
    outer = "loop_1.body"
    inner = f"{outer}.if__1"
    assert {key: f.outer for key, f in chart.frames.items()} == {
        outer: "",
        f"{inner}.then": outer,
        f"{inner}.else": outer,
    }
    arrows = arrows_of(g)
    assert ("in top", f"{inner}.else.add_1") in arrows  # captured twice, through both frames
    assert (f"{outer}.less_1", inner) in arrows
    assert (f"{outer}.less_1", "loop_1") in arrows
    assert (inner, "loop_1") in arrows


def test_kernels_within_a_body_are_frames_within_it() -> None:
    g = Pipeline.default().run(recurrent())[0]
    assert {f.headline: f.outer for f in chart_of(g).frames.values()} == {
        "body of loop (loop_1), 6 runs": "",
        "kernel tanh": "loop_1.body",
    }
    assert graph(g).title == "recurrent: 5 ops in 2 kernels, 1.0 kB of weights"


def test_a_region_of_another_back_end_is_a_frame_that_names_it() -> None:
    x, y = Input("x", f32[4, 8]), Input("y", f32[4, 8])
    body = Graph.of("npu_0", [y], [apply("relu", apply("matmul", y, weight("w", 8, 8)))])
    part = apply("region", apply("exp", x), body=body, backend="npu")
    g = Graph.of("g", [x], [apply("tanh", part)])
    (name,) = chart_of(g).frames
    assert frames_of(g) == {name: ["matmul", "relu"]}
    picture = graph(g)
    assert picture.title == "g: 4 ops in 1 region, 256 B of weights"
    seen = read_svg(picture.svg)
    assert [w.text for w in seen.words["headline"]] == ["region npu_0"]
    check_legible(seen)


@pytest.mark.parametrize("op", ["if_", "loop", "scan"])
def test_every_example_of_an_op_with_bodies_can_be_drawn(op: str) -> None:
    for example in op_class(op).examples():
        inputs = [
            None if a is None else Input(f"x{n}", TensorType(dtype(a.dtype), a.shape))
            for n, a in enumerate(example.inputs)
        ]
        node = build(example.op, inputs)
        count = len(result_types(node.type))
        results = [getitem(node, n) for n in range(count)] if count > 1 else [node]
        g = Graph.of("g", [x for x in inputs if x is not None], results)
        chart = chart_of(g)
        keys = [b.key for b in chart.boxes]
        assert len(keys) == len(set(keys))
        assert all(a.tail in keys and a.head in keys for a in chart.arrows)
        assert len(chart.frames) == (2 if op == "if_" else 1)
        assert len(read_svg(graph(g).svg).areas["frame"]) >= len(chart.frames)


def test_one_graph_can_be_both_branches() -> None:
    c, x, y = Input("c", bool_[()]), Input("x", f32[4]), Input("y", f32[4])
    same = Graph.of("same", [y], [apply("relu", y)])
    g = Graph.of("g", [c, x], [apply("if_", c, x, then_branch=same, else_branch=same)])
    assert frames_of(g) == {"if__1.then": ["relu"], "if__1.else": ["relu"]}


def test_a_large_body_is_summed_up_within_its_frame() -> None:
    chart = collapse(chart_of(recurrent(30)))
    inside_it = [b for b in chart.boxes if b.frame == "loop_1.body"]
    assert [(b.title, b.times) for b in inside_it] == [("h", 1), ("row", 1), ("3 ops", 30)]
    kinds = collapse(chart_of(in_a_loop(without_repeats(200))))
    assert len(kinds.boxes) <= 60
    assert sum(b.title.endswith(" ops") for b in kinds.boxes if b.frame == "loop_1.body") > 10


def test_of_very_many_bodies_only_the_ops_are_drawn() -> None:
    x, c = Input("x", f32[4]), Input("c", bool_[()])
    h: Value = x
    for _ in range(40):
        a, b = Input("a", f32[4]), Input("a", f32[4])
        yes, no = Graph.of("yes", [a], [apply("relu", a)]), Graph.of("no", [b], [apply("exp", b)])
        h = apply("tanh", apply("if_", c, h, then_branch=yes, else_branch=no))
    chart = collapse(chart_of(Graph.of("g", [x, c], [h])))
    assert not chart.frames
    assert [(b.title, b.detail, b.times) for b in chart.boxes if b.kind == "many"] == [
        ("2 ops", "if_, tanh", 40)
    ]


def test_what_autodiff_made_is_marked_and_what_it_was_made_from_is_not() -> None:
    g = gradient_of_a_layer()
    boxes = [b for b in chart_of(g).boxes if b.kind != "value"]
    assert [b.title for b in boxes if not b.derivative] == ["matmul", "relu", "sum"]
    assert len(boxes) - 3 == sum(b.derivative for b in boxes) == 7
    assert graph(g).title == "layer_grad: 10 ops (7 for derivatives), 12 B of weights"
    words = [w.text for w in read_svg(graph(g).svg).all_words]
    assert sum(w.startswith("∂") for w in words) == 7 + 1  # and one in the legend
    assert "for derivatives: made by autodiff" in words
    assert not any("∂" in w.text for w in read_svg(graph(lenet()).svg).all_words)


def test_gradients_are_legible_also_after_fusion() -> None:
    g = gradient_of_a_layer()
    for shown in (g, Pipeline.default().run(g)[0]):
        seen = read_svg(graph(shown).svg)
        check_legible(seen)
        check_everything_is_on_the_page(seen)
        assert any(w.text.startswith("∂") for w in seen.words["box"])


def test_a_block_of_derivatives_is_not_summed_up_with_others() -> None:
    x = Input("x", f32[4])
    h: Value = x
    for _ in range(40):
        h = apply("relu", apply("exp", h))
    loss = Graph.of("deep", [x], [apply("sum", h, axes=(0,), keepdims=False)])
    chart = collapse(chart_of(value_and_grad(loss)))
    blocks = [(b.title, b.times, b.extra) for b in chart.boxes if b.kind == "many"]
    assert ("2 ops", 40, "") in blocks
    assert any(extra == "∂" for _, _, extra in blocks)
    assert sum(b.times * 2 for b in chart.boxes if b.kind == "many" and not b.extra) == 80


def test_the_page_is_as_wide_as_its_legend() -> None:
    x = Input("x", f32[2, 3])
    side_by_side = [
        apply("exp", x),
        x * 2.0,
        apply("transpose", x, perm=(1, 0)),
        apply("sum", x, axes=(0, 1), keepdims=False),
        apply("matmul", x, weight("w", 3, 2)),
        apply("hardmax", x, axis=1),
    ]
    seen = read_svg(graph(Graph.of("g", [x], side_by_side)).svg)
    check_everything_is_on_the_page(seen)
    assert seen.width > 960
