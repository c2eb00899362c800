"""Passes in order, verified after each, recorded, and replaceable by name.

    g, records = Pipeline.default(opt_level=3).run(g)
    Pipeline.default().replace("cse", my_cse).without("fuse").insert_after("dce", other)
    parse_pipeline("canonicalize,cse,fuse{max_ops=8}").until("cse", limit=3)
    for r in records: print(r.name, r.seconds, r.nodes_before, r.nodes_after, *r.rewrites)

A pass that breaks the graph is a PassError that names it, the passes before it, and shows the last
good graph (failure.py); dump.py writes the graph after each pass. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import ast
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from minidlc.graph.graph import Graph
from minidlc.graph.literals import Reader
from minidlc.graph.verify import verify
from minidlc.support import reports
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, OptionError, ParseError, PassError, nearest
from minidlc.support.options import convert, hints
from minidlc.support.source import Source
from minidlc.target import Target
from minidlc.transform.block.fold_constants import FoldConstants
from minidlc.transform.block.fold_conv_bn import FoldConvBn
from minidlc.transform.block.hoist import Hoist
from minidlc.transform.block.hoist_invariants import HoistInvariants
from minidlc.transform.block.sink import Sink
from minidlc.transform.dataflow.cse import Cse
from minidlc.transform.dataflow.dce import Dce
from minidlc.transform.decompose import Decompose
from minidlc.transform.dump import Dump
from minidlc.transform.failure import failure
from minidlc.transform.fusion.fuse import Fuse
from minidlc.transform.layout.layout import Layout
from minidlc.transform.log import Event, Pair, Refusal, Rewrite, collecting, limited
from minidlc.transform.node.eliminate_zero_size import EliminateZeroSize
from minidlc.transform.pass_ import PROPERTIES, Pass, graph_pass, pass_class, registered_passes
from minidlc.transform.rules.canonicalize import Canonicalize, Recognise

_OF_THE_ASKER = ("MDLC1012", "MDLC1015", "MDLC1240")  # an option, or a budget, that cannot be met


@dataclass(frozen=True)
class Record:
    """What one pass did. Texts are printed when asked for."""

    name: str
    seconds: float
    before: Graph
    after: Graph
    events: tuple[Event, ...] = ()
    done: tuple[Rewrite, ...] = ()  # what `limit` counts: the n-th rewrite is done[n - 1]

    @property
    def changed(self) -> bool:
        """False if the pass returned the graph it got."""
        return self.after is not self.before

    @property
    def nodes_before(self) -> int:
        """Number of nodes that the pass got."""
        return len(self.before.nodes)

    @property
    def nodes_after(self) -> int:
        """Number of nodes that the pass left."""
        return len(self.after.nodes)

    @cached_property
    def text_before(self) -> str:
        """The graph before, as text."""
        return str(self.before)

    @cached_property
    def text_after(self) -> str:
        """The graph after, as text."""
        return str(self.after)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """What was changed, in order."""
        return tuple(e for e in self.events if isinstance(e, Rewrite))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What was looked at and left, with reasons."""
        return tuple(e for e in self.events if isinstance(e, Refusal))

    @property
    def fusion(self) -> tuple[Pair, ...]:
        """Every neighbouring pair of nodes: fused or not, and why."""
        return tuple(e for e in self.events if isinstance(e, Pair))


@dataclass(frozen=True)
class Pipeline:
    """An immutable sequence of passes; the editing methods return a new one."""

    passes: tuple[Pass, ...]

    def __post_init__(self) -> None:
        expect("Pipeline", "passes", self.passes, tuple, hint="a tuple of passes")
        for step in self.passes:
            expect("Pipeline", "a pass", step, Pass, hint="Cse(), or graph_pass('name')(function)")

    @staticmethod
    def default(opt_level: int = 3, target: Target | None = None) -> Pipeline:
        """The passes of an optimisation level, 0 to 3; OptionError (MDLC1013) for another.

        A target says how many channels a block has, and what its `precision` allows.
        """
        if type(opt_level) is not int or not 0 <= opt_level <= 3:
            raise OptionError(f"opt_level must be 0, 1, 2 or 3, got {opt_level}", code="MDLC1013")
        precision = "default" if target is None else target.precision
        order = (
            Decompose(),
            FoldConstants(),
            EliminateZeroSize(),
            Hoist(),
            HoistInvariants(),
            Sink(),
            Canonicalize("fast") if precision == "fast" else Canonicalize(),
            FoldConstants(),
            Cse(),
            Dce(),
            Recognise(),
            FoldConvBn(),
            Layout() if target is None else Layout(block=target.lanes(32)),
            Fuse(),
        )
        exact = precision == "strict"
        kept = (p for p in order if p.mandatory or p.level <= opt_level)
        return Pipeline(tuple(p for p in kept if p.exact or not exact))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the passes, in order."""
        return tuple(p.name for p in self.passes)

    def replace(self, name: str, by: Pass | Callable[[Graph], Graph]) -> Pipeline:
        """Every pass of this name replaced."""
        new = _as_pass(by, name)
        self._index(name)
        return Pipeline(tuple(new if p.name == name else p for p in self.passes))

    def without(self, *names: str) -> Pipeline:
        """Without the passes of these names; a mandatory one is an OptionError (MDLC1014)."""
        for name in names:
            if self.passes[self._index(name)].mandatory:
                text = f"pass {name!r} is mandatory"
                hint = "lowering needs it; replace(…) puts another in its place"
                raise OptionError(text, hint=hint, code="MDLC1014")
        return Pipeline(tuple(p for p in self.passes if p.name not in names))

    def only(self, *names: str) -> Pipeline:
        """The mandatory passes and the named ones, in the order of this pipeline."""
        for name in names:
            self._index(name)
        return Pipeline(tuple(p for p in self.passes if p.mandatory or p.name in names))

    def insert_after(self, name: str, new: Pass | Callable[[Graph], Graph]) -> Pipeline:
        """A pass right after the last of this name."""
        at = len(self.passes) - Pipeline(self.passes[::-1])._index(name)
        return Pipeline((*self.passes[:at], _as_pass(new), *self.passes[at:]))

    def insert_before(self, name: str, new: Pass | Callable[[Graph], Graph]) -> Pipeline:
        """A pass right before the first of this name."""
        at = self._index(name)
        return Pipeline((*self.passes[:at], _as_pass(new), *self.passes[at:]))

    def until(self, last: int | str, limit: int | None = None) -> Pipeline:
        """The passes up to `last`, and of that one the first `limit` rewrites, None for all.

        `last` counts passes, as the numbers of dumped files do, or names the first of that name.
        Raises OptionError: MDLC1043 for another number, MDLC1042 for a limit that is none.
        """
        expect("until", "last", last, int, str)
        count = last if isinstance(last, int) else self._index(last) + 1
        if not 0 <= count <= len(self.passes):
            text = f"until: no pass {count}, the pipeline has {len(self.passes)}"
            hint = f"0 to {len(self.passes)}, or a name"
            raise OptionError(text, hint=hint, code="MDLC1043")
        kept = self.passes[:count]
        if limit is None or not kept:
            return Pipeline(kept)
        return Pipeline((*kept[:-1], replace(kept[-1], limit=limit)))

    def _index(self, name: str) -> int:
        if name not in self.names:
            text = f"no pass {name!r} in the pipeline"
            notes = (f"passes: {', '.join(dict.fromkeys(self.names))}",)
            hint = nearest(name, self.names)
            raise OptionError(text, notes=notes, hint=hint, code="MDLC1011")
        return self.names.index(name)

    def run(
        self,
        graph: Graph,
        *,
        dump: str | Path | None = None,
        reproducer: str | Path | None = None,
    ) -> tuple[Graph, tuple[Record, ...]]:
        """The graph after all passes, and a record of each.

        `dump` is a folder for the graph after each pass. `reproducer` is one for the last good
        graph should a pass fail (default: MINIDLC_REPRODUCER of the environment; "" for none).
        Raises VerifyError if the graph given is not valid, PassError (MDLC05xx) for a pass that
        fails or breaks its contract; OptionError (MDLC1012, MDLC1015) and GradientError (MDLC1240)
        for what was asked of a pass and cannot be had.
        """
        verify(graph)
        if reproducer is None:
            reproducer = os.environ.get("MINIDLC_REPRODUCER")
        files = None if dump is None else Dump(dump)
        if files is not None:
            files.write("input", graph)
        records: list[Record] = []
        for step in self.passes:
            record = _run_one(step, graph, self.names[: len(records)], reproducer)
            _tell(record)
            records.append(record)
            graph = record.after
            if files is not None:
                files.write(step.name, graph)
        return graph, tuple(records)

    __call__ = run

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))


def _as_pass(thing: Pass | Callable[[Graph], Graph], name: str | None = None) -> Pass:
    if isinstance(thing, Pass):
        return thing
    if not callable(thing):
        expect("Pipeline", "a pass", thing, Pass, hint="or a function from graph to graph")
    return graph_pass(name or getattr(thing, "__name__", "pass"))(thing)


def _run_one(
    step: Pass, graph: Graph, earlier: tuple[str, ...], reproducer: str | Path | None
) -> Record:
    start = time.perf_counter()
    with collecting() as events, limited(step.limit) as count:
        try:
            _check_properties(step.requires, graph, "requires")
            after = step(graph)
            _check_interface(graph, after)
            verify(after)
            if step.limit is None:
                _check_properties(step.ensures, after, "ensures")
        except Exception as e:
            if isinstance(e, CompileError) and e.code in _OF_THE_ASKER:
                raise  # the asker's fault, not the pass's
            error = failure(step, graph, earlier, e, reproducer)
            error.done = tuple(count.done)
            raise error from e
    if after is not graph and not count.done:
        count.done.append(Rewrite(step.name, graph.name))
    seconds = time.perf_counter() - start
    return Record(step.name, seconds, graph, after, tuple(events), tuple(count.done))


def _tell(record: Record) -> None:
    """What MINIDLC_LOG asks for."""
    done = f"{len(record.done)} rewrite{'' if len(record.done) == 1 else 's'}"
    sizes = f"{record.nodes_before} -> {record.nodes_after} nodes, {done}"
    reports.tell("passes", lambda: [f"{record.name}: {record.seconds:.3f} s, {sizes}"])
    reports.tell("rewrites", lambda: (f"{record.name}: {e}" for e in record.rewrites))
    reports.tell("refusals", lambda: (f"{record.name}: {e}" for e in record.refusals))
    reports.tell("fusion", lambda: (f"{record.name}: {e}" for e in record.fusion))


def _check_properties(names: Iterable[str], graph: Graph, verb: str) -> None:
    """Refuse a graph that has not every one of the properties."""
    for name in names:
        if not PROPERTIES[name](graph):
            ensuring = [p for p, cls in registered_passes().items() if name in cls.ensures]
            hint = f"passes that ensure it: {', '.join(ensuring) or 'none'}"
            text = f"{verb} {name!r}, which does not hold"
            raise PassError(text, hint=hint if verb == "requires" else None, code="MDLC0502")


def _check_interface(before: Graph, after: object) -> None:
    """Callers rely on inputs, their names, and the types of outputs: no pass changes them."""
    if not isinstance(after, Graph):
        raise PassError(f"returned {after!r:.60}, not a graph", code="MDLC0502")
    old = [(i.name, str(i.type)) for i in before.inputs]
    new = [(i.name, str(i.type)) for i in after.inputs]
    if old != new:
        raise PassError(f"changed the inputs from {old} to {new}", code="MDLC0502")
    if before.output_types() != after.output_types():
        types = (", ".join(map(str, g.output_types())) for g in (before, after))
        raise PassError(f"changed the outputs from {' to '.join(types)}", code="MDLC0502")


def parse_pipeline(text: str) -> Pipeline:
    """Read `canonicalize,cse,fuse{max_ops=8}`. Raises OptionError (MDLC1011, MDLC1015)."""
    passes: list[Pass] = []
    rest = text.strip()
    while rest:
        found = re.match(r"\s*([\w.-]+)\s*(?:\{([^}]*)\})?\s*(?:,|$)", rest)
        if found is None:
            hint = "write canonicalize,cse,fuse{max_ops=8}"
            raise OptionError(f"not a list of passes: {rest!r}", hint=hint, code="MDLC1015")
        passes.append(_parse_pass(found[1], found[2] or ""))
        rest = rest[found.end() :]
    return Pipeline(tuple(passes))


def _parse_pass(name: str, options: str) -> Pass:
    cls = pass_class(name)
    source = Source(f"options of {name}", f"f({options})")
    try:
        match source.parse().body:
            case [ast.Expr(value=ast.Call(args=[], keywords=keywords))]:
                options_given = [(k.arg or "**", _option(cls, source, k)) for k in keywords]
            case _:
                text = f"options of {name!r} are {{name=value, …}}, got {options!r}"
                raise OptionError(text, code="MDLC1015")
    except ParseError as e:
        raise OptionError(f"pass {name!r}: {e.message}", code="MDLC1015") from None
    if len(dict(options_given)) < len(options_given):
        raise OptionError(f"pass {name!r}: an option is given twice", code="MDLC1015")
    return cls(**dict(options_given))


def _option(cls: type[Pass], source: Source, k: ast.keyword) -> Any:
    expected = hints(cls)
    if k.arg not in expected:
        hint = nearest(k.arg or "", expected)
        raise OptionError(f"pass {cls.name!r} has no option {k.arg!r}", hint=hint, code="MDLC1015")
    try:
        return convert(Reader(source).attribute(k.value), expected[k.arg])
    except ValueError as e:
        text = f"pass {cls.name!r}: option {k.arg!r}: {e}"
        raise OptionError(text, code="MDLC1015") from None
