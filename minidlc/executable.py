"""What `compile` returns: a callable model that shows every level it went through.

    exe = mc.compile("model.onnx")
    outs = exe(x)                                   # or exe(x=x), exe({"x": x}), exe.run_dict(x=x)
    exe.kernels[0].te, .trace, .loops, .llvm, .asm  # each level of one kernel
    exe.memory_plan, exe.report()

Treated in course chapters 04_schedule and 05_codegen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidlc.codegen.compile import Kernel, run_kernel
from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph import Fused, Graph, Input, Node, OpKind, Value, print_graph
from minidlc.loop.nodes import LoopFunction
from minidlc.lower import LoweredKernel, Program
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.plan import MemoryPlan
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, CompileError, OptionError, nearest
from minidlc.support.locations import caller
from minidlc.support.names import Names
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

    @property
    def graph(self) -> str:
        """The part of the graph that this kernel computes."""
        origin = self.origin
        if isinstance(origin, Node) and isinstance(origin.op, Fused):
            return print_graph(origin.op.body)
        inputs = [
            Input(v.name, v.type) for v in self.lowered.inputs if isinstance(v.type, TensorType)
        ]
        if not isinstance(origin, Node):  # a copy into an output
            return print_graph(Graph.of(self.name, inputs, inputs))
        given = dict(zip(self.lowered.inputs, inputs, strict=True))
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

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run the kernel alone: an array for each parameter of `loops`; results are written."""
        run_kernel(self.native, [arrays[p.name] for p in self.loops.params])

    def __str__(self) -> str:
        origin, what = self.origin, "copy"
        if isinstance(origin, Node):
            what = origin.op.body.name if isinstance(origin.op, Fused) else origin.op.name
        return f"{self.name}: {origin.type} = {what}, schedule {self.lowered.kind}"


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

    def __str__(self) -> str:
        lines = [f"{self.nodes_before} nodes → {self.nodes_after} → {len(self.kernels)} kernels"]
        lines += [f"  {kernel}" for kernel in self.kernels]
        lines.append(
            f"arena {self.memory.arena_bytes:,} bytes ({self.memory.naive_bytes:,} without reuse)"
        )
        if self.host_ops:
            lines.append(f"host ops: {', '.join(self.host_ops)}")
        lines += [f"override {name}: {count} calls" for name, count in self.overrides.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Executable:
    """A compiled model. Calls may run at the same time in several threads."""

    source: Graph = field(repr=False)
    graph: Graph = field(repr=False)  # after the passes
    kernels: tuple[CompiledKernel, ...]
    program: Program = field(repr=False)
    module: LoadedModule = field(repr=False)
    passes: tuple[Record, ...] = field(repr=False)
    overrides: Mapping[str, int] = field(repr=False)

    @property
    def memory_plan(self) -> MemoryPlan:
        """Offsets and live ranges of all intermediate buffers."""
        return self.program.plan

    def report(self) -> Report:
        """Summary of the compilation; `print` it."""
        return Report(
            nodes_before=len(self.source.nodes),
            nodes_after=len(self.graph.nodes),
            kernels=tuple(map(str, self.kernels)),
            host_ops=tuple(n.op.name for n in self.graph.nodes if n.op.kind is OpKind.HOST),
            passes=self.passes,
            memory=self.memory_plan,
            overrides=dict(self.overrides),
        )

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name; raises OptionError (MDLC1007) with the known ones."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = [k.name for k in self.kernels]
        raise OptionError(f"no kernel {name!r}", hint=nearest(name, known), code="MDLC1007")

    def __call__(
        self, *arrays: object, out: Sequence[Array] | None = None, **named: object
    ) -> list[Array]:
        """Run the model on inputs by position, by keyword, or as one dict.

        Returns fresh arrays, or fills and returns `out`. Raises CallError (MDLC09xx) for a missing,
        unknown or doubled input, or one of another element type or shape.
        """
        inputs = bind_inputs(self.source, arrays, named)
        if out is not None:
            _check_out(self.source, inputs, out)
        return self.module.run(inputs, out=out)

    def run_dict(self, *arrays: object, **named: object) -> dict[str, Array]:
        """Like a call; returns output name → array. The second of a name is `name_1`, and so on."""
        taken = Names()
        names = [taken.fresh(value.name) for value in self.source.outputs]
        inputs = bind_inputs(self.source, arrays, named)
        return dict(zip(names, self.module.run(inputs), strict=True))


def bind_inputs(graph: Graph, arrays: Sequence[object], named: Mapping[str, object]) -> list[Array]:
    """Match arguments with the graph's inputs and check each; returns dense arrays in order."""
    if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
        arrays, named = (), dict(arrays[0])  # pyright: ignore[reportUnknownArgumentType]
    names = [i.name for i in graph.inputs]
    if len(arrays) > len(names):
        raise _refusal(graph, f"takes {len(names)} inputs, got {len(arrays)}")
    given = dict(zip(names, arrays, strict=False))
    for name, array in named.items():
        if name not in names:
            raise _refusal(graph, f"unknown input {name!r}", nearest(name, names))
        if name in given:
            raise _refusal(graph, f"input {name!r} given twice")
        given[name] = array
    missing = [name for name in names if name not in given]
    if missing:
        raise _refusal(graph, f"missing input {missing[0]!r}")
    return [_check_input(i.name, i.type, given[i.name]) for i in graph.inputs]


def _refusal(graph: Graph, message: str, hint: str | None = None) -> CallError:
    """The error for arguments that do not match the inputs: it lists what is wanted."""
    return CallError(
        f"{graph.name}: {message}",
        loc=caller(),
        notes=tuple(f"{i.name}: {i.type}" for i in graph.inputs),
        hint=hint or "one array for each input, by position, by name or as one dict",
        code="MDLC0902",
    )


def _check_input(name: str, expected: TensorType, thing: object) -> Array:
    try:
        array = np.asarray(thing)
    except (ValueError, TypeError):
        array = np.asarray(None)
    try:
        got = dtype(array.dtype)
    except CompileError:
        what = f"not an array: {type(thing).__name__}"
        if isinstance(thing, np.ndarray):
            what = f"elements of {array.dtype}, which is no element type of this machine"
        raise CallError(
            f"input {name!r}: {what}",
            loc=caller(),
            hint=f"a NumPy array of {expected}, in this machine's byte order",
        ) from None
    if got != expected.dtype:
        raise CallError(
            f"input {name!r}: expected {expected}, got element type {got}",
            loc=caller(),
            hint=f"{name}.astype({expected.dtype.numpy.name!r})",
            code="MDLC0903",
        )
    if array.shape != expected.dims:
        raise CallError(
            f"input {name!r}: expected {expected}, got shape {array.shape}",
            loc=caller(),
            hint="compile for this shape, or reshape the array",
            code="MDLC0904",
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _check_out(graph: Graph, inputs: Sequence[Array], out: Sequence[Array]) -> None:
    """`out` must hold one writable dense array for each output, sharing memory with nothing."""
    expect("a call", "out", out, list, tuple, np.ndarray, hint="one array for each output")
    wanted = [v.type for v in graph.outputs if isinstance(v.type, TensorType)]
    fitting = len(out) == len(wanted) and all(
        isinstance(array, np.ndarray)  # pyright: ignore[reportUnnecessaryIsInstance]
        and array.dtype == t.dtype.numpy
        and array.shape == t.dims
        and array.flags.c_contiguous
        and array.flags.aligned
        and array.flags.writeable
        for array, t in zip(out, wanted, strict=True)
    )
    if not fitting:
        raise CallError(
            f"out: expected writable dense arrays of types {', '.join(map(str, wanted))}",
            loc=caller(),
            notes=tuple(f"got {np.asarray(a).dtype}{list(np.shape(a))}" for a in out),
            hint="np.empty of each type",
            code="MDLC0905",
        )
    # kernels are compiled on the promise that what they write overlaps nothing they read
    arrays = [*inputs, *out]
    for k, array in enumerate(out, len(inputs)):
        if any(np.may_share_memory(array, other) for other in arrays[:k]):
            raise CallError(
                "out: shares memory with an input or another output",
                loc=caller(),
                hint="give each output an array of its own",
                code="MDLC0906",
            )
