"""What a compilation makes on the way: every level of a model, and of each of its kernels.

    levels = exe.later()                            # of an Executable
    levels.kernels[0].te, .trace, .loops, .llvm, .asm
    print(levels.report())                          # nodes, kernels, memory, overrides

Written by the driver. A model that starts from the disk cache makes them only when somebody asks
(`Later`). Treated in course chapters 04_lowering and 05_backend_opt.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from minidlc.codegen.compile import Kernel, run_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Fused, Graph, Input, Node, OpKind, Value, print_graph
from minidlc.listing import listing
from minidlc.loop.nodes import LoopFunction
from minidlc.lower import LoweredKernel, Program
from minidlc.provenance import Lines
from minidlc.runtime.plan import MemoryPlan
from minidlc.support.errors import OptionError
from minidlc.te import Schedule, print_te
from minidlc.transform import Record


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel at every level; all texts parse back."""

    lowered: LoweredKernel = field(repr=False)
    native: Kernel = field(repr=False)

    @property
    def name(self) -> str:
        """Name in the report; the machine code's symbol is a hash."""
        return self.lowered.name

    @property
    def origin(self) -> Value:
        """The graph node it computes (`.loc` says where that came from)."""
        return self.lowered.origin

    @cached_property
    def provenance(self) -> Lines:
        """Its lines, and what they came from."""
        return Lines(self.lowered, self.native)

    @property
    def is_copy(self) -> bool:
        """True if it only copies a value: into an output, or into the state of a loop."""
        return self.lowered.is_copy

    @property
    def graph(self) -> str:
        """The part of the graph that this kernel computes."""
        origin = self.origin
        read: dict[Value, None] = dict.fromkeys(self.lowered.reads)
        if isinstance(origin, Node) and not self.is_copy:  # it may need no element of an input
            read |= {v: None for v in origin.inputs if not isinstance(v, Constant | None)}
        given = {v: Input(v.name, v.type) for v in read if isinstance(v.type, TensorType)}
        inputs = list(given.values())
        if isinstance(origin, Node) and isinstance(origin.op, Fused) and not self.is_copy:
            return print_graph(origin.op.body)
        if not isinstance(origin, Node) or self.is_copy:
            return print_graph(Graph.of(self.name, inputs, inputs))
        arguments = tuple(None if v is None else given.get(v, v) for v in origin.inputs)
        return print_graph(Graph.of(self.name, inputs, [replace(origin, inputs=arguments)]))

    @property
    def te(self) -> str:
        """Tensor expressions; empty for an op that writes its loops itself."""
        return print_te(self.lowered.group.outputs) if self.lowered.group else ""

    @property
    def schedule(self) -> Schedule:
        """The schedule: its trace, its prefixes, `show()`; OptionError (MDLC1007) if none."""
        if self.lowered.schedule is None:
            raise OptionError(
                f"kernel {self.name!r} has no schedule: its op writes the loops itself",
                hint="its .loops, .llvm and .asm",
                code="MDLC1007",
            )
        return self.lowered.schedule

    @property
    def trace(self) -> str:
        """Schedule primitives, one per line; empty where there are no stages."""
        return str(self.lowered.schedule.trace) if self.lowered.schedule else ""

    @property
    def loops(self) -> LoopFunction:
        """Loop IR; `str()` of it runs as Python."""
        return self.lowered.loops

    @property
    def llvm(self) -> str:
        """LLVM IR as code generation wrote it, before LLVM's own passes."""
        return self.native.llvm

    @property
    def asm(self) -> str:
        """Assembly of this machine."""
        return self.native.asm

    @property
    def listing(self) -> str:
        """Assembly between the loops and the nodes of the model that it came from."""
        return listing(self.provenance)

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run the kernel alone: an array for each parameter of `loops`; results are written.

        Constants need not be given.
        """
        named = zip((p.name for p in self.loops.params), self.lowered.inputs, strict=False)
        known = {name: v.array for name, v in named if isinstance(v, Constant)} | dict(arrays)
        run_kernel(self.native, [known[p.name] for p in self.loops.params])

    def __repr__(self) -> str:
        return f"<kernel {self}>"

    def __str__(self) -> str:
        origin, what = self.origin, "copy"
        if isinstance(origin, Node) and not self.is_copy:
            what = origin.op.body.name if isinstance(origin.op, Fused) else origin.op.name
        kind, chosen = self.lowered.kind, self.lowered.implementation
        schedule = kind if chosen in ("", kind) else f"{kind} ({chosen})"
        if self.lowered.refused:
            schedule += f", refused {', '.join(self.lowered.refused)}"
        if found := self.lowered.source or self.lowered.not_taken:
            schedule += f", {found}"
        return f"{self.name}: {origin.type} = {what}, schedule {schedule}"


@dataclass(frozen=True)
class Report:
    """What a compilation did: nodes, kernels, memory, and which overrides were called how often."""

    nodes_before: int
    nodes_after: int
    kernels: tuple[str, ...]
    host_ops: tuple[str, ...]
    passes: tuple[Record, ...] = field(repr=False)
    memory: MemoryPlan = field(repr=False)
    overrides: Mapping[str, int]
    specializations: tuple[str, ...] = ()  # signatures, of a model with open sizes
    control_flow: str = ""  # the steps as text, if there are branches or loops
    tuning: str = ""  # how many kernels are tuned, if there is a database

    def __str__(self) -> str:
        lines = [f"{self.nodes_before} nodes → {self.nodes_after} → {len(self.kernels)} kernels"]
        lines += [f"  {kernel}" for kernel in self.kernels]
        lines += self.control_flow.splitlines()
        lines.append(
            f"arena {self.memory.arena_bytes:,} bytes ({self.memory.naive_bytes:,} without reuse)"
        )
        lines += map(str, self.memory.updates)
        lines += [self.tuning] if self.tuning else []
        if self.host_ops:
            lines.append(f"host ops: {', '.join(self.host_ops)}")
        lines += [f"override {name}: {count} calls" for name, count in self.overrides.items()]
        lines += [f"compiled for {signature}" for signature in self.specializations]
        return "\n".join(lines)


@dataclass(frozen=True)
class Levels:
    """All that a compilation made on the way from the model to machine code."""

    source: Graph
    graph: Graph  # after the passes
    kernels: tuple[CompiledKernel, ...]
    program: Program = field(repr=False)
    passes: tuple[Record, ...] = field(repr=False)
    overrides: Mapping[str, int] = field(repr=False)
    has_database: bool = False
    layout: str = ""  # of images, where a record decided it
    note: str = ""  # why the database as a whole is of no use

    def report(self) -> Report:
        """Summary of the compilation."""
        return Report(
            nodes_before=len(self.source.nodes),
            nodes_after=len(self.graph.nodes),
            kernels=tuple(map(str, self.kernels)),
            host_ops=tuple(n.op.name for n in self.graph.nodes if n.op.kind is OpKind.HOST),
            passes=self.passes,
            memory=self.program.plan,
            overrides=dict(self.overrides),
            control_flow=self.program.outline,
            tuning="\n".join(self._tuning()),
        )

    def _tuning(self) -> Iterator[str]:
        """What the records of a database decided; nothing without one."""
        if self.has_database:
            yield _tuning(self.kernels)
        if self.layout:
            yield self.layout
        if self.note:
            yield self.note


def _tuning(kernels: Sequence[CompiledKernel]) -> str:
    """'tuning records: 3 kernels tuned, 1 not …'."""
    found = Counter(
        "tuned"
        if kernel.lowered.source
        else other.brief
        if (other := kernel.lowered.not_taken)
        else "not tuned"
        for kernel in kernels
    )
    return f"tuning records: {', '.join(f'{count} {what}' for what, count in found.items())}"


class Later:
    """Levels that are made when somebody asks: a model from the disk cache starts without them."""

    def __init__(self, make: Callable[[], Levels]) -> None:
        self._make = make
        self._made: Levels | None = None
        self._lock = threading.RLock()

    def __call__(self) -> Levels:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    @property
    def known(self) -> Levels | None:
        """The levels if somebody has asked."""
        return self._made

    @staticmethod
    def now(levels: Levels) -> Later:
        """Levels that are there already."""
        later = Later(lambda: levels)
        later()
        return later

    def __reduce__(self) -> tuple[Callable[[Levels], Later], tuple[Levels]]:
        return Later.now, (self(),)
