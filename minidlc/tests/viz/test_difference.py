"""Two graphs side by side: what is said, what is marked, and that it is legible."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Constant, Graph, Input, Node, apply, parse
from minidlc.support.errors import OptionError
from minidlc.tests.viz.geometry import Seen, inside, meet, read_svg
from minidlc.tests.viz.graphs import lenet, nested, recurrent, resnet, weight
from minidlc.transform import Pipeline
from minidlc.viz import difference
from minidlc.viz.difference import first_difference
from minidlc.viz.drawing import SLIDE, SMALLEST


def graph(f: Callable[[Input, Input], Node], *, swap: bool = False) -> Graph:
    x, y = Input("x", mc.f32[4]), Input("y", mc.f32[4])
    return Graph.of("g", [y, x] if swap else [x, y], [f(x, y)])


def add_relu(x: Input, y: Input) -> Node:
    return apply("relu", x + y)


PAIRS = {
    "node 1: relu expected, yours is sigmoid": (
        graph(add_relu),
        graph(lambda x, y: apply("sigmoid", x + y)),
    ),
    "node 0: add: operand 1 is x (input 1), expected x (input 0)": (
        graph(add_relu),
        graph(add_relu, swap=True),
    ),
    "node 2: relu expected, yours has none": (
        graph(lambda x, y: apply("relu", apply("relu", x + y))),
        graph(add_relu),
    ),
    "node 2: yours has relu, nothing expected": (
        graph(add_relu),
        graph(lambda x, y: apply("relu", apply("relu", x + y))),
    ),
    "node 0: softmax(axis=0) expected, yours is softmax()": (
        graph(lambda x, y: apply("softmax", x, axis=0)),
        graph(lambda x, y: apply("softmax", x)),
    ),
    "node 0: mul: operand 2 is one of other elements, expected a constant f32[4]": (
        graph(lambda x, y: apply("mul", x, weight("a", 4))),
        graph(lambda x, y: apply("mul", x, Constant("a", np.zeros(4, np.float32)))),
    ),
    "node 0: mul: operand 2 is the constant 0.5, expected the constant 2": (
        graph(lambda x, y: x * 2.0),
        graph(lambda x, y: x * 0.5),
    ),
}


@pytest.mark.parametrize("sentence", PAIRS)
def test_title_says_where_they_part(sentence: str) -> None:
    expected, yours = PAIRS[sentence]
    assert difference(expected, yours).title == sentence


def test_inputs_and_outputs_are_compared() -> None:
    x, wide = Input("x", mc.f32[4]), Input("x", mc.f32[5])
    one, other = (Graph.of("g", [i], [apply("relu", i)]) for i in (x, wide))
    assert difference(one, other).title == "input 0: f32[4] expected, yours is f32[5]"
    a, b = apply("relu", x), apply("exp", x)
    both = Graph.of("g", [x], [apply("add", a, b), a])
    swapped = Graph.of("g", [x], [both.outputs[0], b])
    assert difference(both, swapped).title == "output 1 is exp_1, expected relu_1"
    fewer = Graph.of("g", [x], [both.outputs[0]])
    assert difference(both, fewer).title == "number of outputs: 2 expected, yours has 1"


def test_equal_graphs_have_no_difference() -> None:
    expected, yours = graph(add_relu), graph(add_relu)
    assert first_difference(expected, yours) is None
    assert "≠" not in difference(expected, yours).svg
    assert difference(expected, yours).title == "the two graphs are equal"


def marks(svg: str, sign: str) -> int:
    """Marks on boxes; one more stands in the legend."""
    return svg.count(f">{sign}</text>") - (sign == "≠")


def test_the_box_is_marked_on_both_sides_or_where_it_is() -> None:
    changed = difference(*PAIRS["node 1: relu expected, yours is sigmoid"]).svg
    assert marks(changed, "≠") == 2
    extra = difference(*PAIRS["node 2: yours has relu, nothing expected"]).svg
    assert (marks(extra, "≠"), marks(extra, "+")) == (0, 1)


def test_a_difference_inside_a_fused_group_is_found_there() -> None:
    groups = [Pipeline.default().run(g)[0] for g in (lenet(), lenet())]
    assert first_difference(*groups) is None
    fused = [Pipeline.default().run(pair)[0] for pair in PAIRS[next(iter(PAIRS))]]
    found = first_difference(*fused)
    assert found is not None
    assert "relu expected, yours is sigmoid" in found.sentence
    assert marks(difference(*fused).svg, "≠") == 2


def test_a_difference_inside_a_body_is_found_there() -> None:
    text = str(nested())
    other = parse(text.replace("exp(", "tanh("))
    found = first_difference(nested(), other)
    assert found is not None
    where = "in body of loop (loop_1), in else of if_ (if__1), node 0"
    assert found.sentence == f"{where}: exp expected, yours is tanh"
    assert found.expected == "loop_1.body.if__1.else.exp_1"
    assert marks(difference(nested(), other).svg, "≠") == 2


def test_near_a_difference_other_bodies_are_shut() -> None:
    x = Input("x", mc.f32[6, 1, 16])
    inner = recurrent(30)
    ends = [
        Graph.of("g", [x, *inner.inputs], [*inner.outputs, apply(op, x)]) for op in ("exp", "tanh")
    ]
    svg = difference(*ends).svg
    assert "frame" not in read_svg(svg).areas
    assert marks(svg, "≠") == 2


LARGE = (resnet(20), resnet(19))


@pytest.fixture(scope="module", params=["small", "large"])
def seen(request: pytest.FixtureRequest) -> Seen:
    pair = LARGE if request.param == "large" else PAIRS[next(iter(PAIRS))]
    return read_svg(difference(*pair).svg)


def test_large_graphs_are_drawn_near_the_difference() -> None:
    svg = difference(*LARGE).svg
    assert len(read_svg(svg).areas["box"]) < 40
    assert marks(svg, "≠") == 2
    assert " ops</text>" in svg


def test_it_is_legible(seen: Seen) -> None:
    assert seen.width <= SLIDE
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    for a, b in itertools.combinations(seen.areas["box"], 2):
        assert not meet(a, b)
    page = (0.0, 0.0, seen.width, seen.height)
    for word in seen.all_words:
        assert inside(word.area[:2], page)
        assert inside(word.area[2:], page)


@pytest.mark.long  # starts Python twice
def test_same_bytes_on_every_run() -> None:
    assert difference(*LARGE).svg == difference(*LARGE).svg


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(OptionError) as error:
        difference(graph(add_relu), "relu")  # pyright: ignore[reportArgumentType]
    assert error.value.code == "MDLC1001"
    assert "yours is a str, expected Graph" in str(error.value)
