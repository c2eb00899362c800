"""What `compile` returns: a callable model that shows every level it went through.

    exe = mc.compile("model.onnx")
    outs = exe(x)                                   # or exe(x=x), exe({"x": x}), exe.run_dict(x=x)
    exe.kernels[0].te, .trace, .loops, .llvm, .asm  # each level of one kernel
    exe.memory_plan, exe.report(), exe.module       # module: all of it on one page

Treated in course chapters 04_lowering and 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from minidlc.calling import Interface, bind_inputs, check_out, check_values, other_shape
from minidlc.expr.types import Array
from minidlc.graph import Graph
from minidlc.levels import CompiledKernel, Later, Report
from minidlc.lower import Program
from minidlc.module_text import ModuleText
from minidlc.profiling import Profiler
from minidlc.provenance import Destination, Origin, Provenance
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.plan import MemoryPlan
from minidlc.runtime.profile import Profile
from minidlc.support.arguments import expect
from minidlc.support.errors import MemoryLimitError, OptionError, nearest
from minidlc.support.locations import caller
from minidlc.target import host
from minidlc.transform import Record


@dataclass(frozen=True)
class Executable:
    """A compiled model. Calls may run at the same time in several threads.

    A call needs `loaded`, the machine code, alone. Where that came from the disk cache the other
    levels are made when first asked for.
    """

    loaded: LoadedModule = field(repr=False)
    later: Later = field(repr=False)
    values: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    """Inputs whose value decided shapes: it was compiled for these."""

    def __repr__(self) -> str:
        inputs = ", ".join(f"{i.name}: {i.type}" for i in self.interface.inputs)
        levels = self.later.known
        size = "from the cache" if levels is None else f"{len(levels.kernels)} kernels"
        return f"<{self.interface.name}({inputs}), {size}>"

    @cached_property
    def interface(self) -> Interface:
        """Name, inputs and outputs: what calls are checked by."""
        return Interface.of(self.loaded)

    @property
    def source(self) -> Graph:
        """The graph as it was imported."""
        return self.later().source

    @property
    def graph(self) -> Graph:
        """The graph after the passes."""
        return self.later().graph

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """The kernels in execution order."""
        return self.later().kernels

    @property
    def program(self) -> Program:
        """The steps of a run, and where everything lies."""
        return self.later().program

    @property
    def passes(self) -> tuple[Record, ...]:
        """What each pass did."""
        return self.later().passes

    @property
    def overrides(self) -> Mapping[str, int]:
        """How often each override was called."""
        return self.later().overrides

    @property
    def specializations(self) -> Mapping[str, Executable]:
        """What each signature compiled to: all sizes are known here, so that is this one."""
        return {", ".join(f"{i.name}: {i.type}" for i in self.interface.inputs): self}

    def specialize(self, shapes: Mapping[str, int | Sequence[int] | Array]) -> Executable:
        """Compile ahead; all sizes are known here, so that is the executable for them.

        Raises OptionError (MDLC1025) for what is no input, CallError for another shape.
        """
        expect("specialize", "shapes", shapes, Mapping, hint='{"x": (4, 3)}')
        types = {i.name: i.type for i in self.interface.inputs}
        for name, given in shapes.items():
            if name not in types:
                text = f"{name!r} is no input of {self.interface.name}: all its sizes are known"
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
        return self.later().report()

    def kernel(self, name: str) -> CompiledKernel:
        """The kernel of that name; raises OptionError (MDLC1007) with the known ones."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = [k.name for k in self.kernels]
        raise OptionError(f"no kernel {name!r}", hint=nearest(name, known), code="MDLC1007")

    def profile(self, /, *arrays: object, seconds: float = 0.5, **named: object) -> Profile:
        """Run the model for about `seconds` on inputs as for a call, and time each kernel.

        Raises CallError (MDLC09xx) as a call does.
        """
        expect("profile", "seconds", seconds, int, float)
        return self.profiler(*arrays, **named).profile(seconds)

    def profiler(self, /, *arrays: object, **named: object) -> Profiler:
        """The model with a clock around each kernel: a call runs it once on these inputs.

        Raises CallError (MDLC09xx) as a call does.
        """
        inputs = bind_inputs(self.interface, arrays, named)
        check_values(self.interface, inputs, self.values)
        for number in self.loaded.donated.values():
            inputs[number] = inputs[number].copy()  # runs go on updating it
        symbols = [kernel.native.symbol for kernel in self.kernels]
        target = self.kernels[0].native.target if self.kernels else host()
        return Profiler(self.program, target, symbols, self.loaded, inputs)

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
            if out is None and not (named and arrays) and not self.values:
                results = self.loaded.run_if_plain((named,) if named else arrays)
                if results is not None:
                    return results
            inputs = bind_inputs(self.interface, arrays, named)
            check_values(self.interface, inputs, self.values)
            if out is not None:
                check_out(self.interface, inputs, out)
            return self.loaded.run(inputs, out=out)
        except MemoryError as e:
            raise self._no_memory(e) from None

    def _no_memory(self, e: MemoryError) -> MemoryLimitError:
        text = f"{self.interface.name}: no memory for a call: {e}"
        hint = "smaller inputs, or out= with arrays that are there"
        return MemoryLimitError(text, loc=caller(), hint=hint, code="MDLC1101")

    @property
    def _provenance(self) -> Provenance:
        kernels = tuple(kernel.provenance for kernel in self.kernels)
        return Provenance(self.source, self.graph, kernels, self.passes, self.program.free)

    def __call__(
        self, /, *arrays: object, out: Sequence[Array] | None = None, **named: object
    ) -> list[Array]:
        """Run the model on inputs by position, by keyword, or as one dict.

        Returns fresh arrays, or fills and returns `out`; for an output over a donated input the
        array that was given for it, updated. Raises CallError (MDLC09xx) for a missing, unknown or
        doubled input, or one of another element type or shape.
        """
        return self._run(arrays, named, out)

    def run_dict(self, /, *arrays: object, **named: object) -> dict[str, Array]:
        """Like a call; returns output name → array. The second of a name is `name_1`, and so on."""
        names = self.interface.output_names
        return dict(zip(names, self._run(arrays, named, None), strict=True))
