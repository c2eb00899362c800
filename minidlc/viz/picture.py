"""A picture: what every function of `mc.viz` returns.

    p = mc.viz.graph(g)                             # in Jupyter: shows itself, light or dark
    p.svg                                           # SVG text
    p.save("out/graph.png")                         # .svg, .png (1920 pixels wide), .pdf or .html
    p.parts[0].save("out/block_1.png")              # what block 1 of a summed up graph holds

In HTML a click on a block opens it. Reads a Drawing, writes files. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from minidlc.support.errors import OptionError
from minidlc.viz.drawing import SLIDE, Drawing
from minidlc.viz.raster import to_pdf, to_png
from minidlc.viz.svg import to_html, to_page, to_svg
from minidlc.viz.theme import ThemeName, theme_colours

FORMATS = (".svg", ".png", ".pdf", ".html")


def check_picture_path(path: str | Path) -> Path:
    """The path of a picture to write; OptionError (MDLC1022) for another suffix than FORMATS."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise OptionError(
            f"a picture cannot be saved as {path.suffix or path.name!r}",
            hint=f"a file that ends in {', '.join(FORMATS)}",
            code="MDLC1022",
        )
    return path


@dataclass(frozen=True)
class Picture:
    """A drawing and the theme it is shown in; None: light in files, the page's in HTML and Jupyter.

    `opened` draws, when asked, what its blocks hold: for each its key and a picture.
    """

    drawing: Drawing
    theme: ThemeName | None = None
    opened: Callable[[], Sequence[tuple[str, Picture]]] = field(
        default=tuple[tuple[str, "Picture"]], repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._colours()  # an unknown theme is an error here, not when it is shown

    def _colours(self) -> Mapping[str, str]:
        return theme_colours(self.theme or "light")

    @property
    def title(self) -> str:
        """What the picture shows, and the number that matters."""
        return self.drawing.title

    @cached_property
    def _blocks(self) -> tuple[tuple[str, Picture], ...]:
        return tuple(self.opened())

    @property
    def parts(self) -> tuple[Picture, ...]:
        """What the blocks of a summed up graph hold, in the order of their numbers."""
        return tuple(picture for _, picture in self._blocks)

    @property
    def svg(self) -> str:
        """The picture as a stand-alone SVG document."""
        return to_svg(self.drawing, self._colours())

    def png(self, width: int = SLIDE) -> bytes:
        """The picture as PNG, `width` pixels wide."""
        return to_png(self.drawing, self._colours(), width)

    def html(self) -> str:
        """The picture as an HTML page without links to anywhere; its blocks open by click."""
        return to_page(self.title, self.fragment(), self.theme)

    def fragment(self) -> str:
        """The picture as a piece of HTML; its blocks open by click."""
        parts = [(key, part.title, part.fragment()) for key, part in self._blocks]
        return to_html(self.drawing, parts)

    def pdf(self) -> bytes:
        """The picture as PDF of one page."""
        return to_pdf(self.drawing, self._colours())

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says the format. Returns the path.

        Raises OptionError (MDLC1022) for another suffix than .svg, .png, .pdf, .html.
        """
        path = check_picture_path(path)
        writers: dict[str, Callable[[], bytes]] = {
            ".svg": lambda: self.svg.encode(),
            ".png": self.png,
            ".pdf": self.pdf,
            ".html": lambda: self.html().encode(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(writers[path.suffix.lower()]())
        return path

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For Jupyter: HTML that follows the page's theme (unless one was asked for), and SVG."""
        bundle = {"image/svg+xml": self.svg, "text/plain": repr(self)}
        return bundle if self.theme else bundle | {"text/html": self.fragment()}

    def __repr__(self) -> str:
        return f"<Picture {self.title!r}>"
