"""Themes, files and notebook output of a picture."""

from __future__ import annotations

import itertools
import re
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from minidlc.graph.op import Pattern
from minidlc.support.errors import OptionError
from minidlc.viz.drawing import Drawing, Group, Label, Line, Rect, shift, shorten, text_width
from minidlc.viz.picture import Picture
from minidlc.viz.theme import DARK, LIGHT, SIGNS, contrast, cue

DRAWING = Drawing(
    400,
    100,
    "a & b",
    (
        Group((Rect(10, 10, 80, 40, "elementwise", "elementwise.edge", dash="4 2"),), "x < y"),
        Line(((90, 30), (120, 30)), arrow=True),
        Label("$5 & $6 <tag>", 130, 35, role="text", mono=True),
    ),
)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(colours: dict[str, str]) -> None:
    fills = ["value", "weight", "many", "serial", "parallel", "vectorized", "unrolled", *Pattern]
    for fill in fills:
        assert contrast(colours["ink"], colours[fill]) >= 4.5, fill
    for role, page in itertools.product(("text", "muted", "accent", *SIGNS), ("page", "frame")):
        assert contrast(colours[role], colours[page]) >= 4.5, (role, page)
    for edge in ("strip.edge", *(f"{p}.edge" for p in Pattern)):
        assert contrast(colours["strip"], colours[edge]) >= 4.5, edge
    for edge in (f"{p}.edge" for p in Pattern):  # borders: 3 is asked of what is no text
        assert contrast(colours[edge], colours[edge.removesuffix(".edge")]) >= 3, edge


def test_patterns_differ_in_more_than_colour() -> None:
    cues = [cue(p) for p in Pattern]
    assert len({c.letter for c in cues}) == len(cues)
    assert len({(c.dash, c.width, c.radius) for c in cues}) == len(cues)


def test_changes_differ_in_more_than_colour() -> None:
    assert len({sign.letter for sign in SIGNS.values()}) == len(SIGNS)
    assert len({(sign.dash, sign.rings) for sign in SIGNS.values()}) == len(SIGNS)
    for colours in (LIGHT, DARK):
        assert len({colours[kind] for kind in SIGNS}) == len(SIGNS)


def test_themes_have_the_same_roles() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert all(re.fullmatch("#[0-9a-f]{6}", c) for c in (*LIGHT.values(), *DARK.values()))


def test_svg_is_well_formed_and_keeps_text() -> None:
    root = ET.fromstring(Picture(DRAWING).svg)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert texts == ["$5 & $6 <tag>"]
    assert titles == ["a & b", "x < y"]


def test_files(tmp_path: Path) -> None:
    picture = Picture(DRAWING, "dark")
    svg = picture.save(tmp_path / "deep" / "p.svg")
    png = picture.save(str(tmp_path / "p.PNG"))
    pdf = picture.save(tmp_path / "p.pdf")
    assert svg.read_text(encoding="utf-8") == picture.svg
    data = png.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1920, 480)
    assert data == picture.png()
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pdf.read_bytes() == picture.pdf()


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot be saved as '\.gif'") as error:
        Picture(DRAWING).save(tmp_path / "p.gif")
    assert error.value.code == "MDLC1022"
    assert ".svg, .png, .pdf" in str(error.value)


def test_notebooks_get_html_that_follows_the_page() -> None:
    bundle = Picture(DRAWING)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/svg+xml", "text/plain"}
    assert '[data-jp-theme-light="false"]' in bundle["text/html"]
    assert "var(--minidlc-elementwise)" in bundle["text/html"]
    assert "var(" not in bundle["image/svg+xml"]
    used = set(re.findall(r"var\((--[\w-]+)\)", bundle["text/html"]))
    assert all(f"{name}:#" in bundle["text/html"] for name in used)


def test_a_chosen_theme_is_kept_in_notebooks() -> None:
    assert set(Picture(DRAWING, "dark")._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}


def test_the_style_of_the_notebook_does_not_matter() -> None:
    import matplotlib

    before = Picture(DRAWING).png(400)
    with matplotlib.rc_context({"font.size": 30, "text.color": "red", "savefig.bbox": "tight"}):
        assert Picture(DRAWING).png(400) == before


def test_text_is_measured() -> None:
    assert text_width("mm", 10) == pytest.approx(2 * text_width("m", 10), rel=0.05)
    assert text_width("abc", 20, mono=True) == pytest.approx(3 * 20 * 0.602, rel=0.02)
    assert text_width("abc", 20, bold=True) > text_width("abc", 20)
    assert shorten("a long sentence", 60, 15).endswith("…")
    assert text_width(shorten("a long sentence", 60, 15), 15) <= 60
    assert shorten("short", 60, 15) == "short"


def test_shifting_moves_everything() -> None:
    group = shift(DRAWING.items[0], 5, 7)
    assert isinstance(group, Group)
    assert group.items[0] == Rect(15, 17, 80, 40, "elementwise", "elementwise.edge", dash="4 2")
    line = shift(DRAWING.items[1], 5, 7)
    assert isinstance(line, Line)
    assert line.points == ((95, 37), (125, 37))
