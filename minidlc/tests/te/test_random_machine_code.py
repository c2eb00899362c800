"""Any legal schedule compiles to machine code that computes what the program says.

A failure shows the kernel and the trace, with as few steps as still fail: paste both into
`check_text`. A crash leaves them in the file `minidlc-schedule-PID.txt` among the temporary files.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import Kernel as CompiledKernel
from minidlc.codegen.compile import compile_kernel
from minidlc.expr.types import Array
from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import Alloc, For, Kind, LoopFunction, Scope, block, walk
from minidlc.loop.verify import verify_function
from minidlc.support.errors import CodegenError, ScheduleError
from minidlc.target import Target
from minidlc.te import Schedule, parse_trace
from minidlc.te.primitive import Trace
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.te import families
from minidlc.tests.te.families import Kernel, random_kernel
from minidlc.tests.te.fenced import run_fenced
from minidlc.tests.te.random_schedules import draw

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]

REFUSED = ("MDLC0803", "MDLC0804", "MDLC0805", "MDLC0810", "MDLC0823")


@dataclass
class Tally:
    """What many schedules came to."""

    accepted: int = 0
    realistic: int = 0
    steps: int = 0
    refused_steps: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    used: Counter[str] = field(default_factory=Counter[str])

    @property
    def refused_share(self) -> float:
        """Of all primitives that were drawn."""
        return self.refused_steps / (self.steps + self.refused_steps)


def check(kernel: Kernel, trace: Trace, width: int) -> LoopFunction:
    """Compile a schedule, run it with one and two threads and compare; its loops."""
    schedule = Schedule(kernel.outputs, trace, constants=kernel.constants, checked=False)
    machine = target.host(vector_width=width)
    known = dict(kernel.inputs)
    for fn in schedule.lower_init("ahead"):
        given = {p.name: known[p.name] for p in fn.params if p.name in known}
        known |= run_fenced(compiled(fn, machine), given, 1)
    fn = schedule.lower("kernel")
    code = compiled(fn, machine)
    given = {p.name: known[p.name] for p in fn.params if p.name in known}
    for threads in (1, 2) if _has(fn, Kind.PARALLEL) else (1,):
        for name, got in run_fenced(code, given, threads).items():
            compare(name, got, kernel.expected[name], kernel.tolerance[name])
    return fn


def compiled(fn: LoopFunction, machine: Target) -> CompiledKernel:
    """Machine code as the driver makes it: of loops that are proved to stay in their buffers."""
    check_inside(verify_function(fn))
    return compile_kernel(fn, machine, cache=False)


def compare(name: str, got: Array, expected: Array, tolerance: Array) -> None:
    """Equal but for the tolerance of each element."""
    wide = np.int64 if expected.dtype.kind in "iu" else np.float64
    off = abs(got.astype(wide) - expected.astype(wide))
    wrong = ~(off <= tolerance)
    assert not wrong.any(), (
        f"{name} is wrong at {[tuple(map(int, at)) for at in np.argwhere(wrong)[:5]]}: "
        f"got {got[wrong][:5]}, expected {expected[wrong][:5]}"
    )


def check_text(kernel: Kernel, trace: str, width: int) -> None:
    """`check` for a trace as a failure shows it."""
    check(kernel, parse_trace(trace), width)


def one_schedule(seed: int, tally: Tally) -> None:
    """Draw a kernel and a schedule and check them; a failure shows the shortest trace for it."""
    rng = random.Random(seed)
    kernel, width = random_kernel(rng), rng.choice(WIDTHS)
    schedule, refused = draw(kernel, rng, lanes=width)
    trace = parse_trace(str(schedule.trace))
    if trace.knobs and rng.random() < 0.3:
        trace = with_other_knobs(kernel, trace, rng)
    tally.steps += len(trace)
    tally.refused_steps += refused
    tally.used.update(step.name for step in trace)
    note = Path(tempfile.gettempdir(), f"minidlc-schedule-{os.getpid()}.txt")
    note.write_text(described(seed, kernel, trace, width), encoding="utf-8")
    try:
        fn = check(kernel, trace, width)
    except CodegenError as error:
        names = {*schedule.state.names(), *(x for s in schedule.state.stages for x in s.leaves)}
        if error.code not in REFUSED or not any(repr(name) in error.message for name in names):
            raise AssertionError(described(seed, kernel, trace, width) + str(error)) from error
        tally.refused[error.code] += 1
    except Exception as error:
        shortest = shrunk(kernel, trace, width, type(error))
        raise AssertionError(described(seed, kernel, shortest, width) + str(error)) from error
    else:
        tally.accepted += bool(trace)
        tally.realistic += _has(fn, Scope.REGISTER) and _has(fn, Kind.VECTORIZED)
    finally:
        note.unlink()


def with_other_knobs(kernel: Kernel, trace: Trace, rng: random.Random) -> Trace:
    """The trace with other values of its knobs; as it is where they make it illegal."""
    other = trace.with_knobs(**{n: rng.choice(k.candidates) for n, k in trace.knobs.items()})
    try:
        schedule = Schedule(kernel.outputs, other, constants=kernel.constants, checked=False)
        schedule.lower(), schedule.lower_init()
    except ScheduleError:
        return trace
    return other


def _has(fn: LoopFunction, wanted: Scope | Kind) -> bool:
    return any(
        (isinstance(s, Alloc) and s.scope is wanted) or (isinstance(s, For) and s.kind is wanted)
        for s in walk(fn.body)
    )


def described(seed: int, kernel: Kernel, trace: Trace, width: int) -> str:
    """What it takes to run one schedule again."""
    return f'seed {seed}:\ncheck_text({kernel.text}, """\n{trace}\n""", {width})\n'


def shrunk(kernel: Kernel, trace: Trace, width: int, failure: type[Exception]) -> Trace:
    """The trace without the steps that the failure does not need."""
    for n in reversed(range(len(trace))):
        shorter = Trace((*trace[:n], *trace[n + 1 :]))
        try:
            check(kernel, shorter, width)
        except failure:
            trace = shorter
        except Exception:  # another failure: the step is needed
            continue
    return trace


def many(seeds: Iterable[int]) -> Tally:
    """One schedule a seed."""
    tally = Tally()
    for seed in seeds:
        one_schedule(seed, tally)
    return tally


PARTS, SEEDS = 8, 42  # in parts, so that the cores share them


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_random_legal_schedules_equal_the_reference(part: int) -> None:
    """In all parts together at least 300 schedules in machine code."""
    tally = many(range(part * SEEDS, (part + 1) * SEEDS))
    assert tally.accepted >= 300 / PARTS, tally
    assert tally.realistic >= 0.3 * tally.accepted, tally
    assert 0.02 < tally.refused_share < 0.5, tally
    assert len(tally.used) >= 13, tally


@pytest.mark.slow
@pytest.mark.parametrize("part", range(84))
def test_twenty_thousand_random_legal_schedules(part: int) -> None:
    tally = many(range(10_000 + 250 * part, 10_000 + 250 * (part + 1)))
    assert tally.accepted >= 239, tally
    assert tally.realistic >= 0.4 * tally.accepted, tally


@pytest.mark.long
def test_a_failure_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reductions that start from whatever is in memory are found; the text runs it again."""
    monkeypatch.setattr(sys.modules["minidlc.te.lower"], "_init", lambda *_: block())
    with pytest.raises(AssertionError, match="check_text") as caught:
        many(range(20))
    found = re.search(r'check_text\(.*?""", \d+\)', str(caught.value), re.DOTALL)
    assert found is not None
    call = found[0]
    names = {**vars(families), "check_text": check_text}
    with pytest.raises(AssertionError, match="is wrong at"):
        eval(call, names)
    monkeypatch.undo()
    eval(call, names)
