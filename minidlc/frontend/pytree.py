"""Trees: tensors inside tuples, named tuples, lists and dicts, as functions take and return them.

    leaves({"w": a, "b": (c, d)})                   # [a, c, d]
    rebuild({"w": 0, "b": (0, 0)}, iter([1, 2, 3])) # {'w': 1, 'b': (2, 3)}
    for path, leaf in walk(tree): ...               # ("b", "0"), c

Anything that is no container is a leaf, None too. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import caller

MAX_NESTING = 50  # containers inside containers; one that holds itself ends here

Path = tuple[str, ...]  # parameter name, then keys: ("p", "w")


def is_container(thing: object) -> bool:
    """True for what has parts: a tuple, list or dict."""
    return isinstance(thing, (tuple, list, dict))


def items(tree: object) -> list[tuple[object, object]]:
    """Key and part of each part of a container, in order."""
    if isinstance(tree, dict):
        return list(cast("dict[object, object]", tree).items())
    return list(enumerate(cast("tuple[object, ...] | list[object]", tree)))


def like(tree: object, parts: dict[object, object]) -> object:
    """A container of the same class with other parts."""
    if isinstance(tree, dict):
        return parts
    if isinstance(tree, list):
        return list(parts.values())
    fields = hasattr(tree, "_fields")  # a named tuple takes its parts one by one
    return cast(Any, type(tree))(*parts.values()) if fields else tuple(parts.values())


def walk(tree: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every leaf with its place, in order."""
    check_depth(path)
    if not is_container(tree):
        yield path, tree
        return
    for key, part in items(tree):
        yield from walk(part, (*path, str(key)))


def leaves(tree: object) -> list[object]:
    """Every leaf, in order."""
    return [leaf for _, leaf in walk(tree)]


def rebuild(tree: object, new: Iterator[object]) -> object:
    """The same containers around other leaves."""
    if not is_container(tree):
        return next(new)
    return like(tree, {key: rebuild(part, new) for key, part in items(tree)})


def structure(tree: object) -> str:
    """The containers as text, a `*` for each leaf: equal trees, equal texts."""
    if not is_container(tree):
        return "*"
    name = type(tree).__name__
    return f"{name}({', '.join(f'{key!r}: {structure(part)}' for key, part in items(tree))})"


def shown(path: Path) -> str:
    """A place as Python would spell it: 'p[w]'."""
    return path[0] + "".join(f"[{key}]" for key in path[1:])


def check_depth(path: Path) -> None:
    """Refuse a container that holds itself (TypeRuleError MDLC0213)."""
    if len(path) > MAX_NESTING:
        raise TypeRuleError(
            f"trace: {path[0]}: containers nested deeper than {MAX_NESTING}",
            loc=caller(),
            hint="does one hold itself?",
            code="MDLC0213",
        )
