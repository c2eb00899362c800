"""jit: a Python function that is traced, compiled and called like any other.

    @mc.jit
    def layer(x, p): return mc.relu(x @ p["w"] + p["b"]) * SCALE
    layer(x, {"w": w, "b": b})                      # traced and compiled; then only called
    SCALE = 3.0; layer(x, p)                        # compiled again
    print(layer.explain())                          # 1. recompiled: global SCALE value 2.0 → 3.0

Reads a function and the arguments of each call, keeps one `Executable` for every set of guards
(frontend/guards.py). What Python itself does (printing, appending to a list) happens while tracing
only. Where tracing would need an element of a tensor the graph breaks: an error, or with
`fallback="eager"` that call runs op by op and is listed. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from minidlc.driver import compile
from minidlc.executable import Executable
from minidlc.expr.types import Array, TensorType, dtype
from minidlc.frontend.guards import (
    Guard,
    differences,
    explain,
    guards_of_arguments,
    guards_of_function,
)
from minidlc.frontend.pytree import leaves, rebuild
from minidlc.frontend.trace import trace, watching
from minidlc.graph import Constant, Graph, Input, Node, TupleType
from minidlc.graph.eager import Tensor, eager, tensor
from minidlc.graph.graph import building
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, OptionError, TypeRuleError, nearest
from minidlc.support.locations import Loc, caller

_NEEDS_ELEMENTS = ("MDLC0207", "MDLC0212")  # what bool(x), int(x), x[0], … of a graph value raise
_NO_SCRIPT = ("MDLC0225", "MDLC0226")  # what capture=mc.script refuses

Capture = Callable[..., Graph]


class RecompileWarning(UserWarning):
    """A jitted function is compiled again and again; the message names what keeps changing."""


@dataclass(frozen=True)
class Recompile:
    """One compilation after the first: what differed from the most similar one before."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"recompiled: {'; '.join(self.reasons)}"


@dataclass
class GraphBreak:
    """A line that needs elements while tracing; `calls` counts the runs op by op because of it."""

    loc: Loc | None
    reason: str
    calls: int = 0

    def __str__(self) -> str:
        return f"graph break at {self.loc}: {self.reason} ({self.calls} calls ran eagerly)"


@dataclass(frozen=True)
class Specialization:
    """What one set of guards led to: an executable, or a graph break."""

    guards: tuple[Guard, ...] = field(repr=False)
    executable: Executable | None
    result: object = field(default=None, repr=False)  # containers of the result
    broken: GraphBreak | None = None


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    capture: Capture = trace,
    fallback: Literal["eager"] | None = None,
    max_specializations: int = 10,
    **options: Any,
) -> Any:
    """`fn` compiled at its first call, and again when something it relies on has changed.

    A call takes arrays and Python values, in tuples, lists and dicts too (`fn` gets copies of
    these), and returns what `fn` returns with NumPy arrays for its tensors. `capture=mc.script`
    reads `if` and loops over tensors from the source. `fallback="eager"` runs what cannot be
    captured op by op; by default it is a TypeRuleError (MDLC0222). `max_specializations`
    executables are kept, the ones used last.
    `options` go to `compile`. Also a decorator: `@jit`, `@jit(threads=1)`.
    """
    if fn is None:
        settings = {**options, "capture": capture, "fallback": fallback}
        return functools.partial(jit, max_specializations=max_specializations, **settings)
    return Jitted(fn, capture, fallback, max_specializations, options)


class Jitted:
    """What `jit` returns; `explain()` says what was compiled and why."""

    def __init__(
        self,
        fn: Callable[..., Any],
        capture: Capture,
        fallback: str | None,
        max_specializations: int,
        options: Mapping[str, Any],
    ) -> None:
        expect("jit", "fn", fn, Callable)  # pyright: ignore[reportArgumentType]
        expect("jit", "capture", capture, Callable)  # pyright: ignore[reportArgumentType]
        expect("jit", "max_specializations", max_specializations, int)
        _check_options(fallback, max_specializations, options)
        self.capture, self.fallback = capture, fallback
        self.max_specializations = max_specializations
        self.options = dict(options)
        self.recompiles: tuple[Recompile, ...] = ()
        self.graph_breaks: tuple[GraphBreak, ...] = ()
        self._first: tuple[Guard, ...] = ()
        self._cache: OrderedDict[tuple[Guard, ...], Specialization] = OrderedDict()
        self._changes: Counter[str] = Counter()
        self._methods: dict[str, Jitted] = {}
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """What is kept now, the one used last at the end."""
        return tuple(self._cache.values())

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Run on these arguments; while something else is being traced, be part of it."""
        if args and isinstance(args[0], type):  # @classmethod binds by itself since Python 3.13
            return self.__get__(args[0])(*args[1:], **kwargs)
        arguments = self._bound(args, kwargs)
        given = leaves(arguments)
        if any(isinstance(leaf, (Input, Constant, Node)) for leaf in given):
            return self.__wrapped__(*args, **kwargs)
        with self._lock:
            found = self._specialization(arguments)
        if found.broken is not None:
            found.broken.calls += 1
            return self._run_eagerly(args, kwargs)
        assert found.executable is not None
        results = found.executable(*(_array(leaf) for leaf in given if _is_array(leaf)))
        return rebuild(found.result, iter(results))

    def __get__(self, instance: object, owner: type | None = None) -> Jitted:
        """As a decorator of a method: each instance has its own executables, and keeps them.

        A class, or an instance with slots, has no place for them: they are kept here, as it is.
        """
        if instance is None:
            return self
        kept = getattr(instance, "__dict__", None)
        kept = cast("dict[str, Jitted]", kept) if isinstance(kept, dict) else self._methods
        key = f"jit {id(self)} {id(instance)}"  # no identifier: guards leave it out
        if key not in kept:
            method = types.MethodType(self.__wrapped__, instance)
            options = self.capture, self.fallback, self.max_specializations, self.options
            kept[key] = Jitted(method, *options)
            kept[key]._methods[key] = self  # alive as long as its id is a key
        return kept[key]

    def __deepcopy__(self, memo: object) -> Jitted:
        return self  # as functions do; `key` of a copied instance is another one

    def explain(self) -> str:
        """What was compiled, why it was compiled again, where the graph broke."""
        lines = [
            f"{_name(self)}: specializations kept {len(self._cache)} (at most "
            f"{self.max_specializations}), recompiles {len(self.recompiles)}, "
            f"graph breaks {len(self.graph_breaks)}"
        ]
        known = [str(g) for g in self._first if g.aspect in ("dtype", "shape", "value")]
        lines.append(f"  compiled for {', '.join(known) or 'no arguments'}" if self._first else "")
        lines += [f"  {number}. {r}" for number, r in enumerate(self.recompiles, 1)]
        lines += [f"  {broken}" for broken in self.graph_breaks]
        return "\n".join(filter(None, lines))

    def _bound(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        try:
            return dict(inspect.signature(self.__wrapped__).bind(*args, **kwargs).arguments)
        except (TypeError, ValueError) as e:
            hint = "call it as the Python function would be called"
            raise CallError(f"jit: {e}", loc=caller(), hint=hint, code="MDLC0902") from None

    def _specialization(self, arguments: dict[str, object]) -> Specialization:
        guards = (
            *guards_of_arguments(arguments),
            *guards_of_function(self.__wrapped__),
            Guard("overrides", "in use", extension.fingerprint()),
        )
        found = self._cache.get(guards)
        if found is None:
            found = self._compile(arguments, guards)
            self._record(guards)
            self._cache[guards] = found
        self._cache.move_to_end(guards)
        while len(self._cache) > self.max_specializations:
            self._cache.popitem(last=False)
        return found

    def _compile(self, arguments: dict[str, object], guards: tuple[Guard, ...]) -> Specialization:
        call = inspect.BoundArguments(
            inspect.signature(self.__wrapped__),
            cast(Any, {name: _types(tree) for name, tree in arguments.items()}),
        )
        try:
            with watching() as results:
                graph = self.capture(self.__wrapped__, *call.args, **call.kwargs)
        except TypeRuleError as e:
            refused = self.fallback == "eager" and e.code in _NO_SCRIPT
            if e.code not in _NEEDS_ELEMENTS and not refused:
                raise
            return Specialization(guards, None, broken=self._graph_break(e))
        with building():
            executable = compile(graph, **self.options)
        result = _containers(results[-1]) if results else ()
        if len(leaves(result)) != len(graph.outputs):  # `trace` is replaced: a flat result
            result = tuple(graph.outputs)
        return Specialization(guards, executable, result)

    def _graph_break(self, e: TypeRuleError) -> GraphBreak:
        """Record it, or raise if there is no way to go on."""
        broken = GraphBreak(e.loc, e.message)
        self.graph_breaks = (*self.graph_breaks, broken)
        if self.fallback == "eager":
            return broken
        raise TypeRuleError(
            f"jit: graph break in {_name(self)}: {e.message}",
            loc=e.loc,
            notes=(*e.notes, *([f"while tracing: {e.hint}"] if e.hint else [])),
            hint="jit(fn, capture=mc.script) takes if and loops over tensors, mc.where(cond, a, b) "
            'chooses elementwise; jit(fn, fallback="eager") runs such a call op by op',
            code="MDLC0222",
        ) from None

    def _record(self, guards: tuple[Guard, ...]) -> None:
        """Note why this is not the first compilation, and warn if there are ever more."""
        if not self._cache:
            self._first = self._first or guards
        else:
            changed = min((differences(old, guards) for old in reversed(self._cache)), key=len)
            reasons = tuple(explain(old, new) for old, new in changed)
            self.recompiles = (*self.recompiles, Recompile(reasons or ("fewer captured values",)))
            self._changes.update({f"{new.what} {new.aspect}" for _, new in changed})
        if len(self._cache) == self.max_specializations:
            often = [f"{what} ({n} times)" for what, n in self._changes.most_common(3)]
            text = (
                f"jit: {_name(self)} is compiled for the {len(self.recompiles) + 1}th time; what "
                f"keeps changing: {', '.join(often)}. The executable used longest ago is dropped; "
                "give what changes as an array, pad shapes to a few sizes, or raise "
                f"max_specializations={self.max_specializations}"
            )
            warnings.warn(text, RecompileWarning, stacklevel=4)

    def _run_eagerly(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Op by op on arrays; the result as a compiled call would give it."""
        given = (tensor(leaf) if _is_array(leaf) else leaf for leaf in leaves((args, kwargs)))
        args, kwargs = cast(Any, rebuild((args, kwargs), given))
        with eager():
            result = _containers(self.__wrapped__(*args, **kwargs))
        return rebuild(result, (_result(leaf) for leaf in leaves(result)))


def _check_options(fallback: str | None, kept: int, options: Mapping[str, Any]) -> None:
    if fallback not in (None, "eager"):
        hint = 'None reports a graph break as an error, "eager" runs it op by op'
        text = f"jit: fallback is {fallback!r}"
        raise OptionError(text, loc=caller(), hint=hint, code="MDLC1006")
    if kept < 1:
        text = f"jit: max_specializations must be at least 1, got {kept}"
        raise OptionError(text, loc=caller(), code="MDLC1006")
    known = [name for name in inspect.signature(compile).parameters if name != "model"]
    for name in options:
        if name not in known:
            text = f"jit: no option {name!r}"
            raise OptionError(text, loc=caller(), hint=nearest(name, known), code="MDLC1001")


def _name(fn: object) -> str:
    return str(getattr(fn, "__name__", "the function"))


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, (np.ndarray, Tensor))


def _array(leaf: object) -> Array:
    return leaf.array if isinstance(leaf, Tensor) else cast(Array, leaf)


def _types(tree: object) -> object:
    """The same containers with tensor types in place of arrays."""

    def of(leaf: object) -> object:
        return (
            TensorType(dtype(_array(leaf).dtype), _array(leaf).shape) if _is_array(leaf) else leaf
        )

    return rebuild(tree, (of(leaf) for leaf in leaves(tree)))


def _containers(tree: object) -> object:
    """A result with the containers that the caller gets: an op's several results are a tuple."""

    def of(leaf: object) -> object:
        if isinstance(leaf, (Node, Tensor)) and isinstance(leaf.type, TupleType):
            return tuple(leaf) if isinstance(leaf, Tensor) else leaf.type.items
        return leaf

    return rebuild(tree, (of(leaf) for leaf in leaves(tree)))


def _result(leaf: object) -> Array:
    """What a compiled call returns for a leaf of the function's result."""
    if isinstance(leaf, Tensor):
        return leaf.numpy()
    if isinstance(leaf, (bool, int, float, np.generic, np.ndarray)):
        return np.array(leaf)
    text = f"jit: the function returned a {type(leaf).__name__}, no tensor"
    raise TypeRuleError(
        text, hint="return tensors, or a tuple, list or dict of them", code="MDLC0214"
    )
