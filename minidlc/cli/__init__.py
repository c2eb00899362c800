"""The `minidlc` command: a thin shell over the Python API.

    minidlc tour                                    # a real net through every stage
    minidlc show model.onnx --level loops --kernel conv_relu
    minidlc opt graph.dlc --passes "canonicalize,cse,fuse{max_ops=8}"
    minidlc bisect model.onnx --input x=digits.npy  # which pass, which rewrite is wrong
    minidlc bench model.onnx --profile              # against ONNX Runtime
    minidlc tune model.onnx --minutes 5             # find fast schedules, keep them in tune.jsonl

Errors of the user's input are printed as reports and exit with 1, never as tracebacks. With
MINIDLC_LOG=passes,rewrites,refusals,fusion,kernels the stages report on stderr as they run.
"""

from __future__ import annotations

import io
import sys
from typing import NoReturn

from rich.console import Console

from minidlc.cli import checking as checking  # importing the commands registers them
from minidlc.cli import hunting as hunting
from minidlc.cli import looking as looking
from minidlc.cli import records as records
from minidlc.cli import running as running
from minidlc.cli import tuning as tuning
from minidlc.cli.common import app
from minidlc.support import reports
from minidlc.support.errors import CompileError, OptionError
from minidlc.support.locations import PyLoc


def main() -> None:
    """Entry point of the `minidlc` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a Windows pipe cannot write an arrow
    try:
        reports.wanted()
        app()
    except OSError as e:
        _fail(OptionError(f"{e.filename or 'output'}: {e.strerror}", code="MDLC1024"))
    except CompileError as e:
        _fail(e)


def _fail(error: CompileError) -> NoReturn:
    report = str(error)
    if isinstance(error.loc, PyLoc):  # a line of the command's own source helps nobody
        report = report.replace(f"\n  --> {error.loc}", "", 1)
    Console(stderr=True, highlight=False, soft_wrap=True).print(report, markup=False)
    sys.exit(1)
