"""A pass: a pure function from graph to graph that says what it is and what it needs.

    @register_pass
    @dataclass(frozen=True)
    class Fuse(Pass):                               # fields are the options: fuse{max_ops=8}
        name = "fuse"
        max_ops: int = 32
        def run(self, graph): ...

    @graph_pass("mine")                             # or a plain function
    def mine(graph): return graph                   # the same object: nothing changed

A pass returns the same object if it changes nothing. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar, TypeVar

from minidlc.graph.graph import Graph
from minidlc.graph.literals import write_attribute
from minidlc.graph.op import OpKind
from minidlc.support import extension
from minidlc.support.errors import OptionError, nearest
from minidlc.transform.log import counted
from minidlc.transform.rebuild import bodies_of, live_nodes, map_bodies


@dataclass(frozen=True)
class Pass(ABC):
    """Base of passes. A call goes through the extension point `pass.NAME`.

    `limit` is how many rewrites it may do, None for all: dce{limit=3}. A pass that does not ask
    `permitted` is one rewrite as a whole.
    """

    name: ClassVar[str] = ""
    mandatory: ClassVar[bool] = False  # lowering needs it: no pipeline goes without
    level: ClassVar[int] = 1  # the smallest opt_level that runs it
    exact: ClassVar[bool] = True  # False: sums are rounded otherwise; precision="strict" forbids it
    requires: ClassVar[tuple[str, ...]] = ()  # names of PROPERTIES that must hold before
    ensures: ClassVar[tuple[str, ...]] = ()  # names of PROPERTIES that hold after
    limit: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            text = f"pass {self.name!r}: limit must be a number of rewrites, got {self.limit!r}"
            raise OptionError(text, hint="0 for none, None for all", code="MDLC1042")
        for option in fields(self):
            value = getattr(self, option.name)
            if type(value) is int and value < 0:
                text = f"pass {self.name!r}: {option.name} must be at least 0, got {value}"
                raise OptionError(text, code="MDLC1015")

    @abstractmethod
    def run(self, graph: Graph) -> Graph:
        """The transformed graph; `graph` itself if nothing changed."""

    def __call__(self, graph: Graph) -> Graph:
        """The pass on the bodies of branches and loops, innermost first, and on the graph."""
        if self.limit == 0:
            return graph
        with counted(self.limit):
            return extension.dispatch(f"pass.{self.name}", self.run)(map_bodies(graph, self))

    def __str__(self) -> str:
        """As `parse_pipeline` reads it: `fuse{max_ops=8}`, options only where not the default."""
        options = [
            f"{f.name}={write_attribute(getattr(self, f.name), str)}"
            for f in fields(self)
            if f.default is MISSING or getattr(self, f.name) != f.default
        ]
        return f"{self.name}{{{', '.join(options)}}}" if options else self.name


P = TypeVar("P", bound=type[Pass])
_registry: dict[str, type[Pass]] = {}

extension.declare("pass.NAME", "(graph) -> graph", "a pass of the pipeline", lambda: _registry)


def register_pass(cls: P) -> P:
    """Make a pass known by name; a second of that name (not a redefinition) is an OptionError."""
    old = _registry.get(cls.name)
    if old is not None and (old.__module__, old.__qualname__) != (cls.__module__, cls.__qualname__):
        raise OptionError(f"pass {cls.name!r} is registered twice", code="MDLC1016")
    _registry[cls.name] = cls
    return cls


def unregister_pass(name: str) -> None:
    """Forget a pass again (tests and notebooks that register one of their own)."""
    _registry.pop(name, None)


def pass_class(name: str) -> type[Pass]:
    """The class of this name; raises OptionError (MDLC1011) naming the known passes."""
    if name not in _registry:
        notes = (f"passes: {', '.join(sorted(_registry))}",)
        hint = nearest(name, _registry)
        raise OptionError(f"unknown pass {name!r}", notes=notes, hint=hint, code="MDLC1011")
    return _registry[name]


def registered_passes() -> dict[str, type[Pass]]:
    """Name -> class, sorted by name."""
    return dict(sorted(_registry.items()))


def graph_pass(
    name: str, *, level: int = 1, mandatory: bool = False, register: bool = False
) -> Callable[[Callable[[Graph], Graph]], Pass]:
    """Turn a function from graph to graph into a pass; `register` makes it known by name."""

    def decorate(function: Callable[[Graph], Graph]) -> Pass:
        def run(self: Pass, graph: Graph) -> Graph:
            return function(graph)

        body = {"name": name, "level": level, "mandatory": mandatory, "run": run}
        body |= {"__doc__": function.__doc__, "__module__": getattr(function, "__module__", "")}
        cls: type[Pass] = type(getattr(function, "__name__", name), (Pass,), body)
        return (register_pass(cls) if register else cls)()

    return decorate


def _is_decomposed(graph: Graph) -> bool:
    return all(node.op.kind is not OpKind.COMPOSITE for node in graph.nodes)


def _has_no_dead_code(graph: Graph) -> bool:
    return len(live_nodes(graph.nodes, graph.outputs)) == len(graph.nodes)


def _everywhere(holds: Callable[[Graph], bool]) -> Callable[[Graph], bool]:
    """The property of a graph and of the bodies in it."""

    def check(graph: Graph) -> bool:
        inner = (body for node in graph.nodes for body in bodies_of(node.op).values())
        return holds(graph) and all(map(check, inner))

    return check


# What `requires` and `ensures` may name; the pipeline checks them around each pass.
PROPERTIES: dict[str, Callable[[Graph], bool]] = {
    "decomposed": _everywhere(_is_decomposed),
    "no_dead_code": _everywhere(_has_no_dead_code),
}
