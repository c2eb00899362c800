"""Results of tuning that nobody measured: planted costs, every fate, from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from minidlc.schedules import Group, Implementation
from minidlc.target import Target
from minidlc.te import Schedule
from minidlc.tests.tuning.kernels import product
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

MACHINE = Target("x86_64", "generic", "+avx2", 256, 16, l1=32 << 10, l2=512 << 10)
WAYS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "tiled": {
        "rows": (4, 1, 2, 6, 8, 12),
        "columns": (8, 4, 16, 32),
        "unroll": (1, 2, 4, 8),
        "depth": (64, 128, 256, 512, 1024),
    },
    "packed": {"rows": (4, 6, 8), "panel": (64, 16, 32, 128, 256)},
    "plain": {},
}
_FAILED = (Fate.REFUSED, Fate.NOT_COMPILED, Fate.WRONG, Fate.TIMEOUT, Fate.CRASHED)
_REASONS = {
    Fate.REFUSED: "error[MDLC0611]: split: 'j' <runs> 32 & 12 does not divide it",
    Fate.NOT_COMPILED: "LLVM: cannot select: v512 = fma",
    Fate.WRONG: "C[3, 4] is 1.5, expected 2.5",
    Fate.TIMEOUT: "no answer within 2 s",
    Fate.CRASHED: "the worker ended with signal 11 (SIGSEGV)",
}


def _tile(sch: Schedule, group: Group, target: Target, knobs: Mapping[str, int]) -> None:
    last = group.last.name
    if "columns" in knobs:
        sch[last].split("j", sch.knob("columns", knobs["columns"]), tail="cut")
    if "rows" in knobs:
        sch[last].split("i", sch.knob("rows", knobs["rows"]), tail="cut")


@dataclass(frozen=True)
class Planted(Task):
    """A product whose ways and knobs are given."""

    given: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=lambda: WAYS)

    @property
    def ways(self) -> Mapping[str, Implementation]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ways that split and do nothing else."""
        return {
            name: Implementation(name, "matmul", _tile, knobs=lambda _g, _t, k=knobs: k)
            for name, knobs in self.given.items()
        }


def cost(config: Config) -> float:
    """Seconds of a point: `rows` matters most, `unroll` hardly."""
    base = {"tiled": 2e-4, "packed": 2.4e-4}.get(config.way, 2e-3)
    v = config.values
    base *= 1 + 0.5 * abs(math.log2(v.get("rows", 6) / 6)) ** 1.5
    base *= 1 + 0.2 * abs(math.log2(v.get("columns", 16) / 16))
    base *= 1 + 0.1 * abs(math.log2(v.get("panel", 64) / 64))
    base *= 1 + 0.08 * abs(math.log2(v.get("depth", 256) / 256))
    return base * (1 + 0.01 * v.get("unroll", 1))


def _trial(config: Config, number: int, rng: Random, fails: float) -> Trial:
    guess = math.log(cost(config)) + rng.gauss(0, 1.5 / math.sqrt(number))
    predicted = guess if number > 8 else None
    if rng.random() < fails and (number > 1 or fails == 1):
        fate = rng.choice(_FAILED)
        return Trial(config, fate, (), _REASONS[fate], predicted, by="Evolution")
    seconds = tuple(cost(config) * (1 + abs(rng.gauss(0, 0.01))) for _ in range(5))
    moved = 4e5 / config.values.get("rows", 1) + 2e4 * config.values.get("columns", 3)
    figures = {
        "moved_bytes": moved,
        "energy": moved * 3e-11,
        "peak_bytes": 4096.0 * config.values.get("panel", 1),
    }
    return Trial(config, Fate.OK, seconds, "", predicted, "Evolution", figures)


def planted(
    trials: int = 64,
    *,
    seed: int = 0,
    fails: float = 0.2,
    name: str = "k0_matmul_relu",
    ways: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None,
    count: int = 1,
) -> TaskResult:
    """A result of so many trials of random points, the default first; better ones come later."""
    rng = Random(seed)
    task = Planted(product(), "matmul", MACHINE, 1, name, ways or WAYS)
    space: Space = task.space
    drawn = space.distinct(2 * trials, rng, known=[task.default])
    half = trials // 2
    late = sorted(drawn[half:], key=lambda c: cost(c) * (1 + 0.3 * rng.random()))
    todo = [task.default, *drawn[:half], *late[: 2 * half]][:trials]
    done = tuple(_trial(c, n, rng, fails) for n, c in enumerate(todo, 1))
    ran = [t for t in done if t.fate is Fate.OK]
    best = min(ran, key=lambda t: t.cost).config if ran else task.default
    checked = [
        tuple(cost(c) * (1 + abs(rng.gauss(0, 0.02))) for _ in range(15))
        for c in (task.default, best)
    ]
    if best == task.default:
        checked[1] = checked[0]
    return TaskResult(task, done, best, checked[0], checked[1], count)


def tuning_of(*results: TaskResult) -> Tuning:
    """What mc.tune would say of a model of these kernels."""
    names = {r.task.workload.key: (r.task.name,) for r in results}
    runs = (0.01, 0.0101, 0.0099), (0.008, 0.0082, 0.0079)
    return Tuning(
        "net.onnx",
        1,
        results,
        names,
        *runs,
        layout=Config("layout"),
        layouts={},
        failed={},
        left_out={"k9_copy": "one way and no knobs"},
        database="tune.jsonl",
        trials=sum(len(r.trials) for r in results),
        spent=12.0,
    )
