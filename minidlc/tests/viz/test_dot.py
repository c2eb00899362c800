"""Which program lays graphs out, and that it is enough by itself."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import graphviz
import pytest

from minidlc.support.errors import OptionError
from minidlc.tests.viz.geometry import meet, read_svg
from minidlc.tests.viz.graphs import lenet, resnet
from minidlc.viz import dot, graph
from minidlc.viz.drawing import SLIDE


def test_a_system_dot_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dot.exe" if sys.platform == "win32" else "dot"
    program = tmp_path / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert dot.renderer() == program


def test_without_it_the_wheel_is_found_off_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    program = dot.use_renderer()
    assert program.stem == "graphviz-pure"
    assert "conv" in graph(lenet()).svg
    assert "polygon" in graphviz.Source("digraph { a -> b }").pipe(format="svg", encoding="utf-8")


def test_without_either_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setenv("PATH", "nowhere")  # not one on which it was found before
    with pytest.raises(OptionError, match="neither dot nor graphviz-pure") as error:
        graph(lenet())
    assert error.value.code == "MDLC1020"
    assert "pip install graphviz-pure" in str(error.value)


@pytest.mark.skipif(sys.platform == "win32", reason="the broken program is a shell script")
def test_a_broken_dot_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho 'Format: \"json0\" not recognized' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(OptionError) as error:
        graph(lenet())
    assert error.value.code == "MDLC1020"
    assert "json0" in str(error.value)


def test_every_program_that_is_installed_gives_a_legible_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wheel = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))
    assert wheel is not None
    for program in filter(None, (wheel, shutil.which("dot"))):
        monkeypatch.setattr(dot, "renderer", lambda program=program: Path(program))
        seen = read_svg(graph(resnet(3)).svg)
        assert seen.width <= SLIDE
        assert not any(meet(a, b) for a, b in itertools.combinations(seen.areas["box"], 2))


def test_sizes_are_kept_and_positions_are_read() -> None:
    nodes = [dot.Node("a", 90, 40), dot.Node("b", 120, 60)]
    clusters = [dot.Cluster("group", ("b",), (50, 20))]
    plan = dot.layout(nodes, [dot.Edge("a", "b", label=(80, 18))], clusters)
    (ax, _), (bx, by) = plan.nodes["a"], plan.nodes["b"]
    assert bx - ax >= (90 + 120) / 2 + 80
    left, top, right, bottom = plan.clusters["group"].box
    assert left <= bx - 60
    assert right >= bx + 60
    assert top <= by - 30 < by + 30 <= bottom
    (route,) = plan.edges
    assert route.points[0] == pytest.approx((ax + 45, plan.nodes["a"][1]), abs=1)
    assert route.points[-1] == pytest.approx((bx - 60, by), abs=1)
