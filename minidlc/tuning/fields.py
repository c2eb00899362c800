"""Fields of a line of JSON that somebody may have damaged: each is looked at before it is used.

    row = Fields(parsed('{"threads": 1, "config": {"way": "gemm", "knobs": {"rows": 6}}}'))
    row.take("threads", int)                        # 1
    row.inner("config").config()                    # gemm(rows=6)
    row.take("seed", int)                           # TuneError: … has no field 'seed'

Reads what records.py writes. Every fault is a TuneError (MDLC1343) that names the field.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NoReturn, TypeVar, cast

from minidlc.support.errors import TuneError
from minidlc.tuning.space import Config

T = TypeVar("T")


def parsed(line: str | bytes) -> dict[str, object]:
    """The object that a line holds."""
    try:
        text = line.decode() if isinstance(line, bytes) else line
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        _refuse(f"is no JSON: {e}")
    if not isinstance(found, dict):
        _refuse(f"is no object but a {type(found).__name__}")
    return cast("dict[str, object]", found)


class Fields:
    """An object of JSON, read field by field."""

    def __init__(self, items: Mapping[str, object], name: str = "") -> None:
        self.items = items
        self.name = name  # of the field that holds it

    def take(self, name: str, *kinds: type[T]) -> T:
        """A field of one of the kinds; a bool is no number."""
        if name not in self.items:
            self.refuse(f"has no field {name!r}")
        return self._typed(name, self.items[name], *kinds)

    def _typed(self, name: str, value: object, *kinds: type[T]) -> T:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            self.refuse(f"has {name!r}: a {type(value).__name__}, expected {wanted}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._typed(name, item, str) for item in self._list(name))

    def seconds(self, name: str) -> tuple[float, ...]:
        """A list of times, each above 0."""
        found = tuple(self._number(name, item) for item in self._list(name))
        if not all(s > 0 for s in found):
            self.refuse(f"has {name!r}: a time that is not above 0")
        return found

    def number(self, name: str) -> float:
        """A number that is finite."""
        return self._number(name, self.take(name, int, float))

    def numbers(self) -> dict[str, float]:
        """All fields, which are numbers."""
        return {name: self._number(name, value) for name, value in self.items.items()}

    def inner(self, name: str) -> Fields:
        """A field that is an object."""
        return Fields(cast("dict[str, object]", self.take(name, dict)), name)

    def config(self) -> Config:
        """A point: a way, and a whole number for each knob."""
        knobs = self.inner("knobs")
        pairs = tuple((name, knobs.take(name, int)) for name in knobs.items)
        return Config(self.take("way", str), pairs)

    def _list(self, name: str) -> list[object]:
        return cast("list[object]", self.take(name, list))

    def _number(self, name: str, value: object) -> float:
        number = self._typed(name, value, int, float)
        try:
            found = float(number)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            self.refuse(f"has {name!r}: a number that is too large")
        return found

    def refuse(self, what: str) -> NoReturn:
        """TuneError (MDLC1343) that says what is wrong with the line."""
        _refuse(f"{what}, in {self.name!r}" if self.name else what)


def _refuse(what: str) -> NoReturn:
    text = f"the line {what}"
    hint = "it is left out; `minidlc records FILE --prune 8` takes such lines away"
    raise TuneError(text, hint=hint, code="MDLC1343") from None


def _no_number(token: str) -> NoReturn:
    raise ValueError(f"{token} is no number of JSON")
