"""A compiled model in memory: object files, constants, arena; what a call runs. Knows no IR.

    m = LoadedModule(objects, "entry", inputs=(ArraySpec("x", np.dtype("f4"), (1, 8)),), outputs=…,
                     constants=block, arena_bytes=4096, threads=2)
    y, = m.run([x])                                 # fresh arrays

One native call runs the whole model: no Python between kernels. Calls may overlap in time, each
takes an arena of its own from a small free list. Treated in course chapter 05_codegen.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minidlc.runtime import pool
from minidlc.runtime.memory import aligned
from minidlc.runtime.native import NativeLibrary, mentions
from minidlc.support.errors import CallError
from minidlc.support.locations import Loc

Bytes = NDArray[np.uint8]
Block: TypeAlias = tuple[Bytes, int]  # memory and its address
_KEPT_ARENAS = 4
_PARALLEL_FOR = "minidlc_parallel_for"


@dataclass(frozen=True)
class ArraySpec:
    """Name, dtype and shape of an input or output."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class PositionCheck:
    """What is wrong with a call if native code finds a position out of its range."""

    message: str
    hint: str | None = None
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class LoadedModule:
    """A model ready to run.

    `entry` is `void(ptr arena, ptr inputs, ptr outputs, ptr constants, i32 threads)` in one of the
    `objects`; inputs and outputs are arrays of pointers. The arena must have been planned for
    `threads`; calls may use fewer. Behind the outputs stand an i64 for each of the `checks`, which
    is 0 before the call and which the entry sets where the check fails, and one i64 that the entry
    of a `long_loops` model reads now and then: it returns soon if that is not 0.
    """

    objects: tuple[bytes, ...]
    entry: str
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    constants: bytes | NDArray[np.generic] = b""
    arena_bytes: int = 0
    threads: int = 1
    checks: tuple[PositionCheck, ...] = ()
    long_loops: bool = False
    _arenas: list[Block] = field(default_factory=list[Block], init=False, repr=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_arenas", [])
        object.__setattr__(self, "_guard", threading.Lock())

    @cached_property
    def _native(self) -> tuple[Any, Any]:
        """The entry as a callable, and the library that keeps it alive."""
        imports: dict[str, int] = {}
        if mentions(self.objects, _PARALLEL_FOR):
            imports[_PARALLEL_FOR] = pool.parallel_for_address()
        library = NativeLibrary(self.objects, (self.entry,), imports)
        kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int32]
        return ctypes.CFUNCTYPE(None, *kinds)(library.address(self.entry)), library

    @cached_property
    def _constants(self) -> Block:
        raw = self.constants
        data = raw if isinstance(raw, bytes) else np.ascontiguousarray(raw).tobytes()
        block = aligned(len(data))
        block[: len(data)] = np.frombuffer(data, np.uint8)
        return block, block.ctypes.data

    def load(self) -> LoadedModule:
        """Link the objects now instead of at the first call; returns self."""
        _ = self._native, self._constants
        return self

    def run(
        self,
        arrays: Sequence[NDArray[np.generic]],
        threads: int | None = None,
        out: Sequence[NDArray[np.generic]] | None = None,
    ) -> list[NDArray[np.generic]]:
        """Run the model on arrays in input order; return its outputs in output order.

        Inputs are read only; outputs are fresh, or `out`: dense arrays that the caller has checked.
        Raises CallError: MDLC0908 for arrays that do not fit the inputs, 0909 for a position in one
        of them that is outside what it points into.
        """
        given = [_fitting(a, spec) for a, spec in zip_inputs(arrays, self.inputs)]
        fresh = out is None
        results = [np.empty(s.shape, s.dtype) for s in self.outputs] if fresh else list(out)
        faults, stop = np.zeros(len(self.checks), np.int64), np.zeros(1, np.int64)
        use = max(1, min(threads or self.threads, self.threads))
        function, _ = self._native
        if use > 1:
            pool.ensure(use)
        arena = self._take_arena()
        pointers = _pointers(given), _pointers([*results, faults, stop])
        call = partial(function, arena[1], *pointers, self._constants[1], use)
        try:
            if self.long_loops and threading.current_thread() is threading.main_thread():
                _run_interruptibly(call, stop)
            else:
                call()
        finally:
            self._return_arena(arena)
        for number in np.flatnonzero(faults):
            check = self.checks[number]
            raise CallError(check.message, loc=check.loc, hint=check.hint, code="MDLC0909")
        return results

    def _take_arena(self) -> Block:
        with self._guard:
            if self._arenas:
                return self._arenas.pop()
        block = aligned(self.arena_bytes)
        return block, block.ctypes.data

    def _return_arena(self, arena: Block) -> None:
        with self._guard:
            if len(self._arenas) < _KEPT_ARENAS:
                self._arenas.append(arena)


def _run_interruptibly(call: Callable[[], object], stop: NDArray[np.int64]) -> None:
    """Call in a thread of its own, so that Ctrl-C reaches the main one; it then sets `stop`.

    Native code cannot be left halfway, its memory would be somebody else's: it is told to end its
    loops, and waited for. A thread costs a call part of a millisecond.
    """
    done = threading.Event()  # a join that a signal interrupts takes the thread for ended

    def work() -> None:
        try:
            call()
        finally:
            done.set()

    raised: BaseException | None = None  # by a signal's handler
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError:  # no thread could be made
        raise
    except BaseException as e:
        stop[0], raised = 1, e
    while not done.is_set():
        try:
            done.wait()
        except BaseException as e:
            stop[0], raised = 1, e
    if raised is not None:
        raise raised


def zip_inputs(
    arrays: Sequence[NDArray[np.generic]], inputs: tuple[ArraySpec, ...]
) -> list[tuple[NDArray[np.generic], ArraySpec]]:
    """Pair arrays with their specs; CallError MDLC0908 if the numbers differ."""
    if len(arrays) != len(inputs):
        raise CallError(f"got {len(arrays)} inputs, expected {len(inputs)}", code="MDLC0908")
    return list(zip(arrays, inputs, strict=True))


def _fitting(a: NDArray[np.generic], spec: ArraySpec) -> NDArray[np.generic]:
    """`a` in the form native code reads: C order, aligned."""
    array = np.asarray(a)
    if array.dtype != spec.dtype or array.shape != spec.shape:
        found = ArraySpec(spec.name, array.dtype, array.shape)
        raise CallError(
            f"input {spec.name!r} does not fit",
            notes=(f"got {found}", f"expected {spec}"),
            code="MDLC0908",
        )
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, requirements=["C", "A"])


def _pointers(arrays: list[NDArray[np.generic]]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(
        *(a.__array_interface__["data"][0] for a in arrays)  # quicker than a.ctypes.data
    )
