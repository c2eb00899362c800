"""An executable for a model with open sizes: compiled at the first call of each signature.

    exe = compile("model.onnx")                     # x: f32["N", 8]
    exe(ones((4, 8)))                               # compiles for x: f32[4, 8], then runs
    exe.specialize({"N": 16})                       # compiles ahead
    list(exe.specializations)                       # ['x: f32[4, 8]', 'x: f32[16, 8]']

A signature is the shapes of all inputs, and the values of those that decide shapes: axes, pads,
target shapes. Nothing else of the data counts. Reads arrays, writes what the static executable of
their signature computes. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from minidlc.calling import Interface, checked_array, match_arguments
from minidlc.executable import Executable
from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import ValueNeeded
from minidlc.levels import Report
from minidlc.runtime.profile import Profile
from minidlc.sources import Given, Shape, Sizes, Source
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, CompileError, OptionError
from minidlc.support.locations import caller

Build: TypeAlias = Callable[[Mapping[str, Shape], Mapping[str, Array]], Executable]
"""Imports and compiles the source for shapes, and for values of inputs, both by input name."""

_SHOWN = 4  # earlier sizes in the message about too many


@dataclass(frozen=True)
class Signature:
    """What a specialisation was compiled for: shapes in input order, bytes of the values needed."""

    shapes: tuple[Shape, ...]
    values: tuple[tuple[str, bytes], ...] = ()


class Template(Executable):
    """A compiled model of open sizes. Calls may run at the same time in several threads.

    It has all that an Executable has: `graph`, `kernels`, `program` … are those of the
    specialisation used last; OptionError (MDLC1027) before there is one.
    """

    def __init__(self, source: Source, build: Build, max_specializations: int) -> None:
        self._source = source
        self._declared = source.inputs
        self._build = build
        self._most = max_specializations
        self._context = contextvars.copy_context()  # overrides that are active now count later too
        self._compiled: OrderedDict[Signature, Executable] = OrderedDict()
        self._needed: dict[tuple[Shape, ...], tuple[str, ...]] = {}  # inputs whose values count
        self._compiling = threading.RLock()  # held while compiling: one thread does it for all
        self._order = threading.Lock()  # held for moments

    def __call__(
        self, /, *arrays: object, out: Sequence[Array] | None = None, **named: object
    ) -> list[Array]:
        """Run the model, compiled for the signature of these inputs if it is new.

        Raises what Executable's call raises, and CallError: MDLC0910 a symbol with two sizes, 0915
        more than `max_specializations` signatures. Raises what `compile` raises for a new one.
        """
        given = self._bind(arrays, named)
        return self._for(given)(*given.values(), out=out)

    def run_dict(self, /, *arrays: object, **named: object) -> dict[str, Array]:
        """Like a call; returns output name → array."""
        given = self._bind(arrays, named)
        return self._for(given).run_dict(*given.values())

    def profile(self, /, *arrays: object, seconds: float = 0.5, **named: object) -> Profile:
        """Like a call for a while, with the time of each kernel."""
        given = self._bind(arrays, named)
        return self._for(given).profile(given, seconds=seconds)

    def specialize(self, shapes: Given) -> Executable:
        """Compile ahead for sizes by symbol, shapes by input name, values as arrays by input name.

        Raises OptionError: MDLC1025 an unknown name or a size that is missing, 1026 a value that is
        missing; CallError for shapes that do not fit.
        """
        expect("specialize", "shapes", shapes, Mapping, hint='{"N": 4} or {"x": (4, 3)}')
        found = Sizes.of(self._source, shapes)
        all_shapes = tuple(found.shape(d) for d in self._declared)
        dtypes = {d.name: d.dtype for d in self._declared}
        values = {n: checked_array(n, dtypes[n], dtypes[n], v) for n, v in found.values.items()}
        return self._compile(all_shapes, values)

    @property
    def interface(self) -> Interface:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the specialisation used last."""
        return self._latest().interface

    @property
    def declared(self) -> Source:
        """What is known of the model before its first call: names and types of the inputs."""
        return self._source

    @property
    def specializations(self) -> Mapping[str, Executable]:
        """What each signature compiled to, the one used last at the end."""
        with self._order:
            items = list(self._compiled.items())
        return MappingProxyType({self._text(signature): exe for signature, exe in items})

    def report(self) -> Report:
        """Report of the specialisation used last, and the signatures of all."""
        signatures = tuple(self.specializations)
        return replace(self._latest().report(), specializations=signatures)

    def __getattr__(self, name: str) -> Any:
        if name not in Executable.__dataclass_fields__:
            raise AttributeError(name, name=name, obj=self)
        return getattr(self._latest(), name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __copy__(self) -> Template:
        return self

    def __deepcopy__(self, memo: object) -> Template:
        return self

    def __reduce__(self) -> NoReturn:
        raise OptionError(
            f"{self._source.name} leaves sizes or values open: it cannot be pickled",
            loc=caller(),
            hint="pickle what specialize(…) returns",
            code="MDLC1027",
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{d.name}: {d}" for d in self._declared)
        return f"<{self._source.name}({inputs}), compiled for {len(self._compiled)} signatures>"

    def _latest(self) -> Executable:
        with self._order:
            if self._compiled:
                return next(reversed(self._compiled.values()))
        raise OptionError(
            f"{self._source.name} is not compiled yet: its inputs leave sizes or values open",
            loc=caller(),
            notes=[f"{d.name}: {d}" for d in self._declared],
            hint="call it, or compile ahead with specialize(…): sizes by symbol {'N': 4}, shapes "
            "and values by input {'x': (4, 3)}, {'axes': np.array([1])}",
            code="MDLC1027",
        )

    def _bind(self, arrays: Sequence[object], named: Mapping[str, object]) -> dict[str, Array]:
        """The inputs by name, in order, their element types checked."""
        given = match_arguments(self._source.name, self._declared, arrays, named)
        return {d.name: checked_array(d.name, d.dtype, d, given[d.name]) for d in self._declared}

    def _for(self, given: Mapping[str, Array]) -> Executable:
        """The specialisation for these inputs."""
        shapes = tuple(array.shape for array in given.values())
        found = self._lookup(shapes, given)
        return self._compile(shapes, given) if found is None else found

    def _lookup(self, shapes: tuple[Shape, ...], values: Mapping[str, Array]) -> Executable | None:
        signature = self._signature(shapes, values)
        with self._order:
            if signature not in self._compiled:
                return None
            self._compiled.move_to_end(signature)
            return self._compiled[signature]

    def _signature(self, shapes: tuple[Shape, ...], values: Mapping[str, Array]) -> Signature:
        needed = self._needed.get(shapes, ())
        return Signature(shapes, tuple((n, values[n].tobytes()) for n in needed if n in values))

    def _compile(self, shapes: tuple[Shape, ...], values: Mapping[str, Array]) -> Executable:
        """Compile for these shapes; which values count turns out on import."""
        sizes = Sizes(self._source)
        for declared, shape in zip(self._declared, shapes, strict=True):
            sizes.match(declared, shape)
        with self._compiling:
            while True:
                found = self._lookup(shapes, values)
                if found is not None:
                    return found
                needed = self._needed.get(shapes, ())
                try:
                    return self._add(shapes, {n: self._value(n, values) for n in needed})
                except ValueNeeded as e:
                    more = [i.name for i in e.inputs if i.name not in needed]
                    if not more:
                        raise
                    self._needed[shapes] = (*needed, *more)

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        if name in values:
            return values[name]
        raise OptionError(
            f"the value of input {name!r} decides shapes, and is not given",
            loc=caller(),
            hint=f"specialize({{{name!r}: np.array([…])}})",
            code="MDLC1026",
        )

    def _add(self, shapes: tuple[Shape, ...], values: Mapping[str, Array]) -> Executable:
        signature = self._signature(shapes, values)
        if len(self._compiled) >= self._most:
            raise self._too_many(signature)
        by_name = {d.name: s for d, s in zip(self._declared, shapes, strict=True)}
        fixed = {name: np.array(value) for name, value in values.items()}  # the caller's may change
        try:
            exe = self._context.copy().run(self._build, by_name, fixed)
        except ValueNeeded:
            raise
        except CompileError as e:
            e.notes = (*e.notes, f"compiling for {self._text(signature)}")
            raise
        exe = replace(exe, values=fixed)
        with self._order:
            self._compiled[signature] = exe
        return exe

    def _text(self, signature: Signature) -> str:
        """'x: f32[2, 3], axes: i64[1] = [0]'."""
        values = dict(signature.values)
        parts: list[str] = []
        for d, shape in zip(self._declared, signature.shapes, strict=True):
            part = f"{d.name}: {d.with_shape(shape)}"
            if d.name in values:
                part += f" = {np.frombuffer(values[d.name], d.dtype.numpy).reshape(shape).tolist()}"
            parts.append(part)
        return ", ".join(parts)

    def _too_many(self, new: Signature) -> CallError:
        """The error that names the input that changes most often, and how."""
        with self._order:
            old = list(self._compiled)
        *earlier, now = [self._parts(signature) for signature in (*old, new)]
        seen = {
            what: [how for how in dict.fromkeys(p.get(what, "") for p in earlier) if how != is_now]
            for what, is_now in now.items()
        }
        what = max(seen, key=lambda w: len(seen[w]))
        before = ", ".join(seen[what])
        if len(seen[what]) > _SHOWN:
            before = f"{', '.join(seen[what][: _SHOWN - 1])} … {seen[what][-1]}"
        text = f"{self._source.name}: {len(old)} signatures are compiled, max_specializations"
        text += f" allows no more; {what} was {before}, now {now[what]}"
        return CallError(
            text,
            loc=caller(),
            notes=[f"compiled for {self._text(signature)}" for signature in old],
            hint="compile with a higher max_specializations=, or pad inputs to a few sizes",
            code="MDLC0915",
        )

    def _parts(self, signature: Signature) -> dict[str, str]:
        """What may change from signature to signature: what it is → how it is, as texts."""
        parts: dict[str, str] = {}
        kinds = {d.name: d.dtype.numpy for d in self._declared}
        for name, value in signature.values:
            parts[f"input {name!r}: its value"] = str(np.frombuffer(value, kinds[name]).tolist())
        for d, shape in zip(self._declared, signature.shapes, strict=True):
            if d.shape is None:
                parts[f"input {d.name!r}: its rank"] = str(len(shape))
            parts |= {f"input {d.name!r}: axis {n}": str(size) for n, size in enumerate(shape)}
        return parts
