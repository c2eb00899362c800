"""Time of a training step against JAX under jit and PyTorch, in turns.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.train

Forward, backward and update of an MLP (784-512-512-10) and a CNN (two convolutions, two pools, two
products), batch 64, f32. Run it in an environment that has jax and torch beside minidlc; an engine
that is missing is left out. Each runs in its best form: PyTorch with fused optimisers, JAX with its
state donated and images with channels last. Each engine is a process of its own; they take turns,
the losses after equal numbers of steps must agree. The ratio is that of the medians, ours over
theirs: below 1 is faster; its interval is the middle 95 % of 10,000 bootstrap samples of the
rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np

from minidlc.benchmarks.train_engines import ENGINES
from minidlc.support.timing import ratio_interval

ROUNDS, WARM_UP, BLOCK_SECONDS = 60, 20, 0.03
MEASURED = [(m, o, t) for m in ("mlp", "cnn") for o in ("momentum", "adam") for t in (1, 2)]


@dataclass
class Engine:
    """A process that makes steps when asked."""

    name: str
    process: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list[float])  # of one step, a figure a round

    @staticmethod
    def start(name: str, model: str, optimizer: str, threads: int) -> Engine | None:
        """The engine, warm; None if it is not installed."""
        module = "minidlc.benchmarks.train_engines"
        command = [sys.executable, "-m", module, name, model, optimizer, str(threads)]
        pipe = subprocess.PIPE
        engine = Engine(name, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        return engine if engine.steps(1) else None

    def steps(self, count: int) -> tuple[float, float] | None:
        """Make steps: seconds for all of them, and the last loss; None if the engine is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{count}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self.process.stdout.readline().split()
        return (float(answer[0]), float(answer[1])) if answer else None

    def stop(self) -> None:
        """End the process."""
        self.process.communicate()


def measure(model: str, optimizer: str, threads: int, rounds: int) -> None:
    """One row for each peer."""
    started = [Engine.start(name, model, optimizer, threads) for name in ENGINES]
    engines = [engine for engine in started if engine is not None]
    losses = {engine.name: engine.steps(WARM_UP) for engine in engines}
    found = [seen[1] for seen in losses.values() if seen is not None]
    if len(found) < len(engines) or not np.allclose(found, found[0], rtol=1e-3):
        raise SystemExit(f"{model} {optimizer}: the losses are apart: {losses}")
    slowest = max(seen[0] for seen in losses.values() if seen is not None) / WARM_UP
    block = max(1, round(BLOCK_SECONDS / slowest))
    for turn in range(rounds):
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            seen = engine.steps(block)
            assert seen is not None, f"{engine.name} stopped"
            engine.seconds.append(seen[0] / block)
    for engine in engines:
        engine.stop()
    mine = np.array(engines[0].seconds)
    for peer in engines[1:]:
        theirs = np.array(peer.seconds)
        ratio = float(np.median(mine) / np.median(theirs))
        low, high = ratio_interval(mine, theirs)
        met = "yes" if low <= 1.0 and ratio <= 1.05 else "no"
        medians = f"{1e6 * np.median(mine):.0f} | {1e6 * np.median(theirs):.0f}"
        row = f"| {model} | {optimizer} | {threads} | {peer.name} | {medians}"
        print(f"{row} | {ratio:.2f} | {low:.2f} to {high:.2f} | {met} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["mlp", "cnn"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    print("| model | update | threads | against | minidlc µs | theirs µs | ratio | 95 % | ≤ 1.0 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in MEASURED:
        if row[0] in arguments.models:
            measure(*row, arguments.rounds)
