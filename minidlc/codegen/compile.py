"""LLVM text to machine code: parse, verify, three passes, object file; and kernels as a whole.

    k = compile_kernel(fn, target.host())
    k.llvm, k.asm, k.object, k.workspace            # text, text, bytes, bytes needed
    run_kernel(k, [a, b, c])                        # for tests: calls it on arrays, in place

Kernels are looked up on disk first (cache.py). Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import llvmlite.binding as _llvm
from llvmlite import __version__ as llvmlite_version

from minidlc.codegen import cache as disk
from minidlc.codegen.llvm import emit, line_origins
from minidlc.codegen.workspace import workspace_bytes
from minidlc.expr.types import Array
from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import LoopFunction, Stmt
from minidlc.runtime import pool
from minidlc.runtime.memory import aligned
from minidlc.runtime.native import NativeLibrary
from minidlc.support.errors import CodegenError
from minidlc.support.extension import fingerprint, overridden
from minidlc.target import Target

llvm: Any = _llvm  # llvmlite ships no types

LLVM_VERSION = ".".join(map(str, llvm.llvm_version_info))
kernel_cache = disk.KernelCache()
_lock = threading.RLock()  # parsing and printing of one module happen together


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its loops, LLVM text before LLVM's passes, and object file.

    `workspace` is what a call with one thread needs; `workspace_bytes(threads)` in general.
    """

    symbol: str
    fn: LoopFunction
    target: Target
    llvm: str
    object: bytes

    @cached_property
    def asm(self) -> str:
        """Assembly of the same code, made when first asked for."""
        return assemble(self.llvm, self.target)

    @cached_property
    def origins(self) -> tuple[Stmt | None, ...]:
        """The loop statement that each line of `llvm` came from; all None if `emit` is replaced."""
        text, origins = line_origins(self.fn, self.target, self.symbol)
        return tuple(origins) if text == self.llvm else (None,) * len(self.llvm.split("\n"))

    @property
    def workspace(self) -> int:
        """Bytes of workspace with one thread."""
        return self.workspace_bytes(1)

    def workspace_bytes(self, threads: int) -> int:
        """Bytes of 64-byte aligned workspace that a call with `threads` needs."""
        return workspace_bytes(self.fn, self.target, threads)


def compile_kernel(fn: LoopFunction, target: Target, *, cache: bool = True) -> Kernel:
    """Return the machine code of `fn`; from the disk cache if it was compiled before.

    Where `emit` or `vectorize` is replaced the cache is left alone: a reader's part is to be called
    every time, not only the first. Raises CodegenError: MDLC08xx from `emit`, MDLC0820 if the LLVM
    text is not valid.
    """
    key = kernel_key(fn, target)
    symbol = kernel_symbol(key)
    cache = cache and not (overridden("emit") or overridden("vectorize"))
    stored = kernel_cache.read(key) if cache else None
    if stored is None:
        stored = build_kernel(fn, target, symbol)
        if cache:
            kernel_cache.write(key, *stored)
    return Kernel(symbol, fn, target, *stored)


def build_kernel(fn: LoopFunction, target: Target, symbol: str) -> tuple[str, bytes]:
    """LLVM text and object file of `fn`; errors as for `compile_kernel`."""
    text = emit(fn, target, symbol)
    return text, compile_text(text, target, what=fn.name, defines=symbol)


def kernel_symbol(key: str) -> str:
    """What the machine code of a kernel is called."""
    return f"k_{key[:16]}"


def kernel_key(fn: LoopFunction, target: Target) -> str:
    """Digest of everything the machine code depends on; the function's own name is not part."""
    overrides = fingerprint("emit", "vectorize", "simplify")
    loops = str(replace(fn, name="kernel"))
    return disk.digest(
        loops, repr(target), LLVM_VERSION, llvmlite_version, disk.source_digest(), overrides
    )


def short_symbol(*parts: str) -> str:
    """A symbol of fixed length, whatever the names it is made of."""
    return f"m_{disk.digest(*parts)[:16]}"


def compile_text(
    text: str, target: Target, *, what: str = "module", defines: str | None = None
) -> bytes:
    """Return the object file of an LLVM module that defines the function `defines`.

    Raises CodegenError (MDLC0820) if the text is not valid or the function is not in it.
    """
    with _lock:
        machine = _machine(target)
        module = _parse(text, target, machine, what)
        if defines is not None and defines not in {f.name for f in module.functions}:
            raise CodegenError(f"{what}: the LLVM text does not define {defines}", code="MDLC0820")
        return bytes(machine.emit_object(module))


def assemble(text: str, target: Target) -> str:
    """Return the assembly of an LLVM module; errors as for `compile_text`."""
    with _lock:
        machine = _machine(target)
        return str(machine.emit_assembly(_parse(text, target, machine, "module")))


@lru_cache(maxsize=8)
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    made = llvm.Target.from_triple(target.triple)
    return made.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def _parse(text: object, target: Target, machine: Any, what: str) -> Any:
    if not isinstance(text, str):
        found = type(text).__name__
        raise CodegenError(f"{what}: emit returned {found}, expected LLVM text", code="MDLC0820")
    try:
        module = llvm.parse_assembly(text)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as problem:
        raise CodegenError(
            f"{what}: the LLVM text is not valid: {str(problem).strip()}", code="MDLC0820"
        ) from None
    _optimise(module, machine)
    return module


def _optimise(module: Any, machine: Any) -> None:
    """Registers for allocas, tidy instructions, tidy blocks; tiles and vectors are decided."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


def kernel_caller(kernel: Kernel, arrays: Sequence[Array], threads: int = 1) -> Callable[[], None]:
    """The kernel linked and bound to arrays in parameter order: calling it runs it, in place.

    The arrays must have the parameters' dtypes and shapes (ValueError); the caller keeps them.
    VerifyError for loops that may leave a buffer: here nobody has checked them before.
    """
    check_inside(kernel.fn)
    for p, a in zip(kernel.fn.params, arrays, strict=True):
        if a.dtype != p.type.dtype.numpy or a.shape != p.type.dims or not a.flags.c_contiguous:
            raise ValueError(f"{p.name}: got {a.dtype}{a.shape}, expected {p.type}, contiguous")
    pool.ensure(threads)
    imports = {"minidlc_parallel_for": pool.parallel_for_address()}
    library = NativeLibrary((kernel.object,), (kernel.symbol,), imports)
    types = [ctypes.c_void_p] * (len(arrays) + 1) + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))
    workspace = aligned(kernel.workspace_bytes(threads))
    pointers = [a.ctypes.data for a in arrays]

    def call() -> None:
        assert library is not None  # it lives as long as this function
        function(*pointers, workspace.ctypes.data, threads)

    return call


def run_kernel(kernel: Kernel, arrays: list[Array], threads: int = 1) -> None:
    """Call the kernel on arrays in parameter order; arrays it stores to are changed in place.

    For tests and notebooks. Errors as for `kernel_caller`.
    """
    kernel_caller(kernel, arrays, threads)()
