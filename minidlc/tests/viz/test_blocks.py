"""Models of 700 ops stay legible: summed up to blocks, and each block opens."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.frontend.onnx import load_onnx
from minidlc.tests.viz.geometry import check_legible, read_svg
from minidlc.tests.viz.graphs import bert, irregular, lenet, recurrent, without_repeats
from minidlc.transform import Pipeline
from minidlc.viz import Picture, changes, graph
from minidlc.viz.blocks import block, blocks_of, inside
from minidlc.viz.boxes import chart_of
from minidlc.viz.collapse import LIMIT, collapse

LARGE = {"bert": bert(18), "irregular": irregular(700)}
SHAPES: dict[str, dict[str, object]] = {
    "ppocr_v4_det": {"x": (1, 3, 320, 320)},
    "ppocr_v4_rec": {"x": (1, 3, 48, 320)},
    "minilm_int8w": {"batch": 1, "sequence": 16},
}


def check_all(picture: Picture, every: int = 1) -> None:
    """The picture and what opens in it: all, or each third …"""
    seen = read_svg(picture.svg)
    check_legible(seen)
    numbers = (re.search(r"block [\d.]+$", w.text) for w in seen.words["box"])
    blocks = {found[0] for found in numbers if found}  # one picture may show both sides
    assert len(picture.parts) == len(blocks)
    for part in picture.parts[::every]:
        check_all(part)


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_a_model_of_700_ops_is_legible_and_its_blocks_open(name: str) -> None:
    g = LARGE[name]
    assert len(g.nodes) >= 690
    picture = graph(g)
    assert len(read_svg(picture.svg).areas["box"]) <= LIMIT
    assert picture.parts
    check_all(picture, every=3)  # the others look no different; `slow` tests see all


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_fused_model_of_700_ops_is_legible_and_its_blocks_open(name: str) -> None:
    fused, _ = Pipeline.default().run(LARGE[name])
    check_all(graph(fused))


@pytest.mark.parametrize("name", LARGE)
def test_every_op_is_in_the_picture_or_in_one_block(name: str) -> None:
    full = chart_of(LARGE[name])
    short = collapse(full)
    shown = [b.key for b in short.boxes if not b.members]
    shown += [key for b in short.boxes for key in b.members]
    assert sorted(shown) == sorted(b.key for b in full.boxes)
    for box in blocks_of(short):
        assert len(box.members) == box.first * box.times
        opened = block(full, inside(box))
        assert {b.key for b in opened.boxes if b.node is not None} == set(inside(box))


def test_repeated_layers_are_one_block() -> None:
    (layers,) = blocks_of(collapse(chart_of(bert(18))))
    assert layers.times >= 17
    assert len(inside(layers)) == len(bert(2).nodes) - len(bert(1).nodes)


def test_what_comes_from_outside_and_goes_there_is_named() -> None:
    full = chart_of(lenet())
    some = [b.key for b in full.boxes if b.kind != "value"][2:5]
    chart = block(full, some)
    ends = [(b.title, b.detail) for b in chart.boxes if b.kind == "value"]
    assert ends == [("relu_1", "from outside"), ("relu_2", "is read outside")]
    keys = [b.key for b in chart.boxes]
    assert all(keys.index(a.tail) < keys.index(a.head) for a in chart.arrows)
    check_legible(read_svg(graph(lenet()).svg))


def test_blocks_are_cut_where_few_values_cross() -> None:
    chart = collapse(chart_of(irregular(700)))
    assert len(chart.arrows) <= 2 * len(chart.boxes)


def test_the_body_of_a_loop_that_is_too_large_opens_and_comes_to_an_end() -> None:
    picture = graph(recurrent(60))
    check_all(picture)
    depth, parts = 0, picture.parts
    while parts:
        depth, parts = depth + 1, tuple(q for p in parts for q in p.parts)
        assert depth < 5


def test_a_slide_is_1920_pixels_wide() -> None:
    data = graph(LARGE["bert"]).png()
    assert struct.unpack(">I", data[16:20]) == (1920,)


def test_html_holds_every_block_and_asks_nobody(tmp_path: Path) -> None:
    picture = graph(without_repeats(200))
    text = picture.save(tmp_path / "g.html").read_text(encoding="utf-8")
    assert text.count("<details") == len(picture.parts) > 3
    for part in picture.parts:
        assert f"<summary>{part.title}</summary>" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.startswith("<!DOCTYPE html>")
    shown = picture._repr_mimebundle_()["text/html"]
    assert shown.count("<details") == len(picture.parts)
    assert "onclick" not in graph(lenet())._repr_mimebundle_()["text/html"]
    dark = graph(lenet(), theme="dark").html()
    assert '<html lang="en" data-jp-theme-light="false">' in dark


@pytest.mark.slow
@pytest.mark.skipif("MINIDLC_MODELS" not in os.environ, reason="MINIDLC_MODELS is not set")
@pytest.mark.parametrize("name", SHAPES)
def test_real_models_are_legible(name: str) -> None:
    path = Path(os.environ["MINIDLC_MODELS"]) / f"{name}.onnx"
    g = load_onnx(path, shapes=SHAPES[name])
    check_all(graph(g))
    after, records = Pipeline.default().run(g)
    check_all(graph(after))
    for record in records:
        if record.changed:
            check_all(changes(record.before, record.after))
