"""What `compile` returns: a callable model that shows every level it went through.

    exe = mc.compile("model.onnx")
    outs = exe(x)                                   # or exe(x=x), exe({"x": x}), exe.run_dict(x=x)
    exe.kernels[0].te, .trace, .loops, .llvm, .asm  # each level of one kernel
    exe.memory_plan, exe.report(), exe.module       # module: all of it on one page

Treated in course chapters 04_schedule and 05_codegen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from minidlc.calling import bind_inputs, check_out, check_values, other_shape
from minidlc.codegen.compile import Kernel, run_kernel
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Fused, Graph, Input, Node, OpKind, Value, print_graph
from minidlc.loop.nodes import LoopFunction
from minidlc.lower import LoweredKernel, Program
from minidlc.module_text import ModuleText
from minidlc.provenance import Destination, Lines, Origin, Provenance
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.plan import MemoryPlan
from minidlc.support.arguments import expect
from minidlc.support.errors import MemoryLimitError, OptionError, nearest
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
        read: dict[Value, None] = dict.fromkeys(self.lowered.inputs)
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

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run the kernel alone: an array for each parameter of `loops`; results are written."""
        run_kernel(self.native, [arrays[p.name] for p in self.loops.params])

    def __repr__(self) -> str:
        return f"<kernel {self}>"

    def __str__(self) -> str:
        origin, what = self.origin, "copy"
        if isinstance(origin, Node) and not self.is_copy:
            what = origin.op.body.name if isinstance(origin.op, Fused) else origin.op.name
        kind, chosen = self.lowered.kind, self.lowered.implementation
        schedule = kind if chosen in ("", kind) else f"{kind} ({chosen})"
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

    def __str__(self) -> str:
        lines = [f"{self.nodes_before} nodes → {self.nodes_after} → {len(self.kernels)} kernels"]
        lines += [f"  {kernel}" for kernel in self.kernels]
        lines += self.control_flow.splitlines()
        lines.append(
            f"arena {self.memory.arena_bytes:,} bytes ({self.memory.naive_bytes:,} without reuse)"
        )
        if self.host_ops:
            lines.append(f"host ops: {', '.join(self.host_ops)}")
        lines += [f"override {name}: {count} calls" for name, count in self.overrides.items()]
        lines += [f"compiled for {signature}" for signature in self.specializations]
        return "\n".join(lines)


@dataclass(frozen=True)
class Executable:
    """A compiled model. Calls may run at the same time in several threads."""

    source: Graph = field(repr=False)
    graph: Graph = field(repr=False)  # after the passes
    kernels: tuple[CompiledKernel, ...]
    program: Program = field(repr=False)
    loaded: LoadedModule = field(repr=False)
    passes: tuple[Record, ...] = field(repr=False)
    overrides: Mapping[str, int] = field(repr=False)
    values: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    """Inputs whose value decided shapes: it was compiled for these."""

    def __repr__(self) -> str:
        inputs = ", ".join(f"{i.name}: {i.type}" for i in self.source.inputs)
        return f"<{self.source.name}({inputs}), {len(self.kernels)} kernels>"

    @property
    def specializations(self) -> Mapping[str, Executable]:
        """What each signature compiled to: all sizes are known here, so that is this one."""
        return {", ".join(f"{i.name}: {i.type}" for i in self.source.inputs): self}

    def specialize(self, shapes: Mapping[str, int | Sequence[int] | Array]) -> Executable:
        """Compile ahead; all sizes are known here, so that this is the executable for them.

        Raises OptionError (MDLC1025) for what is no input, CallError for another shape.
        """
        expect("specialize", "shapes", shapes, Mapping, hint='{"x": (4, 3)}')
        types = {i.name: i.type for i in self.source.inputs}
        for name, given in shapes.items():
            if name not in types:
                text = f"{name!r} is no input of {self.source.name}: all its sizes are known"
                hint = nearest(name, types)
                raise OptionError(text, loc=caller(), hint=hint, code="MDLC1025")
            shape = np.shape(given) if isinstance(given, np.ndarray) else given
            if not isinstance(shape, Sequence) or tuple(shape) != types[name].dims:
                raise other_shape(name, types[name], shape)
        return self

    @property
    def memory_plan(self) -> MemoryPlan:
        """Offsets and live ranges of all intermediate buffers."""
        return self.program.plan

    @property
    def module(self) -> ModuleText:
        """The calls of one run and the loops of every kernel, on one page; `print` it."""
        return ModuleText(self.program)

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
            control_flow=self.program.outline,
        )

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name; raises OptionError (MDLC1007) with the known ones."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = [k.name for k in self.kernels]
        raise OptionError(f"no kernel {name!r}", hint=nearest(name, known), code="MDLC1007")

    def where_from(self, instruction: str) -> Origin:
        """What an LLVM instruction came from; raises OptionError (MDLC1032): see provenance.py."""
        expect("where_from", "instruction", instruction, str, hint="kernel:line, or the text")
        return self._provenance.where_from(instruction)

    def where_to(self, node: str) -> Destination:
        """What became of a node of the model; raises OptionError (MDLC1031): see provenance.py."""
        return self._provenance.where_to(node)

    def _run(
        self,
        arrays: Sequence[object],
        named: Mapping[str, object],
        out: Sequence[Array] | None,
    ) -> list[Array]:
        try:
            inputs = bind_inputs(self.source, arrays, named)
            check_values(self.source, inputs, self.values)
            if out is not None:
                check_out(self.source, inputs, out)
            return self.loaded.run(inputs, out=out)
        except MemoryError as e:
            text = f"{self.source.name}: no memory for a call: {e}"
            hint = "smaller inputs, or out= with arrays that are there"
            raise MemoryLimitError(text, loc=caller(), hint=hint, code="MDLC1101") from None

    @property
    def _provenance(self) -> Provenance:
        kernels = tuple(kernel.provenance for kernel in self.kernels)
        return Provenance(self.source, self.graph, kernels, self.passes)

    def __call__(
        self, /, *arrays: object, out: Sequence[Array] | None = None, **named: object
    ) -> list[Array]:
        """Run the model on inputs by position, by keyword, or as one dict.

        Returns fresh arrays, or fills and returns `out`. Raises CallError (MDLC09xx) for a missing,
        unknown or doubled input, or one of another element type or shape.
        """
        return self._run(arrays, named, out)

    def run_dict(self, /, *arrays: object, **named: object) -> dict[str, Array]:
        """Like a call; returns output name → array. The second of a name is `name_1`, and so on."""
        taken = Names()
        names = [taken.fresh(value.name) for value in self.source.outputs]
        return dict(zip(names, self._run(arrays, named, None), strict=True))
