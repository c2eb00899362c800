"""The arguments of a call: matched with the inputs by name, each array checked.

    interface = Interface.of(module)                # of a LoadedModule
    bind_inputs(interface, (x,), {"w": w})          # dense arrays in the order of the inputs
    check_out(interface, inputs, [y])               # what `out=` must be
    donated_by_number(g, {"w": "w_new"})            # {1: 0}: output 1 goes over input 0

Reads what the caller gave, writes arrays that native code can take; everything else is a CallError
that says what would fit. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from minidlc.expr.types import Array, DType, TensorType, dtype
from minidlc.graph import Graph, Input
from minidlc.runtime.module import LoadedModule
from minidlc.runtime.spec import ArraySpec
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, CompileError, OptionError, nearest
from minidlc.support.locations import Loc, OnnxLoc, caller
from minidlc.support.names import Names


@dataclass(frozen=True)
class Interface:
    """What calls look at: the model's name, its inputs, names and types of its outputs."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[TensorType, ...]
    output_names: tuple[str, ...]  # the second of a name is `name_1`, and so on
    donated: Mapping[int, int] = field(default_factory=dict[int, int])  # output → input it is over

    @staticmethod
    def of(module: LoadedModule) -> Interface:
        """The interface of machine code."""
        return Interface(
            module.name,
            tuple(Input(i.name, _type(i), i.loc) for i in module.inputs),
            tuple(map(_type, module.outputs)),
            output_names(o.name for o in module.outputs),
            module.donated,
        )


def output_names(names: Iterable[str]) -> tuple[str, ...]:
    """What outputs are called: the second of a name is `name_1`, and so on."""
    taken = Names()
    return tuple(map(taken.fresh, names))


def donated_by_number(graph: Graph, donate: Mapping[str, str]) -> dict[int, int]:
    """`donate` names for inputs the outputs that go over them: number of each output → input.

    Raises OptionError: MDLC1051 no such input or output, 1052 another type, 1053 an output is to go
    over two inputs.
    """
    inputs = {i.name: n for n, i in enumerate(graph.inputs)}
    outputs = {name: n for n, name in enumerate(output_names(o.name for o in graph.outputs))}
    check_donated(graph.name, donate, inputs, outputs)
    found: dict[int, int] = {}
    for name, new in donate.items():
        old_type, new_type = graph.inputs[inputs[name]].type, graph.outputs[outputs[new]].type
        if old_type != new_type:
            text = f"donate: input {name!r} is {old_type}, output {new!r} is {new_type}"
            raise _refused(text, "an output goes over an input of its own type", "MDLC1052")
        if outputs[new] in found:
            other = graph.inputs[found[outputs[new]]].name
            text = f"donate: output {new!r} is to go over {other!r} and over {name!r}"
            raise _refused(text, "return it twice: then there are two outputs", "MDLC1053")
        found[outputs[new]] = inputs[name]
    return found


def check_donated(
    graph: str, donate: Mapping[str, str], inputs: Iterable[str], outputs: Iterable[str] | None
) -> None:
    """Refuse names that no input or output has (MDLC1051); outputs may not be known yet: None."""
    for what, asked, names in (("input", donate, inputs), ("output", donate.values(), outputs)):
        known = None if names is None else list(names)
        for name in asked:
            if known is not None and name not in known:
                text = f"donate: {graph} has no {what} {name!r}"
                raise _refused(text, nearest(name, known), "MDLC1051")


def _refused(text: str, hint: str | None, code: str) -> OptionError:
    return OptionError(text, loc=caller(), hint=hint, code=code)


def _type(spec: ArraySpec) -> TensorType:
    return TensorType(dtype(spec.dtype), spec.shape)


def bind_inputs(
    model: Interface, arrays: Sequence[object], named: Mapping[str, object]
) -> list[Array]:
    """Match arguments with the inputs and check each; returns dense arrays in order."""
    given = match_arguments(model.name, model.inputs, arrays, named)
    over = set(model.donated.values())
    return [
        _check_donated(i.name, i.type, given[i.name])
        if number in over
        else _check_input(i.name, i.type, given[i.name])
        for number, i in enumerate(model.inputs)
    ]


class Parameter(Protocol):
    """An input, as far as calls look at it."""

    @property
    def name(self) -> str:
        """What it is called by."""
        ...

    @property
    def type(self) -> object:
        """What messages print."""
        ...

    @property
    def loc(self) -> Loc | None:
        """Where it was declared: an OnnxLoc holds its ONNX name, which calls may use too."""
        ...


def match_arguments(
    model: str,
    inputs: Sequence[Parameter],
    arrays: Sequence[object],
    named: Mapping[str, object],
) -> dict[str, object]:
    """Input name → argument; CallError (MDLC0902) for one missing, unknown or given twice."""

    def refusal(message: str, hint: str | None = None) -> CallError:
        return CallError(
            f"{model}: {message}",
            loc=caller(),
            notes=[f"{i.name}: {i.type}" for i in inputs],
            hint=hint or "one array for each input, by position, by name or as one dict",
            code="MDLC0902",
        )

    if len(arrays) == 1 and isinstance(arrays[0], Mapping) and not named:
        arrays, named = (), dict(arrays[0])  # pyright: ignore[reportUnknownArgumentType]
    names = [i.name for i in inputs]
    if len(arrays) > len(names):
        raise refusal(f"takes {len(names)} inputs, got {len(arrays)}")
    given = dict(zip(names, arrays, strict=False))
    aliases: dict[str, str] = {}
    if not named.keys() <= set(names):  # then all are ONNX names, where there are such
        aliases = {i.loc.node: i.name for i in inputs if isinstance(i.loc, OnnxLoc)}
    for key, array in named.items():
        name = aliases.get(key, key)
        if name not in names:
            raise refusal(f"unknown input {key!r}", nearest(key, names))
        if name in given:
            raise refusal(f"input {key!r} given twice")
        given[name] = array
    missing = [name for name in names if name not in given]
    if missing:
        raise refusal(f"missing input {missing[0]!r}")
    return given


def checked_array(name: str, element: DType, expected: object, thing: object) -> Array:
    """`thing` as an array; CallError if it is none (MDLC0901), or of other elements (0903)."""
    try:
        array = np.asarray(thing)
    except (ValueError, TypeError):  # lists of different lengths
        array = np.asarray(None)
    try:
        got = dtype(array.dtype)
    except CompileError:
        what = f"not an array: {type(thing).__name__}"
        if isinstance(thing, np.ndarray):
            what = f"elements of {array.dtype}, which is no element type of this machine"
        raise CallError(
            f"input {name!r}: {what}",
            loc=caller(),
            hint=f"a NumPy array of {expected}, in this machine's byte order",
        ) from None
    if got != element:
        raise CallError(
            f"input {name!r}: expected {expected}, got element type {got}",
            loc=caller(),
            hint=f"{name}.astype({element.numpy.name!r})",
            code="MDLC0903",
        )
    return array


def other_shape(name: str, expected: TensorType, shape: object) -> CallError:
    """The error (MDLC0904) for an array of another shape than compiled for."""
    return CallError(
        f"input {name!r}: expected {expected}, got shape {shape}",
        loc=caller(),
        hint="compile for this shape, or reshape the array",
        code="MDLC0904",
    )


def _check_input(name: str, expected: TensorType, thing: object) -> Array:
    array = checked_array(name, expected.dtype, expected, thing)
    if array.shape != expected.dims:
        raise other_shape(name, expected, array.shape)
    return np.ascontiguousarray(array).reshape(array.shape)


def _check_donated(name: str, expected: TensorType, thing: object) -> Array:
    """As `_check_input`, but the very array of the caller's: the call writes into it."""
    _check_input(name, expected, thing)
    if not isinstance(thing, np.ndarray):
        raise CallError(
            f"input {name!r} is donated, and a {type(thing).__name__}: expected an array",
            loc=caller(),
            hint=f"np.array({name}, {expected.dtype.numpy.name!r}), kept from call to call",
            code="MDLC0917",
        )
    return cast(Array, thing)


def check_values(model: Interface, inputs: Sequence[Array], values: Mapping[str, Array]) -> None:
    """Refuse another value of an input than the model was compiled for (MDLC0916)."""
    if not values:
        return
    for array, i in zip(inputs, model.inputs, strict=True):
        known = values.get(i.name)
        if known is not None and array.tobytes() != known.tobytes():
            raise CallError(
                f"input {i.name!r}: compiled for {known.tolist()}, got {array.tolist()}",
                loc=caller(),
                hint="its value decides shapes; call what compile returned instead",
                code="MDLC0916",
            )


def check_out(model: Interface, inputs: Sequence[Array], out: Sequence[Array]) -> None:
    """`out` must hold one writable dense array for each output, sharing memory with nothing.

    For an output over an input it must hold that array.
    """
    expect("a call", "out", out, list, tuple, np.ndarray, hint="one array for each output")
    wanted = model.outputs
    fitting = len(out) == len(wanted) and all(
        isinstance(array, np.ndarray)  # pyright: ignore[reportUnnecessaryIsInstance]
        and array.dtype == t.dtype.numpy
        and array.shape == t.dims
        and array.flags.c_contiguous
        and array.flags.aligned
        and array.flags.writeable
        for array, t in zip(out, wanted, strict=True)
    )
    if not fitting:
        raise CallError(
            f"out: expected writable dense arrays of types {', '.join(map(str, wanted))}",
            loc=caller(),
            notes=tuple(f"got {np.asarray(a).dtype}{list(np.shape(a))}" for a in out),
            hint="np.empty of each type",
            code="MDLC0905",
        )
    # kernels are compiled on the promise that what they write overlaps nothing they read
    arrays = [*inputs, *out]
    for k, array in enumerate(out, len(inputs)):
        if (number := k - len(inputs)) in model.donated:
            _check_over(model, inputs, number, array)
        elif any(np.may_share_memory(array, other) for other in arrays[:k]):
            raise CallError(
                "out: shares memory with an input or another output",
                loc=caller(),
                hint="give each output an array of its own",
                code="MDLC0906",
            )


def _check_over(model: Interface, inputs: Sequence[Array], number: int, array: Array) -> None:
    """For an output over an input `out=` must hold the array of that input."""
    over = model.donated[number]
    if array is not inputs[over]:
        name, new = model.inputs[over].name, model.output_names[number]
        raise CallError(
            f"out: output {new!r} is written over input {name!r}, got another array",
            loc=caller(),
            hint=f"give the array of {name!r} there, or leave out= away",
            code="MDLC0919",
        )
