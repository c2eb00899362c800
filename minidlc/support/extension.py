"""Extension points: every stage of the compiler can be replaced by name, for one `with` block.

    with mc.use(**{"pass.cse": my_cse, "verify": my_verify}):
        exe = mc.compile(g)
    exe.report().overrides                          # {'pass.cse': 1, 'verify': 9}

A stage declares its point once (`declare`) and calls through `dispatch(name, default)`.
An override that raises, or returns another kind of thing than the point's signature says, is an
OptionError that names it and its line. A CompileError it raises on purpose passes as it is.
Overrides live in a context variable, so threads and tasks do not see each other's.
While an override runs, its own point means the original: `my_cse` may call the shipped `cse`.
Treated in every course chapter: this is how a reader's part runs in the real compiler.
"""

from __future__ import annotations

import hashlib
import itertools
import traceback
import types
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from minidlc.support.errors import CompileError, OptionError, nearest
from minidlc.support.locations import PyLoc

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN_LINES = 8  # of an override that raised


@dataclass(frozen=True)
class Point:
    """One row of the table: `name` is 'verify' or a family such as 'pass.NAME'."""

    name: str
    signature: str
    doc: str
    members: Callable[[], Iterable[str]] | None = None
    returns: Callable[[Any], bool] | None = None

    @property
    def prefix(self) -> str:
        """'pass.' for the family 'pass.NAME', the name itself for a single point."""
        return self.name.split(".")[0] + "." if self.members else self.name


_points: dict[str, Point] = {}  # by prefix
_overrides: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar(
    "overrides",
    default=types.MappingProxyType({}),
)
_running: ContextVar[frozenset[str]] = ContextVar("running", default=frozenset())
_counters: ContextVar[tuple[Counter[str], ...]] = ContextVar("counters", default=())


def declare(
    name: str,
    signature: str,
    doc: str,
    members: Callable[[], Iterable[str]] | None = None,
    returns: Callable[[Any], bool] | None = None,
) -> None:
    """Add a point to the table; `members` lists the names a family such as 'pass.NAME' has now.

    `returns` says whether what an override returned is of the kind that the signature promises;
    None where the stage itself looks.
    """
    point = Point(name, signature, doc, members, returns)
    _points[point.prefix] = point


def instance(*kinds: type) -> Callable[[Any], bool]:
    """For `returns`: a thing of one of these classes."""
    return lambda result: isinstance(result, kinds)


def items(*kinds: type, of: tuple[type, ...] = (list, tuple)) -> Callable[[Any], bool]:
    """For `returns`: a list or tuple of such things."""
    return lambda result: isinstance(result, of) and all(isinstance(x, kinds) for x in result)


def table() -> tuple[Point, ...]:
    """Every declared point, sorted by name."""
    return tuple(sorted(_points.values(), key=lambda point: point.name))


def known() -> list[str]:
    """Every name that `use` accepts now, families expanded."""
    names: list[str] = []
    for point in table():
        names += [point.prefix + m for m in point.members()] if point.members else [point.name]
    return sorted(names)


def is_known(name: str) -> bool:
    """True if `use` accepts the name now."""
    point = _point(name)
    return point is not None and (
        point.members is None or name[len(point.prefix) :] in point.members()
    )


def _point(name: str) -> Point | None:
    """The row of the table that a name such as 'verify' or 'pass.cse' belongs to."""
    return _points.get(name) or _points.get(name.split(".")[0] + ".")


def _check(name: str, function: object) -> None:
    if not callable(function):
        text = f"override {name!r} is not callable: {function!r}"
        raise OptionError(text, hint="give a function", code="MDLC1003")
    if is_known(name):
        return
    point, names = _point(name), [point.name for point in table()]
    if point is not None and point.members is not None:
        names = [point.prefix + member for member in point.members()]
    text = f"unknown extension point {name!r}"
    raise OptionError(text, hint=nearest(name, names), code="MDLC1002")


def use(**overrides: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace stages by name inside the block.

    Raises OptionError for an unknown name (MDLC1002) or a value that cannot be called (MDLC1003),
    here and not at the `with`: the place of the error is the caller's line.
    """
    for name, function in overrides.items():
        _check(name, function)
    return _replaced(overrides)


@contextmanager
def _replaced(overrides: dict[str, Callable[..., Any]]) -> Generator[None, None, None]:
    token = _overrides.set({**_overrides.get(), **overrides})
    try:
        yield
    finally:
        _overrides.reset(token)


def active() -> bool:
    """True if anything is replaced here and now."""
    return bool(_overrides.get())


def overridden(name: str) -> bool:
    """True if `name` is replaced here and now."""
    return name in _overrides.get() and name not in _running.get()


def dispatch(name: str, default: F) -> F | Callable[..., Any]:
    """Return the override of `name`, counted at each call, or `default`."""
    overrides = _overrides.get()
    if not overrides or name not in overrides or name in _running.get():
        return default
    function = overrides[name]

    def counted(*args: Any, **kwargs: Any) -> Any:
        for counter in _counters.get():
            counter[name] += 1
        token = _running.set(_running.get() | {name})
        try:
            result = function(*args, **kwargs)
        except CompileError:
            raise
        except Exception as e:
            raise _failed(name, function, e) from e
        finally:
            _running.reset(token)
        _check_result(name, function, result)
        return result

    return counted


def _failed(name: str, function: Callable[..., Any], e: Exception) -> OptionError:
    """The error for an override that raised: whose fault it is, and the lines that led there."""
    point = _point(name)
    notes = [f"it is called as {name}{point.signature}"] if point else []
    frames = traceback.extract_tb(e.__traceback__)[1:]
    lines = Counter(f"{PyLoc(f.filename, f.lineno or 0)} in {f.name}: {f.line}" for f in frames)
    shown = list(lines.items())[-_SHOWN_LINES:]  # a recursion is a line or two, many times
    notes += [line if n == 1 else f"{line} … {n} times" for line, n in shown]
    return OptionError(
        f"the override of {name!r} failed: {type(e).__name__}: {e}",
        loc=_where(function),
        notes=notes,
        code="MDLC1009",
    )


def _check_result(name: str, function: Callable[..., Any], result: object) -> None:
    point = _point(name)
    if point is not None and point.returns is not None and not point.returns(result):
        raise OptionError(
            f"the override of {name!r} returned {result!r:.60}",
            loc=_where(function),
            notes=(f"expected: {name}{point.signature}",),
            code="MDLC1018",
        )


def _where(function: Callable[..., Any]) -> PyLoc | None:
    """The line of a function's definition."""
    code = getattr(function, "__code__", None)
    return None if code is None else PyLoc(code.co_filename, code.co_firstlineno)


@contextmanager
def counting() -> Generator[Counter[str], None, None]:
    """Count the calls of overrides made inside the block."""
    counter: Counter[str] = Counter()
    token = _counters.set((*_counters.get(), counter))
    try:
        yield counter
    finally:
        _counters.reset(token)


_process = uuid.uuid4().hex  # identity says nothing in another process: never equal there
_unique = itertools.count()
_tokens: dict[int, tuple[object, str]] = {}


def _identity_token(thing: object) -> str:
    """A name for an object whose content cannot be read; stable while the object lives."""
    entry = _tokens.get(id(thing))
    if entry is None or entry[0] is not thing:
        entry = (thing, f"object-{_process}-{next(_unique)}")
        _tokens[id(thing)] = entry
    return entry[1]


def _describe(thing: object, seen: frozenset[int] = frozenset()) -> str:
    if id(thing) in seen:
        return "recursive"
    seen = seen | {id(thing)}
    if isinstance(thing, (int, float, str, bytes, bool, type(None))):
        return repr(thing)
    if isinstance(thing, (tuple, list)):
        items = cast("Iterable[object]", thing)
        return "(" + ",".join(_describe(item, seen) for item in items) + ")"
    if isinstance(thing, types.CodeType):
        return f"{thing.co_code!r}{thing.co_names}{_describe(thing.co_consts, seen)}"
    if isinstance(thing, types.FunctionType):
        cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
        named = {n: thing.__globals__.get(n) for n in thing.__code__.co_names}
        simple = tuple(v for v in named.values() if isinstance(v, (int, float, str)))
        return _describe((thing.__code__, thing.__defaults__, cells, simple), seen)
    return _identity_token(thing)


def fingerprint(*prefixes: str) -> str:
    """Digest of the active overrides (of those whose name starts with a prefix): for cache keys.

    Two functions with equal code and captured values have equal digests, also in another process;
    anything whose content cannot be read counts as different from everything else.
    """
    active = sorted(_overrides.get().items())
    if prefixes:
        active = [(n, f) for n, f in active if n.startswith(prefixes)]
    if not active:
        return ""
    text = "\n".join(f"{name}={_describe(function)}" for name, function in active)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
