"""What tests say of an answer: right, or a Mismatch with one sentence and both sides.

    expect.same_graph(got, want, given=graph)
    expect.close(got, want, tolerance=1e-5, given="x = …")
    expect.refused(student.raises("1.1", a, b), "MDLC0203", mentions=["axis -1"])

Runs in the parent, on decoded data only. A plain `assert` works in tests as well, but says less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

import minidlc as mc
from grader.student import StudentRaised
from minidlc.expr.types import Array
from minidlc.viz.difference import first_difference


class Mismatch(AssertionError):
    """A wrong answer: a sentence, the input, and both sides (graphs give a picture).

    Of a hidden test a student sees `told` only: a sentence without values.
    """

    def __init__(
        self,
        sentence: str,
        given: object = "",
        want: object = "",
        got: object = "",
        told: str = "the answer is not the expected one",
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.given = given
        self.want = want
        self.got = got
        self.told = told


def that(
    condition: bool, sentence: str, given: object = "", want: object = "", got: object = ""
) -> None:
    """Mismatch with that sentence unless the condition holds."""
    if not condition:
        raise Mismatch(sentence, given, want, got)


def equal(got: object, want: object, what: str, given: object = "") -> None:
    """`got` is `want` in type and value; `what` names it in the sentence."""
    if type(got) is not type(want) or got != want:
        raise Mismatch(f"not as expected: {what}", given, want, got)


def a_graph(got: object, given: object = "") -> mc.Graph:
    """`got` is a graph; returns it."""
    if not isinstance(got, mc.Graph):
        sentence = f"a Graph was expected, got {_kind(got)}"
        raise Mismatch(sentence, given, "a Graph", got, sentence)
    return got


def same_graph(got: object, want: mc.Graph, given: object = "") -> None:
    """`got` is structurally equal to `want`; names do not count."""
    graph = a_graph(got, given)
    first = first_difference(want, graph)
    if first is not None:
        told = "the graph differs from the expected one"
        raise Mismatch(f"the graph differs first in {first.sentence}", given, want, graph, told)


def close(got: object, want: Array, tolerance: float = 1e-5, given: object = "") -> None:
    """Same element type and shape, and no error above `tolerance` times the largest element."""
    if not isinstance(got, np.ndarray):
        sentence = f"an array was expected, got {_kind(got)}"
        raise Mismatch(sentence, given, want, got, sentence)
    array = cast(Array, got)
    if (array.dtype, array.shape) != (want.dtype, want.shape):
        sides = (f"{want.dtype}{list(want.shape)}", f"{array.dtype}{list(array.shape)}")
        sentence = "the array has another type or shape than expected"
        raise Mismatch(sentence, given, *sides, sentence)
    if np.array_equal(array, want, equal_nan=want.dtype.kind == "f"):
        return
    error, allowed = _errors(array, want), tolerance * _scale(want)
    if float(error.max()) > allowed:
        at = np.unravel_index(int(error.argmax()), error.shape)
        place = f"element {tuple(int(i) for i in at)}"
        sentence = f"largest error {error.max():.3g} at {place}, tolerance {allowed:.3g}"
        sides = (f"{place}: {want[at]}", f"{place}: {array[at]}")
        raise Mismatch(sentence, given, *sides, "an element is off by more than the tolerance")


def _errors(got: Array, want: Array) -> Array:
    """The error of each element; equal infinities and equal NaNs have none."""
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.where(wide == exact, 0.0, np.abs(wide - exact))
    error = np.where(np.isnan(wide) & np.isnan(exact), 0.0, error)
    return np.where(np.isnan(error), np.inf, error)


def _scale(want: Array) -> float:
    exact = want.astype(np.float64)
    finite = exact[np.isfinite(exact)]
    return max(1.0, float(np.abs(finite).max())) if finite.size else 1.0


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def refused(
    raised: StudentRaised | None,
    kind: str,
    mentions: Iterable[str] = (),
    given: object = "",
) -> StudentRaised:
    """The call raised a `kind` (class name, or MDLC code) whose report mentions these words."""
    if raised is None:
        told = "it was accepted, but an error was expected"
        raise Mismatch(f"it was accepted, but {kind} was expected", given, kind, "no error", told)
    if kind not in (raised.kind, raised.code):
        raise raised
    report = " ".join([raised.message, *raised.notes, raised.hint, raised.place])
    for word in mentions:
        if word not in report:
            told = "the message lacks a word that it must have"
            raise Mismatch(
                f"the message does not mention {word!r}", given, word, raised.message, told
            )
    return raised
