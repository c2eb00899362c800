"""Which values share bytes in a lowered program: views, parts of a concat, results in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, apply
from minidlc.lower import Program, lower_graph
from minidlc.lower.sharing import Sharing
from minidlc.ops.aliases import parts_at, starts_at
from minidlc.support.errors import VerifyError
from minidlc.target import Target
from minidlc.transform import Fuse

pytestmark = pytest.mark.ch05


def lowered(graph: Graph, fast: bool = True) -> Program:
    program = lower_graph(
        graph, Target("x86_64", "generic", ""), fast=fast, max_bytes=1 << 30,
        workspace_bytes=lambda kernel: 0,
    )  # fmt: skip
    program.plan.check()
    return program


def shared(function: Callable[..., object], *types: mc.TensorType, fuse: bool = False) -> list[str]:
    """What shares bytes, as the plan says it: 'y in place', 'a part', …; views first."""
    graph = mc.trace(function, *types)
    plan = lowered(Fuse()(graph) if fuse else graph).plan
    return sorted(f"{v.name} {v.how}" for v in plan.values if v.how and v.how != "whole")


def cut(x: mc.Value, *ranges: tuple[int, int, int]) -> mc.Value:
    """x[start:end] along some axes."""
    axes, starts, ends = zip(*ranges, strict=True)
    return apply("slice", x, starts=starts, ends=ends, axes=axes)


CUTS = {
    "rows": (((0, 1, 3),), 96),
    "one row of each": (((0, 1, 2), (1, 1, 3)), 128),
    "down to one": (((0, 3, 4), (1, 2, 3), (2, 3, 7)), 4 * (72 + 16 + 3)),
    "columns": (((2, 1, 5),), None),
    "parts of rows": (((0, 0, 3), (1, 1, 2)), None),
    "all": (((1, 0, 3),), 0),
    "nothing": (((0, 2, 2),), None),
}


@pytest.mark.parametrize("name", CUTS)
def test_where_a_cut_lies_in_its_input(name: str) -> None:
    ranges, start = CUTS[name]
    x = mc.Input("x", mc.f32[4, 3, 8])
    y = cut(x, *ranges)
    assert starts_at(y) == start
    if start is not None:
        array = np.arange(96, dtype=np.float32).reshape(4, 3, 8)
        (found,) = mc.interpret(Graph.of("g", [x], [y]), [array])
        flat = array.ravel()[start // 4 :][: found.size]
        np.testing.assert_array_equal(found.ravel(), flat)


def test_steps_and_flips_are_no_views() -> None:
    """FAULTS row 126."""
    x = mc.Input("x", mc.f32[7])
    assert starts_at(apply("slice", x, starts=(0,), ends=(7,), steps=(2,))) is None
    assert starts_at(apply("slice", x, starts=(-1,), ends=(-100,), steps=(-1,))) is None
    assert starts_at(apply("slice", x, starts=(5,), ends=(4,), steps=(-1,))) == 20  # one element
    assert starts_at(mc.transpose(x)) is None


def test_where_inputs_lie_in_a_concat() -> None:
    a, b = mc.Input("a", mc.f32[1, 3, 5]), mc.Input("b", mc.f32[1, 4, 5])
    assert parts_at(mc.concat(a, b, a, axis=1)) == (0, 60, 140)
    assert parts_at(mc.concat(a, a, axis=0)) == (0, 60)
    assert parts_at(mc.concat(a, a, axis=-1)) is None  # three rows of each, in turns
    assert parts_at(mc.relu(a)) is None


def test_a_readers_own_slice_runs() -> None:
    x = mc.Input("x", mc.f32[8])
    with mc.use(**{"compute.slice": lambda op, x: x}):
        assert starts_at(cut(x, (0, 2, 4))) is None


F = mc.f32[4, 8]


def test_in_place_of_what_nobody_reads_again() -> None:
    assert shared(lambda x: mc.exp(mc.exp(mc.exp(x))), F) == ["exp_1 in place"]  # then the output
    softmax = shared(lambda x: mc.softmax(mc.softmax(mc.softmax(x))), F)
    assert softmax == ["softmax_1 in place"]  # a row is read thrice, each time ahead of its store
    # y is read later; z takes its own bytes, then the sum may take either
    assert shared(lambda x: mc.exp((y := mc.exp(x)) + mc.exp(y)), F) == ["add in place"]


def test_inputs_constants_and_outputs_are_never_overwritten() -> None:
    assert shared(lambda x: mc.exp(mc.transpose(x)), F) == []  # the result is an output
    assert shared(lambda x: mc.softmax(mc.exp(x)), F) == []  # x belongs to the caller
    assert shared(lambda x: (y := mc.exp(x), mc.softmax(mc.exp(y))), F) == []  # y is an output


def test_other_shapes_and_widths() -> None:
    assert shared(lambda x: mc.softmax(mc.transpose(mc.exp(x)) + 1.0), F) == ["add in place"]
    assert shared(lambda x: mc.softmax(mc.mean(x, axes=(0,)) + mc.tanh(x)), F) == ["add in place"]
    assert shared(lambda x: mc.softmax(mc.cast(mc.exp(x), to="f16")), F) == []
    assert shared(lambda x: mc.softmax(mc.cast(mc.cast(mc.exp(x), to="i32"), to="f32")), F) == [
        "cast in place",
        "cast_1 in place",
    ]


def test_the_residual_of_a_convolution_is_overwritten_and_its_image_is_not() -> None:
    w = np.ones((4, 4, 3, 3), np.float32)

    def net(x):
        r = mc.max_pool(x, kernel_shape=(1, 1))
        image = mc.max_pool(x, kernel_shape=(3, 3), pads=(1,) * 4)
        return mc.softmax(mc.conv(image, w, pads=(1,) * 4) + r)

    def own(x):
        r = mc.max_pool(x, kernel_shape=(1, 1))
        return mc.softmax(mc.conv(r, w, pads=(1,) * 4) + r)

    image = mc.f32[1, 4, 6, 6]
    assert shared(net, image, fuse=True) == ["add in place"]
    assert shared(own, image, fuse=True) == []


def test_producers_write_into_the_concat() -> None:
    def net(x):
        return mc.softmax(mc.concat(mc.softmax(x), mc.exp(x), axis=0))

    assert shared(net, F) == ["exp part", "softmax part"]
    program = lowered(mc.trace(net, F))
    assert [k.name for k in program.kernels] == ["softmax", "exp", "out"]
    (buffer,) = program.plan.buffers
    assert (buffer.name, buffer.nbytes) == ("concat", 256)
    assert program.plan.naive_bytes == 512


def test_a_concat_that_is_an_output_is_written_where_it_goes() -> None:
    program = lowered(mc.trace(lambda x: mc.concat(mc.softmax(x), mc.exp(x), axis=0), F))
    assert [str(step) for step in program.steps] == [
        "softmax(input 0, output 0)",
        "exp(input 0, output 0 + 128)",
    ]
    assert program.plan.buffers == ()


def test_concats_of_concats_and_of_empty_parts() -> None:
    def net(x):
        inner = mc.concat(mc.softmax(x), cut(mc.exp(x), (0, 1, 1)), mc.tanh(x), axis=0)
        return mc.softmax(mc.concat(mc.cos(x), mc.reshape(inner, shape=(8, 8)), axis=0))

    found = shared(net, F)
    assert [s for s in found if "part" in s] == ["cos part", "softmax part", "tanh part"]


REASONS = {
    "an input of the graph": lambda x: mc.concat(x, mc.exp(x), axis=0),
    "twice the same": lambda x: mc.concat(y := mc.exp(x), y, axis=0),
    "rows in turns": lambda x: mc.concat(mc.exp(x), mc.softmax(x), axis=1),
    "a part of a value": lambda x: mc.concat(cut(mc.exp(x), (0, 1, 3)), mc.softmax(x), axis=0),
}


@pytest.mark.parametrize("why", REASONS)
def test_concats_that_are_copied(why: str) -> None:
    g = mc.trace(lambda x: mc.softmax(REASONS[why](x)), F)
    assert "concat" in [k.name for k in lowered(g).kernels]


def test_a_value_lies_in_one_concat_at_most() -> None:
    def net(x):
        a, b = mc.exp(x), mc.cos(x)
        return mc.softmax(mc.concat(a, b, axis=0)), mc.softmax(mc.concat(b, a, axis=0))

    names = [k.name for k in lowered(mc.trace(net, F)).kernels]
    assert len([n for n in names if n.startswith("concat")]) == 1


def test_a_part_is_not_overwritten_by_who_reads_it_last() -> None:
    def net(x):
        a = mc.exp(x)
        y = mc.concat(a, mc.cos(x), axis=0)
        return mc.softmax(y), mc.softmax(mc.tanh(a))

    assert shared(net, F) == ["cos part", "exp part"]


def test_views_of_views_keep_their_bytes_alive() -> None:
    """FAULTS row 128: the buffer lives until the last alias is read."""

    def net(x):
        h = mc.exp(x)
        part = mc.reshape(cut(h, (0, 1, 3)), shape=(8, 2))
        other = mc.softmax(mc.exp(mc.tanh(x)))
        return mc.softmax(cut(part, (0, 4, 8))), other

    program = lowered(mc.trace(net, F))
    (h, *_) = program.plan.buffers
    last = next(t for t, name in enumerate(program.plan.steps) if name == "out_0")
    assert (h.name, h.last) == ("exp", last)
    (view,) = (v for v in program.plan.values if v.how == "view")
    assert (view.offset, view.nbytes) == (32 + 32, 32)


def test_a_lie_about_the_last_use_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at each read does not rest on how places were chosen."""
    g = mc.trace(lambda x: mc.exp((y := mc.exp(x)) + mc.exp(y)), F)
    lowered(g)
    honest = Sharing._last_uses

    def too_early(self: Sharing, graph: Graph) -> dict[object, int]:
        last = honest(self, graph)
        return last | {(graph.nodes[0], 0): 1}

    monkeypatch.setattr(Sharing, "_last_uses", too_early)
    with pytest.raises(VerifyError, match="'exp' is read where 'exp' lies") as e:
        lowered(g)
    assert e.value.code == "MDLC0482"
    assert e.value.notes == ("bytes 0..128 of arena 0",)


def test_two_values_on_one_byte_are_refused() -> None:
    plan = lowered(mc.trace(lambda x: mc.softmax(mc.exp(mc.exp(x))), F)).plan
    first, second = plan.values
    assert second.how == "in place"
    with pytest.raises(VerifyError, match="'exp' and 'exp_1' lie on the same bytes") as e:
        replace(plan, values=(replace(first, last=first.last + 1), second)).check()
    assert e.value.code == "MDLC0483"
    with pytest.raises(VerifyError, match="'exp' does not lie in buffer 'exp'"):
        replace(plan, values=(replace(first, offset=64),)).check()


def test_the_proof_names_what_shares_bytes() -> None:
    def net(x):
        y = mc.exp(mc.exp(x))
        return mc.softmax(mc.concat(mc.softmax(cut(y, (0, 1, 3))), mc.tanh(x), axis=0))

    text = lowered(mc.trace(net, F)).plan.proof()
    assert "step 0 exp: 1 alive, 128 bytes, no two overlap" in text
    assert "exp_1, in place of exp" in text
    assert "slice, view" in text
    assert "tanh, part of concat" in text
    assert "concat, whole" in text
    assert text.splitlines()[-1] == "peak 320 bytes at step 2; arena 320, 0.0 % over it"
