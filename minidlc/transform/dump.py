"""The graph after each pass as numbered files, and what each pass changed as a unified diff.

    Pipeline.default().run(g, dump="out")           # or: minidlc opt m.onnx --dump-after-each out
    # 00_input.dlc, 01_decompose.dlc, 01_decompose.diff, 02_fold_constants.dlc, …
    load_text("out/01_decompose.dlc")               # weights lie in the .npz beside it

Files are written as the passes run, so that those before a failure are there. A pass that changed
nothing has no diff. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from minidlc.graph.graph import Graph
from minidlc.graph.text import save_text
from minidlc.support.names import identifier


class Dump:
    """Writes one graph after the other into a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._count = 0
        self._last: tuple[str, Graph] | None = None

    def write(self, name: str, graph: Graph) -> None:
        """The next file, named after the pass; OSError if it cannot be written."""
        file = f"{self._count:02}_{identifier(name)}.dlc"
        self._folder.mkdir(parents=True, exist_ok=True)
        save_text(graph, self._folder / file)
        if self._last is not None and self._last[1] is not graph:
            text = difference_text(self._last[1], graph, self._last[0], file)
            path = (self._folder / file).with_suffix(".diff")
            path.write_text(text, encoding="utf-8", newline="\n")
        self._count += 1
        self._last = (file, graph)


def difference_text(
    before: Graph, after: Graph, from_name: str = "before", to_name: str = "after", context: int = 3
) -> str:
    """The unified diff of the texts of two graphs."""
    texts = str(before).splitlines(), str(after).splitlines()
    lines = difflib.unified_diff(*texts, from_name, to_name, lineterm="", n=context)
    return "".join(f"{line}\n" for line in lines)
