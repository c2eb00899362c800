"""Random graphs: machine code, interpreter and passes agree, whatever is switched on.

Each graph is compiled in one or two configurations: an optimisation level, or one optional pass
alone; one thread or two; vectors of 4, 8 or 16 lanes. The tolerance of each output comes with the
case: 0 for integers, bools and what is computed of small integers in any order, else a bound on the
rounding errors of the ops that lead to it (graph_maker/facts.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from minidlc.graph import parse, verify, weights_of
from minidlc.schedules import injective, tiles
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.every_pass import alone
from minidlc.tests.random_graphs import Case, case_of, cases
from minidlc.transform.layout import layout

pytestmark = pytest.mark.llvm

ALONE = alone()
OPTIONAL = tuple(ALONE)
SEEDS = 200  # graphs of the normal tier; a part of the slow one has as many
PARTS = 25


SMALL = (
    (injective, "PARALLEL_WORK", 50),
    (tiles, "PARALLEL_SUMS", 50),
    (injective, "INLINE_NODES", 6),
    (layout, "GAIN", 1000),
    (layout, "WASTE", 1000),
)


@dataclass(frozen=True)
class Configuration:
    """How a graph is compiled: the passes of `level`, or only `alone`.

    `small`: loops run in parallel, stages are kept instead of inlined, and images go into blocks of
    channels at sizes that these graphs have.
    """

    level: int = 3
    threads: int = 1
    width: int = WIDTHS[-1]
    alone: str | None = None
    small: bool = False

    @staticmethod
    def draw(choose: Callable[[int], int]) -> Configuration:
        return Configuration(
            (3, 3, 3, 2, 1, 0)[choose(6)],
            1 + choose(2),
            WIDTHS[choose(len(WIDTHS))],
            (None, None, None, *OPTIONAL)[choose(3 + len(OPTIONAL))],
            choose(2) == 1,
        )

    def compile(self, graph: mc.Graph) -> mc.Executable:
        target = mc.target.host(vector_width=self.width)
        passes = ALONE[self.alone] if self.alone else None
        with ExitStack() as stack:
            for module, name, value in SMALL if self.small else ():
                stack.enter_context(mock.patch.object(module, name, value))
            return mc.compile(
                graph, opt_level=self.level, threads=self.threads, target=target, pipeline=passes
            )


@st.composite
def configurations(draw: Any) -> Configuration:
    return Configuration.draw(lambda n: draw(st.integers(0, n - 1)))


def configuration_of(seed: int) -> Configuration:
    return Configuration.draw(random.Random(seed).randrange)


def check(case: Case, *chosen: Configuration) -> None:
    """Everything that must hold of one graph."""
    verify(case.graph)
    expected = mc.interpret(case.graph, case.arrays)
    for configuration in chosen:
        exe = configuration.compile(case.graph)
        case.check(mc.interpret(exe.graph, case.arrays), expected)
        assert parse(str(exe.graph), weights_of(exe.graph)) == exe.graph
        exe.memory_plan.check()
        case.check(exe(*case.arrays), expected)
        case.check(exe(*case.arrays), expected)  # the arena is dirty now


def check_seed(seed: int) -> None:
    case = case_of(seed)
    try:
        check(case, configuration_of(seed))
    except Exception as e:
        e.add_note(f"seed {seed}, {configuration_of(seed)}: {case}")
        raise


@given(cases(max_ops=6), configurations())
@settings(max_examples=SEEDS // 4)
def test_small_graphs(case: Case, configuration: Configuration) -> None:
    """These shrink: the smallest graph and configuration that fail are shown."""
    check(case, configuration)


def test_graphs() -> None:
    for seed in range(SEEDS):
        check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_thousands_of_graphs(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        check_seed(seed)


def test_what_the_graphs_are_made_of() -> None:
    """The generator reaches nearly all ops, and what this file is about."""
    seen = [case_of(seed) for seed in range(SEEDS * 5)]
    ops = {node.op.name for case in seen for node in case.graph.nodes}
    assert len(ops) >= 70
    outputs = [(case, v) for case in seen for v in case.graph.outputs]
    assert any(isinstance(v, (mc.Input, mc.Constant)) for _, v in outputs)
    assert any(v in case.graph.users() for case, v in outputs)
    assert any(0 in v.type.dims for _, v in outputs)
    exact = sum(t == 0 for case in seen for t in case.tolerances)
    assert exact >= len(outputs) // 4
