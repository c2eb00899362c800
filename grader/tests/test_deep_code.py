"""A cell that Python's compiler cannot take is an error of that cell, not a lack of memory."""

from __future__ import annotations

import os

import pytest

from grader import serve
from grader.grading import Grader, Options
from grader.manifest import load
from grader.model import Status
from grader.notebook import instructor
from grader.serve import Worker
from grader.tests.threads import TOY, toy_overlays

pytestmark = pytest.mark.long

GIVES_UP = "Python's compiler gives up on code nested that deeply"
DEEP = {
    "a long sum": ("1+" * 70_000 + "1", "RecursionError", GIVES_UP),
    "many signs": ("-" * 50_000 + "1", "RecursionError", GIVES_UP),
    "calls of calls": ("print" + "()" * 50_000, "RecursionError", GIVES_UP),
    "lambdas": ("lambda:" * 20_000 + "1", "RecursionError", GIVES_UP),
    "brackets": ("(" * 10_000 + "1" + ")" * 10_000, "SyntaxError", "too many nested parentheses"),
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="sandboxes need fork")
def test_deep_code_is_an_error_row(kind: str) -> None:
    expression, exception, said = DEEP[kind]
    cell = f"def twice(x):\n    return x + x\n\n\nvalue = {expression}\n"
    with Grader(load(TOY), Options("", overlays=toy_overlays())) as grader:
        result = grader.grade_notebook(instructor(TOY).with_cell("task-9-1", cell), "ada")
    first = result.tasks[0].rows[0]
    assert (first.status, first.exception) == (Status.ERROR, exception)
    assert said in first.sentence
    assert result.tasks[1].earned == result.tasks[1].points


def refused(source: str) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  the kind is what is asked
        Worker(print, print).start([["cell 1", source]], "", {"9.1": "twice"})
    return caught.value


def test_a_lack_of_memory_while_compiling_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"value = {DEEP['many signs'][0]}"
    assert type(refused(source)) is RecursionError
    monkeypatch.setattr(serve, "SPARE", 1 << 60)  # more than any machine has
    assert type(refused(source)) is MemoryError


def test_what_a_cell_itself_raises_is_left_alone() -> None:
    assert type(refused("raise MemoryError('mine')")) is MemoryError
    assert str(refused("def f(): f()\nf()")).startswith("maximum recursion depth exceeded")
