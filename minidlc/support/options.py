"""Values given as text or by the user, checked against the annotations of a dataclass.

    hints(Softmax)                                  # {'axis': int}
    convert(1, float)                               # 1.0;  convert("x", int) is a ValueError

Attributes of ops and options of passes are fields of frozen dataclasses; both are checked here.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


@lru_cache(maxsize=1024)
def hints(cls: type) -> dict[str, Any]:
    """Field name -> annotation; `Any` for what cannot be resolved (a class inside a function)."""
    try:
        resolved = get_type_hints(cls)
    except NameError:
        resolved = dict[str, Any]()
    return {f.name: resolved.get(f.name, Any) for f in fields(cls)}


def convert(value: object, hint: Any) -> Any:
    """`value` as the annotation wants it (a list as a tuple, 1 as 1.0); ValueError if it is not."""
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _first_fitting(value, get_args(hint))
    if origin is Literal:
        if value in get_args(hint):
            return value
    elif origin is tuple or hint is tuple:
        if isinstance(value, (tuple, list)):
            return _convert_tuple(tuple(value), hint)  # pyright: ignore
    elif hint is None or hint is types.NoneType:
        if value is None:
            return None
    elif isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    elif hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, origin or hint) and isinstance(value, bool) <= (hint in (bool, object)):
        return value
    raise ValueError(f"expected {describe(hint)}")


def _first_fitting(value: object, choices: Iterable[Any]) -> Any:
    exact = [c for c in choices if c is type(value)]
    for choice in (*exact, *choices):
        try:
            return convert(value, choice)
        except ValueError:
            continue
    raise ValueError(f"expected {' or '.join(map(describe, choices))}")


def _convert_tuple(value: tuple[object, ...], hint: Any) -> tuple[Any, ...]:
    items = get_args(hint)
    if not items:
        return value
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(value)
    try:
        return tuple(convert(v, h) for v, h in zip(value, items, strict=True))
    except ValueError:
        raise ValueError(f"expected {describe(hint)}") from None


def describe(hint: Any) -> str:
    """An annotation in words for a message: 'int', 'None', 'tuple of int'."""
    origin, items = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe, items))
    if origin is Literal:
        return " or ".join(map(repr, items))
    if origin is tuple:
        return f"tuple of {describe(items[0])}"
    return "None" if hint is types.NoneType else getattr(hint, "__name__", str(hint))
