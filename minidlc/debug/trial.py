"""One pass, tried with the first n of its rewrites; and the question that reduction asks of it.

    trial = Trial(Canonicalize(), g, wrong)         # wrong(graph): how its answer is wrong, or None
    trial.wrong(7), trial.run(7).after              # with seven rewrites
    goes_wrong(pipeline, g)(small)                  # do the passes go wrong on `small`, as on g?

Reads graphs, runs passes on them. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from minidlc.debug.answers import Memo, feeds_for, wrong_output
from minidlc.expr.types import Array
from minidlc.graph import Graph
from minidlc.support.errors import OptionError, PassError
from minidlc.transform import Pipeline, Rewrite
from minidlc.transform.pass_ import Pass


@dataclass(frozen=True)
class Outcome:
    """What a pass left, or why it failed; and the rewrites it did."""

    after: Graph | None
    failure: str | None
    done: tuple[Rewrite, ...]


def outcome(passes: Pipeline, graph: Graph) -> Outcome:
    """Run passes with all checks of the pipeline; the rewrites are those of the last that ran."""
    try:
        after, records = passes.run(graph, reproducer="")
    except PassError as e:
        return Outcome(None, e.message, tuple(d for d in e.done if isinstance(d, Rewrite)))
    except OptionError as e:
        if e.code != "MDLC1009":  # a reader's pass that raised; else the passes ask for too much
            raise
        return Outcome(None, e.message, ())
    return Outcome(after, None, records[-1].done if records else ())


@dataclass
class Trial:
    """A pass on one graph, with every limit."""

    step: Pass
    before: Graph
    judge: Callable[[Graph], str | None]
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])

    def __post_init__(self) -> None:
        self._whole = outcome(Pipeline((self.step,)), self.before)
        self.total = max(1, len(self._whole.done))

    def run(self, number: int) -> Outcome:
        """The outcome with the first rewrites only; all of them are the pass as it is."""
        if number == self.total:
            return self._whole
        if number not in self.outcomes:
            limited = replace(self.step, limit=number)
            self.outcomes[number] = outcome(Pipeline((limited,)), self.before)
        return self.outcomes[number]

    def wrong(self, number: int) -> str | None:
        """How the answer is wrong after so many rewrites, or None."""
        found = self.run(number)
        return found.failure if found.after is None else self.judge(found.after)

    def rewrite(self, number: int) -> Rewrite | None:
        """The rewrite of that number, from 1."""
        done = self.run(number).done
        return done[number - 1] if number <= len(done) else None


def goes_wrong(
    passes: Pipeline,
    graph: Graph,
    known: Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
    memo: Memo | None = None,
    seed: int = 0,
) -> Callable[[Graph], bool]:
    """Whether passes go wrong on another graph as they do on this one: they raise, or change the
    answer.

    Inputs that have the name and type of a `known` value get its array, others random ones.
    """
    memo = memo or Memo()
    raises = outcome(passes, graph).after is None

    def is_bad(graph: Graph) -> bool:
        found = outcome(passes, graph)
        if found.after is None or raises:
            return found.after is None and raises
        arrays = feeds_for(graph.inputs, seed)
        for i in graph.inputs:
            array = (known or {}).get(i.name)
            if array is not None and (array.dtype, array.shape) == (
                i.type.dtype.numpy,
                i.type.dims,
            ):
                arrays[i.name] = array
        expected = memo.run(graph, arrays)
        try:
            got = memo.run(found.after, arrays)
        except Exception:  # the answer before was fine, so this is the passes' doing
            return True
        return wrong_output(got, expected, graph, tolerance) is not None

    return is_bad
