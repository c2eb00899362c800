"""A model in several layouts, and in one that is put together from their times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import minidlc as mc
from minidlc import tuned_layouts
from minidlc.target import host
from minidlc.tests.transform.test_layout import conv
from minidlc.transform import Pipeline
from minidlc.tuned_layouts import Compiling, Layout, layouts_of
from minidlc.tuning.layouts import PLAIN, point_of, with_layout
from minidlc.tuning.neighbours import Timed
from minidlc.tuning.space import Config

pytestmark = [pytest.mark.ch06, pytest.mark.llvm]
G = mc.trace(lambda x: mc.relu(conv(mc.relu(conv(x, 32, 1)), 32, 1)), mc.f32[1, 32, 8, 8])


def measured(points: list[Config]) -> dict[Config, Layout]:
    compiling = Compiling(G, None, 1, "default", host(vector_width=4))
    passes = Pipeline.default(3, host(vector_width=4))
    x = np.zeros((1, 32, 8, 8), np.float32)
    pipelines = {point: with_layout(passes, point) for point in points}
    first = compiling(pipelines[points[0]])
    return layouts_of(compiling, first, pipelines, [x], host(vector_width=4), rest=0.0)


def test_a_mixed_layout_is_one_more_if_it_is_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are tasks like all others; those it shares with a layout are not two."""
    blocked, mix = point_of(4, ()), point_of(4, ("conv_1",))
    for answer, points in (
        (mix, [blocked, PLAIN, mix]),
        (point_of(4, ("conv_1", "conv_2")), [blocked, PLAIN]),  # all are plain: as the second
        (point_of(4, ("none",)), [blocked, PLAIN]),  # nothing is plain: as the first
        (None, [blocked, PLAIN]),
    ):
        monkeypatch.setattr(tuned_layouts, "mixed", lambda *_, found=answer: found)
        layouts = measured([blocked, PLAIN])
        assert [*layouts] == points
    monkeypatch.setattr(tuned_layouts, "mixed", lambda *_: mix)
    assert [*measured([blocked])] == [blocked]  # one layout says nothing of another


def test_the_times_of_kernels_are_what_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[Mapping[Config, Timed]]()
    monkeypatch.setattr(tuned_layouts, "mixed", lambda *args: given.append(args[3]))
    layouts = measured([point_of(4, ()), PLAIN])
    (timed,) = given
    assert [*timed] == [*layouts]
    for point, layout in layouts.items():
        assert [kernel for kernel, _ in timed[point]] == [*layout.exe.program.kernels]
        assert all(seconds > 0 for _, seconds in timed[point])
