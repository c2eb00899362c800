"""Identifiers: turning any string into one, and keeping them unique.

identifier("/layer1/MatMul_output_0")           # 'layer1_MatMul_output_0'
names = Names(["x"]); names.fresh("x")          # 'x_1'
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable


def identifier(text: str, default: str = "v") -> str:
    """Return the closest Python identifier to `text` (ASCII, no keyword)."""
    name = re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_") or default
    if name[0].isdigit():
        name = f"{default}{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in {"True", "False", "None"} else name


def is_name(text: str) -> bool:
    """Whether a text can be a name in programs: a Python identifier that is no keyword."""
    return text.isidentifier() and not keyword.iskeyword(text)


class Names:
    """A set of taken names that hands out unused ones."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def fresh(self, wanted: str) -> str:
        """Return `wanted`, or `wanted_1`, `wanted_2`, … if it is taken; take it."""
        name, number = wanted, self._next.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._next[wanted] = number
        self._taken.add(name)
        return name
