"""Arrays that a call writes over: donated inputs, which must be whole, writeable and apart.

    apart = Apart(sizes=(64, 8, 64), donated=(0, 2))
    apart(addresses)                                # no byte of a donated array is in another one
    check_donated(given, arrays, specs, {1: 0})     # else CallError says what is wrong

Kernels are compiled on the promise that what they write overlaps nothing they read but the array
that the output goes over. Reads arrays and addresses. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from minidlc.runtime.spec import ArraySpec
from minidlc.support.errors import CallError
from minidlc.support.locations import caller


class Apart:
    """Says if the donated arrays of a call share no memory with each other and with the rest.

    From call to call these are mostly the same arrays: then only the others are looked at.
    """

    def __init__(self, sizes: Sequence[int], donated: Sequence[int]) -> None:
        self._donated = tuple(n for n in donated if sizes[n])
        self._sizes = sizes
        self._others = tuple((n, s) for n, s in enumerate(sizes) if s and n not in self._donated)
        self._known: tuple[list[int], list[int], list[int]] = ([], [], [])  # asked, starts, ends

    def __call__(self, places: Sequence[int]) -> bool:
        """`places` are the addresses of all inputs, in order; all arrays are dense."""
        asked = [places[n] for n in self._donated]
        known, starts, ends = self._known
        if asked != known:
            pieces = sorted((places[n], places[n] + self._sizes[n]) for n in self._donated)
            starts, ends = [p[0] for p in pieces], [p[1] for p in pieces]
            if any(end > start for end, start in zip(ends, starts[1:], strict=False)):
                return False
            self._known = asked, starts, ends
        for n, size in self._others:
            start = places[n]
            at = bisect_right(starts, start)
            if at and ends[at - 1] > start:
                return False
            if at < len(starts) and starts[at] < start + size:
                return False
        return True


def check_donated(
    given: Sequence[NDArray[np.generic]],
    arrays: Sequence[NDArray[np.generic]],
    specs: Sequence[ArraySpec],
    donated: Mapping[int, int],
) -> None:
    """Refuse arrays that a call could not write over; `donated` is output number → input number.

    `given` are the caller's, `arrays` dense ones in their place. Raises CallError: MDLC0917
    read-only or not dense, MDLC0918 shares memory with another input.
    """
    for number in donated.values():
        array, name = given[number], specs[number].name
        if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
            what = "is not dense" if array.flags.writeable else "is read-only"
            raise CallError(
                f"input {name!r} is donated, and {what}: it cannot be updated in place",
                loc=caller(),
                hint=f"{name}.copy() is an array of its own",
                code="MDLC0917",
            )
    apart = Apart([a.nbytes for a in arrays], tuple(donated.values()))
    if not apart([a.__array_interface__["data"][0] for a in arrays]):
        names = [spec.name for spec in specs]
        for number in sorted(donated.values()):
            for other, name in enumerate(names):
                if other != number and np.shares_memory(arrays[number], arrays[other]):
                    raise _shared(names[number], name)


def _shared(name: str, other: str) -> CallError:
    return CallError(
        f"input {name!r} is donated, and shares memory with input {other!r}",
        loc=caller(),
        hint="what is updated in place must lie in an array of its own: copy one of the two",
        code="MDLC0918",
    )
