"""The compiler as a table of contents.

    exe = compile("model.onnx", threads=2)          # or a Graph, bytes, a ModelProto
    outs = exe(x)                                   # fresh arrays, in the graph's output order
    print(exe.report())

Reads a model, writes an `Executable`. Each stage below can be replaced by name, for one `with`
block: see docs/extension_points.md. Treated in every course chapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from minidlc import target as targets
from minidlc.codegen.compile import compile_kernel, short_symbol
from minidlc.codegen.control import has_long_loops
from minidlc.codegen.entry import compile_entry
from minidlc.codegen.workspace import workspace_bytes
from minidlc.executable import CompiledKernel, Executable
from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.registry import ValueNeeded
from minidlc.frontend.trace import trace as trace  # `use` knows the points of what is loaded
from minidlc.graph import Graph, TupleType, Value, verify
from minidlc.graph.graph import building
from minidlc.lower import LoweredKernel, lower_graph
from minidlc.ops import functional as functional  # importing ops registers them
from minidlc.runtime.module import ArraySpec, LoadedModule
from minidlc.sources import Model, Shapes, is_static, open_source
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import MemoryLimitError, OptionError, nearest
from minidlc.support.extension import use as use
from minidlc.template import Template
from minidlc.transform import Pipeline, parse_pipeline
from minidlc.transform.canonicalize import Canonicalize


def compile(
    model: Model,
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    precision: str = "default",
    target: targets.Target | None = None,
    pipeline: Pipeline | str | None = None,
    max_specializations: int = 10,
    max_bytes: int = 8 << 30,
) -> Executable:
    """Compile a model to machine code for this computer.

    `shapes` gives symbolic dims by name, or whole shapes by input name. Where sizes stay open, or
    the value of an input decides them, each new signature is compiled at its first call, at most
    `max_specializations` of them. `threads`: cores a call may use (default: all). `opt_level`: 0 =
    mandatory passes and plain loops; 1 = + fold_constants, canonicalize, cse, dce; 2 = + fuse; 3 =
    + fast schedules. `precision`: "strict", "default" or "fast" (target.PRECISIONS says what each
    allows). `pipeline` replaces the passes: a Pipeline, or text such as "cse,dce", to which
    mandatory passes are added. `max_bytes` bounds arena and constants together, and outputs. Raises
    CompileError for a model or an option that does not fit.
    """
    threads = _threads(threads)
    target = replace(_target(target), precision=_precision(precision))
    passes = _pipeline(pipeline, opt_level, precision)
    _check_bytes(max_bytes)
    most = _most(max_specializations)

    def build(load: Callable[[], Graph]) -> Executable:
        return compile_graph(load, threads, target, passes, opt_level >= 3, max_bytes)

    source = open_source(model, shapes)
    if is_static(source):
        try:
            return build(lambda: source.graph({}, {}))
        except ValueNeeded:
            pass  # an input's value decides sizes: known at a call
    else:
        with building():
            source.check()
    return Template(source.kept(), build, most)


def compile_graph(
    load: Callable[[], Graph],
    threads: int,
    target: targets.Target,
    passes: Pipeline,
    fast: bool,
    max_bytes: int,
) -> Executable:
    """Every stage in order. `load` imports the model: all its sizes are known."""
    with building(), extension.counting() as overrides:
        # model → graph IR
        graph = load()
        verify(graph)
        _check_outputs(graph, max_bytes)
        # graph IR → graph IR: fold, simplify, fuse
        optimised, records = passes.run(graph)

        # graph IR → tensor expressions → schedules → loop IR, and the memory plan
        def scratch(kernel: LoweredKernel) -> int:
            return workspace_bytes(kernel.loops, target, threads)

        program = lower_graph(
            optimised, target, fast=fast, max_bytes=max_bytes, workspace_bytes=scratch
        )
        # loop IR → LLVM IR → machine code, one object per kernel and one that calls them in order
        kernels = tuple(compile_kernel(kernel.loops, target) for kernel in program.kernels)
        symbols = (kernel.symbol for kernel in kernels)
        calls = program.calls(dict(zip(program.kernel_names, symbols, strict=True)))
        entry = short_symbol(repr(calls))
        entry_object = compile_entry(entry, calls, target)
        # machine code → something to call
        objects = {kernel.symbol: kernel.object for kernel in kernels}
        module = LoadedModule(
            objects=(*objects.values(), entry_object),
            entry=entry,
            inputs=_specs(graph.inputs),
            outputs=_specs(graph.outputs),
            constants=program.constants,
            arena_bytes=program.plan.arena_bytes,
            threads=threads,
            checks=program.checks,
            long_loops=has_long_loops(calls),
        )
    views = tuple(map(CompiledKernel, program.kernels, kernels))
    return Executable(graph, optimised, views, program, module, records, overrides)


def _check_outputs(graph: Graph, max_bytes: int) -> None:
    """Refuse outputs that no caller has room for; inputs are there already."""
    sizes = {o.name: o.type.nbytes for o in graph.outputs if isinstance(o.type, TensorType)}
    total = sum(sizes.values())
    if total > max_bytes:
        raise MemoryLimitError(
            f"{graph.name}: outputs of {total:,} bytes, max_bytes allows {max_bytes:,}",
            notes=[f"{name}: {size:,} bytes" for name, size in sizes.items()],
            hint="compile for smaller shapes, or raise max_bytes=",
            code="MDLC1101",
        )


def _specs(values: Sequence[Value]) -> tuple[ArraySpec, ...]:
    """Name, NumPy dtype and shape of each input or output."""
    specs: list[ArraySpec] = []
    for v in values:
        assert not isinstance(v.type, TupleType), "the verifier refuses tuples here"
        specs.append(ArraySpec(v.name, v.type.dtype.numpy, v.type.dims))
    return tuple(specs)


def _threads(threads: int | None) -> int:
    if threads is None:
        usable = getattr(os, "sched_getaffinity", None)  # Linux: the cores this process may use
        return len(usable(0)) if usable else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= 1024:
        hint = "None means all cores"
        raise OptionError(
            f"threads: expected 1 to 1024, got {threads!r}", hint=hint, code="MDLC1006"
        )
    return threads


def _most(max_specializations: int) -> int:
    if type(max_specializations) is not int or max_specializations < 1:
        text = f"max_specializations: expected at least 1, got {max_specializations!r}"
        raise OptionError(text, hint="each is compiled once and kept", code="MDLC1006")
    return max_specializations


def _target(target: targets.Target | None) -> targets.Target:
    if target is None:
        return targets.host()
    expect("compile", "target", target, targets.Target, hint="minidlc.target.host()")
    return target


def _check_bytes(max_bytes: int) -> None:
    expect("compile", "max_bytes", max_bytes, int)
    if max_bytes < 1:
        text = f"max_bytes: expected at least 1, got {max_bytes}"
        raise OptionError(text, hint="8 << 30 is 8 GiB", code="MDLC1006")


def _precision(precision: str) -> str:
    known = tuple(targets.PRECISIONS)
    if precision not in known:
        text = f"precision: expected one of {', '.join(known)}, got {precision!r}"
        raise OptionError(text, hint=nearest(str(precision), known), code="MDLC1006")
    return precision


def _pipeline(pipeline: Pipeline | str | None, opt_level: int, precision: str) -> Pipeline:
    if type(opt_level) is not int or not 0 <= opt_level <= 3:
        hint = "3 is the fastest code, 0 the plainest"
        raise OptionError(
            f"opt_level: expected 0, 1, 2 or 3, got {opt_level!r}", hint=hint, code="MDLC1006"
        )
    if isinstance(pipeline, str):
        named = parse_pipeline(pipeline)
        needed = (p for p in Pipeline.default(0).passes if p.name not in named.names)
        return Pipeline((*needed, *named.passes))
    if pipeline is None:
        passes = Pipeline.default(opt_level)
        if precision == "fast" and "canonicalize" in passes.names:
            passes = passes.replace("canonicalize", Canonicalize(rules="fast"))
        return passes
    expect("compile", "pipeline", pipeline, Pipeline, str)
    return pipeline
