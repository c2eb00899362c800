"""Reports on stderr while the compiler works, turned on from outside.

    MINIDLC_LOG=passes,refusals python my_program.py
    # passes: cse: 0.010 s, 110 -> 108 nodes, 2 rewrites
    # refusals: canonicalize: add-zero at h: not exact on floats: -0.0 + 0.0 is 0.0
    tell("passes", lambda: ["…"])                   # where something happens: lines, made if wanted

Reads the environment variable each time. A model is compiled anew while reports are on: one that
starts from the cache on disk runs no pass. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from minidlc.support.errors import OptionError, nearest

TOPICS = ("passes", "rewrites", "refusals", "fusion", "kernels")
VARIABLE = "MINIDLC_LOG"


def wanted() -> frozenset[str]:
    """The topics that the environment asks for; OptionError (MDLC1041) for an unknown one."""
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",")]
    for word in filter(None, words):
        if word not in TOPICS:
            text = f"{VARIABLE}: unknown report {word!r}"
            notes = (f"reports: {', '.join(TOPICS)}",)
            raise OptionError(text, notes=notes, hint=nearest(word, TOPICS), code="MDLC1041")
    return frozenset(filter(None, words))


def tell(topic: str, lines: Callable[[], Iterable[object]]) -> None:
    """Write the lines if the topic is wanted; they are made only then."""
    if topic in wanted():
        for line in lines():
            print(f"{topic}: {line}", file=sys.stderr)
