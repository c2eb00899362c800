"""Colours of every picture, by what a thing is: one table for light pages, one for dark ones.

Reads nothing; drawings name a role such as "elementwise" or "page", and are coloured last.

    LIGHT["elementwise"]                            # '#d4ebf9', a light tint of Okabe-Ito blue
    cue(Pattern.REDUCTION).letter                   # 'R': never by colour alone
    contrast("#d4ebf9", LIGHT["ink"])               # >= 4.5 for every text on every fill

The hues are those of Okabe and Ito, which colour-blind readers can tell apart. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from minidlc.graph.op import Pattern
from minidlc.support.errors import OptionError, nearest

ThemeName: TypeAlias = Literal["light", "dark"]

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "text": "#1a1a1a",  # on the page
    "muted": "#595959",  # on the page, of less weight
    "line": "#5c5c5c",  # edges
    "frame": "#f3f3f3",  # background of a fused group
    "frame.edge": "#8c8c8c",
    "ink": "#111111",  # on fills
    "strip": "#ffffff",  # letters on an edge's colour: what autodiff made
    "strip.edge": "#555555",
    "grid": "#dddddd",
    "accent": "#b34700",  # the number that matters, peaks
    "added": "#006e50",  # marks of what a pass did
    "removed": "#b34700",
    "merged": "#94406d",
    "changed": "#00659e",
    "value": "#ffffff",  # inputs and outputs
    "value.edge": "#1a1a1a",
    "weight": "#ffffff",
    "weight.edge": "#8c8c8c",
    "elementwise": "#d4ebf9",
    "elementwise.edge": "#00659e",
    "broadcast": "#ccece3",
    "broadcast.edge": "#006e50",
    "injective": "#faf6c4",
    "injective.edge": "#6e6800",
    "reduction": "#f5e1ec",
    "reduction.edge": "#94406d",
    "out_fusable": "#fbe5b8",
    "out_fusable.edge": "#8a5f00",
    "opaque": "#e2e2e2",
    "opaque.edge": "#333333",
    "many": "#ffffff",  # a collapsed run of ops
    "many.edge": "#333333",
    "serial": "#e2e2e2",
    "serial.edge": "#555555",
    "parallel": "#fbe5b8",
    "parallel.edge": "#8a5f00",
    "vectorized": "#d4ebf9",
    "vectorized.edge": "#00659e",
    "unrolled": "#f5e1ec",
    "unrolled.edge": "#94406d",
}

DARK: Mapping[str, str] = LIGHT | {
    "page": "#1b1d21",
    "text": "#ececec",
    "muted": "#b4b4b4",
    "line": "#b4b4b4",
    "frame": "#2b2f36",
    "frame.edge": "#7d838c",
    "grid": "#3d424a",
    "accent": "#ffb067",
    "added": "#8fd9c1",
    "removed": "#ffb067",
    "merged": "#e7b3d0",
    "changed": "#9fd3f4",
    "value": "#f2f2f2",
    "value.edge": "#f2f2f2",
    "weight": "#d9d9d9",
    "weight.edge": "#777777",
    "elementwise": "#9fd3f4",
    "broadcast": "#8fd9c1",
    "injective": "#efe88a",
    "reduction": "#e7b3d0",
    "out_fusable": "#f5c766",
    "opaque": "#c4c4c4",
    "many": "#f2f2f2",
    "serial": "#c4c4c4",
    "parallel": "#f5c766",
    "vectorized": "#9fd3f4",
    "unrolled": "#e7b3d0",
}

THEMES: Mapping[str, Mapping[str, str]] = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True)
class Cue:
    """How an op of a pattern is told from others without colour: a letter and a border."""

    letter: str
    dash: str = ""  # SVG dash array; "" is a solid line
    width: float = 1.5
    radius: float = 8


_CUES: Mapping[Pattern, Cue] = {
    Pattern.ELEMENTWISE: Cue("E", radius=14),
    Pattern.BROADCAST: Cue("B", dash="7 3", radius=14),
    Pattern.INJECTIVE: Cue("I", dash="2 3"),
    Pattern.REDUCTION: Cue("R", width=3),
    Pattern.OUT_FUSABLE: Cue("F", width=3, radius=3),
    Pattern.OPAQUE: Cue("X", radius=0),
}


@dataclass(frozen=True)
class Sign:
    """How a change is told without colour: a sign, and how its ring is drawn."""

    letter: str
    dash: str = ""
    rings: int = 1
    meaning: str = ""


SIGNS: Mapping[str, Sign] = {
    "removed": Sign("−", dash="8 4", meaning="removed"),
    "added": Sign("+", meaning="added"),
    "merged": Sign("⇉", rings=2, meaning="merged: several became one"),
    "changed": Sign("≠", dash="2 3", meaning="other attributes, type or operands"),
}


OCCASIONAL = {*SIGNS, "strip", "strip.edge"}
"""Roles that most pictures do without: they are defined where they are used."""


def cue(pattern: Pattern) -> Cue:
    """Letter and border of a pattern."""
    return _CUES[pattern]


def theme_colours(name: str) -> Mapping[str, str]:
    """Role -> hex colour; raises OptionError (MDLC1021) for a theme that does not exist."""
    if name not in THEMES:
        raise OptionError(f"unknown theme {name!r}", hint=nearest(name, THEMES), code="MDLC1021")
    return THEMES[name]


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two hex colours after WCAG 2: 1 (none) to 21 (black on white)."""
    dark, light = sorted((_luminance(a), _luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
