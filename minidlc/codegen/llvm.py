"""Code generation proper: one loop function to the text of one LLVM module.

    text = emit(fn, target, "k_12ab")
    # define void @k_12ab(ptr noalias %A, ptr noalias %C, ptr %.workspace, i32 %.threads)

Every decision (tiles, vectors, unrolling, registers) was made in the loops; LLVM only allocates
registers, schedules and encodes. One pointer per parameter, then the workspace (64-byte aligned,
`workspace_bytes`), then the number of threads that may be used. Parameters that are written do
not overlap others (`noalias`), except that a result may lie where an input lies that the loops read
just before they write there (loop/in_place.py): of these two nothing is promised. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

from minidlc.codegen.memory import Buffer
from minidlc.codegen.module import MARK, Module, stem
from minidlc.codegen.outline import PARALLEL_FOR
from minidlc.codegen.statements import Emitter
from minidlc.codegen.workspace import spilled, strides
from minidlc.loop.in_place import in_place
from minidlc.loop.nodes import For, Kind, LoopFunction, Stmt, walk
from minidlc.support.errors import CodegenError
from minidlc.support.extension import declare, dispatch
from minidlc.target import Target

declare(
    "emit",
    "(fn: LoopFunction, target: Target, symbol: str) -> str",
    "code generation: the LLVM module that defines `symbol` with the kernel's interface",
)


def emit(fn: LoopFunction, target: Target, symbol: str) -> str:
    """Return the LLVM text of `fn` under the name `symbol`; extension point `emit`.

    Raises CodegenError (MDLC08xx) for loops that cannot become code: nested vectorised loops,
    registers at offsets that are no constants, allocations per lane, symbolic sizes.
    """
    return dispatch("emit", _emit)(fn, target, symbol)


def line_origins(fn: LoopFunction, target: Target, symbol: str) -> tuple[str, list[Stmt | None]]:
    """The text of `emit`, and the statement that each of its lines came from.

    None: labels, comments, what frames the functions.
    """
    module = Module(symbol, marked=True)
    lines = _emit_into(module, fn, target).split("\n")
    parts = [line.partition(MARK) for line in lines]
    origins = [module.statements[int(number)] if mark else None for _, mark, number in parts]
    return "\n".join(text for text, _, _ in parts), origins


def _emit(fn: LoopFunction, target: Target, symbol: str) -> str:
    return _emit_into(Module(symbol), fn, target)


def _emit_into(module: Module, fn: LoopFunction, target: Target) -> str:
    _check_static(fn)
    if any(isinstance(s, For) and s.kind is Kind.PARALLEL for s in walk(fn.body)):
        module.declare(PARALLEL_FOR)
    emitter = Emitter(module, target, spilled(fn, target.lanes(32)))
    names: list[str] = []
    pairs = in_place(fn)
    may_overlap = {*pairs, *(x for inputs in pairs.values() for x in inputs)}
    for n, p in enumerate(fn.params):
        name = f"%{p.name}" if p.name.isascii() else f"%{stem(p.name)}.{n}.arg"
        names.append(f"ptr {name}" if p.name in may_overlap else f"ptr noalias {name}")
        dims = p.type.dims
        emitter.buffers[p.name] = Buffer(p.name, p.type.dtype, dims, strides(dims, None), name)
    try:
        emitter.emit(fn.body)
    except RecursionError:
        raise CodegenError(
            f"{fn.name}: an expression or loop nest is too deep",
            hint="keep parts of the expression in buffers",
            code="MDLC0815",
        ) from None
    emitter.b.line("ret void")
    arguments = ", ".join([*names, "ptr %.workspace", "i32 %.threads"])
    module.function(f"define void @{module.symbol}({arguments})", emitter.b.text())
    return module.text()


def _check_static(fn: LoopFunction) -> None:
    for name, type in fn.buffers().items():
        if not type.is_static:
            raise CodegenError(
                f"{fn.name}: buffer {name!r} has symbolic sizes: {type}",
                hint="specialise the model to shapes first",
                code="MDLC0802",
            )
