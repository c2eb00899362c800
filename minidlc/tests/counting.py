"""How much work something is, as a number that is the same on every machine.

    python_calls(lambda: emit(fn, target, "f"))     # 11206

Versions of Python differ a little: since 3.12 a comprehension is no call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def python_calls(work: Callable[[], object]) -> int:
    """How many Python functions are called, generators each time they go on."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
