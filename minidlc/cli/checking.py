"""The command `check`: what looks wrong in a model before it runs.

    minidlc check m.onnx --range image=0,1 --range ids=0,3999

Exit code 0 if nothing was found, else 1. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from typing import Annotated

import typer

from minidlc.cli.common import Model, Shapes, app, load, out
from minidlc.support.errors import OptionError
from minidlc.transform.dataflow.check import findings
from minidlc.transform.dataflow.fact import Fact

Ranges = Annotated[
    list[str] | None, typer.Option("--range", help="x=0,1 if every element of input x is in [0, 1]")
]


@app.command()
def check(model: Model, ranges: Ranges = None, shape: Shapes = None) -> None:
    """Report possible NaN, positions outside, casts that lose, constant outputs, dead code."""
    graph = load(model, shape)
    found = findings(graph, facts_of(ranges or []))
    for finding in found:
        out.print(str(finding), markup=False)
    count = f"{len(found)} finding{'' if len(found) == 1 else 's'}"
    out.print(f"{graph.name}: {count} in {len(graph.nodes)} nodes", markup=False)
    raise typer.Exit(1 if found else 0)


def facts_of(given: list[str]) -> dict[str, Fact]:
    """Read ['x=0,1']; raises OptionError (MDLC1008) for anything else."""
    facts: dict[str, Fact] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            low, high = map(float, value.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if not low <= high:
            hint = "such as --range image=0,1"
            text = f"--range {text!r}: expected NAME=LOWEST,HIGHEST"
            raise OptionError(text, hint=hint, code="MDLC1008")
        facts[name] = Fact(low, high, False, low <= 0 <= high)
    return facts
