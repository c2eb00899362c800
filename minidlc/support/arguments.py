"""Arguments of the public functions: what has the wrong type is an OptionError, not a surprise deep
inside.

    expect("compile", "target", target, Target)     # OptionError if it is something else
    # error[MDLC1001]: compile: target is a str, expected Target
    expect_each("lower", "params", ("A", 5), str)   # … lower: params[1] is a int, expected str

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import TypeVar

from minidlc.support.errors import LoweringError, OptionError
from minidlc.support.locations import caller
from minidlc.support.names import is_name

T = TypeVar("T")


def expect(function: str, name: str, value: object, *kinds: type, hint: str | None = None) -> None:
    """Raise OptionError (MDLC1001) unless `value` is of one of the kinds (a bool is no int)."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return
    got = "None" if value is None else f"a {type(value).__name__}"
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise OptionError(
        f"{function}: {name} is {got}, expected {wanted}", loc=caller(), hint=hint, code="MDLC1001"
    )


def expect_each(
    function: str, name: str, values: Iterable[T], kind: type[T], *, hint: str | None = None
) -> tuple[T, ...]:
    """The values as a tuple; OptionError (MDLC1001) unless each is of the kind.

    A text is no list of texts, although Python takes it for one.
    """
    is_text = isinstance(values, (str, bytes))
    expect(function, name, values, *((list, tuple) if is_text else (Iterable,)), hint=hint)
    found = tuple(values)
    for place, value in enumerate(found):
        expect(function, f"{name}[{place}]", value, kind, hint=hint)
    return found


def expect_name(function: str, name: str) -> None:
    """Raise unless programs can hold the name: OptionError (MDLC1001), LoweringError (MDLC0712)."""
    expect(function, "name", name, str)
    if not is_name(name):
        raise LoweringError(
            f"{function}: {name!r} is not a name",
            loc=caller(),
            hint="letters, digits and underscores; no keyword of Python",
            code="MDLC0712",
        )


def plain_int(value: object) -> object:
    """An integer of NumPy as Python's; everything else, such as a knob, as it is."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, int) else value
