"""Arguments of the public functions: what has the wrong type is an OptionError, not a surprise deep
inside.

    expect("compile", "target", target, Target)     # OptionError if it is something else
    # error[MDLC1001]: compile: target is a str, expected Target

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from minidlc.support.errors import OptionError
from minidlc.support.locations import caller


def expect(function: str, name: str, value: object, *kinds: type, hint: str | None = None) -> None:
    """Raise OptionError (MDLC1001) unless `value` is of one of the kinds (a bool is no int)."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return
    got = "None" if value is None else f"a {type(value).__name__}"
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise OptionError(
        f"{function}: {name} is {got}, expected {wanted}", loc=caller(), hint=hint, code="MDLC1001"
    )
