"""`minidlc bench`: one model against ONNX Runtime, in turns, in one process.

    c = compare(exe, source, arrays, threads=2, rounds=15)
    print(c)                                        # a row an engine, medians, the ratio
    c.ratio                                         # our time over theirs; None without them

ONNX Runtime is no dependency: where it is missing, or refuses the model, our own time stands alone
and the reason is said. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidlc.executable import Executable
from minidlc.expr.types import Array
from minidlc.support.timing import interleaved, readable

OURS, THEIRS = "minidlc", "ONNX Runtime"


@dataclass(frozen=True)
class Comparison:
    """Seconds of a call by engine, one for each round, and how far the answers are apart."""

    model: str
    kernels: int
    threads: int
    times: Mapping[str, tuple[float, ...]]
    difference: float | None  # largest, over the largest value
    reason: str = ""  # why there is one engine only

    def median(self, engine: str) -> float:
        """Seconds of a call."""
        return statistics.median(self.times[engine])

    @property
    def ratio(self) -> float | None:
        """Our median over theirs: below 1 is faster."""
        return self.median(OURS) / self.median(THEIRS) if THEIRS in self.times else None

    def __str__(self) -> str:
        counts = (
            (self.kernels, "kernel"),
            (self.threads, "thread"),
            (len(self.times[OURS]), "round"),
        )
        words = ", ".join(f"{n} {noun}{'s' * (n != 1)}" for n, noun in counts)
        rows = [f"{self.model}: {words} in turns"]
        rows.append(f"{'':<14}{'median':>10}{'least':>10}{'most':>10}")
        for engine, times in self.times.items():
            figures = (statistics.median(times), min(times), max(times))
            rows.append(f"{engine:<14}" + "".join(f"{readable(t):>10}" for t in figures))
        if self.ratio is not None:
            rows.append(f"minidlc takes {self.ratio:.2f} of ONNX Runtime's time")
        if self.difference is not None:
            rows.append(f"largest difference {self.difference:.0e} of the largest value")
        return "\n".join(rows + ([self.reason] if self.reason else []))


def compare(
    exe: Executable, source: Path | bytes, arrays: Mapping[str, Array], threads: int, rounds: int
) -> Comparison:
    """Time `exe` and ONNX Runtime on the same arrays; `source` is the ONNX model of `exe`.

    `threads` is what `exe` was compiled for.
    """
    inputs = [arrays[i.name] for i in exe.source.inputs]
    results = exe(*inputs)
    runs: dict[str, Callable[[], object]] = {OURS: lambda: exe(*inputs)}
    difference, reason = None, ""
    try:
        theirs = _onnxruntime(source, inputs, threads)
        difference = _apart(results, theirs())
        runs[THEIRS] = theirs
    except ImportError:
        reason = "ONNX Runtime is not installed: pip install onnxruntime"
    except Exception as e:  # its exceptions have no common base
        reason = f"ONNX Runtime does not run the model: {str(e).splitlines()[0][:200]}"
    rest = 0.05 if threads > 1 else 0.0  # a pool spins for a while, on the other's cores
    found = interleaved(runs, rounds=rounds, rest=rest)
    times = {name: tuple(t) for name, t in found.items()}
    return Comparison(exe.source.name, len(exe.kernels), threads, times, difference, reason)


def _onnxruntime(
    source: Path | bytes, inputs: list[Array], threads: int
) -> Callable[[], list[Array]]:
    """A call of an ONNX Runtime session, on as many threads."""
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors only
    model = str(source) if isinstance(source, Path) else source
    session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feeds = dict(zip(names, inputs, strict=True))
    return lambda: session.run(None, feeds)


def _apart(ours: list[Array], theirs: list[Array]) -> float | None:
    """The largest difference of numbers over the largest finite one; None without numbers."""
    worst: float | None = None
    for a, b in zip(ours, theirs, strict=True):
        if b.dtype.kind not in "fiub" or not b.size:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        both = np.isfinite(a) & np.isfinite(b)
        size = float(np.abs(b[both]).max(initial=0.0)) or 1.0
        apart = float(np.abs(a - b)[both].max(initial=0.0)) / size
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            apart = float("inf")
        worst = apart if worst is None else max(worst, apart)
    return worst
