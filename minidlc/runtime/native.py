"""Object files linked into this process.

    library = NativeLibrary((object_bytes,), ("entry",))
    library.address("entry")                        # valid as long as `library` lives

The linker is LLVM's, inside llvmlite: no compiler and no temporary file is involved. Functions of
the C library, and what the caller imports, are found by name. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

import llvmlite.binding as _llvm

from minidlc.runtime import symbols
from minidlc.support.errors import CodegenError

llvm: Any = _llvm  # llvmlite ships no types

_numbers = itertools.count()
_lock = threading.Lock()


class NativeLibrary:
    """Machine code in this process; it is unloaded when the last reference goes.

    `imports` gives addresses for names the objects use. Raises CodegenError (MDLC0821) if a name
    has no address.
    """

    def __init__(
        self,
        objects: tuple[bytes, ...],
        exports: tuple[str, ...],
        imports: Mapping[str, int] | None = None,
    ) -> None:
        builder = llvm.JITLibraryBuilder()
        for code in objects:
            builder.add_object_img(code)
        for name in symbols.ALL:
            found = symbols.address(name) if mentions(objects, name) else None
            if found is not None:
                builder.import_symbol(name, found)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        self._tracker = _link(builder, exports)

    def address(self, name: str) -> int:
        """Address of an exported function."""
        return int(self._tracker[name])


def mentions(objects: tuple[bytes, ...], name: str) -> bool:
    """True if an object file may use the symbol `name` (its string table holds the word)."""
    return any(name.encode() in code for code in objects)


class _Library(NativeLibrary):
    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker


def link_text(text: str, exports: tuple[str, ...]) -> NativeLibrary:
    """Compile and link LLVM text, for the few functions that are not kernels."""
    builder = llvm.JITLibraryBuilder()
    builder.add_ir(text)
    return _Library(_link(builder, exports))


def _link(builder: Any, exports: tuple[str, ...]) -> Any:
    builder.add_current_process()
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        try:
            return builder.link(_linker(), f"library-{next(_numbers)}")
        except RuntimeError as problem:
            message = f"compiled code cannot be linked: {str(problem).strip()}"
            raise CodegenError(message, code="MDLC0821") from None


@cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_lljit_compiler(machine, use_jit_link=True)
