"""Where the time of a run went, and what the machine could do at most: figures, no measuring.

    p = exe.profile(x)                              # a Profile
    print(p)                                        # a row a kernel, the slowest first
    p.kernels[0].seconds, p.kernels[0].gflops       # of one run
    p.peaks().gflops                                # roofs of this machine, measured when asked

Written by minidlc/profiling.py and minidlc/peaks.py. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from minidlc.support.timing import readable


@dataclass(frozen=True)
class Peaks:
    """Roofs: f32 operations (a multiply-add is two), and bytes read and written, by level."""

    threads: int
    gflops: float
    bandwidths: tuple[tuple[str, float], ...]  # (level, GB/s), the fastest level first

    def roof(self, intensity: float, level: str = "memory") -> float:
        """The most GFLOP/s that `intensity` operations for each byte of a level allow."""
        return min(self.gflops, intensity * dict(self.bandwidths)[level])


@dataclass(frozen=True)
class KernelTime:
    """One kernel in one run of the model: all figures are for a run, not for a call."""

    kernel: str
    calls: int
    seconds: float
    flops: int  # operations its loops state
    nbytes: int  # of its parameters: what must move at least

    @property
    def gflops(self) -> float:
        """Billion operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations for each byte that must move."""
        return self.flops / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True)
class Profile:
    """Times of all kernels, in the order of the program.

    `outside` is what a run spends in no kernel: the call itself, checks, fresh outputs. Medians of
    short pieces stand up to other work on the machine better than the median of whole runs.
    """

    model: str
    threads: int
    runs: int
    outside: float
    kernels: tuple[KernelTime, ...]
    peaks: Callable[[], Peaks] = field(repr=False, compare=False)
    """Measures this machine's roofs; takes about half a second."""

    @property
    def slowest(self) -> tuple[KernelTime, ...]:
        """The kernels, the one that takes most time first."""
        return tuple(sorted(self.kernels, key=lambda k: -k.seconds))

    @property
    def seconds(self) -> float:
        """Of a run: its kernels and what is outside."""
        return self.outside + sum(k.seconds for k in self.kernels)

    def __str__(self) -> str:
        width = max((len(k.kernel) for k in self.kernels), default=6)
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        head = (
            f"{self.model}: {readable(self.seconds)} a run, {threads}, median of {self.runs} runs"
        )
        rows = [head, f"{'kernel':<{width}} {'time':>9} {'share':>6} {'GFLOP/s':>8} {'flop/B':>7}"]
        for k in self.slowest:
            name = k.kernel if k.calls == 1 else f"{k.kernel} ×{k.calls}"
            share = k.seconds / self.seconds if self.seconds else 0.0
            rows.append(
                f"{name:<{width}} {readable(k.seconds):>9} {share:>6.1%} "
                f"{k.gflops:>8.1f} {k.intensity:>7.2f}"
            )
        share = self.outside / self.seconds if self.seconds else 0.0
        rows.append(f"{'outside':<{width}} {readable(self.outside):>9} {share:>6.1%}")
        return "\n".join(rows)
