"""The compiler as a table of contents.

    exe = compile("model.onnx", threads=2)          # or a Graph, bytes, a ModelProto
    outs = exe(x)                                   # fresh arrays, in the graph's output order
    print(exe.report())

Reads a model, writes an `Executable`. Each stage below can be replaced by name, for one `with`
block: see docs/extension_points.md. Treated in every course chapter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace

from minidlc import target as targets
from minidlc.calling import check_donated, donated_by_number
from minidlc.codegen.compile import Kernel, compile_kernel, run_kernel, short_symbol
from minidlc.codegen.control import has_long_loops
from minidlc.codegen.crew import compile_kernels
from minidlc.codegen.entry import compile_entry
from minidlc.codegen.model_cache import ModelCache
from minidlc.codegen.workspace import workspace_bytes
from minidlc.executable import Executable
from minidlc.expr.types import Array, TensorType
from minidlc.frontend.onnx.registry import ValueNeeded
from minidlc.frontend.trace import trace as trace  # declares a point, for `use`
from minidlc.graph import Graph, TupleType, Value, verify
from minidlc.graph.graph import building
from minidlc.levels import CompiledKernel, Later, Levels
from minidlc.loop.nodes import LoopFunction
from minidlc.lower import LoweredKernel, Program, lower_graph
from minidlc.ops import functional as functional  # importing ops registers them
from minidlc.origin import Origin, Recipe
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.spec import ArraySpec
from minidlc.sources import Model, Shapes, Source, is_static, open_source
from minidlc.support import extension, reports
from minidlc.support.arguments import expect
from minidlc.support.errors import CodegenError, MemoryLimitError, OptionError, nearest
from minidlc.template import Template
from minidlc.transform import Pipeline, parse_pipeline
from minidlc.tuning.database import Database, existing
from minidlc.tuning.lookup import Snapshot

model_cache = ModelCache()


def compile(
    model: Model,
    *,
    shapes: Shapes | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    precision: str = "default",
    target: targets.Target | None = None,
    pipeline: Pipeline | str | None = None,
    database: str | os.PathLike[str] | Database | None = None,
    max_specializations: int = 10,
    donate: Mapping[str, str] | None = None,
    max_bytes: int = 8 << 30,
    cache: bool = True,
) -> Executable:
    """Compile a model to machine code for this computer.

    `shapes` gives symbolic dims by name, or whole shapes by input name. Where sizes stay open, or
    the value of an input decides them, each new signature is compiled at its first call, at most
    `max_specializations` of them. `threads`: cores a call may use (default: all). `opt_level`: 0 =
    mandatory passes and plain loops; 1 = + fold_constants, canonicalize, cse, dce; 2 = + those that
    move and recognise ops, fold_conv_bn, layout, fuse; 3 = + fast schedules. `precision`: "strict",
    "default" or "fast" (target.PRECISIONS says what each allows). `pipeline` replaces the passes: a
    Pipeline, or text such as "cse,dce", to which mandatory passes are added. `database`: a file of
    tuning records (it must exist) or a Database; at level 3 kernels take the schedules that it
    holds for this target and number of threads, `report()` says from which record. `donate` names
    for inputs the outputs that go over them, {"w": "w_new"}: a call writes `w_new` into the
    caller's array of `w` and returns that; interrupted or refused, it has updated all or none.
    `max_bytes` bounds arena and constants together, and outputs. `cache=False` neither reads nor
    writes code on disk: by default a model that was compiled before starts without being compiled
    (origin.py says when). MINIDLC_JOBS processes compile, one for each core unless that is set
    (codegen/crew.py).
    Raises CompileError for a model or an option that does not fit.
    """
    target = replace(_target(target), precision=_precision(precision))
    passes = _pipeline(pipeline, opt_level, target)
    _check_bytes(max_bytes)
    expect("compile", "cache", cache, bool)
    fast, pairs = opt_level >= 3, _donate(donate)
    cores = core_count(threads)
    tuned = _tuned(database, fast, target, cores)
    if tuned is not None and pipeline is not None:
        tuned = tuned.without_layouts
    recipe = Recipe(cores, target, passes, fast, max_bytes, cache, pairs, tuned)
    most = _most(max_specializations)
    origin = None if reports.wanted() else Origin.of(model, shapes, recipe)
    if origin is not None and (ready := start(origin, origin.source, recipe, {}, {})):
        return ready
    source = open_source(model, shapes)

    def build(sizes: Mapping[str, Sequence[int]], values: Mapping[str, Array]) -> Executable:
        """Of one signature."""
        ready = origin and start(origin, lambda: source, recipe, sizes, values)
        return ready or compile_graph(source, recipe, sizes, values, origin)

    if is_static(source):
        try:
            return build({}, {})
        except ValueNeeded:
            pass  # an input's value decides sizes: known at a call
    else:
        with building():
            source.check()
    check_donated(source.name, dict(pairs), (d.name for d in source.inputs), source.outputs)
    source = source.kept()
    return Template(source, build, most)


def start(
    origin: Origin,
    read: Callable[[], Source],
    recipe: Recipe,
    sizes: Mapping[str, Sequence[int]],
    values: Mapping[str, Array],
) -> Executable | None:
    """The model from the cache on disk; None if it is not there. Its levels are made on demand."""
    key = origin.key(sizes, values)
    module = None if key is None else model_cache.read(key)
    if module is None:
        return None

    def levels() -> Levels:
        plain = Context()  # no overrides, as when it was compiled
        return plain.run(lambda: compile_levels(lambda: read().graph(sizes, values), recipe))

    return Executable(module, Later(levels))


def compile_graph(
    source: Source,
    recipe: Recipe,
    sizes: Mapping[str, Sequence[int]],
    values: Mapping[str, Array],
    origin: Origin | None = None,
) -> Executable:
    """Compile a model for sizes and values that are all known, and keep it on disk."""
    key = origin and origin.key(sizes, values)
    levels = compile_levels(lambda: source.graph(sizes, values), recipe)
    module = link(levels, recipe)
    if origin is not None and key is not None and origin.is_unchanged:
        model_cache.write(key, module)
    return Executable(module, Later.now(levels))


def compile_levels(load: Callable[[], Graph], recipe: Recipe) -> Levels:
    """Every stage in order, from `load`, which imports the model, to the code of each kernel."""
    with building(), extension.counting() as overrides:
        # model → graph IR
        graph = load()
        verify(graph)
        _check_outputs(graph, recipe.max_bytes)
        donated = donated_by_number(graph, dict(recipe.donate))
        # graph IR → graph IR: fold, simplify, fuse
        tuned, passes, layout = recipe.tuned, recipe.passes, ""
        if tuned is not None:
            passes, layout = tuned.passes(passes, graph)
        optimised, records = passes.run(graph)

        # graph IR → tensor expressions → schedules → loop IR, and the memory plan
        program = lower_program(optimised, recipe, donated)
        # loop IR → LLVM IR → machine code, one object per kernel
        try:
            natives = compile_all(program, recipe)
        except CodegenError:
            refused = refused_kernels(program, recipe)
            if not refused:
                raise
            program = lower_program(optimised, recipe, donated, refused)
            natives = compile_all(program, recipe)
    kernels = tuple(map(CompiledKernel, program.kernels, natives))
    reports.tell("kernels", lambda: kernels)
    found = (graph, optimised, kernels, program, records, overrides)
    note = "" if tuned is None else tuned.note
    return Levels(*found, has_database=tuned is not None, layout=layout, note=note)


def lower_program(
    graph: Graph,
    recipe: Recipe,
    donated: Mapping[int, int],
    refused: Mapping[str, str] | None = None,
) -> Program:
    """The kernels of an optimised graph as loops; those `refused`, by name, as plain loops.

    `donated` says by number which outputs go over which inputs.
    """

    def scratch(kernel: LoweredKernel) -> int:
        return workspace_bytes(kernel.loops, recipe.target, recipe.threads)

    return lower_graph(
        graph,
        recipe.target,
        fast=recipe.fast,
        max_bytes=recipe.max_bytes,
        workspace_bytes=scratch,
        run_loops=run_here(recipe),
        refused=refused,
        donated=donated,
        tuned=recipe.tuned,
    )


def compile_all(program: Program, recipe: Recipe) -> list[Kernel]:
    """The machine code of each kernel."""
    loops = [kernel.loops for kernel in program.kernels]
    return compile_kernels(loops, recipe.target, cache=recipe.cache)


def refused_kernels(program: Program, recipe: Recipe) -> dict[str, str]:
    """The scheduled kernels that code generation cannot take, by name: a fault of the schedule.

    Empty where a reader's part runs: its errors are the reader's to see.
    """
    found: dict[str, str] = {}
    for kernel in program.kernels if not extension.active() else ():
        if kernel.implementation in ("", "plain"):
            continue
        try:
            compile_kernel(kernel.loops, recipe.target, cache=recipe.cache)
        except CodegenError as e:
            found[kernel.name] = f"{kernel.implementation}: {e.code}"
    return found


def link(levels: Levels, recipe: Recipe) -> LoadedModule:
    """One more object that calls the kernels in order; all together are something to call."""
    program, natives = levels.program, [kernel.native for kernel in levels.kernels]
    symbols = (native.symbol for native in natives)
    calls = program.calls(dict(zip(program.kernel_names, symbols, strict=True)))
    entry = short_symbol(repr(calls))
    objects = {native.symbol: native.object for native in natives}
    return LoadedModule(
        objects=(*objects.values(), compile_entry(entry, calls, recipe.target, stop=program.stop)),
        entry=entry,
        inputs=_specs(levels.source.inputs),
        outputs=_specs(levels.source.outputs),
        constants=program.constants,
        arena_bytes=program.plan.arena_bytes,
        threads=recipe.threads,
        checks=program.checks,
        long_loops=has_long_loops(calls),
        name=levels.source.name,
        donated=program.donated,
    )


def run_here(recipe: Recipe) -> Callable[[LoopFunction, dict[str, Array]], None]:
    """How loops are run while a model is compiled: as code of this machine, in its precision."""
    here = replace(targets.host(), precision=recipe.target.precision)

    def run(fn: LoopFunction, arrays: dict[str, Array]) -> None:
        kernel = compile_kernel(fn, here, cache=recipe.cache)
        run_kernel(kernel, [arrays[p.name] for p in fn.params], recipe.threads)

    return run


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
    """Name, NumPy dtype, shape and place of each input or output."""
    specs: list[ArraySpec] = []
    for v in values:
        assert not isinstance(v.type, TupleType), "the verifier refuses tuples here"
        specs.append(ArraySpec(v.name, v.type.dtype.numpy, v.type.dims, v.loc))
    return tuple(specs)


def core_count(threads: int | None) -> int:
    """The cores a call may use, None for all there are; OptionError (MDLC1006)."""
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


def _tuned(
    database: str | os.PathLike[str] | Database | None,
    fast: bool,
    target: targets.Target,
    threads: int,
) -> Snapshot | None:
    """The records as they are now; a database is opened, but not used, below level 3."""
    if database is None:
        return None
    expect("compile", "database", database, str, os.PathLike, Database)
    opened = database if isinstance(database, Database) else existing(database, "compile")
    return Snapshot.of(opened, target, threads) if fast else Snapshot.unused(target, threads)


def _check_bytes(max_bytes: int) -> None:
    expect("compile", "max_bytes", max_bytes, int)
    if max_bytes < 1:
        text = f"max_bytes: expected at least 1, got {max_bytes}"
        raise OptionError(text, hint="8 << 30 is 8 GiB", code="MDLC1006")


def _donate(donate: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if donate is None:
        return ()
    expect("compile", "donate", donate, Mapping, hint='{"w": "w_new"}')
    for name in (*donate, *donate.values()):
        expect("compile", "donate", name, str, hint='names: {"w": "w_new"}')
    return tuple(sorted(donate.items()))


def _precision(precision: str) -> str:
    known = tuple(targets.PRECISIONS)
    if precision not in known:
        text = f"precision: expected one of {', '.join(known)}, got {precision!r}"
        raise OptionError(text, hint=nearest(str(precision), known), code="MDLC1006")
    return precision


def _pipeline(pipeline: Pipeline | str | None, opt_level: int, target: targets.Target) -> Pipeline:
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
        return Pipeline.default(opt_level, target)
    expect("compile", "pipeline", pipeline, Pipeline, str)
    return pipeline
