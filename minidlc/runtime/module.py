"""A compiled model in memory: object files, constants, arena; what a call runs. Knows no IR.

    m = LoadedModule(objects, "entry", inputs=(ArraySpec("x", np.dtype("f4"), (1, 8)),), outputs=…,
                     constants=block, arena_bytes=4096, threads=2)
    y, = m.run([x])                                 # fresh arrays

One native call runs the whole model: no Python between kernels. Calls may overlap in time, each
takes a frame of its own from a small free list: an arena and the tables of addresses, so that a
call of a small model costs microseconds. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minidlc.runtime import pool
from minidlc.runtime.donated import Apart, check_donated
from minidlc.runtime.memory import ALIGNMENT, aligned
from minidlc.runtime.native import NativeLibrary, mentions
from minidlc.runtime.spec import ArraySpec
from minidlc.support.errors import CallError
from minidlc.support.locations import Loc

Bytes = NDArray[np.uint8]
Arrays: TypeAlias = Sequence[NDArray[np.generic]]
Block: TypeAlias = tuple[Bytes, int]  # memory and its address
_KEPT_FRAMES = 4
_PARALLEL_FOR = "minidlc_parallel_for"
_LONG_SECONDS = 0.05  # a call that takes as long is worth interrupting
_address_of: Callable[[Any], int] = ctypes.addressof
_bytes_of: Callable[[Any], Any] = ctypes.c_char.from_buffer


@dataclass(frozen=True)
class PositionCheck:
    """What is wrong with a call if native code finds a position out of its range."""

    message: str
    hint: str | None = None
    loc: Loc | None = None


@dataclass
class _Frame:
    """Memory of one call: the arena, tables of addresses, faults, and the word that says stop."""

    arena: Bytes
    inputs: ctypes.Array[ctypes.c_void_p]
    outputs: ctypes.Array[ctypes.c_void_p]
    faults: NDArray[np.int64]
    stop: NDArray[np.int64]
    arguments: tuple[int, ...] = ()  # of the entry

    @staticmethod
    def of(module: LoadedModule) -> _Frame:
        """A fresh frame; behind the outputs stand faults and stop, always the same."""
        faults, stop = np.zeros(max(1, len(module.checks)), np.int64), np.zeros(1, np.int64)
        arena, outputs = aligned(module.arena_bytes), len(module.outputs)
        frame = _Frame(arena, _table(len(module.inputs)), _table(outputs + 2), faults, stop)
        frame.outputs[outputs] = address(faults)
        frame.outputs[outputs + 1] = address(stop)
        constants = module._constants[1]  # pyright: ignore[reportPrivateUsage]
        tables = ctypes.addressof(frame.inputs), ctypes.addressof(frame.outputs)
        frame.arguments = (address(arena), *tables, constants)
        return frame


def _table(length: int) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, length))()


@dataclass(frozen=True, eq=False)
class LoadedModule:
    """A model ready to run.

    `entry` is `void(ptr arena, ptr inputs, ptr outputs, ptr constants, i32 threads)` in one of the
    `objects`; inputs and outputs are arrays of pointers. The arena must have been planned for
    `threads`; calls may use fewer. Behind the outputs stand an i64 for each of the `checks`, which
    is 0 before the call and which the entry sets where the check fails, and one i64 that the entry
    looks at between kernels: it returns soon if that is not 0. `long_loops`: nobody knows how long
    a call takes. `constants` that start on a cache line are used where they are, never written.
    `donated` says by number which output is written over which input; a call that is interrupted or
    finds a fault has written all of these or none.
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
    name: str = "model"
    donated: Mapping[int, int] = field(default_factory=dict[int, int])
    _frames: list[_Frame] = field(default_factory=list[_Frame], init=False, repr=False)
    _pace: _Pace = field(default_factory=lambda: _Pace(), init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_frames", [])
        object.__setattr__(self, "_pace", _Pace())

    @cached_property
    def _native(self) -> tuple[Any, Any]:
        """The entry as a callable, and the library that keeps it alive."""
        imports: dict[str, int] = {}
        if mentions(self.objects, _PARALLEL_FOR):
            imports[_PARALLEL_FOR] = pool.parallel_for_address()
        library = NativeLibrary(self.objects, (self.entry,), imports)
        kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int32]
        return ctypes.CFUNCTYPE(None, *kinds)(library.address(self.entry)), library

    @property
    def constant_bytes(self) -> Bytes:
        """The constants as bytes, where they are."""
        raw = self.constants
        data = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else np.ascontiguousarray(raw)
        return data.reshape(-1).view(np.uint8)

    @cached_property
    def _constants(self) -> Block:
        data = self.constant_bytes
        if not data.nbytes or data.ctypes.data % ALIGNMENT:
            block = aligned(data.nbytes)
            block[: data.nbytes] = data
            data = block
        return data, data.ctypes.data

    def load(self) -> LoadedModule:
        """Link the objects now instead of at the first call; returns self."""
        _ = self._native, self._constants
        return self

    def run(
        self, arrays: Arrays, threads: int | None = None, out: Arrays | None = None
    ) -> list[NDArray[np.generic]]:
        """Run the model on arrays in input order; return its outputs in output order.

        Inputs are read only, but for donated ones, which are returned as outputs. Other outputs are
        fresh, or `out`: dense arrays that the caller has checked. Raises CallError: MDLC0908 for
        arrays that do not fit the inputs, 0909 for a position in one of them that is outside what
        it points into, 0917 and 0918 for donated arrays that are read-only or not apart.
        """
        given = [_fitting(a, spec) for a, spec in zip_inputs(arrays, self.inputs)]
        if self.donated:
            check_donated(arrays, given, self.inputs, self.donated)
        results = [np.empty(s.shape, s.dtype) for s in self.outputs] if out is None else list(out)
        for output, number in self.donated.items():
            results[output] = arrays[number]
        frame = self._take_frame()
        frame.inputs[: len(given)] = [address(a) for a in given]
        frame.outputs[: len(results)] = [address(a) for a in results]
        self._call(frame, max(1, min(threads or self.threads, self.threads)))
        return results

    @cached_property
    def run_if_plain(self) -> Callable[[Sequence[object]], list[NDArray[np.generic]] | None]:
        """As `run`, for arguments that need no second look: dense arrays that fit, or one dict.

        Returns None, and nothing has happened, for everything else. Every call of a model goes
        through here: variables of a closure are quicker than attributes.
        """
        names = [spec.name for spec in self.inputs]
        over = set(self.donated.values())
        wanted = [
            (s.shape, s.dtype, s.dtype.itemsize, n in over) for n, s in enumerate(self.inputs)
        ]
        returned = [(n, s.shape, s.dtype, self.donated.get(n)) for n, s in enumerate(self.outputs)]
        count, empty, array_class = len(names), np.empty, np.ndarray
        apart = Apart([s.nbytes for s in self.inputs], sorted(over)) if over else None

        def run(arguments: Sequence[Any]) -> list[NDArray[np.generic]] | None:
            if len(arguments) == 1 and type(arguments[0]) is dict:
                named: dict[object, object] = arguments[0]  # pyright: ignore[reportUnknownVariableType]
                if len(named) != count:
                    return None
                arguments = [named.get(name) for name in names]
            if len(arguments) != count:
                return None
            places: list[int] = []
            for a, (shape, dtype, size, is_written) in zip(arguments, wanted, strict=False):
                if type(a) is not array_class or a.shape != shape:
                    return None
                if a.dtype is not dtype and a.dtype != dtype:
                    return None
                place = _dense_address(a)
                if place is None or place % size or (is_written and not a.flags.writeable):
                    return None
                places.append(place)
            if apart is not None and not apart(places):
                return None
            frame = self._take_frame()
            frame.inputs[:count] = places
            results: list[NDArray[np.generic]] = []
            for number, shape, dtype, source in returned:
                if source is not None:
                    results.append(arguments[source])
                    continue
                fresh = empty(shape, dtype)
                frame.outputs[number] = address(fresh)
                results.append(fresh)
            self._call(frame, self.threads)
            return results

        return run

    def _call(self, frame: _Frame, threads: int) -> None:
        """The native call of a frame with addresses, and what it found; gives the frame back."""
        if threads > 1:
            pool.ensure(threads)
        if self.checks:
            frame.faults[:] = 0
        function, _ = self._native
        if self._pace.seconds <= _LONG_SECONDS and not self.long_loops:
            function(*frame.arguments, threads)
        else:
            self._call_patiently(function, frame, threads)  # if interrupted, it is not used again
        if self.checks:
            self._look_for_faults(frame)
        if len(self._frames) < _KEPT_FRAMES:
            self._frames.append(frame)

    def _take_frame(self) -> _Frame:
        try:
            return self._frames.pop()
        except IndexError:
            return _Frame.of(self)

    def _call_patiently(self, function: Any, frame: _Frame, threads: int) -> None:
        """The native call where it may take long: the main thread can be interrupted in it."""
        if threading.current_thread() is not threading.main_thread():
            function(*frame.arguments, threads)
            return
        start = time.perf_counter()
        _run_interruptibly(partial(function, *frame.arguments, threads), frame.stop)
        self._pace.seconds = time.perf_counter() - start

    def _look_for_faults(self, frame: _Frame) -> None:
        for number in np.flatnonzero(frame.faults):
            check = self.checks[number]
            raise CallError(check.message, loc=check.loc, hint=check.hint, code="MDLC0909")


@dataclass
class _Pace:
    """How long the last call took that was timed; nobody knows before the first."""

    seconds: float = math.inf


def _run_interruptibly(call: Callable[[], object], stop: NDArray[np.int64]) -> None:
    """Call in a thread of its own, so that Ctrl-C reaches the main one; it then sets `stop`.

    Native code cannot be left halfway, its memory would be somebody else's: it is told to end its
    loops, and waited for. A thread costs a call part of a millisecond.
    """
    done = threading.Event()  # a join that a signal interrupts takes the thread for ended
    claim = threading.Lock()  # who takes it says if the call is made at all

    def work() -> None:
        if claim.acquire(blocking=False):
            try:
                call()
            finally:
                done.set()

    raised: BaseException | None = None  # by a signal's handler
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError:  # this system starts no more threads
        call()
        return
    except BaseException as e:
        if claim.acquire(blocking=False):
            raise
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


def address(array: NDArray[np.generic]) -> int:
    """Where the elements of a dense array are."""
    try:
        return _address_of(_bytes_of(array))  # three times as quick as asking NumPy
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a type of ml_dtypes
        return int(array.__array_interface__["data"][0])


def _dense_address(array: NDArray[np.generic]) -> int | None:
    """The address of an array in C order; None for others."""
    try:
        return _address_of(_bytes_of(array))  # refuses other orders too
    except (TypeError, ValueError, BufferError):
        dense = array.flags.c_contiguous
        return int(array.__array_interface__["data"][0]) if dense else None
