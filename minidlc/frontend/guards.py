"""Guards: what a compiled function relies on besides the elements of its arguments.

    guards_of_arguments({"x": np.ones((4, 8), "f4"), "axis": 1})
    # argument x dtype f32; argument x shape (4, 8); argument axis value 1
    guards_of_function(layer)                       # global SCALE value 2; global helper code …
    [explain(*pair) for pair in differences(old, new)]  # ['argument x shape (4, 8) → (5, 8)']

Reads arguments, and the bytecode of a function: the globals, closure cells, defaults and attributes
of modules it names, of the functions it calls too. Arguments are guarded by type, Python values by
value, arrays by content. Where no guard would be sound the answer is an error, not a guess. What
`getattr(module, name)`, an import inside the function, or a library reads is not seen. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import numpy as np

from minidlc.expr.types import Array, DType, TensorType, dtype
from minidlc.frontend.pytree import is_container, items, shown, structure, walk
from minidlc.graph import Constant, Input, Node
from minidlc.graph.eager import Tensor
from minidlc.support.errors import CompileError, TypeRuleError
from minidlc.support.locations import caller

HASHED_BYTES = 1 << 20  # a captured array is read at every call up to this size
MOST_GUARDS = 10_000

_PLAIN = (
    bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, slice, range,
    DType, TensorType, Enum, np.dtype, re.Pattern,
)  # fmt: skip
_DATA = (*_PLAIN, np.ndarray, tuple, list, set, Mapping)
_CODE = (
    types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.MethodWrapperType, np.ufunc,
)  # fmt: skip
_IMPURE = ("random", "numpy.random", "time", "datetime", "secrets", "uuid")
_UNSEEN = ("globals", "eval", "exec", "input")  # built in, and what they read is anybody's guess
_HARMLESS = ("logging", "threading", "_thread", "pathlib")  # their objects hold no numbers


@dataclass(frozen=True, eq=False)
class Same:
    """Equal to itself only; keeps the object alive, so that its id is not given away."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __str__(self) -> str:
        return f"{type(self.thing).__name__} {getattr(self.thing, '__qualname__', 'object')}"


@dataclass(frozen=True)
class Guard:
    """`what` ('argument x', 'global SCALE') had this `aspect` ('shape', 'value', …) then."""

    what: str
    aspect: str
    seen: object = field(hash=True)

    @property
    def text(self) -> str:
        """What was seen, short enough for a message."""
        if isinstance(self.seen, types.CodeType):
            return f"{self.seen.co_name} of line {self.seen.co_firstlineno}"
        text = str(self.seen)
        return text if len(text) <= 60 else f"{text[:57]}…"

    def __str__(self) -> str:
        return f"{self.what} {self.aspect} {self.text}"


def guards_of_arguments(arguments: Mapping[str, object]) -> list[Guard]:
    """Element type and shape of each array, the value of everything else, and the containers.

    Raises TypeRuleError (MDLC0223) for an argument that is neither.
    """
    found: list[Guard] = []
    for name, tree in arguments.items():
        if is_container(tree):
            found.append(Guard(f"argument {name}", "structure", structure(tree)))
        for path, leaf in walk(tree, (name,)):
            what = f"argument {shown(path)}"
            if isinstance(leaf, (np.ndarray, Tensor)):
                array = leaf.array if isinstance(leaf, Tensor) else cast(Array, leaf)
                found.append(Guard(what, "dtype", str(_element_type(what, array))))
                found.append(Guard(what, "shape", array.shape))
            elif isinstance(leaf, (bool, int, float, str, np.generic, types.NoneType)):
                found.append(Guard(what, "value", repr(cast(object, leaf))))
            else:
                raise TypeRuleError(
                    f"jit: {what} is a {type(leaf).__name__}, expected an array or a Python value",
                    loc=caller(),
                    hint="other objects reach the function through a closure or as self: "
                    "mc.jit(model.forward)",
                    code="MDLC0223",
                )
    return found


def _element_type(what: str, array: Array) -> DType:
    try:
        return dtype(array.dtype)
    except CompileError as e:
        raise TypeRuleError(f"jit: {what}: {e.message}", hint=e.hint, code="MDLC0223") from None


def guards_of_function(fn: object) -> list[Guard]:
    """What `fn`, and each function it can be seen to call, reads from outside its arguments.

    Raises TypeRuleError (MDLC0224) for something that may change unseen.
    """
    walk = _Captured()
    walk.function(fn, "")
    return walk.found


def differences(old: Iterable[Guard], new: Iterable[Guard]) -> list[tuple[Guard | None, Guard]]:
    """Pairs of guards of the same thing that saw different things; None: it is new."""
    before = {(g.what, g.aspect): g for g in old}
    pairs = [(before.get((g.what, g.aspect)), g) for g in new]
    return [(a, b) for a, b in pairs if a is None or a.seen != b.seen]


def explain(old: Guard | None, new: Guard) -> str:
    """'argument x shape (4, 8) → (5, 8)', and where the number of dims changed, that first."""
    if old is None:
        return f"{new} (new)"
    aspect = new.aspect
    shapes = cast(Any, (old.seen, new.seen))
    if all(isinstance(shape, tuple) for shape in shapes):
        ranks = len(shapes[0]), len(shapes[1])
        if ranks[0] != ranks[1]:
            aspect = f"rank {ranks[0]} → {ranks[1]}, shape"
    if old.text == new.text:
        return f"{new.what} {aspect} (another {new.text})"
    return f"{new.what} {aspect} {old.text} → {new.text}"


@dataclass
class _Captured:
    """Walks from a function to everything it reads; each object once."""

    found: list[Guard] = field(default_factory=list[Guard])
    seen: dict[int, object] = field(default_factory=dict[int, object])  # kept alive: ids stay taken

    def add(self, what: str, aspect: str, seen: object) -> None:
        if len(self.found) >= MOST_GUARDS:
            _unguarded(what, f"more than {MOST_GUARDS} values hang on it")
        self.found.append(Guard(what, aspect, seen))

    def function(self, fn: object, by: str) -> None:
        """The code, defaults, closure and globals of a function, method or partial."""
        if isinstance(fn, types.MethodType):
            self.function(fn.__func__, by)
            self.thing(fn.__self__, f"self{by}")
        elif isinstance(fn, functools.partial):
            self.thing(cast(object, fn.func), f"partial{by}")
            self.thing((fn.args, fn.keywords), f"partial{by}")
        elif isinstance(fn, types.FunctionType):
            for what, value in _reads(fn):
                self.thing(value, what + by)
        else:
            self.thing(fn, f"callable{by}")

    def thing(self, value: object, what: str) -> None:
        if isinstance(value, np.generic):
            self.add(what, "value", f"{type(cast(object, value)).__name__} {value}")
        elif _is(value, _PLAIN) and of_library(type(value)):
            self.add(what, "value", repr(value))
        elif id(value) in self.seen:
            return
        else:
            self.seen[id(value)] = value
            self.compound(value, what)

    def compound(self, value: object, what: str) -> None:
        if callable(value) and _is_impure(value):
            _unguarded(what, "it gives something else at each call")
        if is_container(value) or isinstance(value, (set, frozenset)):
            self.container(cast(object, value), what)
            if not of_library(type(cast(object, value))):  # a class of its own: fields, methods
                self.instance(cast(object, value), what)
        elif _is(value, _PLAIN):  # of a class of its own
            self.add(what, "value", repr(value))
            self.instance(value, what)
        elif isinstance(value, np.ndarray):
            self.array(cast(Array, value), what)
        elif isinstance(value, (Tensor, Constant, Input, Node)):
            self.add(what, "identity", Same(value))
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
            self.called(cast(Any, value), what)
        elif isinstance(value, type):
            self.of_class(cast("type[object]", value), what)
        elif isinstance(value, (property, staticmethod, classmethod)):
            inner = getattr(cast(object, value), "__func__", None)
            self.thing(inner or cast(Any, value).fget, what)
        elif isinstance(value, _CODE) or _module(type(value)) in _HARMLESS:
            self.add(what, "identity", Same(value))
        elif hasattr(value, "__wrapped__"):  # a jitted function: what it compiles
            self.thing(cast(Any, value).__wrapped__, what)
        elif not of_library(type(value)) or isinstance(value, types.SimpleNamespace):
            self.instance(value, what)
        elif (callable(value) and of_library(value)) or hasattr(type(value), "__get__"):
            self.add(what, "identity", Same(value))
        else:
            _unguarded(what, f"a {type(value).__name__} may change unseen")

    def container(self, value: object, what: str) -> None:
        if isinstance(value, (set, frozenset)):
            value = sorted(cast("set[object]", value), key=repr)
        self.add(what, "structure", f"{type(value).__name__} of {len(cast(Any, value))}")
        for key, part in items(value):
            self.thing(part, f"{what}[{key!r}]")

    def array(self, value: Array, what: str) -> None:
        if value.nbytes <= HASHED_BYTES and not value.dtype.hasobject:
            digest = hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()
            self.add(what, "elements", f"{value.dtype}{list(value.shape)} #{digest}")
        elif _frozen(value):
            self.add(what, "identity", Same(value))
        else:
            _unguarded(what, f"an array of {value.nbytes:,} bytes may change between calls")

    def called(self, fn: Any, what: str) -> None:
        if of_library(fn):
            self.add(what, "identity", Same(fn))
            return
        if isinstance(fn, types.FunctionType):
            self.add(what, "code", fn.__code__)
        self.function(fn, f", read by {what.removeprefix('global ')}")

    def of_class(self, cls: type[object], what: str) -> None:
        self.add(what, "identity", Same(cls))
        if not of_library(cls):
            for name, value in vars(cls).items():
                if not name.startswith("__") or isinstance(value, types.FunctionType):
                    self.thing(value, f"{what}.{name}")

    def instance(self, value: object, what: str) -> None:
        for cls in type(value).__mro__:
            self.thing(cls, f"class {cls.__name__}")
        slots = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
        fields = {n: getattr(value, n) for n in slots if n[:2] != "__" and hasattr(value, n)}
        for name, part in {**fields, **getattr(value, "__dict__", {})}.items():
            if name.isidentifier():
                self.thing(part, f"{what}.{name}")


def _unguarded(what: str, why: str) -> None:
    raise TypeRuleError(
        f"jit: {what}: {why}, and compiled code would keep what it is now",
        loc=caller(),
        hint="give it to the function as an argument"
        + ("; or promise that it stays: array.flags.writeable = False" if "array" in why else ""),
        code="MDLC0224",
    )


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """isinstance, without a word about the elements of a container."""
    return isinstance(value, kinds)


def _frozen(array: Array) -> bool:
    """True if nobody can change the elements, be it through the array this is a view of."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None


def _module(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or "builtins")


def _is_impure(thing: Any) -> bool:
    """Of a module whose functions give something else at each call."""
    owner = getattr(thing, "__self__", None)
    names = [_module(thing), _module(type(owner)), getattr(thing, "__name__", "")]
    modules = names if isinstance(thing, types.ModuleType) else names[:2]
    return any(m == name or m.startswith(name + ".") for m in modules for name in _IMPURE)


def of_library(thing: Any) -> bool:
    """Of Python, NumPy or this package: its code does not change while a program runs."""
    name = _module(thing)
    if name == "minidlc.tests" or name.startswith("minidlc.tests."):
        return False
    return name.partition(".")[0] in ("minidlc", "numpy", *sys.stdlib_module_names) and (
        name != "__main__"
    )


def _reads(fn: types.FunctionType) -> Iterator[tuple[str, object]]:
    """('global SCALE', 2), ('closure k', 3), ('default of axis', 1), ('global config.RATE', 1)."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for name, *attributes in _names(fn.__code__):
        if name in cells:
            try:
                yield from _follow(f"closure {name}", cells[name].cell_contents, attributes)
            except ValueError:  # not assigned yet
                yield f"closure {name}", None
        elif name in fn.__globals__:
            yield from _follow(f"global {name}", fn.__globals__[name], attributes)
        elif name in _UNSEEN:
            _unguarded(f"{name}()", "nobody knows what it reads")
    parameters = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    defaults = fn.__defaults__ or ()
    given = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
    for name, value in {**given, **(fn.__kwdefaults__ or {})}.items():
        yield f"default of {name}", value


def _follow(what: str, value: object, attributes: list[str]) -> Iterator[tuple[str, object]]:
    """What a dotted name means; modules are looked into, other objects are guarded whole."""
    while attributes and isinstance(value, types.ModuleType):
        inner = getattr(value, attributes[0], None)
        if of_library(types.SimpleNamespace(__module__=value.__name__)) and not (
            _is(inner, _DATA) or _is_impure(inner)
        ):
            break  # np.exp stays what it is, os.environ does not
        what, value = f"{what}.{attributes[0]}", inner
        attributes = attributes[1:]
    yield what, value
    if attributes and isinstance(value, types.FunctionType) and attributes[0] in vars(value):
        yield f"{what}.{attributes[0]}", vars(value)[attributes[0]]


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """The global and closure names that code reads, each with the attributes taken of it."""
    found: dict[tuple[str, ...], None] = {}
    chain: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            chain = (str(step.argval),)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            found.pop(chain, None)
            chain += (str(step.argval),)
        else:
            chain = ()
        if chain:
            found[chain] = None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found.update(dict.fromkeys(_names(inner)))
    return tuple(found)
