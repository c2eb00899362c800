"""Which pass made the answer wrong, and which of its rewrites: found by halving.

    found = mc.debug.bisect("model.onnx", {"x": x})
    print(found)                        # pass, n-th rewrite, rule, node, text before and after, and
                                        # the smallest graph in which that goes wrong again
    found.pipeline                      # the passes up to that rewrite, canonicalize{limit=7} last

The interpreter judges, so a wrong answer is a pass's fault; if every pass keeps the answer, the
compiled kernels are run one by one (kernels.py). A search over prefixes finds one place where right
turns into wrong: the only one, unless several rewrites are wrong. After the `-opt-bisect-limit` of
LLVM. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidlc.debug.answers import Arrays, Memo, checked_expected, prepared, wrong_output
from minidlc.debug.kernels import first_wrong_kernel
from minidlc.debug.reduction import reduce, uniquely_named
from minidlc.debug.trial import Trial, goes_wrong, outcome
from minidlc.expr.types import Array
from minidlc.graph import Graph
from minidlc.sources import Model
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.support.locations import caller
from minidlc.target import host
from minidlc.transform import Pipeline, Rewrite, parse_pipeline
from minidlc.transform.dump import difference_text
from minidlc.transform.pass_ import Pass

_SHOWN_LINES = 30  # of a difference


@dataclass(frozen=True)
class Bisection:
    """What `bisect` found. `guilty` is "pass", "code", "source" or "nobody"."""

    guilty: str
    reason: str  # how the answer is wrong
    pipeline: Pipeline | None = None  # up to the first wrong rewrite
    rewrite: Rewrite | None = None
    number: int = 0  # of the rewrite in its pass, from 1
    of: int = 0  # how many the pass did
    before: Graph | None = field(default=None, repr=False)  # right
    after: Graph | None = field(default=None, repr=False)  # with one rewrite more: wrong
    reduced: Graph | None = field(default=None, repr=False)  # the pass goes wrong on it too
    kernel: str | None = None  # the first whose code is wrong
    runs: int = 0  # graphs that were judged

    @property
    def step(self) -> Pass | None:
        """The pass that is wrong."""
        return self.pipeline.passes[-1] if self.pipeline and self.guilty == "pass" else None

    @property
    def changed(self) -> str:
        """What the rewrite changed, as a difference of texts."""
        if self.before is None or self.after is None:
            return ""
        return difference_text(self.before, self.after, context=0)

    def __str__(self) -> str:
        match self.guilty:
            case "pass":
                return "\n".join(self._pass_lines())
            case "code":
                where = f"kernel {self.kernel!r}" if self.kernel else "no single kernel"
                text = f"every pass keeps the answer; compiled code differs at {where}"
                return f"{text}\n  = {self.reason}"
            case "source":
                return f"the graph is wrong before any pass\n  = {self.reason}"
            case _:
                return f"nothing is wrong: {self.reason}"

    def _pass_lines(self) -> list[str]:
        assert self.pipeline is not None
        number, name = len(self.pipeline.passes), self.pipeline.names[-1]
        where = f"rewrite {self.number} of {self.of}" if self.rewrite else ""
        if self.after is None:  # the reason says which
            when = f"with {where} done" if where else "before a rewrite"
            what = f"raises, or breaks the graph, {when}"
        else:
            what = f"{where} is wrong" if where else "is wrong, and reports no rewrite"
        lines = [f"pass {number}, {name!r}: {what}"]
        lines += [f"  = {self.rewrite}"] if self.rewrite else []
        lines.append(f"  = {self.reason}")
        shown = [line for line in self.changed.splitlines()[2:] if not line.startswith("@@")]
        lines += [f"    {line}" for line in shown[:_SHOWN_LINES]]
        if len(shown) > _SHOWN_LINES:
            lines.append(f"    … {len(shown) - _SHOWN_LINES} more lines")
        lines.append(f"  = passes: {self.pipeline}")
        if self.reduced is not None:
            lines.append(f"the smallest graph found on which {name!r} is wrong:")
            lines.append(str(self.reduced))
        return lines


def bisect(
    model: Model,
    inputs: Arrays,
    pipeline: Pipeline | str | None = None,
    expected: Arrays | None = None,
    tolerance: float | None = None,
    *,
    reduced: bool = True,
) -> Bisection:
    """Find the first pass, and in it the first rewrite, after which a model answers wrongly.

    `expected` are the right outputs (default: those of the graph before any pass). Integers must be
    equal, floats within `tolerance` of the largest expected one (default: 1e-4; 2e-2 for f16 and
    bf16). A pass that raises, or breaks the graph, counts as wrong. `reduced=False` saves the time
    for the small graph. Raises what import raises, and OptionError for expected outputs that do not
    fit (MDLC1044) and a tolerance that is no number of at least 0 (MDLC1047).
    """
    _check_tolerance(tolerance)
    passes = _pipeline(pipeline)
    graph, arrays = prepared(model, inputs)
    search = Search(graph, arrays, passes, checked_expected(expected, graph), tolerance)
    return search.run(reduced)


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is None:
        return
    hint = "times the largest expected value: 1e-4"
    expect("bisect", "tolerance", tolerance, float, int, np.floating, hint=hint)
    if not (math.isfinite(tolerance) and tolerance >= 0):  # NaN compares as wrong nowhere
        text = f"bisect: tolerance is {tolerance}, expected a finite number of at least 0"
        raise OptionError(text, loc=caller(), hint=hint, code="MDLC1047")


def _pipeline(given: Pipeline | str | None) -> Pipeline:
    if given is None:
        return Pipeline.default(3, host())
    if isinstance(given, Pipeline):
        return given
    expect("bisect", "pipeline", given, str, Pipeline, hint='"canonicalize,cse"')
    named = parse_pipeline(given)
    needed = (p for p in Pipeline.default(0).passes if p.name not in named.names)
    return Pipeline((*needed, *named.passes))


@dataclass
class Search:
    """The graphs after each pass, and the question whether one of them is right."""

    graph: Graph
    arrays: Mapping[str, Array]
    pipeline: Pipeline
    expected: Sequence[Array] | None
    tolerance: float | None
    memo: Memo = field(default_factory=Memo)
    runs: int = 0

    def run(self, reduced: bool) -> Bisection:
        """Search pass, rewrite and the small graph, or the kernel."""
        if self.expected is None:
            self.expected = self.memo.run(self.graph, self.arrays)
        if (wrong := self.wrong(self.graph)) is not None:
            return Bisection("source", wrong, runs=self.runs)
        graphs, failure = self.after_each()
        whole = failure or self.wrong(graphs[-1])
        if whole is None:
            return self.compiled()
        last = len(graphs) - (failure is None)  # a pass that fails leaves no graph
        count = first_wrong(last, lambda n: n == len(graphs) or self.wrong(graphs[n]) is not None)
        found = self.rewrite(graphs[count - 1], count)
        return self.smaller(found) if reduced else found

    def wrong(self, graph: Graph) -> str | None:
        """How a graph's answer is wrong, or None."""
        assert self.expected is not None
        self.runs += 1
        try:
            got = self.memo.run(graph, self.arrays)
        except Exception as e:  # a reference on arrays that the type does not fit
            return f"it cannot be run: {e}"
        return wrong_output(got, self.expected, graph, self.tolerance)

    def after_each(self) -> tuple[list[Graph], str | None]:
        """The graph before the passes and after each; and why one failed, if it did."""
        graphs = [self.graph]
        for step in self.pipeline.passes:
            found = outcome(Pipeline((step,)), graphs[-1])
            if found.after is None:
                return graphs, found.failure
            graphs.append(found.after)
        return graphs, None

    def rewrite(self, before: Graph, count: int) -> Bisection:
        """The first wrong rewrite of the pass that is the `count`-th."""
        step = self.pipeline.passes[count - 1]
        trial = Trial(step, before, self.wrong)
        number = first_wrong(trial.total, lambda n: trial.wrong(n) is not None)
        return Bisection(
            guilty="pass",
            reason=trial.wrong(number) or "not the second time: the pass is not deterministic",
            pipeline=self.pipeline.until(count, limit=number),
            rewrite=trial.rewrite(number),
            number=number,
            of=trial.total,
            before=trial.run(number - 1).after,
            after=trial.run(number).after,
            runs=self.runs,
        )

    def smaller(self, found: Bisection) -> Bisection:
        """The finding with the smallest graph on which the pass still goes wrong."""
        assert found.step is not None
        assert found.before is not None
        graph = uniquely_named(found.before)
        values = self.memo.values(graph, self.arrays)
        known = {v.name: k.arrays[0] for v, k in values.items() if len(k.arrays) == 1}
        passes = Pipeline((replace(found.step, limit=None),))
        fails = goes_wrong(passes, graph, known, tolerance=self.tolerance, memo=self.memo)
        try:
            result = reduce(graph, fails)
        except OptionError:  # the pass is right on what its own first rewrites left
            return found
        return replace(found, reduced=result.graph, runs=self.runs + result.tests)

    def compiled(self) -> Bisection:
        """Every pass is right: the code of the kernels, one after the other."""
        assert self.expected is not None
        found = first_wrong_kernel(
            self.graph, self.arrays, self.pipeline, self.expected, self.tolerance, self.memo
        )
        if found is None:
            text = "every pass keeps the answer, and so does compiled code"
            return Bisection("nobody", text, self.pipeline, runs=self.runs)
        kernel, reason = found
        return Bisection("code", reason, self.pipeline, kernel=kernel, runs=self.runs)


def first_wrong(count: int, is_wrong: Callable[[int], bool]) -> int:
    """The smallest n of 1 … count with `is_wrong(n)`, if wrong stays wrong; `count` is wrong."""
    right, wrong = 0, count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if is_wrong(middle):
            wrong = middle
        else:
            right = middle
    return wrong
